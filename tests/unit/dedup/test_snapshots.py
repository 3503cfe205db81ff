"""Marks as records of the snapshot topic and as one value: what comes back, and what is taken for no snapshot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from functools import cache
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.changelog import Clock, RawRecord
from sidecar.dedup import snapshots
from sidecar.dedup.content import Headers
from sidecar.dedup.marks import SLICE_NAMES, Mark, Marks, Pushed
from sidecar.dedup.names import NAME_BYTES
from sidecar.dedup.partition import IdsServices, PartitionIds
from sidecar.dedup.recovery import Extent, begin
from sidecar.dedup.snapshots import Collector, Saved
from sidecar.dedup.topic import TopicIds
from sidecar.network.slices import in_slices
from sidecar.protocol.ids import TopicPartition
from sidecar.v1 import state_pb2 as state

TOPIC, TOPIC_ID, OTHER_ID = "orders", b"t" * 16, b"o" * 16
NOW_MS = 1_700_000_000_000
LARGEST = 2**63 - 1
BROKER_BYTES = 900_000

marks = st.builds(
    Mark,
    name=st.binary(min_size=1, max_size=NAME_BYTES),
    id=st.integers(0, LARGEST),
    offset=st.integers(-1, LARGEST),
    seen=st.integers(0, 2**32 - 1),
)
snapshots_of_any_kind = st.builds(
    Saved, covered=st.integers(0, LARGEST), number=st.integers(1, LARGEST), marks=st.lists(marks, max_size=5)
)


def records(saved: Saved, partition: int = 0, topic: str = TOPIC, topic_id: bytes = TOPIC_ID) -> list[RawRecord]:
    return list(snapshots.to_records(topic, partition, snapshots.encode(topic_id, saved, NOW_MS)))


def collected(*found: RawRecord) -> Collector:
    collector = Collector(TOPIC, TOPIC_ID)
    for record in found:
        collector.add(record)
    return collector


def large(number: int, names: int = 10_000, covered: int = 5) -> Saved:
    """Of several chunks: every name is as long as names may be."""
    return Saved(covered, number, [Mark(b"%0255d" % index, LARGEST, LARGEST, 2**32 - 1) for index in range(names)])


@given(saved=snapshots_of_any_kind, partition=st.integers(0, 10_000))
def test_what_was_saved_comes_back(saved: Saved, partition: int) -> None:
    collector = collected(*records(saved, partition))
    assert collector.newest(partition) == saved
    assert collector.newest(partition + 1) is None


@given(saved=snapshots_of_any_kind)
def test_what_was_saved_comes_back_from_one_value(saved: Saved) -> None:
    value = snapshots.to_value(records(saved), 7)
    assert snapshots.of_value(value, TOPIC_ID) == (saved, 7)
    assert snapshots.of_value(value, OTHER_ID) is None


def test_chunks_are_small_enough_for_any_broker_and_fit_together_again() -> None:
    saved = large(number=1)
    chunks = records(saved)
    assert len(chunks) > 2
    assert all(len(chunk.key) + len(chunk.value or b"") < BROKER_BYTES for chunk in chunks)
    assert collected(*reversed(chunks)).newest(0) == saved
    value = snapshots.to_value(chunks)
    assert snapshots.of_value(value, TOPIC_ID) == (saved, 0)


def test_the_newer_of_two_counts() -> None:
    old, new = Saved(10, 1, [Mark(b"a", 1, 9, 5)]), Saved(20, 2, [Mark(b"a", 2, 19, 6)])
    assert collected(*records(old), *records(new)).newest(0) == new
    assert collected(*records(new), *records(old)).newest(0) == new


def test_a_snapshot_that_is_cut_off_between_chunks_leaves_the_one_before_it() -> None:
    old, new = large(number=1, covered=10), large(number=2, covered=20)
    for cut in range(len(records(new))):
        assert collected(*records(old), *records(new)[:cut]).newest(0) == old


def test_chunks_of_two_snapshots_in_one_place_are_never_put_together() -> None:
    first, second, third = large(number=1), large(number=2), large(number=3, covered=7)
    found = [*records(first), *records(second), *records(third)[:1]]
    assert collected(*found).newest(0) == second
    assert collected(*records(first), *records(third)[:1]).newest(0) is None
    assert collected(*records(first), *records(third)[1:]).newest(0) is None


def test_a_shorter_snapshot_in_the_place_of_a_longer_one_is_whole() -> None:
    """The chunks of the longer one that nothing overwrites stay in the topic."""
    short = Saved(9, 3, [Mark(b"a", 1, 5, 5)])
    assert collected(*records(large(number=1)), *records(short)).newest(0) == short


def test_another_topics_snapshots_count_for_nothing() -> None:
    mine, others = Saved(10, 1, [Mark(b"a", 1, 9, 5)]), Saved(20, 3, [Mark(b"a", 7, 19, 5)])
    found = [*records(others, topic="orders2"), *records(others, topic="order"), *records(others, topic_id=OTHER_ID)]
    assert collected(*found).newest(0) is None
    assert collected(*found, *records(mine)).newest(0) == mine


JUNK = [
    RawRecord(b"", b"x"),
    RawRecord(b"orders", b"x"),
    RawRecord(b"orders/", b"x"),
    RawRecord(b"orders/0/0", b"x"),
    RawRecord(b"orders/0/0/x", b"x"),
    RawRecord(b"orders/0/-1/0", b"x"),
    RawRecord(b"orders/0/0/0/0", b"x"),
    RawRecord(b"orders/\xff/0/0", b"x"),
    RawRecord(b"orders/0/0/0", b"\xff\xff\xff"),
    RawRecord(b"orders/0/0/0", b""),
    RawRecord(b"orders/0/0/0", None),
]


def a_chunk(**how: Any) -> RawRecord:
    fields = {"topic_id": TOPIC_ID, "covered": 5, "number": 2, "chunk": 0, "chunks": 1} | how
    return RawRecord(b"orders/0/0/0", state.Snapshot(**fields).SerializeToString())


BROKEN = {
    "columns of different lengths": a_chunk(name=[b"a", b"b"], id=[1], offset=[1], seen_s=[1]),
    "no chunk at all": a_chunk(chunks=0),
    "a chunk is missing": a_chunk(chunks=2),
}


@pytest.mark.parametrize("junk", JUNK, ids=lambda record: f"{record.key} {record.value}")
def test_junk_is_ignored(junk: RawRecord) -> None:
    saved = Saved(10, 1, [Mark(b"a", 1, 9, 5)])
    assert collected(junk, *records(saved), junk).newest(0) == saved
    assert collected(junk).newest(0) is None


@pytest.mark.parametrize("broken", BROKEN.values(), ids=list(BROKEN))
def test_a_broken_snapshot_leaves_the_one_before_it(broken: RawRecord) -> None:
    saved = Saved(10, 1, [Mark(b"a", 1, 9, 5)])
    assert collected(*records(saved), broken).newest(0) == saved
    assert collected(broken).newest(0) is None


@given(key=st.binary(max_size=20), value=st.binary(max_size=50))
def test_no_record_whatever_makes_reading_fail(key: bytes, value: bytes) -> None:
    collector = collected(RawRecord(key, value), RawRecord(b"orders/0/0/" + key, value))
    assert collector.newest(0) is None


@given(value=st.binary(max_size=60))
def test_no_value_whatever_makes_reading_fail(value: bytes) -> None:
    snapshots.of_value(value, TOPIC_ID)


def test_an_empty_value_is_no_snapshot() -> None:
    assert snapshots.of_value(b"", TOPIC_ID) is None


# Rebuilt from the log -----------------------------------------------------------------------------------------------


def rebuilt(saved: Saved, copy: int, partition: int = 0) -> list[RawRecord]:
    chunks = snapshots.encode(TOPIC_ID, saved._replace(rebuilt=True), NOW_MS)
    return list(snapshots.to_records(TOPIC, partition, chunks, copy))


A, B = [Mark(b"a", 1, 9, 5)], [Mark(b"b", 1, 9, 5)]


@given(saved=snapshots_of_any_kind, copy=st.integers(2, LARGEST))
def test_what_was_rebuilt_comes_back_as_such_from_the_topic_and_from_one_value(saved: Saved, copy: int) -> None:
    saved = saved._replace(rebuilt=True)
    assert collected(*rebuilt(saved, copy)).newest(0) == saved
    value = snapshots.to_value(records(saved), 7)
    assert snapshots.of_value(value, TOPIC_ID) == (saved, 7)


@cache
def three_writers() -> list[tuple[Saved, list[RawRecord]]]:
    """A node and two rebuilds, each with a snapshot of several chunks under the same number."""
    own = large(number=4, names=3_000, covered=20)
    one, other = large(number=4, names=3_500, covered=30), large(number=4, names=4_000, covered=30)
    found = [(own, records(own)), (one, rebuilt(one, 2)), (other, rebuilt(other, 3))]
    assert all(len(chunks) > 1 for _, chunks in found)
    return found


@given(data=st.data())
def test_chunks_of_writers_at_once_never_make_a_snapshot_that_nobody_wrote(data: st.DataObject) -> None:
    """Each cut off anywhere, in any order that keeps each writer's own."""
    rest = [chunks[: data.draw(st.integers(0, len(chunks)))] for _, chunks in three_writers()]
    whole = {len(saved.marks) for (saved, chunks), left in zip(three_writers(), rest, strict=True) if left == chunks}
    log: list[RawRecord] = []
    while any(rest):
        log.append(data.draw(st.sampled_from([each for each in rest if each])).pop(0))
    assert {len(found.saved.marks) for found in collected(*log).whole(0)} == whole


def test_a_node_of_before_does_not_see_what_was_rebuilt() -> None:
    """It knew the copies 0 and 1 alone; whatever the numbers, no key of these is taken."""
    for number in (6, 7):
        keys = {record.key for record in rebuilt(large(number=number), snapshots.new_copy())}
        assert not keys & {record.key for copy in (6, 7) for record in records(large(number=copy))}


def test_every_rebuilt_snapshot_has_a_copy_of_its_own() -> None:
    copies = {snapshots.new_copy() for _ in range(100)}
    assert len(copies) == 100
    assert min(copies) > 1


def test_what_was_rebuilt_is_preferred_where_it_covers_more_and_knew_of_the_nodes_own() -> None:
    own = Saved(10, 6, A)
    for more, preferred in ((Saved(11, 6, B), True), (Saved(11, 5, B), False), (Saved(10, 6, B), False)):
        found = collected(*records(own), *rebuilt(more, 2)).newest(0)
        assert found == (more._replace(rebuilt=True) if preferred else own)
    unknown = Saved(20, 5, B)
    usable_behind = collected(*records(own), *rebuilt(unknown, 2)).newest(0, lambda covered: covered > 10)
    assert usable_behind == unknown._replace(rebuilt=True), "what cannot be read on from decides nothing"


def test_a_snapshot_that_was_taken_away_is_none() -> None:
    old, new = Saved(10, 6, A), Saved(11, 6, B)
    log = [*rebuilt(old, 2), *rebuilt(new, 3)]
    gone = [RawRecord(record.key, None) for record in rebuilt(new, 3)]
    assert collected(*log, *gone).newest(0) == old._replace(rebuilt=True)


def test_rebuilt_snapshots_are_taken_away_by_one_that_tells_more_and_by_no_other() -> None:
    log = [*records(Saved(5, 6, A)), *rebuilt(Saved(10, 6, A), 5), *rebuilt(Saved(11, 6, A), 3)]
    log += [*rebuilt(Saved(11, 6, B), 4), *rebuilt(Saved(12, 6, A), 2), *rebuilt(Saved(1, 1, A), 9, partition=1)]
    collector = collected(*log)
    by_copy = {found.copy: found for found in collector.whole(0)}
    gone = {copy: [record.key for record in collector.outdone(0, by_copy[copy])] for copy in (2, 3, 4)}
    assert gone == {2: [b"orders/0/5/0", b"orders/0/3/0", b"orders/0/4/0"], 3: [b"orders/0/5/0"],
                    4: [b"orders/0/5/0", b"orders/0/3/0"]}  # fmt: skip
    assert all(record.value is None for record in collector.outdone(0, by_copy[2]))


def test_the_place_of_a_snapshot_is_that_of_its_last_chunk() -> None:
    collector = Collector(TOPIC, TOPIC_ID)
    chunks = rebuilt(large(number=1), 2)
    for offset, record in enumerate(chunks, 40):
        collector.add(record, offset)
    (found,) = collector.whole(0)
    assert (found.copy, found.position) == (2, 39 + len(chunks))


async def test_a_node_counts_on_from_the_number_that_a_rebuilt_one_knew_of() -> None:
    """Where its own are lost: else one of before the loss that turns up again would be taken for newer."""
    assert collected(*rebuilt(Saved(10, 6, A), 2)).last_number(0) == 6


# Taking turns -------------------------------------------------------------------------------------------------------


class PaperTopic:
    """A snapshot topic, and everything else that saving needs. As `OwnershipReports`."""

    def __init__(self) -> None:
        self.log: list[RawRecord] = []
        self.clock = Clock()
        self.end = 0

    async def append(self, found: list[RawRecord]) -> int:
        self.log += found
        return len(self.log) - 1

    def bound(self, topic_id: UUID) -> PaperTopic:
        return self

    async def ends(self, topic: str, partitions: list[int]) -> dict[int, int]:
        return dict.fromkeys(partitions, self.end)

    async def read(self, *_: object) -> AsyncGenerator[bytes, None]:
        return
        yield b""

    async def keep_snapshot(self, *_: object) -> None: ...
    def snapshot_written(self, topic: str, names: int, size: int) -> None: ...
    def names_forgotten(self, topic: str, names: int) -> None: ...
    def operation_failed(self, topic: str, error: BaseException) -> None: ...
    def snapshot_journal(self, stamp: object, topic: str) -> PaperTopic:
        return self


async def moved(ids: TopicIds, partition: PartitionIds) -> None:
    """Something lands, then a snapshot is written."""
    batch = partition.marks.push((Pushed(b"a", partition.marks.persisted(b"a") + 1, 0),), 7)
    partition.landed(batch, partition.marks.covered, 1)
    await ids.save_all()


def served(paper: PaperTopic) -> tuple[TopicIds, PartitionIds]:
    """A topic whose ids are known, and its partition 0."""
    nothing = cast(Any, None)
    around = IdsServices(cast(Any, paper), cast(Any, paper), cast(Any, paper), nothing, cast(Any, paper), Headers())
    ids = TopicIds(TOPIC, around, lambda session: True, lambda: None)
    ids.renewed(nothing)
    ids._snapshots.topic_id = TOPIC_ID
    partition = ids.of(0)
    partition.is_ready = True
    return ids, partition


@pytest.mark.parametrize("milliseconds", [1, 2, 1_000])
async def test_the_two_copies_of_a_partition_take_turns_whatever_the_time(milliseconds: int) -> None:
    """Else a node that dies between two chunks leaves none that is whole."""
    paper = PaperTopic()
    ids, partition = served(paper)
    now_ms = NOW_MS
    paper.clock = Clock(lambda: 0.0, lambda: now_ms / 1000)
    for _ in range(6):
        now_ms += milliseconds
        await moved(ids, partition)
    copies = [record.key.split(b"/")[2] for record in paper.log]
    assert copies in ([b"0", b"1"] * 3, [b"1", b"0"] * 3)


class LosesAnswers(PaperTopic):
    """All it is given is in its log; the answers to some appends are lost."""

    def __init__(self) -> None:
        super().__init__()
        self.lost: set[int] = set()
        """By the number of records that the log has then."""

    async def append(self, found: list[RawRecord]) -> int:
        position = await super().append(found)
        if len(self.log) in self.lost:
            raise TimeoutError
        return position


async def test_a_snapshot_that_is_tried_again_is_never_put_together_with_the_try_before() -> None:
    """All chunks of a try may be in the log though its answer was lost, and the node may die in the next try."""
    paper = LosesAnswers()
    ids, partition = served(paper)
    for mark in large(number=1).marks:
        partition.marks.learn(mark)
    await moved(ids, partition)
    chunks = len(paper.log)
    assert chunks > 2
    paper.lost = {2 * chunks, 2 * chunks + 1}
    await moved(ids, partition)
    assert len(paper.log) == 2 * chunks
    await moved(ids, partition)
    assert len(paper.log) == 2 * chunks + 1  # it died behind the first chunk
    tries = [paper.log[:chunks], paper.log[chunks : 2 * chunks], paper.log[2 * chunks :]]
    assert len({record.key for record in tries[1]} & {record.key for record in tries[2]}) == 1  # the same place
    found = collected(*tries[0], *tries[1], *tries[2]).newest(0)
    assert found is not None
    assert found == collected(*tries[0]).newest(0)


# In slices ----------------------------------------------------------------------------------------------------------


async def turns_of(work: Coroutine[Any, Any, object], between: Callable[[int], None] = lambda _: None) -> int:
    """The turns of the loop that other work had while this work ran; `between` is called in each, with its number."""
    running = asyncio.create_task(work)
    turns = 0
    while not running.done():
        await asyncio.sleep(0)
        between(turns)
        turns += 1
    await running
    return turns


async def test_a_snapshot_of_many_names_is_a_copy_that_is_written_in_slices() -> None:
    """Ids that land while it is encoded are in it neither with their marks nor with its offset."""
    paper = PaperTopic()
    ids, partition = served(paper)
    before = large(number=1).marks
    for mark in before:
        partition.marks.learn(mark._replace(id=7))
    partition.marks.read_up_to(5, lambda _: False)

    def lands(turn: int) -> None:
        batch = partition.marks.push((Pushed(b"%0255d" % turn, 8, 0), Pushed(b"new %d" % turn, 1, 1)), 7)
        partition.landed(batch, 5 + 2 * turn, 2)

    turns = await turns_of(ids.save_all(), lands)
    assert turns >= len(before) / SLICE_NAMES
    found = collected(*paper.log).newest(0)
    assert found == Saved(5, 1, [mark._replace(id=7) for mark in before])
    assert partition.saved_up_to == 5 < partition.marks.covered


async def test_a_snapshot_of_many_names_is_taken_over_in_slices() -> None:
    """A mark that moves on meanwhile keeps its higher id."""
    saved, marks = large(number=1), Marks()
    value = snapshots.to_value(records(saved))
    kept = snapshots.of_value(value, TOPIC_ID)
    assert kept is not None
    ahead = Mark(b"%0255d" % 9_999, LARGEST, 6, 1)
    began = in_slices(begin(marks, Extent(0, 9, 0), kept[0], TopicPartition(TOPIC, 0)))
    assert await turns_of(began, lambda _: marks.learn(ahead)) >= len(saved.marks) / SLICE_NAMES
    assert len(marks) == len(saved.marks)
    assert marks.mark(ahead.name) == ahead._replace(seen=2**32 - 1)
