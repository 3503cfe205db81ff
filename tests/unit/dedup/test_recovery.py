"""Marks out of a snapshot and the log behind it: where reading begins, what batches tell, and what cannot be known."""

from __future__ import annotations

import threading
from struct import Struct
from typing import TYPE_CHECKING, cast

import pytest

from sidecar.cluster import logs
from sidecar.cluster.logs import LogReader
from sidecar.dedup import recovery
from sidecar.dedup.content import payload_of
from sidecar.dedup.marks import Judgement, Mark, Marks, Pushed
from sidecar.dedup.names import FORGOTTEN, WriterNames
from sidecar.dedup.recovery import Extent, IdsLostError, Reading, ids_in, learn, read_on
from sidecar.dedup.snapshots import Saved
from sidecar.protocol.batch import HEADER_BYTES, read_header, stamp
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import TopicPartition
from sidecar.protocol.primitives import at_once
from tests.unit.cluster.paper_log import PaperLog
from tests.unit.dedup.paper import CONTROL, HEADERS, TRANSACTIONAL, Rec, logged, recs

if TYPE_CHECKING:
    from sidecar.protocol.caller import Upstream
    from sidecar.protocol.primitives import Octets

ME, OTHER = b"me", b"other"
PARTITION = TopicPartition("orders", 0)
NOW = 1_700_000_000
MINE, NAMELESS, LOST, UNHEARD_OF = 7, 8, 9, 10


def reading(ids_from: int = 0) -> Reading:
    names = WriterNames()
    names.add(MINE, 3, OTHER)
    names.add(MINE, 5, ME)
    names.add(NAMELESS, 5, None)
    names.add(LOST, 5, FORGOTTEN)
    return Reading(names, HEADERS, ids_from)


def replay(data: bytes, marks: Marks, reading: Reading, now: int) -> tuple[int, int]:
    """Learn what batches tell; the offset behind them, and how many records."""
    told = ids_in(data, reading)
    learn(told, marks, now)
    return told.behind, told.records


def replayed(*batches: bytes, ids_from: int = 0) -> dict[bytes, tuple[int, int]]:
    """Id and offset by name."""
    marks = Marks()
    replay(b"".join(batches), marks, reading(ids_from), NOW)
    return {mark.name: (mark.id, mark.offset) for mark in marks}


def compacted(data: bytes, *left: int) -> bytes:
    """With the records at these indices alone, as the cleaner leaves a batch: the header still counts from its first
    offset to its last.
    """
    out, at = bytearray(data[:HEADER_BYTES]), HEADER_BYTES
    index = 0
    while at < len(data):
        assert data[at] < 0x80, "the records of this test are short"
        end = at + 1 + (data[at] >> 1)
        if index in left:
            out += data[at:end]
        at, index = end, index + 1
    header = read_header(data, 0, len(data))
    Struct(">i").pack_into(out, 8, len(out) - 12)
    Struct(">i").pack_into(out, 57, len(left))
    stamp(out, 0, len(out), header.producer_id, header.producer_epoch, header.base_sequence)
    return bytes(out)


# Where to read from -------------------------------------------------------------------------------------------------


def test_what_is_known_up_to_somewhere_in_the_log_is_read_on_from_there() -> None:
    extent = Extent(start=10, end=50, ids_from=0)
    assert [covered for covered in (9, 10, 30, 50, 51) if extent.reads_on_from(covered)] == [10, 30, 50]


def test_a_log_tells_all_ids_where_retention_took_none() -> None:
    assert Extent(start=0, end=50, ids_from=0).from_scratch == 0
    assert Extent(start=10, end=50, ids_from=10).from_scratch == 10
    assert Extent(start=10, end=50, ids_from=30).from_scratch == 10
    assert Extent(start=11, end=50, ids_from=10).from_scratch is None


def begun(marks: Marks, extent: Extent, saved: Saved | None, partition: TopicPartition) -> int:
    return at_once(recovery.begin(marks, extent, saved, partition))


def test_without_a_snapshot_the_whole_log_is_read() -> None:
    assert begun(Marks(), Extent(0, 50, 0), None, PARTITION) == 0
    assert begun(Marks(), Extent(20, 50, 30), None, PARTITION) == 20


def test_a_snapshot_is_taken_over_and_the_log_read_behind_it() -> None:
    marks = Marks()
    assert begun(marks, Extent(10, 50, 0), Saved(30, 1, [Mark(ME, 5, 20, NOW)]), PARTITION) == 30
    assert marks.mark(ME) == Mark(ME, 5, 20, NOW)


def test_a_snapshot_moves_no_mark_back() -> None:
    marks = Marks(covered=40)
    marks.learn(Mark(ME, 9, 39, NOW))
    assert begun(marks, Extent(0, 50, 0), Saved(30, 1, [Mark(ME, 5, 20, NOW)]), PARTITION) == 40
    assert marks.persisted(ME) == 9


def test_memory_that_ends_in_front_of_a_snapshot_is_read_on_from_the_snapshot() -> None:
    marks = Marks(covered=20)
    assert begun(marks, Extent(0, 50, 0), Saved(30, 1, [Mark(ME, 5, 20, NOW)]), PARTITION) == 30


def test_ids_are_lost_where_neither_a_snapshot_nor_the_log_tells_them() -> None:
    with pytest.raises(IdsLostError, match=r"begins at offset 11.*from offset 0 to there"):
        begun(Marks(), Extent(11, 50, 0), None, PARTITION)
    marks = Marks()
    with pytest.raises(IdsLostError):
        begun(marks, Extent(11, 50, 0), Saved(10, 1, [Mark(ME, 5, 9, NOW)]), PARTITION)
    assert len(marks) == 0


def test_a_snapshot_of_more_than_the_log_holds_is_not_believed() -> None:
    """An unclean election took what was acknowledged: those ids are not in the log any more."""
    marks = Marks()
    assert begun(marks, Extent(0, 50, 0), Saved(51, 1, [Mark(ME, 5, 50, NOW)]), PARTITION) == 0
    assert marks.judge(ME, 5) is Judgement.NEW


def test_memory_of_more_than_the_log_holds_is_believed_no_more_than_a_snapshot() -> None:
    marks = Marks(covered=51)
    marks.learn(Mark(ME, 5, 50, NOW))
    assert begun(marks, Extent(0, 50, 0), None, PARTITION) == 0
    assert marks.judge(ME, 5) is Judgement.NEW
    marks.read_up_to(50, lambda its: True)
    assert marks.covered == 50


# What batches tell --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", range(5))
def test_ids_without_a_name_are_their_writers(codec: int) -> None:
    found = [logged(recs(5, 6), 10, epoch=3, codec=codec), logged(recs(7, 9), 12, epoch=4, codec=codec)]
    assert replayed(*found) == {OTHER: (6, 11), ME: (9, 13)}


@pytest.mark.parametrize("codec", range(5))
def test_names_of_their_own_come_before_the_writers(codec: int) -> None:
    found = logged([Rec(5, b"a"), Rec(8), Rec(3, b"b"), Rec(7)], 10, epoch=4, codec=codec)
    assert replayed(found) == {b"a": (5, 10), ME: (8, 11), b"b": (3, 12)}


def test_a_lower_id_behind_a_higher_one_moves_nothing_back() -> None:
    """Pulsar's replay puts; deduplication may have been off in between."""
    assert replayed(logged(recs(9), 10, epoch=4), logged(recs(3), 11, epoch=4)) == {ME: (9, 10)}


def test_replay_tells_how_far_it_came_and_how_many_records_that_were() -> None:
    data = logged(recs(1, 2, 3), 10, epoch=4) + logged(recs(None), 13)
    assert replay(data, Marks(), reading(), NOW) == (14, 4)
    assert replay(b"", Marks(), reading(), NOW) == (-1, 0)


def test_a_batch_that_is_cut_off_at_the_end_is_left_for_the_next_fetch() -> None:
    first, second = logged(recs(1), 10, epoch=4), logged(recs(2), 11, epoch=4)
    marks = Marks()
    assert replay(first + second[:-1], marks, reading(), NOW) == (11, 1)
    assert marks.persisted(ME) == 1


def test_batches_without_ids_tell_nothing_whoever_wrote_them() -> None:
    batches = [logged(recs(None, None), 10, producer_id) for producer_id in (MINE, NAMELESS, LOST, UNHEARD_OF, -1)]
    assert replayed(*batches) == {}


def test_markers_tell_nothing_and_are_counted_as_offsets_alone() -> None:
    marker = logged(recs(5), 10, epoch=4, attributes=TRANSACTIONAL | CONTROL)
    marks = Marks()
    assert replay(marker + logged(recs(3), 11, epoch=4), marks, reading(), NOW) == (12, 1)
    assert marks.persisted(ME) == 3


def test_ids_in_transactions_tell_nothing_and_are_counted() -> None:
    """No node let them in, and where they were aborted nobody has read them: to drop a repeat would lose the record."""
    before = logged([Rec(5, ME), Rec(6, ME)], 10, UNHEARD_OF, attributes=TRANSACTIONAL)
    assert replayed(before, logged(recs(3), 12, epoch=4)) == {ME: (3, 12)}
    assert replay(before, Marks(), reading(), NOW) == (12, 2)


@pytest.mark.parametrize("producer_id", [NAMELESS, UNHEARD_OF, -1])
def test_ids_of_nobody_tell_nothing(producer_id: int) -> None:
    assert replayed(logged(recs(5), 10, producer_id)) == {}
    assert replayed(logged([Rec(5, b"a"), Rec(6)], 10, producer_id)) == {b"a": (5, 10)}


@pytest.mark.parametrize("wrong", [b"-1", b"x", b"", b"99999999999999999999"])
def test_malformed_ids_tell_nothing(wrong: bytes) -> None:
    """They came while the topic had no sequence ids: no node would let them in."""
    assert replayed(logged(recs(wrong), 10, epoch=4)) == {}
    assert replayed(logged(recs(5, wrong, 7), 10, epoch=4)) == {ME: (7, 12)}


def test_records_that_do_not_parse_tell_nothing_and_are_passed() -> None:
    bad = bytearray(logged(recs(5), 10, epoch=4))
    bad[HEADER_BYTES] ^= 0x02
    assert replayed(bytes(bad), logged(recs(6), 11, epoch=4)) == {ME: (6, 11)}


def test_ids_of_a_forgotten_writer_are_lost_where_none_may_be_missed() -> None:
    with pytest.raises(IdsLostError, match="offset 10"):
        replayed(logged(recs(5), 10, LOST), ids_from=10)
    with pytest.raises(IdsLostError):
        replayed(logged([Rec(5, b"a"), Rec(6)], 11, LOST), ids_from=10)


def test_ids_of_a_forgotten_writer_are_of_no_account_in_front_of_that() -> None:
    assert replayed(logged(recs(5), 9, LOST), ids_from=10) == {}
    assert replayed(logged([Rec(5, b"a"), Rec(6)], 8, LOST), ids_from=10) == {b"a": (5, 8)}


def test_a_forgotten_writer_who_gave_names_of_its_own_is_not_missed() -> None:
    assert replayed(logged(recs(5, 6, name=b"a"), 10, LOST), ids_from=0) == {b"a": (6, 11)}


# Compacted logs -----------------------------------------------------------------------------------------------------


def test_a_batch_of_which_compaction_left_some_records_tells_their_ids_and_offsets() -> None:
    data = logged([Rec(1, b"a"), Rec(2, b"b"), Rec(3, b"a"), Rec(4, b"b")], 10)
    assert replayed(compacted(data, 0, 3)) == {b"a": (1, 10), b"b": (4, 13)}
    assert replay(compacted(data, 0), Marks(), reading(), NOW) == (14, 1)


def test_a_batch_of_rising_ids_of_which_compaction_left_some_tells_the_last_ones_offset() -> None:
    data = logged(recs(1, 2, 3, 4), 10, epoch=4)
    assert replayed(compacted(data, 1, 3)) == {ME: (4, 13)}
    assert replayed(compacted(data, 0, 1)) == {ME: (2, 11)}


def test_a_batch_that_compaction_emptied_tells_nothing_and_is_passed() -> None:
    empty = compacted(logged(recs(1, 2), 10, epoch=4))
    assert read_header(empty, 0, len(empty)).records == 0
    marks = Marks()
    assert replay(empty + logged(recs(3), 12, epoch=4), marks, reading(), NOW) == (13, 1)


# Reading on ---------------------------------------------------------------------------------------------------------


async def read_log(log: PaperLog, marks: Marks, offset: int, end: int, ids_from: int = 0) -> list[tuple[int, int]]:
    """The progress."""
    told: list[tuple[int, int]] = []
    await read_on(
        LogReader(cast("Upstream", log)),
        PARTITION,
        marks,
        offset,
        end,
        reading(ids_from),
        lambda *came: told.append(came),
        lambda: NOW,
    )
    return told


async def test_the_log_is_read_on_to_its_end_and_no_further() -> None:
    log = PaperLog(*[logged(recs(index), 10 + index, epoch=4) for index in range(5)])
    marks = Marks()
    assert await read_log(log, marks, 11, 14) == [(1, 1)] * 3
    assert (log.fetched, marks.persisted(ME)) == ([11, 12, 13], 3)


async def test_batches_are_opened_by_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 100,000 records under names of their own held the event loop for 0.3 s."""
    opened: list[bool] = []
    loop = threading.get_ident()

    def counted(batch: memoryview) -> Octets:
        opened.append(threading.get_ident() == loop)
        return payload_of(batch)

    monkeypatch.setattr(recovery, "payload_of", counted)
    log = PaperLog(*[logged(recs(index), 10 + index, epoch=4) for index in range(2)])
    await read_log(log, Marks(), 10, 12)
    assert opened == [False, False]


async def test_a_batch_that_begins_in_front_of_where_reading_does_is_read_as_a_whole() -> None:
    log = PaperLog(logged(recs(5, 6, 7), 10, epoch=4), logged(recs(8), 13, epoch=4))
    marks = Marks()
    assert await read_log(log, marks, 12, 14) == [(1, 3), (1, 1)]
    assert marks.mark(ME) is not None
    assert marks.persisted(ME) == 8


async def test_a_log_in_which_compaction_was_is_read_to_its_end() -> None:
    """What was removed is older than the topic's ids."""
    log = PaperLog(logged(recs(5), 10, epoch=4), logged(recs(6), 22, epoch=4))
    marks = Marks()
    assert await read_log(log, marks, 10, 20, ids_from=22) == [(1, 1), (12, 1)]
    assert log.fetched == [10, 11]


async def test_ids_that_compaction_removed_before_a_snapshot_had_them_are_lost() -> None:
    """One of the removed records may have had the highest id of a name."""
    log = PaperLog(logged(recs(5), 10, epoch=4), logged(recs(6), 22, epoch=4))
    with pytest.raises(IdsLostError, match="between offsets 11 and 22"):
        await read_log(log, Marks(), 10, 23, ids_from=21)
    with pytest.raises(IdsLostError, match="between offsets 10 and 12"):
        await read_log(PaperLog(compacted(logged(recs(1, 2), 10, epoch=4), 1)), Marks(), 10, 12)
    with pytest.raises(IdsLostError, match="between offsets 8 and 10"):
        await read_log(PaperLog(logged(recs(5), 10, epoch=4)), Marks(), 8, 11)


async def test_a_log_that_begins_in_the_middle_of_a_batch_lacks_nothing() -> None:
    marks = Marks()
    assert await read_log(PaperLog(logged(recs(5, 6, 7), 10, epoch=4)), marks, 11, 13) == [(2, 3)]
    assert marks.persisted(ME) == 7


async def test_an_empty_answer_is_no_end_of_what_is_to_be_read() -> None:
    log = PaperLog(*[logged(recs(index), 10 + index, epoch=4) for index in range(2)])
    log.empty_at = {11: 3}
    marks = Marks()
    assert await read_log(log, marks, 10, 12) == [(1, 1), (1, 1)]
    assert (log.fetched, marks.persisted(ME)) == ([10, 11, 11, 11, 11], 1)


async def test_a_log_that_does_not_reach_its_end_is_not_taken_for_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_LONGEST_PAUSE_S", 0.0)
    log = PaperLog(logged(recs(5), 10, epoch=4))
    with pytest.raises(KafkaError, match="nothing comes from offset 11 on") as failure:
        await read_log(log, Marks(), 10, 20)
    assert failure.value.code == ErrorCode.LEADER_NOT_AVAILABLE


async def test_an_empty_log_needs_no_fetch() -> None:
    log = PaperLog()
    assert await read_log(log, Marks(), 0, 0) == []
    assert log.fetched == []


async def test_what_others_have_under_way_stays_so_while_the_log_is_read() -> None:
    marks = Marks()
    marks.push((Pushed(ME, 9, 0),), 1)
    await read_log(PaperLog(logged(recs(5), 10, epoch=4)), marks, 10, 11)
    assert [marks.judge(ME, sequence_id) for sequence_id in (5, 6, 9, 10)] == [
        Judgement.DUPLICATE,
        Judgement.UNSETTLED,
        Judgement.UNSETTLED,
        Judgement.NEW,
    ]
