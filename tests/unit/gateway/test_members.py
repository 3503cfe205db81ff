"""Rights of members of groups whose coordinator assigns partitions, as far as no matrix at a broker shows them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from sidecar.gateway.access.asked import Asked, Asking, Divided
from sidecar.gateway.apis.table import ALL_APIS
from sidecar.gateway.rights import Rights
from sidecar.protocol.calls.security import AclBinding
from sidecar.protocol.messages import new_groups
from sidecar.security.acls import Acls, Operation, PatternType, Permission, ResourceType, Rules

ALICE = "User:alice"
GROUP = "g"


class Client:
    """Somebody who has logged in."""

    principal = ALICE


class Mirror:
    """ACLs that stand."""

    take_over = Operation.ALTER

    def __init__(self, *rules: AclBinding, settings: Rules | None = None) -> None:
        self.acls: Acls | None = Acls(rules, settings or Rules())


def rule(
    operation: Operation,
    name: str,
    kind: ResourceType = ResourceType.TOPIC,
    *,
    permission: Permission = Permission.ALLOW,
    pattern: PatternType = PatternType.LITERAL,
    principal: str = ALICE,
) -> AclBinding:
    return AclBinding(kind, name, pattern, principal, "*", operation, permission)


MEMBER = rule(Operation.READ, GROUP, ResourceType.GROUP)
ANYTHING = rule(Operation.READ, "*")


def ask(key: int, fields: dict[str, Any], mirror: Mirror, there: tuple[str, ...] = ()) -> Divided | None:
    row = ALL_APIS[key].access
    assert isinstance(row, Asked)
    found = row.check(Asking(Rights(Client(), "10.0.0.1", mirror), fields, 1, lambda topic, _: topic in there))
    assert not isinstance(found, Generator)
    return found


def heartbeat(mirror: Mirror, **fields: Any) -> int:
    values: dict[str, Any] = {"group_id": GROUP, "subscribed_topic_names": None, "subscribed_topic_regex": None}
    divided = ask(new_groups.CONSUMER_GROUP_HEARTBEAT.key, values | fields, mirror)
    return 0 if divided is None else divided.code


def test_an_expression_is_resolved_by_brokers_for_one_who_may_see_every_topic() -> None:
    assert heartbeat(Mirror(MEMBER, ANYTHING), subscribed_topic_regex="o.*") == 0
    assert heartbeat(Mirror(settings=Rules(frozenset({ALICE}))), subscribed_topic_regex="o.*") == 0
    everybody = rule(Operation.ALL, "*", principal="User:*")
    assert heartbeat(Mirror(MEMBER, everybody), subscribed_topic_regex="o.*") == 0


@pytest.mark.parametrize(
    "rules",
    [
        (),
        (rule(Operation.READ, "orders"),),
        (rule(Operation.READ, "o", pattern=PatternType.PREFIXED),),
        (rule(Operation.ALL, "*", principal="User:bob"),),
        (ANYTHING, rule(Operation.DESCRIBE, "salaries", permission=Permission.DENY)),
        (ANYTHING, rule(Operation.ALL, "sal", permission=Permission.DENY, pattern=PatternType.PREFIXED)),
        (ANYTHING, rule(Operation.DESCRIBE, "salaries", permission=Permission.DENY, principal="User:*")),
    ],
)
def test_an_expression_never_counts_topics_that_a_member_may_not_see(rules: tuple[AclBinding, ...]) -> None:
    for settings in (Rules(), Rules(allow_if_no_acl=True)):
        mirror = Mirror(MEMBER, *rules, settings=settings)
        assert heartbeat(mirror, subscribed_topic_regex="o.*") == 128
        assert heartbeat(mirror, subscribed_topic_regex="") == 0, "not subscribed by one any more"
        assert heartbeat(mirror) == 0, "as subscribed before"


def test_a_refused_expression_comes_with_the_way_out() -> None:
    divided = ask(
        new_groups.CONSUMER_GROUP_HEARTBEAT.key,
        {"group_id": GROUP, "subscribed_topic_names": [], "subscribed_topic_regex": ".*"},
        Mirror(MEMBER),
    )
    assert divided is not None
    assert divided.fields is None
    assert "java.util.regex.Pattern" in divided.amend({})["error_message"]


def streams(mirror: Mirror, *, source: str = "orders", own: str = "app-store-changelog", there: bool) -> int:
    made = {"name": own, "partitions": 0, "replication_factor": 0, "topic_configs": []}
    subtopology = {
        "source_topics": [source],
        "repartition_sink_topics": [],
        "repartition_source_topics": [],
        "state_changelog_topics": [made],
    }
    fields = {"group_id": GROUP, "topology": {"epoch": 0, "subtopologies": [subtopology]}}
    divided = ask(new_groups.STREAMS_GROUP_HEARTBEAT.key, fields, mirror, (own,) if there else ())
    return 0 if divided is None else divided.code


def test_no_coordinator_makes_a_topic_for_one_who_may_not_create_it() -> None:
    """It would do so with the rights of the node."""
    reader = (MEMBER, rule(Operation.DESCRIBE, "*"))
    assert streams(Mirror(*reader), there=False) == 29
    assert streams(Mirror(*reader), there=True) == 0
    app = rule(Operation.CREATE, "app-", pattern=PatternType.PREFIXED)
    assert streams(Mirror(*reader, app), there=False) == 0
    anywhere = rule(Operation.CREATE, "kafka-cluster", ResourceType.CLUSTER)
    assert streams(Mirror(*reader, anywhere), there=False) == 0


def test_a_topology_over_topics_that_may_not_be_seen_is_refused() -> None:
    seen = rule(Operation.DESCRIBE, "app-", pattern=PatternType.PREFIXED)
    assert streams(Mirror(MEMBER, seen), there=True) == 29
    assert streams(Mirror(seen, rule(Operation.DESCRIBE, "orders")), there=True) == 30
    assert streams(Mirror(MEMBER), source="__consumer_offsets", there=True) == 0, "the coordinator refuses it by name"
