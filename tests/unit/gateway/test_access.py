"""Which rights each API takes: the table against that of the APIs, and what a matrix at a broker leaves out."""

from __future__ import annotations

from collections.abc import Generator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from metadata.ownership import AccessMode
from sidecar.gateway.access.asked import Asked, Asking, Divided, PerTopic
from sidecar.gateway.apis.spec import Route
from sidecar.gateway.apis.table import ALL_APIS, APIS, FOR_SUPER_USERS
from sidecar.gateway.enforcement import checked
from sidecar.gateway.own.answers import not_allowed
from sidecar.gateway.rights import Rights, WithoutRules
from sidecar.gateway.write_rights import denied_topics
from sidecar.network.framing import Frame
from sidecar.policy.identity import ClientIdentity, parse
from sidecar.protocol.calls.security import AclBinding
from sidecar.protocol.limits import PORTION
from sidecar.protocol.messages import admin, cluster, transactions
from sidecar.protocol.primitives import at_once
from sidecar.protocol.produce import ProducePart, ProduceRequest
from sidecar.resources.requests import Wish
from sidecar.security.acls import CLUSTER_NAME, Acls, Operation, PatternType, Permission, ResourceType
from sidecar.security.acls import Rules as Settings
from sidecar.v1 import control_pb2 as control
from tests.own import string, topic

ALICE = "User:alice"


class Client:
    """Somebody who has logged in."""

    def __init__(self, principal: str = ALICE) -> None:
        self.principal = principal


class Mirror:
    """ACLs that stand."""

    def __init__(self, *rules: AclBinding, settings: Settings | None = None) -> None:
        self.acls: Acls | None = Acls(rules, settings or Settings())
        self.take_over = Operation.ALTER


def rule(operation: Operation, name: str, kind: ResourceType = ResourceType.TOPIC) -> AclBinding:
    return AclBinding(kind, name, PatternType.LITERAL, ALICE, "*", operation, Permission.ALLOW)


def rights(*rules: AclBinding) -> Rights:
    return Rights(Client(), "10.0.0.1", Mirror(*rules))


def found(checked: Divided | Generator[None, None, Divided | None] | None) -> Divided | None:
    return at_once(checked) if isinstance(checked, Generator) else checked


def ask(
    key: int, version: int, fields: dict[str, Any], *rules: AclBinding, there: tuple[str, ...] = ()
) -> Divided | None:
    row = ALL_APIS[key].access
    assert isinstance(row, Asked)
    return found(row.check(Asking(rights(*rules), fields, version, lambda topic, _: topic in there)))


@pytest.mark.parametrize(
    ("version", "fields"),
    [
        (3, {"topic_names": [f"t{number}" for number in range(20_000)], "timeout_ms": 1}),
        (6, {"topics": [{"name": f"t{number}", "topic_id": bytes(16)} for number in range(20_000)], "timeout_ms": 1}),
    ],
)
def test_thousands_of_topics_to_delete_are_looked_at_in_portions(version: int, fields: dict[str, Any]) -> None:
    row = ALL_APIS[admin.DELETE_TOPICS.key].access
    assert isinstance(row, Asked)
    assert row.in_doubt is not None
    asking = Asking(rights(), fields, version)
    for steps in (row.in_doubt(asking), row.check(asking)):
        assert isinstance(steps, Generator)
        assert sum(1 for _ in steps) == 20_000 // PORTION


def test_what_is_split_by_leader_and_hot_names_its_operation() -> None:
    hot = {key for key, api in APIS.items() if isinstance(api.access, PerTopic)}
    split = {key for key, api in APIS.items() if api.route is Route.LEADERS} - {transactions.DESCRIBE_PRODUCERS.key}
    assert hot == split | {cluster.DESCRIBE_TOPIC_PARTITIONS.key}, "pages refuse topics themselves, too"


def test_a_topic_named_beside_one_with_name_and_id_is_named_once_and_not_deleted() -> None:
    """A controller refuses what has both, and deletes the other one."""
    topic_id, other_id, none = b"the id of secret", b"the id of others", bytes(16)
    for both in ({"name": "x", "topic_id": topic_id}, {"name": "secret", "topic_id": other_id}):
        fields = {
            "topics": [{"name": "secret", "topic_id": none}, {"name": None, "topic_id": topic_id}, both],
            "timeout_ms": 1,
        }
        row = ALL_APIS[admin.DELETE_TOPICS.key].access
        assert isinstance(row, Asked)
        divided = found(row.check(Asking(rights(), fields, 6, name_of={topic_id: "secret"}.get)))
        assert divided is not None
        assert divided.fields == fields | {"topics": [both]}
        told = divided.amend({"responses": [both | {"error_code": 42}]})["responses"]
        assert [each["error_code"] for each in told] == [42, 29, 29]


def test_version_0_of_metadata_never_asks_for_all_topics_instead_of_none() -> None:
    divided = ask(cluster.METADATA.key, 0, {"topics": [{"name": "a"}]})
    assert divided is not None
    assert divided.fields is not None
    assert divided.fields["topics"]
    told = divided.amend({"topics": [{"name": ".", "error_code": 17}]})
    assert [(each["name"], each["error_code"]) for each in told["topics"]] == [("a", 29)]


# Rights ---------------------------------------------------------------------------------------------------------------


def test_topics_that_coordinators_write_to_are_read_at_most_but_by_super_users() -> None:
    everything = rule(Operation.ALL, "*")
    assert rights(everything).topic(Operation.WRITE, "__a_clients_own")
    for name in ("__consumer_offsets", "__transaction_state", "__share_group_state", "__sidecar_default"):
        assert rights(everything).topic(Operation.READ, name)
        assert not rights(everything).topic(Operation.WRITE, name)
        chief = Rights(Client(), "10.0.0.1", Mirror(settings=Settings(frozenset({ALICE}))))
        assert chief.topic(Operation.WRITE, name)


def test_a_group_may_have_the_name_of_an_internal_topic() -> None:
    everything = rule(Operation.ALL, "*", ResourceType.GROUP)
    for name in ("__consumer_offsets", "__sidecar_default"):
        assert rights(everything).group(Operation.DELETE, name)
        assert WithoutRules().group(Operation.DELETE, name)


def test_what_is_granted_on_long_names_is_not_remembered() -> None:
    found = rights(rule(Operation.ALL, "*"))
    for size in (249, 32_000):
        assert not found.refuses(Operation.WRITE, b"t" * size)
    assert [len(name) for _, name in found._granted] == [249]


def test_the_first_action_that_was_denied_is_remembered() -> None:
    found = rights(rule(Operation.WRITE, "a"))
    assert found.topic(Operation.WRITE, "a")
    assert found.denied is None
    assert not found.cluster(Operation.READ)
    assert found.denied == (Operation.READ, ResourceType.CLUSTER, CLUSTER_NAME)
    assert not found.topic(Operation.READ, "a")
    assert not found.group(Operation.READ, "g")
    assert found.denied == (Operation.READ, ResourceType.TOPIC, "a")


def test_requests_that_are_checked_in_turns_keep_apart_what_was_denied() -> None:
    def check(name: str) -> Generator[None, None, None]:
        asking.topic(Operation.READ, name)
        yield
        asking.topic(Operation.READ, f"{name} later")

    asking = rights()
    one, other = (checked(asking, lambda _, name=name: check(name), cast("Any", None)) for name in ("a", "b"))
    next(one)
    next(other)
    assert at_once(one) == (None, (Operation.READ, ResourceType.TOPIC, "a"))
    assert at_once(other) == (None, (Operation.READ, ResourceType.TOPIC, "b"))


def test_rights_follow_the_acls_and_the_principal() -> None:
    client, mirror = Client(), Mirror(rule(Operation.WRITE, "a"))
    found = Rights(client, "10.0.0.1", mirror)
    assert not found.refuses(Operation.WRITE, b"a")
    assert not found.refuses(Operation.WRITE, b"a")
    client.principal = "User:bob"
    assert found.refuses(Operation.WRITE, b"a")
    client.principal = ALICE
    assert not found.refuses(Operation.WRITE, b"a")
    mirror.acls = Acls()
    assert found.refuses(Operation.WRITE, b"a")
    mirror.acls = None
    assert not found.enforced
    assert not found.refuses(Operation.WRITE, b"a")
    assert found.writes_idempotently()


def test_the_cluster_tells_its_operations_only_to_who_may_describe_it() -> None:
    alter = rule(Operation.ALTER, CLUSTER_NAME, ResourceType.CLUSTER)
    create = rule(Operation.CREATE, CLUSTER_NAME, ResourceType.CLUSTER)
    assert rights(create).cluster_operations(-1) == 0
    assert rights(create, alter).cluster_operations(1 << Operation.CREATE) == 1 << Operation.CREATE


def test_a_transactional_batch_without_an_id_takes_the_right_to_its_topic_alone() -> None:
    """A broker refuses it for itself."""
    batch = bytearray(61)
    batch[22] = 0x10
    request = ProduceRequest(None, -1, 1000, [ProducePart(b"a", 0, 0, len(batch))])
    frame = Frame(batch, 0, len(batch), True)
    assert denied_topics(rights(rule(Operation.WRITE, "a")), None, frame, request, lambda _: AccessMode.SHARED) == {}
    named = request._replace(transactional_id="t")
    denied = denied_topics(rights(rule(Operation.WRITE, "a")), None, frame, named, lambda _: AccessMode.SHARED)
    assert [error.code for error in denied.values()] == [53]
    batch[22] = 0
    assert denied_topics(rights(rule(Operation.WRITE, "a")), None, frame, named, lambda _: AccessMode.SHARED) == {}


@pytest.mark.parametrize("client_id", [b"me;mode=exclusive_with_fencing", b"me;generation=7"])
def test_to_depose_others_takes_more_than_to_write(client_id: bytes) -> None:
    request = ProduceRequest(None, -1, 1000, [ProducePart(b"a", 0, 0, 0)])
    frame = Frame(bytearray(), 0, 0, True)
    write, alter = rule(Operation.WRITE, "a"), rule(Operation.ALTER, "a")
    asks, plain, wants_none = parse(client_id), parse(b"me;mode=exclusive"), parse(b"me")

    def codes(identity: ClientIdentity, *rules: AclBinding, policy: AccessMode = AccessMode.EXCLUSIVE) -> list[int]:
        denied = denied_topics(rights(*rules), identity, frame, request, lambda _: policy)
        return [error.code for error in denied.values()]

    fencing = AccessMode.EXCLUSIVE_WITH_FENCING
    assert codes(plain, write) == []
    assert codes(asks, write) == [29]
    assert codes(asks, alter) == [29]
    assert codes(asks, write, alter) == []
    assert codes(wants_none, write) == []
    assert codes(wants_none, write, policy=fencing) == [29]
    assert codes(wants_none, write, alter, policy=fencing) == []
    assert codes(plain, write, policy=fencing) == []


def wanted(group: str, resource: control.Resource, generation: int | None = None, mode: int = control.EXCLUSIVE) -> Any:
    """A request for one resource."""
    wish = Wish.of(group, resource, generation)
    return SimpleNamespace(mode=mode, wishes={wish.key: wish})


@pytest.mark.parametrize(
    ("resource", "generation", "allowed", "may"),
    [
        (topic("a"), None, [Operation.WRITE], True),
        (topic("a"), None, [Operation.READ], False),
        (topic("a", 0), 7, [Operation.WRITE], False),
        (topic("a", 0), 7, [Operation.WRITE, Operation.ALTER], True),
        (string("a string"), None, [], True),
    ],
)
def test_a_claim_takes_the_right_to_what_it_claims(
    resource: control.Resource, generation: int | None, allowed: list[Operation], may: bool
) -> None:
    request = wanted("", resource, generation)
    refused = not_allowed(request, rights(*(rule(operation, "a") for operation in allowed)), as_asked)
    assert (refused is None) is may
    assert refused is None or refused.error == control.NOT_AUTHORIZED
    assert not_allowed(request, None, as_asked) is None


@pytest.mark.parametrize("resource", [topic("a", 0), topic("a"), string("a string")])
@pytest.mark.parametrize("mode", [control.EXCLUSIVE, control.WAIT_FOR_EXCLUSIVE, control.EXCLUSIVE_WITH_FENCING])
def test_a_claim_in_a_group_takes_what_a_commit_of_the_group_takes(
    resource: control.Resource, mode: control.AccessMode
) -> None:
    of_group, of_topic = rule(Operation.READ, "g", ResourceType.GROUP), rule(Operation.READ, "a")
    sees_group = rule(Operation.DESCRIBE, "g", ResourceType.GROUP)

    def may(*rules: AclBinding) -> bool:
        return not_allowed(wanted("g", resource, mode=mode), rights(*rules), as_asked) is None

    assert may(of_group, of_topic)
    assert not may(of_topic)
    assert not may(of_topic, sees_group)
    assert may(of_group) is bool(resource.name)


def test_a_claim_in_the_mode_of_the_policy_takes_what_that_mode_takes() -> None:
    refused = not_allowed(
        wanted("", topic("a"), mode=0),
        rights(rule(Operation.WRITE, "a")),
        lambda _topic, _asked: AccessMode.EXCLUSIVE_WITH_FENCING,
    )
    assert refused is not None
    assert refused.error == control.NOT_AUTHORIZED


def as_asked(_topic: str, _asked: control.AccessMode) -> AccessMode:
    return AccessMode.EXCLUSIVE


def without_rules(key: int, version: int, fields: dict[str, Any]) -> Divided | None:
    row = ALL_APIS[key].access
    assert isinstance(row, Asked)
    return found(row.check(Asking(WithoutRules(), fields, version)))


def changed(kind: int, name: str) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configs": []}


def test_without_acls_nobody_but_an_operator_deletes_or_alters_kafkas_own_topics() -> None:
    for name in ("__transaction_state", "__consumer_offsets", "__share_group_state"):
        deleted = without_rules(20, 1, {"topic_names": ["orders", name], "timeout_ms": 1000})
        assert deleted is not None
        assert deleted.fields is not None
        assert deleted.fields["topic_names"] == ["orders"]
        assert deleted.amend({"responses": []})["responses"][0]["error_code"] == 29
        grown = without_rules(37, 0, {"topics": [{"name": name, "count": 99, "assignments": None}]})
        assert grown is not None
        assert grown.fields is None
        altered = without_rules(44, 0, {"resources": [changed(2, "orders"), changed(2, name)]})
        assert altered is not None
        assert altered.fields is not None
        assert [each["resource_name"] for each in altered.fields["resources"]] == ["orders"]
    assert without_rules(20, 1, {"topic_names": ["orders"], "timeout_ms": 1000}) is None
    assert without_rules(44, 0, {"resources": [changed(2, "orders")]}) is None


@pytest.mark.parametrize(("kind", "name"), [(4, ""), (4, "1"), (8, "1")])
def test_without_acls_nobody_but_an_operator_alters_brokers(kind: int, name: str) -> None:
    for key in (33, 44):
        altered = without_rules(key, 0, {"resources": [changed(kind, name)]})
        assert altered is not None
        assert (altered.fields, altered.code) == (None, 31)


def test_without_acls_nobody_but_an_operator_changes_acls_and_scram_credentials() -> None:
    asked: dict[int, dict[str, Any]] = {
        30: {"creations": [{}]},
        31: {"filters": [{}]},
        51: {"deletions": [{"name": "alice", "mechanism": 1}], "upsertions": []},
    }
    for key, fields in asked.items():
        divided = without_rules(key, 0, fields)
        assert divided is not None
        assert (divided.fields, divided.code) == (None, 31)


def test_what_is_for_operators_alone_has_a_row_that_takes_requests_apart() -> None:
    assert all(isinstance(ALL_APIS[key].access, Asked) for key in FOR_SUPER_USERS)
