"""Many consumer groups at one node: few connections to their coordinators, and nobody hinders another."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest

from sidecar.cluster import pools
from sidecar.gateway import coordinators, handler
from sidecar.gateway.client import Client
from tests.kafka.gateway.answers import codes
from tests.kafka.gateway.requests import request
from tests.kafka.gateway.samples import samples
from tests.kafka.gateway.test_groups import admit, is_silent, join
from tests.kafka_calls import kafka_calls
from tests.raw import RawClient
from tests.wait import wait_for

if TYPE_CHECKING:
    from tests.conftest import Unique
    from tests.kafka.gateway.virtual import VirtualCluster
    from tests.services import Services

_GROUPS: Final = 60
_UNKNOWN_MEMBER_ID: Final = 25


@pytest.fixture(autouse=True)
def crowd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every client is one of many."""
    monkeypatch.setattr(handler, "CROWD", 0)
    monkeypatch.setattr(pools, "KEPT_S", 0.2)


def balanced(wire: RawClient, group: str) -> str:
    """The one member of a group that is in balance."""
    member = admit(wire, group)
    wire.send(join(group, member))
    return member


async def test_groups_in_balance_share_a_few_connections(
    services: Services, one_node: VirtualCluster, unique: Unique
) -> None:
    topic = unique("orders")
    async with kafka_calls(services.kafka_bootstrap) as calls:
        await calls.create(topic)
    node = one_node.nodes[0]
    groups = [unique("group") for _ in range(_GROUPS)]
    with ExitStack() as stack:
        wires = [stack.enter_context(RawClient(one_node.bootstrap)) for _ in groups]
        before = node.gateway.admission.links
        members = [balanced(wire, group) for wire, group in zip(wires, groups, strict=True)]
        for wire, group, member in zip(wires, groups, members, strict=True):
            assert codes(wire.receive()) == {0}, "its join"
            said = {"group_id": group, "generation_id": 1, "member_id": member}
            assert codes(wire.ask(request(14, 3, **said))) == {0}
        few = before + pools.LEAST
        wait_for(lambda: node.gateway.admission.links <= few, "the connections of the joins to be given up")

        def everything(number: int, version: int) -> None:
            said = {"group_id": groups[number], "member_id": members[number]}
            wires[number].send(request(12, 3, generation_id=1, **said))
            offsets = (
                samples(topic, groups[number])[8] | said | {"generation_id": 1, "generation_id_or_member_epoch": 1}
            )
            wires[number].send(request(8, version, **offsets))
            wires[number].send(request(9, version, group_id=groups[number], topics=None))

        for version in (5, 7):
            for number in range(_GROUPS):
                everything(number, version)
            for wire in wires:
                assert (codes(wire.receive()), codes(wire.receive())) == ({0}, {0}), version
                (found,) = wire.receive().topics
                assert found.partitions[0].committed_offset == 3
        assert node.gateway.admission.links <= few
        assert codes(wires[0].ask(request(12, 3, group_id=groups[0], generation_id=1, member_id="nobody"))) == {
            _UNKNOWN_MEMBER_ID
        }, "the coordinator's own answer"
        for wire, group, member in zip(wires, groups, members, strict=True):
            assert codes(wire.ask(request(13, 1, group_id=group, member_id=member))) == {0}


async def test_a_join_that_waits_delays_no_other_group(one_node: VirtualCluster, unique: Unique) -> None:
    group = unique("group")
    with ExitStack() as stack:
        first, second, *others = (stack.enter_context(RawClient(one_node.bootstrap)) for _ in range(12))
        leader = admit(first, group)
        assert codes(first.ask(join(group, leader))) == {0}
        first.ask(request(14, 3, group_id=group, generation_id=1, member_id=leader))
        member = admit(second, group)
        second.send(join(group, member))
        for wire in others:
            assert codes(wire.ask(request(12, 3, group_id=group, generation_id=1, member_id="x"))) == {25}
        assert is_silent(second)
        assert codes(first.ask(request(13, 1, group_id=group, member_id=leader))) == {0}
        assert codes(second.receive()) == {0}


async def test_what_a_broker_hangs_up_on_ends_no_connection_of_others(one_node: VirtualCluster, unique: Unique) -> None:
    group = unique("group")
    beat = request(12, 3, group_id=group, generation_id=1, member_id="x")
    with RawClient(one_node.bootstrap) as good:
        assert codes(good.ask(beat)) == {_UNKNOWN_MEMBER_ID}
        (pool,) = one_node.nodes[0].upstream._pools.values()
        used = set(pool._open)
        assert used
        for _ in range(3):
            with RawClient(one_node.bootstrap) as bad:
                short = bad.frame(beat)[4:-3]  # the group's name is whole, what follows is not
                bad.send_bytes(len(short).to_bytes(4, "big") + short)
                with pytest.raises(ConnectionError):
                    bad.receive_frame()
        assert codes(good.ask(beat)) == {_UNKNOWN_MEMBER_ID}
        assert set(pool._open) >= used


async def test_large_commits_travel_alone(
    services: Services, one_node: VirtualCluster, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    alone = Client.ask

    async def counted(client: Client, broker: int, one: Any) -> Any:
        asked.append(one.frame.size)
        return await alone(client, broker, one)

    monkeypatch.setattr(Client, "ask", counted)
    topic, group = unique("orders"), unique("group")
    async with kafka_calls(services.kafka_bootstrap) as calls:
        await calls.create(topic)
    with RawClient(one_node.bootstrap) as wire:
        sample = samples(topic, group)[8]
        wait_for(lambda: 0 in codes(wire.ask(request(8, 5, **sample))), "the coordinator", 30)
        assert asked == []
        named, *_ = sample["topics"]
        partition, *_ = named["partitions"]
        long = {**named, "partitions": [partition | {"committed_metadata": "m" * coordinators.LARGEST}]}
        assert codes(wire.ask(request(8, 5, **sample | {"topics": [long]}))) == {0}
        assert len(asked) == 1


async def test_members_whose_coordinator_assigns_partitions_have_no_connections_of_their_own(
    services: Services, one_node: VirtualCluster, unique: Unique
) -> None:
    topic = unique("orders")
    async with kafka_calls(services.kafka_bootstrap) as calls:
        await calls.create(topic)
    before = one_node.nodes[0].gateway.admission.links
    with ExitStack() as stack:
        for _ in range(_GROUPS):
            wire, group = stack.enter_context(RawClient(one_node.bootstrap)), unique("group")
            said = {"group_id": group, "member_id": unique("member"), "topic_partitions": ()}
            joining = request(
                68, 0, **said, member_epoch=0, rebalance_timeout=30_000, subscribed_topic_names=[topic]
            )  # fmt: skip
            joined: list[Any] = []

            def has_joined(wire: RawClient = wire, joining: Any = joining, joined: list[Any] = joined) -> bool:
                joined.append(wire.ask(joining))
                return codes(joined[-1]) == {0}

            wait_for(has_joined, "the group to have the member", 30)
            again = wire.ask(request(68, 0, **said, member_epoch=joined[-1].member_epoch, rebalance_timeout=-1))
            assert codes(again) == {0}
        assert one_node.nodes[0].gateway.admission.links <= before + 1, "one after the other used the same"
