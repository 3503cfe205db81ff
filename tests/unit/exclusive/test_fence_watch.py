"""When a fence is renewed before its time: by what was seen of its partitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.changelog import MASTER_SLOT, Clock, SlotName, partition_slot
from sidecar.exclusive import fence_watch
from sidecar.exclusive.fence_watch import FenceWatch, Sight, fences_of, newly_led, unknown, why_due
from sidecar.fencing.expiry import BROKER_DEFAULTS, DEFAULT_KEEP_ALIVE, keep_alive
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.calls.admin import DescribeTopics, PartitionDescription, TopicDescription
from sidecar.protocol.calls.transactions import ActiveProducer, PartitionProducers
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp, TopicPartition
from sidecar.writing.upkeep import Cause, Upkeep
from tests.kafka.exclusive.room import Room
from tests.unit.exclusive.world import World

SEEN = Sight(leader_epoch=3, replicas=frozenset({1, 2}), start=0)


def fenced(at: float, fenced_from: dict[int, int]) -> Upkeep:
    upkeep = Upkeep(None, Clock(lambda: 1_800_000_000.0, lambda: at))
    upkeep.read(DEFAULT_KEEP_ALIVE)
    upkeep.kept(at, fenced_from)
    return upkeep


def stamp(producer_id: int, epoch: int) -> Stamp:
    return Stamp(ProducerId(producer_id), ProducerEpoch(epoch))


def leader(*known: Stamp) -> PartitionProducers:
    return PartitionProducers(0, None, tuple(ActiveProducer(each, -1, 0, 0, -1) for each in known))


@given(fence=st.integers(0, 100), start=st.integers(0, 100))
def test_a_fence_is_due_when_the_log_begins_behind_where_its_marker_may_be(fence: int, start: int) -> None:
    cause = why_due({0: fence}, {0: SEEN}, {0: replace(SEEN, start=start)})
    assert cause is (Cause.LOG_START if start > fence else None)


def test_a_partition_that_is_not_fenced_yet_is_not_due() -> None:
    assert why_due({0: 5}, {}, {0: SEEN, 1: replace(SEEN, start=9)}) is None


def test_a_fence_is_due_when_a_replica_is_added_and_not_when_one_leaves() -> None:
    assert why_due({0: 0}, {0: SEEN}, {0: replace(SEEN, replicas=frozenset({2, 3}))}) is Cause.REPLICAS
    assert why_due({0: 0}, {0: SEEN}, {0: replace(SEEN, replicas=frozenset({2}))}) is None
    assert why_due({0: 0}, {}, {0: SEEN}) is None
    both = replace(SEEN, replicas=frozenset({2, 3}), start=9)
    assert why_due({0: 0}, {0: SEEN}, {0: both}) is Cause.REPLICAS, "the log's start is seen again, a replica is not"


def test_a_leader_is_asked_when_it_is_new_here_or_leads_in_a_later_epoch() -> None:
    assert newly_led({}, {0: SEEN}) == [0]
    assert newly_led({0: SEEN}, {0: SEEN}) == []
    assert newly_led({0: SEEN}, {0: replace(SEEN, leader_epoch=4)}) == [0]


def test_a_leader_knows_a_fence_by_this_epoch_or_a_later_one() -> None:
    fence = stamp(7, 3)
    assert unknown([fence], leader(stamp(7, 3), stamp(9, 0))) is None
    assert unknown([fence], leader(stamp(7, 4))) is None
    assert unknown([fence], leader(stamp(7, 2))) == fence
    assert unknown([stamp(9, 0), fence], leader(stamp(9, 0))) == fence


def test_a_renewal_for_a_cause_comes_at_once_and_the_next_one_after_a_pause() -> None:
    upkeep = fenced(100.0, {0: 5})
    upkeep.now = lambda: 102.0
    assert not upkeep.is_due(102.0)
    upkeep.lapsed(Cause.LOG_START)
    assert upkeep.is_due(102.0)
    upkeep.kept(102.5, {0: 9})
    assert upkeep.fenced_from == {0: 9}
    upkeep.now = lambda: 104.0
    upkeep.lapsed(Cause.LOG_START)
    assert not upkeep.is_due(104.0)
    upkeep.lapsed(Cause.LOST)
    assert upkeep.is_due(104.0)


@given(looks_every=st.integers(1, 900), retention=st.integers(1, 60))
def test_an_idle_topic_that_deletes_each_marker_gets_no_more_than_one_in_five_minutes(
    looks_every: int, retention: int
) -> None:
    """It got one every 30 s, for ever: Kafka deleted each, and the start of the log asked for the next."""
    upkeep = fenced(0.0, {0: 0})
    upkeep.read(keep_alive(BROKER_DEFAULTS, {"retention.ms": retention * 1000}, name="t"))
    markers, newest, start = 1, 0, 0
    for now in range(1, 3600):
        upkeep.now = lambda now=float(now): now
        if now % looks_every == 0 and now - newest >= retention:
            start = markers
        if now % 2 == 0 and why_due(upkeep.fenced_from, {}, {0: replace(SEEN, start=start)}):
            upkeep.lapsed(Cause.LOG_START)
        if upkeep.is_due(now):
            upkeep.kept(now, {0: markers})
            markers, newest = markers + 1, now
    assert markers <= 13


def test_the_pause_after_a_deleted_marker_delays_no_new_replica_and_no_leader_that_lost_it() -> None:
    upkeep = fenced(100.0, {0: 5})
    upkeep.now = lambda: 102.0
    upkeep.lapsed(Cause.LOG_START)
    upkeep.kept(102.0, {0: 9})
    upkeep.lapsed(Cause.LOG_START)
    upkeep.lapsed(Cause.REPLICAS)
    upkeep.lapsed(Cause.LOG_START)
    assert not upkeep.is_due(131.0)
    assert upkeep.is_due(132.0)
    upkeep.lapsed(Cause.LOST)
    assert upkeep.is_due(103.0)


def test_a_fence_that_began_before_a_replica_was_seen_does_not_count_for_it() -> None:
    upkeep = fenced(100.0, {0: 5})
    upkeep.now = lambda: 102.0
    upkeep.lapsed(Cause.REPLICAS)
    upkeep.kept(101.9, {0: 9})
    assert upkeep.is_due(102.0)


def test_the_start_of_a_log_that_is_seen_again_during_the_renewal_is_no_new_cause() -> None:
    upkeep = fenced(100.0, {0: 5})
    upkeep.now = lambda: 102.0
    upkeep.lapsed(Cause.LOG_START)
    upkeep.now = lambda: 102.6
    upkeep.lapsed(Cause.LOG_START)
    upkeep.kept(102.5, {0: 9})
    assert not upkeep.is_due(200.0)


class Slots(dict[SlotName, Any]):
    """The slots of a topic; counts how many were looked at."""

    looked = 0

    def __iter__(self) -> Iterator[SlotName]:
        for slot in super().__iter__():
            self.looked += 1
            yield slot

    def get(self, slot: SlotName, default: Any = None) -> Any:
        self.looked += 1
        return super().get(slot, default)

    def items(self) -> Any:
        return ((slot, self[slot]) for slot in self)


def opened(producer_id: int, *retired: int, topic_id: int = 1) -> Any:
    value = SimpleNamespace(
        topic_id=UUID(int=topic_id).bytes, producer_id=producer_id, producer_epoch=3, retired_producer_ids=retired
    )
    return SimpleNamespace(value=value)


def test_the_fences_of_many_partitions_with_owners_of_their_own_are_found_in_one_pass() -> None:
    """Each partition was compared with each slot: with 3,000 of both nothing else ran for nine seconds."""
    slots = Slots({MASTER_SLOT: opened(7, 5), SlotName("1"): opened(8), SlotName("2"): opened(9, topic_id=2)})
    slots.update((partition_slot(index), opened(1_000 + index)) for index in range(500))
    view = cast(Any, SimpleNamespace(opened=lambda _: slots))
    found = fences_of(view, "t", UUID(int=1), range(400, 600))
    common = {stamp(7, 3), stamp(5, 32_767), stamp(8, 3)}
    assert {index: set(fences) for index, fences in found.items()} == {
        index: common | ({stamp(1_000 + index, 3)} if index < 500 else set()) for index in range(400, 600)
    }
    assert slots.looked < 2 * (len(slots) + 200)


# On a simulated Kafka -------------------------------------------------------------------------------------------------


async def test_a_look_notes_what_is_due_and_leaves_what_was_due_before(world: World, room: Room) -> None:
    """A cause that waited for its pause made each look fail, and no partition was watched meanwhile."""
    name = await world.govern(room)
    assert await room.connect("owner").send(name) == 0
    topic = room.topic(name)
    watch = FenceWatch(
        room.governed.env.services.upstream, room.governed, lambda _, error: room.unexpected.append(error)
    )
    await watch.look([topic])
    assert topic.upkeep.cause is None
    await world.delete_records(name)
    await watch.look([topic])
    assert topic.upkeep.cause is Cause.LOG_START
    await topic.keep_alive()
    assert topic.upkeep.cause is None
    topic.upkeep.lapsed(Cause.REPLICAS)
    await watch.look([topic])
    assert topic.upkeep.cause is Cause.REPLICAS


async def test_topics_with_many_partitions_are_looked_at_one_after_another(world: World, room: Room) -> None:
    """Kafka was asked for all of them at once, and its answer took the loop's time in one piece."""
    upkeep = fenced(0.0, dict.fromkeys(range(100), 0))
    topics = [SimpleNamespace(name=f"t{number}", upkeep=upkeep) for number in range(5)]
    upstream = world.kafka.node()
    await FenceWatch(upstream, room.governed, lambda *_: None).round(cast(Any, topics))
    assert [request.names for request in upstream.requests(DescribeTopics)] == [("t0", "t1", "t2"), ("t3", "t4")]


def described(name: str, partitions: int, topic_id: int = 1) -> TopicDescription:
    each = tuple(PartitionDescription(0, index, 0, 3, (1,), (1,)) for index in range(partitions))
    return TopicDescription(0, name, UUID(int=topic_id), each)


def test_large_topics_are_looked_at_in_portions_and_small_ones_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fence_watch, "_PARTITIONS", 3)
    portions = [
        {name: [part.index for part in topic.partitions] for name, topic in portion.items()}
        for portion in fence_watch._portions([described("a", 1), described("b", 7), described("c", 3)])
    ]
    assert portions == [{"b": [0, 1, 2]}, {"b": [3, 4, 5]}, {"b": [6]}, {"a": [0], "c": [0, 1, 2]}]


def test_topics_are_grouped_by_their_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fence_watch, "_PARTITIONS", 6)
    sizes = {"a": 1, "b": 2, "c": 1, "d": 5, "e": 0}
    topics: list[Any] = [
        SimpleNamespace(name=name, upkeep=SimpleNamespace(fenced_from=range(size))) for name, size in sizes.items()
    ]
    groups = [[topic.name for topic in group] for group in fence_watch._groups(topics)]
    assert groups == [["a", "b", "c"], ["d"], ["e"]]


def test_what_lags_behind_or_was_not_told_is_not_seen() -> None:
    topic = described("t", 4)
    starts = {TopicPartition("t", index): 9 for index in (0, 1, 2)}
    before = {0: replace(SEEN, leader_epoch=4), 1: replace(SEEN, leader_epoch=3)}
    found = fence_watch._sights(topic, starts, before)
    assert found == {index: Sight(3, frozenset({1}), 9) for index in (1, 2)}


class Watched:
    """A watch whose looks are recorded, or fail."""

    def __init__(self, failures: dict[str, Exception]) -> None:
        self.watch = FenceWatch(cast(Any, None), cast(Any, None), lambda *_: None)
        self.looked: list[list[str]] = []
        self._failures = failures
        cast(Any, self.watch).look = self._look

    async def _look(self, topics: list[Any]) -> None:
        self.looked.append([topic.name for topic in topics])
        if topics[0].name in self._failures:
            raise self._failures[topics[0].name]


async def test_a_look_that_fails_keeps_no_other_topic_from_being_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fence_watch, "_PARTITIONS", 1)
    monkeypatch.setattr(fence_watch, "_PAUSE_S", 0.0)
    topics: list[Any] = [SimpleNamespace(name=name, upkeep=fenced(0.0, {})) for name in ("a", "b", "c")]
    failing = Watched({"a": UpstreamError("away")})
    failing.watch._seen = {"a": (UUID(int=1), {}), "gone": (UUID(int=1), {})}
    with pytest.raises(UpstreamError):
        await failing.watch.round(topics)
    assert failing.looked == [["a"], ["b"], ["c"]]
    assert set(failing.watch._seen) == {"a"}
    await Watched({}).watch.round(topics)


async def test_a_leader_that_does_not_know_the_fence_is_told_of_once_and_the_fence_is_due(
    world: World, room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await world.govern(room)
    owner = room.connect("owner")
    assert await owner.send(name) == 0
    topic = room.topic(name)
    lost: list[tuple[str, int]] = []

    def told(of: str, error: BaseException) -> None:
        assert isinstance(error, KafkaError)
        lost.append((of, error.code))

    watch = FenceWatch(room.governed.env.services.upstream, room.governed, told)
    await watch.look([topic])
    assert (lost, topic.upkeep.cause) == ([], None)

    def forgotten(*_: object) -> Stamp:
        return stamp(1, 0)

    monkeypatch.setattr(fence_watch, "unknown", forgotten)
    await watch.look([topic])
    assert lost == [], "no leader is new"
    watch._seen.clear()
    await watch.look([topic])
    assert lost == [(name, 47)], "one partition is enough"
    assert topic.upkeep.cause is Cause.LOST


async def test_of_a_topic_that_was_created_anew_nothing_seen_before_counts(world: World, room: Room) -> None:
    name = await world.govern(room)
    assert await room.connect("owner").send(name) == 0
    topic = room.topic(name)
    watch = FenceWatch(room.governed.env.services.upstream, room.governed, lambda *_: None)
    await watch.look([topic])
    topic_id, seen = watch._seen[name]
    watch._seen[name] = UUID(int=9), {index: replace(each, leader_epoch=99) for index, each in seen.items()}
    await watch.look([topic])
    assert watch._seen[name] == (topic_id, seen)
