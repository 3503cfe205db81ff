"""Runs, against a naive reading of the same log record by record; whole, and in ranges that cut batches anywhere."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.pipeline.errors import CorruptLogError
from sidecar.pipeline.source import runs as under_test
from sidecar.pipeline.source.batches import Headers, Range
from sidecar.pipeline.source.runs import Fold, Run, fold
from sidecar.protocol.ids import TopicPartition
from tests.slow.pipeline.batches import NOW, Written, encode, marker, named

WHERE = TopicPartition("orders", 3)
WRITERS = [(-1, -1, False), (1, 0, False), (1, 1, False), (2, 0, False), (3, 5, True), (1, 0, True)]
LAST = 2**31 - 1


@dataclass(frozen=True)
class Batch:
    """What the reference knows of a batch. `records` are those that compaction left; None: a marker."""

    base: int
    last_delta: int
    writer: tuple[int, int, bool]
    sequence: int
    records: tuple[Written, ...] | None
    octets: bytes = field(repr=False)
    log_time: int | None = None


def random_log(seed: int, batches: int) -> list[Batch]:
    chance = random.Random(seed)
    found: list[Batch] = []
    offset, sequences = chance.randrange(4), dict[tuple[int, int, bool], int]()
    for _ in range(batches):
        writer = chance.choice(WRITERS)
        offset += chance.choice([0, 0, 0, 5])  # whole batches are gone
        if writer[2] and chance.random() < 0.5:
            octets = marker(offset, writer[0], writer[1], commits=chance.random() < 0.5)
            found.append(Batch(offset, 0, writer, -1, None, octets))
            offset += 1
            continue
        found.append(random_batch(chance, offset, writer, sequences))
        offset += found[-1].last_delta + 1
    return found


def random_batch(
    chance: random.Random, offset: int, writer: tuple[int, int, bool], sequences: dict[tuple[int, int, bool], int]
) -> Batch:
    count, name, rising = chance.randint(1, 6), chance.choice([None, b"a", "ä".encode()]), chance.randint(0, 20)
    records: list[Written] = []
    for delta in range(count):
        if chance.random() < 0.8:
            records.append(named(delta, rising + delta, name))
        else:
            wild = chance.choice([None, 0, 7, 30, b"x", b""]), chance.choice([name, None, b"b", b"\xff"])
            records.append(named(delta, *wild))
    if chance.random() < 0.25:  # compaction was here
        records = [record for record in records if chance.random() < 0.5]
    sequence = -1
    if writer[0] >= 0:
        expected = sequences.get(writer, chance.choice([0, LAST - 2]))
        sequence = chance.choice([expected, expected, expected, 99])
        sequences[writer] = (sequence + count) % 2**31
    log_time = chance.choice([None, None, NOW + 77])
    octets = encode(
        records, offset, producer_id=writer[0], epoch=writer[1], sequence=sequence, last_delta=count - 1,
        codec=chance.choice([0, 0, 3, 4]), transactional=writer[2], log_append_time=log_time,
    )  # fmt: skip
    return Batch(offset, count - 1, writer, sequence, tuple(records), octets, log_time)


# The reference: lists of single records, summed at the end -----------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """A record in the range, or a batch that compaction emptied (`is_record` False)."""

    batch: Batch
    first: int
    last: int
    name: bytes | None = None
    id: int | None = None
    is_bad: bool = False
    is_record: bool = True
    counts: bool = False
    time: int = 0


def naive(log: Sequence[Batch], within: Range) -> list[Run]:
    open_runs: dict[tuple[tuple[int, int, bool], bytes | None], list[Seen]] = {}
    expected: dict[tuple[int, int, bool], int] = {}
    done: list[list[Seen]] = []

    def close(*keys: Any) -> None:
        done.extend(open_runs.pop(key) for key in keys)

    markers: list[Run] = []
    for batch in log:
        if batch.base + batch.last_delta < within.start or batch.base >= within.end:
            continue
        if batch.records is None:
            close(*[key for key in open_runs if key[0][0] == batch.writer[0] and key[0][2]])
            markers.append(of_marker(batch))
            continue
        if expected.get(batch.writer, batch.sequence) != batch.sequence:
            close(*[key for key in open_runs if key[0] == batch.writer])
        expected[batch.writer] = (batch.sequence + batch.last_delta + 1) % 2**31 if batch.sequence >= 0 else -1
        if not batch.records and (within.is_first or batch.base >= within.start):
            mine = [(run[-1].last, key) for key, run in open_runs.items() if key[0] == batch.writer]
            key = max(mine, key=lambda each: each[0])[1] if mine else (batch.writer, None)
            first, last = max(batch.base, within.start), min(batch.base + batch.last_delta, within.end - 1)
            time = NOW if batch.log_time is None else batch.log_time
            open_runs.setdefault(key, []).append(Seen(batch, first, last, is_record=False, counts=True, time=time))
        for seen in records_of(batch, within):
            key = batch.writer, seen.name
            if key in open_runs and breaks(open_runs[key], seen):
                close(key)
            open_runs.setdefault(key, []).append(seen)
    close(*list(open_runs))
    return [*map(of_run, done), *markers]


def records_of(batch: Batch, within: Range) -> list[Seen]:
    found: list[Seen] = []
    for index, record in enumerate(batch.records or ()):
        offset, headers = batch.base + record.delta, dict[Any, Any](record.headers)
        if not within.start <= offset < within.end:
            continue
        text, name = headers.get("sidecar-sequence-id"), headers.get("sidecar-producer-name")
        bad_name, bad_id = name == b"\xff", text is not None and not text.isdigit()
        counts = not found and (index == 0 or within.is_first)
        time = NOW + record.time_delta if batch.log_time is None else batch.log_time
        number = None if text is None or bad_name or bad_id else int(text)
        found.append(
            Seen(
                batch, offset, offset, None if bad_name else name, number, bad_name or bad_id, counts=counts, time=time
            )
        )
    return found


def breaks(run: Sequence[Seen], seen: Seen) -> bool:
    others = [each for each in run if each.is_record and not each.is_bad]
    if seen.is_bad:
        return False
    if seen.id is None:
        return any(each.id is not None for each in others)
    return any(each.id is None or each.id >= seen.id for each in others)


def stamped(batch: Batch, offset: int) -> int:
    return -1 if batch.sequence < 0 else (batch.sequence + offset - batch.base) % 2**31


def of_run(run: Sequence[Seen]) -> Run:
    first, last = run[0], run[-1]
    ids = [each.id for each in run if each.id is not None]
    counted = [each.batch for each in run if each.counts]
    records = [each for each in run if each.is_record]
    assert ids == sorted(set(ids))
    name = next((each.name for each in records), None)
    return Run(
        WHERE.partition, first.first, last.last, *first.batch.writer[:2],
        stamped(first.batch, first.first), stamped(last.batch, last.last),
        first.batch.writer[2], None if name is None else name.decode(),
        first.time, records[-1].time if records else first.time,
        len(counted), len(records), sum(len(each.octets) for each in counted), None,
        ids[0] if ids else -1, ids[-1] if ids else -1, len(ids), sum(each.is_bad for each in run),
    )  # fmt: skip


def of_marker(batch: Batch) -> Run:
    kind = "commit" if b"\0\0\0\1\x0c" in batch.octets else "abort"  # key {version 0, type 1}, size of the value
    return Run(
        WHERE.partition, batch.base, batch.base, *batch.writer[:2], -1, -1, True, None, NOW, NOW,
        1, 1, len(batch.octets), kind,
    )  # fmt: skip


def ordered(runs: Sequence[Run]) -> list[Any]:
    return sorted((astuple(run) for run in runs), key=repr)


def folded(log: Sequence[Batch], within: Range) -> list[Run]:
    return fold([memoryview(batch.octets) for batch in log], WHERE, within, Headers())


@settings(max_examples=500)
@given(seed=st.integers(0, 2**32), batches=st.integers(1, 12), cuts=st.sets(st.integers(1, 60), max_size=4))
def test_runs_are_what_a_naive_reading_finds_wherever_ranges_cut_batches(
    seed: int, batches: int, cuts: set[int]
) -> None:
    log, found = random_log(seed, batches), list[Run]()
    for start, end in pairwise([0, *sorted(cuts), 10**6]):
        within = Range(start, end, is_first=start == 0)
        runs = folded(log, within)
        assert ordered(runs) == ordered(naive(log, within))
        assert all(start <= run.first_offset <= run.last_offset < end for run in runs)
        found += runs
    for name in ("batches", "records", "bytes", "ids", "malformed"):
        whole = folded(log, Range(0, 10**6))
        assert sum(getattr(run, name) for run in found) == sum(getattr(run, name) for run in whole)


# Examples -------------------------------------------------------------------------------------------------------------


def one_batch(ids: Sequence[int], offset: int, sequence: int, producer_id: int = 7) -> memoryview:
    records = [named(delta, sequence_id, b"billing") for delta, sequence_id in enumerate(ids)]
    return memoryview(encode(records, offset, producer_id=producer_id, epoch=0, sequence=sequence))


def test_a_million_clean_records_would_be_one_row() -> None:
    batches = [one_batch(range(at, at + 10), at, at) for at in range(0, 1000, 10)]
    (run,) = fold(batches, WHERE, Range(0, 1000), Headers())
    assert (run.batches, run.records, run.ids, run.first_id, run.last_id, run.id_gaps) == (100, 1000, 1000, 0, 999, 0)


def test_two_writers_between_each_other_are_a_run_each() -> None:
    batches = [one_batch(range(at, at + 10), 2 * at + 10 * who, at, who) for at in range(0, 100, 10) for who in (0, 1)]
    assert [run.records for run in fold(batches, WHERE, Range(0, 200), Headers())] == [100, 100]


def test_numbers_left_out_are_gaps_and_a_repeated_id_begins_a_run() -> None:
    runs = fold([one_batch([1, 5, 6], 0, 0), one_batch([6, 7], 3, 3)], WHERE, Range(0, 5), Headers())
    assert [(run.first_id, run.last_id, run.ids, run.id_gaps) for run in runs] == [(1, 6, 3, 3), (6, 7, 2, 0)]


def test_a_range_begins_at_its_first_offset_and_not_where_the_batch_does() -> None:
    (run,) = fold([one_batch(range(10), 100, 40)], WHERE, Range(103, 107, is_first=False), Headers())
    assert (run.first_offset, run.last_offset, run.first_id, run.last_id) == (103, 106, 3, 6)
    assert (run.first_sequence, run.last_sequence, run.batches, run.bytes) == (43, 46, 0, 0)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_format_without_producer_ids_is_told_by_its_offset(magic: int) -> None:
    batch = bytearray(one_batch([1], 42, 0))
    batch[16] = magic
    with pytest.raises(CorruptLogError, match=rf"offset 42 of orders-3 .* message format v{magic}: only v2 carries"):
        fold([memoryview(batch)], WHERE, Range(0, 100), Headers())


def test_a_flipped_bit_is_told_by_its_offset() -> None:
    batch = bytearray(one_batch(range(20), 42, 0))
    batch[random.Random(1).randrange(21, len(batch))] ^= 4
    with pytest.raises(CorruptLogError, match="offset 42 of orders-3 cannot be read: its CRC-32C"):
        fold([memoryview(batch)], WHERE, Range(0, 100), Headers())


def test_records_that_do_not_parse_are_told_by_the_offset_of_their_batch() -> None:
    sound = encode([named(0, 1), named(1, 2)], 42)
    lying = encode([named(0, 1)], 42, last_delta=1)
    batch = lying[:57] + sound[57:61] + lying[61:]  # it counts two records and holds one
    batch = encode_crc(batch)
    with pytest.raises(CorruptLogError, match="offset 42 of orders-3 cannot be read: record 1"):
        fold([memoryview(batch)], WHERE, Range(0, 100), Headers())


def encode_crc(batch: bytes) -> bytes:
    return batch[:17] + crc32c(batch[21:]).to_bytes(4, "big") + batch[21:]


def test_many_names_and_many_writers_take_no_more_memory_than_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "MOST_OPEN", 10)
    for names, writers in ((100, 1), (1, 100)):
        log, found = Fold(WHERE, Range(0, 400), Headers()), list[Run]()
        for at in range(200):  # every name, or writer, twice
            its, writer = b"n%d" % (at % names), at % writers
            octets = encode([named(0, at, its)], at, producer_id=writer, epoch=0, sequence=at // writers)
            log.add(memoryview(octets))
            found += log.take()
            assert at - sum(run.records for run in found) < 2 * under_test.MOST_OPEN
        found += log.finish()
        assert sorted((run.first_offset, run.last_offset, run.first_id, run.last_id) for run in found) == [
            (at, at, at, at) for at in range(200)
        ]
