"""Groups that older brokers do not have, through nodes: of Kafka Streams (KIP-1071), whose coordinators assign tasks
and make the applications' topics, and offsets of share groups (KIP-932).
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.protocol.errors import ErrorCode
from tests.kafka.gateway.by_id import create
from tests.kafka.gateway.requests import request
from tests.kafka.gateway.test_shadows import Topics
from tests.raw import RawClient
from tests.wait import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Unique
    from tests.kafka.gateway.virtual import VirtualCluster

pytestmark = pytest.mark.slow
PARTITIONS = 2


@pytest.fixture
def topics(newest: VirtualCluster, unique: Unique) -> Iterator[Topics]:
    source, shadow, other = unique("orders"), unique("orders-audit"), unique("orders-copy")
    found = Topics(newest, newest.bootstrap, source, shadow, other)
    create(newest.bootstrap, source, shadow, other)
    yield found
    newest.resolver.set_shadows({})


class Application:
    """Its only member, on one connection."""

    def __init__(self, wire: RawClient, name: str, source: str) -> None:
        self._wire = wire
        self._epoch = 0
        self.name, self.member = name, str(uuid.uuid4())
        self.changelog = {
            "name": f"{name}-store-changelog",
            "partitions": 0,
            "replication_factor": 0,
            "topic_configs": [],
        }
        self.subtopology: dict[str, Any] = {
            "subtopology_id": "0",
            "source_topics": [source],
            "state_changelog_topics": [self.changelog],
        }
        self.tasks: list[int] = []
        self.is_asked_to_describe = False

    def begins(self, **subtopology: Any) -> Any:
        """The answer to a member's first heartbeat."""
        nothing: dict[str, Any] = {name: [] for name in ("active_tasks", "standby_tasks", "warmup_tasks")}
        topology = {"epoch": 0, "subtopologies": [self.subtopology | subtopology]}
        return self._beat(
            rebalance_timeout=30_000, topology=topology, process_id="process-1", client_tags=[], **nothing
        )

    def has_all_tasks(self) -> bool:
        answer = self._beat(rebalance_timeout=-1) if self._epoch else self.begins()
        assert answer.error_code.value == 0, answer
        self._epoch = int(answer.member_epoch)
        self.tasks += [int(index) for task in answer.active_tasks or () for index in task.partitions]
        return sorted(self.tasks) == [*range(PARTITIONS)]

    def described(self) -> Any:
        asked = request(89, 1, group_ids=[self.name], include_topology_description=True)
        (found,) = self._wire.ask(asked).groups
        return found

    def describes(self, member: str = "", **node: Any) -> Any:
        """The answer to a description of a topology with one node."""
        subtopology = {"subtopology_id": "0", "nodes": [{"name": "node", "node_type": 1, **node}]}
        whose = {"group_id": self.name, "member_id": member or self.member, "topology_epoch": 0}
        described = {"subtopologies": [subtopology], "global_stores": []}
        return self._wire.ask(request(93, 0, **whose, topology_description=described))

    def _beat(self, **values: Any) -> Any:
        whose = {"group_id": self.name, "member_id": self.member, "member_epoch": self._epoch}
        answer = self._wire.ask(request(88, 1, **whose, **values))
        self.is_asked_to_describe |= answer.topology_description_required
        return answer


def test_an_application_gets_its_tasks(topics: Topics, unique: Unique) -> None:
    """Topics of the sidecar's own are made for nobody."""
    with RawClient(topics.node.bootstrap) as wire:
        application = Application(wire, unique("app"), topics.source)
        wait_for(application.has_all_tasks, "the tasks, once the coordinator has made the application's own topic", 60)
        assert [found.member_id for found in application.described().members] == [application.member]
        for kind in ("state_changelog_topics", "repartition_source_topics"):
            planted = {"state_changelog_topics": [], kind: [application.changelog | {"name": "__sidecar_other"}]}
            refused = Application(wire, unique("app"), topics.source).begins(**planted)
            assert refused.error_code.value == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert "sidecar" in refused.error_message


def test_a_shadow_that_its_allow_list_hides_is_in_no_application_and_no_description(
    topics: Topics, unique: Unique
) -> None:
    topics.expose(topics.shadow)
    with RawClient(topics.node.bootstrap) as wire:
        application = Application(wire, unique("app"), topics.shadow)
        wait_for(application.has_all_tasks, "tasks of a shadow that it may read", 60)
        (subtopology,) = application.described().topology.subtopologies
        assert subtopology.source_topics == (topics.shadow,)
        topics.expose(topics.shadow, allow="User:somebody-else")
        described = application.described()
        assert described.error_code.value == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert topics.shadow not in repr(described)
        refused = Application(wire, unique("app"), topics.shadow).begins()
        assert refused.error_code.value == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_topology_is_described_to_its_coordinator(topics: Topics, unique: Unique) -> None:
    """KIP-1331: the coordinator asks a member for it, and shows it."""
    with RawClient(topics.node.bootstrap) as wire:
        application = Application(wire, unique("app"), topics.source)
        wait_for(application.has_all_tasks, "the tasks", 60)
        assert application.is_asked_to_describe
        assert application.described().topology_description is None
        unknown = application.describes("nobody", source_topics=[topics.source])
        assert unknown.error_code.value == ErrorCode.UNKNOWN_MEMBER_ID
        assert application.describes(source_topics=[topics.source]).error_code.value == 0
        (subtopology,) = application.described().topology_description.subtopologies
        assert subtopology.nodes[0].source_topics == (topics.source,)


def test_a_description_names_no_topic_that_its_heartbeat_may_not_name(topics: Topics, unique: Unique) -> None:
    with RawClient(topics.node.bootstrap) as wire:
        application = Application(wire, unique("app"), topics.source)
        wait_for(application.has_all_tasks, "the tasks", 60)
        topics.expose(topics.shadow)
        assert application.describes(source_topics=[topics.shadow]).error_code.value == 0
        refused = [{"sink_topic": topics.shadow}, {"sink_topic": "__sidecar_other"}]
        codes = {application.describes(**node).error_code.value for node in refused}
        topics.expose(topics.shadow, allow="User:somebody-else")
        codes.add(application.describes(source_topics=[topics.shadow]).error_code.value)
        assert codes == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        described = application.described()
        assert described.error_code.value == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert topics.shadow not in repr(described)


def test_brokers_resolve_no_expression_of_an_application_yet(topics: Topics, unique: Unique) -> None:
    """They would do so with the rights of the node: once they do, `access.members` has to look at expressions."""
    with RawClient(topics.node.bootstrap) as wire:
        answer = Application(wire, unique("app"), topics.source).begins(source_topic_regex=[f"{topics.shadow}.*"])
    assert answer.error_code.value == ErrorCode.INVALID_REQUEST
    assert "not supported yet" in answer.error_message


def test_a_share_group_gets_no_offset_of_a_shadow_and_those_of_other_topics(topics: Topics, unique: Unique) -> None:
    topics.expose(topics.shadow)
    group, member = unique("shared"), str(uuid.uuid4())
    place = [{"partition_index": 0, "start_offset": 0}]
    asked = [{"topic_name": name, "partitions": place} for name in (topics.shadow, topics.source)]
    with RawClient(topics.node.bootstrap) as wire:

        def beats(epoch: int, subscribed: list[str] | None) -> int:
            values = {"group_id": group, "member_id": member, "subscribed_topic_names": subscribed}
            return wire.ask(request(76, 1, member_epoch=epoch, **values)).error_code.value

        assert beats(0, [topics.source]) == 0
        refused = wire.ask(request(91, 0, group_id=group, topics=asked))
        assert (refused.error_code.value, refused.responses) == (ErrorCode.NON_EMPTY_GROUP, ())
        assert beats(-1, None) == 0
        answer = wire.ask(request(91, 0, group_id=group, topics=asked))
        errors = {topic.topic_name: topic.partitions[0].error_code.value for topic in answer.responses}
        assert errors == {topics.shadow: ErrorCode.TOPIC_AUTHORIZATION_FAILED, topics.source: 0}
        (described,) = wire.ask(request(90, 1, groups=[{"group_id": group, "topics": None}])).groups
        assert {topic.topic_name for topic in described.topics} == {topics.source}
