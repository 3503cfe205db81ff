"""Marks as records of the snapshot topic and as one value: what comes back, and what is taken for no snapshot."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.changelog import RawRecord
from sidecar.dedup import snapshots
from sidecar.dedup.content import Headers
from sidecar.dedup.environment import Surroundings
from sidecar.dedup.marks import Mark, Pushed
from sidecar.dedup.names import NAME_BYTES
from sidecar.dedup.partition import PartitionIds
from sidecar.dedup.snapshots import Collector, Saved
from sidecar.dedup.topic import TopicIds
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
    return snapshots.to_records(topic, partition, snapshots.encode(topic_id, saved, NOW_MS))


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
    value = snapshots.to_value(snapshots.encode(TOPIC_ID, saved, NOW_MS), 7)
    assert snapshots.of_value(value, TOPIC_ID) == (saved, 7)
    assert snapshots.of_value(value, OTHER_ID) is None


def test_chunks_are_small_enough_for_any_broker_and_fit_together_again() -> None:
    saved = large(number=1)
    chunks = records(saved)
    assert len(chunks) > 2
    assert all(len(chunk.key) + len(chunk.value or b"") < BROKER_BYTES for chunk in chunks)
    assert collected(*reversed(chunks)).newest(0) == saved
    value = snapshots.to_value(snapshots.encode(TOPIC_ID, saved, NOW_MS))
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


# Taking turns -------------------------------------------------------------------------------------------------------


class PaperTopic:
    """A snapshot topic, and everything else that saving needs. Implements `Hooks`."""

    def __init__(self) -> None:
        self.log: list[RawRecord] = []

    async def append(self, found: list[RawRecord]) -> int:
        self.log += found
        return len(self.log) - 1

    async def ends(self, topic: str, partitions: list[int]) -> dict[int, int]:
        return dict.fromkeys(partitions, 0)

    async def keep_snapshot(self, *_: object) -> None: ...
    def snapshot_written(self, topic: str, names: int, size: int) -> None: ...
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
    around = Surroundings(cast(Any, paper), cast(Any, paper), cast(Any, paper), nothing, cast(Any, paper), Headers())
    ids = TopicIds(TOPIC, around, lambda session: True, lambda: None)
    ids.renewed(nothing)
    ids._snapshots.topic_id = TOPIC_ID
    partition = ids.of(0)
    partition.is_ready = True
    return ids, partition


@pytest.mark.parametrize("milliseconds", [1, 2, 1_000])
async def test_the_two_copies_of_a_partition_take_turns_whatever_the_time(
    monkeypatch: pytest.MonkeyPatch, milliseconds: int
) -> None:
    """Else a node that dies between two chunks leaves none that is whole."""
    paper = PaperTopic()
    ids, partition = served(paper)
    clock = NOW_MS
    monkeypatch.setattr(time, "time", lambda: clock / 1000)
    for _ in range(6):
        clock += milliseconds
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
