"""The owner of a topic as a node reads it: from the changelog, and from Redis."""

from __future__ import annotations

from typing import Any, cast

import pytest

from metadata.ownership import AccessMode, Generation, Ownership
from sidecar.changelog import MASTER_SLOT, Key, Kind, Record, SlotName, partition_slot
from sidecar.exclusive.refusals import Refusals
from sidecar.exclusive.topic import GovernedTopic
from sidecar.ownership.state import Awaited
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp
from sidecar.protocol.session import Session
from sidecar.takeover.slots import SlotScope, read_owner
from sidecar.v1 import control_pb2 as control
from sidecar.v1 import state_pb2 as state
from tests.unit.exclusive.paper_cluster import GRACE_S, TOPIC, Cluster, Node, cluster

OWNER = {"session": "pid:7", "name": "app", "generation": 4, "mode": control.EXCLUSIVE}
SESSION = Session("pid:7")


def write(paper: Cluster, epoch: int, slot: SlotName = MASTER_SLOT, **fields: Any) -> int:
    """Append an owner's record, in a batch and under an epoch of its own."""
    writer = Stamp(ProducerId(900), ProducerEpoch(epoch))
    record = Record(Key(Kind.OWNERSHIP, TOPIC, slot), state.Ownership(**fields))
    served = Record(Key(Kind.SERVING, TOPIC, slot), state.Serving(producer_id=900, producer_epoch=epoch))
    return paper.kafka.append_records([served.encode(), record.encode()], writer) + 1


def owner_at(node: Node, scope: SlotScope | None = None) -> GovernedTopic:
    """The topic as this node reads it now."""
    node.read()
    return GovernedTopic(TOPIC, cast(Any, node.env), Refusals(), scope)


@pytest.mark.parametrize(
    ("fields", "session", "seconds"),
    [
        ({}, "pid:7", GRACE_S),
        ({"session": "conn:1-boot-5"}, "conn:1-boot-5", 0.0),
        ({"session": ""}, None, 0.0),
        ({"released_ms": 1}, None, 0.0),
    ],
)
async def test_a_record_names_who_may_come_back_and_for_how_long(
    fields: dict[str, Any], session: str | None, seconds: float
) -> None:
    async with cluster() as paper:
        node = paper.node()
        position = write(paper, 0, **OWNER | fields)
        owner = owner_at(node)
        assert (owner.state.position, owner.state.generation) == (position, 4)
        if session is None:
            assert owner.state.holder is None
            return
        holder = owner.state.holder
        assert isinstance(holder, Awaited)
        assert (holder.session, holder.name, holder.generation) == (
            session,
            "app",
            4,
        )
        assert holder.mode is AccessMode.EXCLUSIVE
        assert holder.recorded is not None
        assert holder.recorded.position == position
        assert (owner.current is not None) is (seconds > 0)
        node.env.late = seconds
        assert owner.current is None


async def test_a_topic_that_was_never_owned() -> None:
    async with cluster() as paper:
        owner = owner_at(paper.node())
        known = owner.state
        assert (known.holder, known.record, known.position, known.generation) == (None, None, -1, 0)
        assert owner.state.seconds_left(0.0) is None


async def test_the_newest_record_counts_whatever_lies_between() -> None:
    async with cluster() as paper:
        node = paper.node()
        write(paper, 0, **OWNER)
        owner = owner_at(node)
        paper.kafka.append_records(
            [Record(Key(Kind.OWNERSHIP, "other", MASTER_SLOT), state.Ownership(session="pid:1")).encode()]
        )
        position = write(paper, 1, session="pid:8", generation=9, deposed=[state.Deposed(session="pid:7")])
        assert owner.state.generation == 4
        node.read()
        owner.reread()
        assert (owner.state.position, owner.state.generation) == (position, 9)
        assert owner.state.holder is not None
        assert owner.state.holder.session == "pid:8"
        assert owner.state.listed == {SESSION}
        shown = read_owner(node.env.changelog.view, SlotScope(TOPIC), 1).recorded
        assert shown is not None
        assert (shown.session, shown.generation, shown.position, shown.producer_epoch) == ("pid:8", 9, position, 1)


async def test_a_record_of_a_fenced_writer_is_not_the_owners() -> None:
    async with cluster() as paper:
        node = paper.node()
        write(paper, 5, **OWNER)
        node.read()
        writer = Stamp(ProducerId(900), ProducerEpoch(4))
        late = Record(Key(Kind.OWNERSHIP, TOPIC, MASTER_SLOT), state.Ownership(session="pid:8", generation=5))
        paper.kafka.stored.append((paper.kafka.end, writer, (late.encode(),)))
        owner = owner_at(node)
        assert owner.state.holder is not None
        assert owner.state.holder.session == "pid:7"


async def test_a_partitions_owner_from_before_the_topic_had_one_for_all_does_not_come_back() -> None:
    async with cluster() as paper:
        node, scope = paper.node(), SlotScope.of_partition(TOPIC, 0)
        write(paper, 0, partition_slot(0), **OWNER)
        assert owner_at(node, scope).state.holder is not None
        assert owner_at(node).state.generation == 4, "the whole's generation is not below its partitions'"
        write(paper, 1, session="pid:8", generation=6, deposed=[state.Deposed(session="pid:9")])
        owner = owner_at(node, scope)
        assert owner.state.holder is None
        assert owner.state.generation == 6
        assert node.env.deposed.has(scope, Session("pid:9")), "from the whole, and so from each of its partitions"
        assert owner_at(node, SlotScope.of_partition(TOPIC, 1)).state.generation == 6


async def test_a_holder_that_only_redis_knows_is_learned_unless_there_is_one() -> None:
    async with cluster() as paper:
        owner = owner_at(paper.node())
        there = Ownership(TOPIC, Generation(3), 9, "pid:5", "other", AccessMode.WAIT_FOR_EXCLUSIVE)
        assert not owner.learn(None)
        assert not owner.learn(Ownership(TOPIC, Generation(3), 9, None))
        assert owner.learn(there)
        holder = owner.state.holder
        assert isinstance(holder, Awaited)
        assert (holder.session, holder.name, holder.generation) == (
            "pid:5",
            "other",
            3,
        )
        assert holder.recorded == there
        assert not owner.learn(there), "it is known"
        paper.nodes[0].env.late = GRACE_S
        assert owner.learn(there), "its time was over"
        assert owner.current is not None
