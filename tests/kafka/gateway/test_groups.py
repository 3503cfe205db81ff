"""Consumer groups through nodes: parked joins, several coordinators, lost coordinators."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.gateway.apis.table import APIS
from sidecar.gateway.groups import OneKey
from sidecar.protocol.caller import CoordinatorKind
from sidecar.protocol.errors import ErrorCode
from tests.conftest import QUICK_RETURN
from tests.kafka.gateway.answers import codes
from tests.kafka.gateway.conftest import create_internal_topics
from tests.kafka.gateway.requests import request
from tests.kafka.gateway.samples import samples
from tests.kafka.gateway.virtual import VirtualCluster
from tests.kafka_calls import kafka_calls
from tests.raw import RawClient
from tests.wait import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.local import Kafka
    from tests.conftest import OwnKafka, Unique

_MEMBER_ID_REQUIRED = 79
_REBALANCE_IN_PROGRESS = 27
_SESSION = {"session_timeout": 30_000, "rebalance_timeout": 30_000, "protocol_type": "consumer"}


def join(group: str, member: str = "", version: int = 5) -> Any:
    protocols = [{"name": "range", "metadata": b"\0\1"}]
    return request(11, version, group_id=group, member_id=member, protocols=protocols, **_SESSION)


def is_silent(wire: RawClient) -> bool:
    return select.select([wire.socket], [], [], 0)[0] == []


def admit(wire: RawClient, group: str) -> str:
    """The member id that the coordinator wants a newcomer to come back with."""
    answer = wire.ask(join(group))
    assert codes(answer) == {_MEMBER_ID_REQUIRED}
    return answer.member_id


def commit(wire: RawClient, group: str, topic: str) -> None:
    asked = request(8, 2, **samples(topic, group)[8])
    wait_for(lambda: 0 in codes(wire.ask(asked)), f"the offsets of {group}", 30)


async def test_a_parked_join_holds_nobody_else_up(one_node: VirtualCluster, unique: Unique) -> None:
    group = unique("group")
    with (
        RawClient(one_node.bootstrap) as first,
        RawClient(one_node.bootstrap) as second,
        RawClient(one_node.bootstrap) as third,
    ):
        leader = admit(first, group)
        joined = first.ask(join(group, leader))
        assert (codes(joined), joined.generation_id, joined.leader) == ({0}, 1, leader)
        first.ask(request(14, 3, group_id=group, generation_id=1, member_id=leader))
        member = admit(second, group)
        second.send(join(group, member))
        second.send(request(12, 3, group_id=group, generation_id=2, member_id=member))

        def rebalancing() -> bool:
            return codes(first.ask(request(12, 3, group_id=group, generation_id=1, member_id=leader))) == {
                _REBALANCE_IN_PROGRESS
            }

        wait_for(rebalancing, "the coordinator to wait for the leader")
        for key in (3, 15, 16):
            third.ask(request(key, 1))
        assert is_silent(second), "its join is parked: until the leader has come back there is no answer"
        rejoined = first.ask(join(group, leader))
        assert (codes(rejoined), rejoined.generation_id, len(rejoined.members)) == ({0}, 2, 2)
        assert second.receive().generation_id == 2
        assert codes(second.receive()) == {0}, "what stood behind the join has waited for it"


async def test_a_client_that_leaves_while_its_join_is_parked_costs_nobody_anything(
    one_node: VirtualCluster, unique: Unique
) -> None:
    group = unique("group")
    failed = len(one_node.events.failed)
    with RawClient(one_node.bootstrap) as first:
        leader = admit(first, group)
        assert codes(first.ask(join(group, leader))) == {0}
        first.ask(request(14, 3, group_id=group, generation_id=1, member_id=leader))
        with RawClient(one_node.bootstrap) as second:
            member = admit(second, group)
            second.send(join(group, member))
            beat = request(12, 3, group_id=group, generation_id=1, member_id=leader)
            wait_for(lambda: codes(first.ask(beat)) == {_REBALANCE_IN_PROGRESS}, "the join to be parked")
            (node,) = one_node.nodes
            clients = len(node.gateway.clients)
        assert codes(first.ask(join(group, leader))) == {0}
        wait_for(lambda: len(node.gateway.clients) < clients, "the answer to find nobody there")
        assert (group, CoordinatorKind.GROUP) in node.upstream._coordinators
    assert len(one_node.events.failed) == failed


async def test_groups_of_several_coordinators_are_described_and_deleted_in_one_request(
    three_nodes: VirtualCluster,
    kafka_cluster: Kafka,
    unique: Unique,
    groups_of_several_coordinators: Callable[[int], list[str]],
) -> None:
    topic = unique("orders")
    async with kafka_calls(kafka_cluster.bootstrap) as calls:
        await calls.create(topic)
    names = groups_of_several_coordinators(12)
    with RawClient(three_nodes.nodes[0].bootstrap) as wire:
        for name in names:
            commit(wire, name, topic)
        for version in range(7):
            answer = wire.ask(request(15, version, groups=[*names, names[0]]))
            assert [(found.group_id, found.group_state) for found in answer.groups] == [
                (name, "Empty") for name in names
            ]
            assert codes(answer) == {0}
        for version, some in enumerate((names[:4], names[4:8], names[8:])):
            answer = wire.ask(request(42, version, groups_names=[*some, f"{topic}-unknown"]))
            assert [(found.group_id, found.error_code.value) for found in answer.results] == [
                *((name, 0) for name in some),
                (f"{topic}-unknown", ErrorCode.GROUP_ID_NOT_FOUND),
            ]
        gone = wire.ask(request(15, 0, groups=names))
        assert {found.group_state for found in gone.groups} == {"Dead"}


async def test_offsets_committed_through_one_node_are_fetched_through_another_and_from_kafka(
    three_nodes: VirtualCluster, kafka_cluster: Kafka, unique: Unique
) -> None:
    topic, group = unique("orders"), unique("group")
    async with kafka_calls(kafka_cluster.bootstrap) as calls:
        await calls.create(topic)
    with RawClient(three_nodes.nodes[0].bootstrap) as wire:
        commit(wire, group, topic)
    with RawClient(kafka_cluster.bootstrap) as direct:
        coordinator = direct.ask(request(10, 2, key=group)).node_id
    for bootstrap in (three_nodes.nodes[2].bootstrap, kafka_cluster.address(coordinator)):
        with RawClient(bootstrap) as wire:
            answer = wire.ask(request(9, 7, group_id=group, topics=None))
            (found,) = answer.topics
            (partition,) = found.partitions
            assert (found.name, partition.committed_offset, partition.metadata) == (topic, 3, "here")


_OF_ONE_KEY = {key for key, api in APIS.items() if isinstance(api.form, OneKey)}
_OF_A_TRANSACTION = {25, 26}
EVERY_GROUP_API = [
    (key, version)
    for key in sorted(_OF_ONE_KEY - _OF_A_TRANSACTION | {9, 68, 76})
    for version in range(APIS[key].first, APIS[key].last + 1)
]


async def test_a_lost_coordinator_is_named_in_the_terms_of_each_api_and_found_again(
    own_kafka: OwnKafka, unique: Unique
) -> None:
    kafka = own_kafka(overrides=QUICK_RETURN)
    create_internal_topics(kafka.bootstrap)
    topic, group = unique("orders"), unique("group")
    async with kafka_calls(kafka.bootstrap) as calls:
        await calls.create(topic)
    contents = samples(topic, group)
    with VirtualCluster(kafka.bootstrap) as cluster, RawClient(cluster.bootstrap) as wire:
        commit(wire, group, topic)
        kafka.kill()
        for _ in range(2):  # first on the connection that has just ended, then on one that cannot be opened
            for key, version in EVERY_GROUP_API:
                answer = wire.ask(request(key, version, **contents[key]))
                assert codes(answer) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}, (APIS[key].name, version)
        for key in (15, 42):
            answer = wire.ask(request(key, 2, **contents[key]))
            assert codes(answer) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
        kafka.restart()
        asked = request(9, 7, **contents[9])
        wait_for(lambda: codes(wire.ask(asked)) == {0}, "the coordinator", 30)
        answer = wire.ask(asked)
        assert answer.topics[0].partitions[0].committed_offset == 3
        assert (cluster.events.rejected, cluster.events.failed, cluster.events.crashed) == ([], [], [])


async def test_a_group_moves_to_another_coordinator(
    three_nodes: VirtualCluster, kafka_cluster: Kafka, unique: Unique
) -> None:
    topic, group = unique("orders"), unique("group")
    async with kafka_calls(kafka_cluster.bootstrap) as calls:
        await calls.create(topic, replicas=3)
    with RawClient(kafka_cluster.bootstrap) as direct:
        coordinator = direct.ask(request(10, 2, key=group)).node_id
    with RawClient(three_nodes.nodes[1].bootstrap) as wire:
        commit(wire, group, topic)
        kafka_cluster.kill(coordinator)
        try:
            refused: set[int] = set()

            def committed() -> bool:
                found = codes(wire.ask(request(8, 7, **samples(topic, group)[8])))
                refused.update(found)
                if 0 in found:
                    return True
                wire.ask(request(10, 2, key=group))  # what a client does that is told 15 or 16
                return False

            wait_for(committed, "another coordinator", 60)
            assert refused - {0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} <= {14, 15, 16}
            assert ErrorCode.COORDINATOR_NOT_AVAILABLE in refused, "the coordinator was lost"
        finally:
            kafka_cluster.restart(coordinator)


async def test_a_coordinator_hears_why_a_member_joins_and_leaves(
    three_nodes: VirtualCluster, kafka_cluster: Kafka, unique: Unique
) -> None:
    """KIP-800: brokers write the reasons to their logs."""
    group, joins, leaves = unique("group"), unique("joins-because"), unique("leaves-because")
    protocols = [{"name": "range", "metadata": b"\0\1"}]
    with RawClient(three_nodes.nodes[0].bootstrap) as wire:
        member = admit(wire, group)
        asked = {"group_id": group, "member_id": member, "protocols": protocols, **_SESSION}
        assert codes(wire.ask(request(11, 9, reason=joins, **asked))) == {0}
        left = [{"member_id": member, "reason": leaves}]
        assert codes(wire.ask(request(13, 5, group_id=group, members=left))) == {0}

    def heard(reason: str) -> bool:
        logs = [kafka_cluster.directory / f"broker-{broker}" / "broker.log" for broker in kafka_cluster.config.numbers]
        lines = [line for log in logs for line in log.read_text(errors="replace").splitlines()]
        return any(group in line and reason in line for line in lines)

    for reason in (joins, leaves):
        wait_for(lambda reason=reason: heard(reason), f"{reason} in a broker's log")


@pytest.mark.parametrize("version", range(4))
def test_offsets_of_a_transaction_of_the_sidecars_own_are_refused(version: int, one_node: VirtualCluster) -> None:
    sample = samples("orders", "group")[28] | {"transactional_id": "sidecar.default.orders"}
    with RawClient(one_node.bootstrap) as wire:
        answer = wire.ask(request(28, version, **sample))
    assert codes(answer) == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}


@pytest.mark.parametrize("key", sorted(_OF_ONE_KEY))
def test_a_request_cut_off_within_the_groups_name_closes_the_connection(key: int, one_node: VirtualCluster) -> None:
    with RawClient(one_node.bootstrap) as wire:
        head = key.to_bytes(2, "big") + APIS[key].first.to_bytes(2, "big") + bytes(4) + b"\xff\xff"
        body = b"\0\x20txn" if key == 28 else b"\0\x20gr"
        wire.send_bytes((len(head) + len(body)).to_bytes(4, "big") + head + body)
        with pytest.raises(ConnectionError):
            wire.receive_frame()
    assert one_node.events.rejected[-1][0] == "malformed"
