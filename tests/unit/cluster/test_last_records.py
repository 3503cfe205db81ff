"""A look at the last records: the newest, few, cut, and a batch that cannot be opened is an error with its name."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, cast

import pytest

from sidecar.cluster import logs as found_in
from sidecar.cluster.logs import CutBytes, LogReader, Names, last_records, open_last
from sidecar.protocol.batch import HEADER_BYTES
from sidecar.protocol.codec import Codec
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp, TopicPartition
from sidecar.protocol.new_batch import NewRecord, build_batch
from tests.unit.cluster.paper_log import PaperLog
from tests.unit.dedup.paper import CONTROL, logged, recs

if TYPE_CHECKING:
    from sidecar.protocol.caller import Upstream

WHERE = TopicPartition("orders", 3)
NAMES = Names(b"sidecar-sequence-id", b"sidecar-producer-name")


def batch(first: int, *values: bytes | None, codec: Codec = Codec.NONE, pid: int = 7) -> bytes:
    """A batch of records with these values, which begins at an offset; each record's key and id are its offset."""
    records = [
        NewRecord(
            str(offset).encode(),
            value,
            [("sidecar-sequence-id", str(offset).encode()), ("sidecar-producer-name", b"billing"), ("empty", None)],
            1_000 + offset,
        )
        for offset, value in enumerate(values, first)
    ]
    found = build_batch(records, pid, 2 if pid >= 0 else -1, first if pid >= 0 else -1, codec)
    found[0:8] = first.to_bytes(8, "big")
    return bytes(found)


def offsets(data: bytes, first: int, most: int) -> list[int]:
    return [each.offset for each in open_last(data, WHERE, first, most, NAMES)]


def test_a_record_is_told_with_all_that_the_log_says_of_it() -> None:
    (found,) = open_last(batch(5, b"v"), WHERE, 5, 1, NAMES)
    assert (found.partition, found.offset, found.timestamp_ms) == (3, 5, 1_005)
    assert (found.key, found.value) == (CutBytes(b"5", 1), CutBytes(b"v", 1))
    assert (found.sequence_id, found.producer_name) == (5, "billing")
    assert found.headers[2] == ("empty", None)
    assert found.writer == Stamp(ProducerId(7), ProducerEpoch(2))
    assert open_last(batch(5, b"v", pid=-1), WHERE, 5, 1, NAMES)[0].writer is None


def test_the_newest_come_first_and_no_more_than_were_asked_for() -> None:
    data = batch(0, b"a", b"b", b"c") + batch(3, b"d", b"e")
    assert offsets(data, 0, 10) == [4, 3, 2, 1, 0]
    assert offsets(data, 0, 3) == [4, 3, 2]
    assert offsets(data, 2, 10) == [4, 3, 2]
    assert offsets(data, 0, 1) == [4]


@pytest.mark.parametrize("codec", list(Codec))
def test_compressed_batches_are_opened(codec: Codec) -> None:
    assert offsets(batch(0, *[b"v" * 100] * 50, codec=codec), 0, 3) == [49, 48, 47]


def test_long_bytes_are_cut_and_nulls_stay_nulls() -> None:
    long, null = open_last(batch(0, None, b"x" * 1_000_000), WHERE, 0, 2, NAMES)
    assert long.value == CutBytes(b"x" * found_in.VALUE_BYTES, 1_000_000)
    assert null.value is None


def test_many_headers_are_cut_and_the_next_record_keeps_its_own() -> None:
    many = NewRecord(b"k", b"v", [(f"h{each}", b"1") for each in range(100)], 0)
    one = NewRecord(b"k", b"v", [("own", b"2")], 0)
    newest, before = open_last(build_batch([many, one], 1, 0, 0), WHERE, 0, 2, NAMES)
    assert newest.headers == (("own", CutBytes(b"2", 1)),)
    assert [name for name, _ in before.headers] == [f"h{each}" for each in range(found_in.HEADERS)]


def test_a_batch_that_cannot_be_opened_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = bytearray(batch(40, b"v"))
    damaged[-1] ^= 1
    with pytest.raises(KafkaError, match=r"the batch at offset 40 of orders-3: .*CRC"):
        open_last(bytes(damaged), WHERE, 40, 1, NAMES)
    monkeypatch.setattr(found_in, "_OPENED_BYTES", 10_000)
    bomb = batch(40, b"\0" * 20_000, codec=Codec.GZIP)
    assert len(bomb) < HEADER_BYTES + 1_000
    with pytest.raises(KafkaError, match="the batch at offset 40 of orders-3"):
        open_last(bomb, WHERE, 40, 1, NAMES)
    assert offsets(bomb + batch(41, b"v"), 40, 1) == [41]  # nobody opens what is not shown


@pytest.mark.parametrize("codec", list(Codec))
def test_bombs_in_a_row_are_opened_until_together_they_are_large(monkeypatch: pytest.MonkeyPatch, codec: Codec) -> None:
    monkeypatch.setattr(found_in, "_OPENED_BYTES", 50_000)
    bombs = [batch(each, b"\0" * 20_000, codec=codec) for each in range(40, 50)]
    assert offsets(b"".join(bombs), 40, 10) == [49, 48]
    large = batch(30, b"\0" * 60_000, codec=codec)
    assert offsets(large + bombs[0], 30, 10) == [40]
    with pytest.raises(KafkaError, match="the batch at offset 30"):
        offsets(large, 30, 10)


def test_headers_that_are_not_shown_make_no_objects() -> None:
    bomb = build_batch([NewRecord(None, None, [("", None)] * 1_000_000, 0)], -1, -1, -1, Codec.ZSTD)
    tracemalloc.start()
    (found,) = open_last(bomb, WHERE, 0, 1, NAMES)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.headers == (("", None),) * found_in.HEADERS
    assert peak < 2 * 1_000_000 + 4_000_000  # what is decompressed; two lists took 16 MB more


async def test_the_end_of_a_log_is_looked_for_where_an_answer_is_full_before_it() -> None:
    log = PaperLog(*[batch(offset, b"v") for offset in range(100, 140)])
    reader = LogReader(cast("Upstream", log))
    first = TopicPartition("orders", 0)
    found = await last_records(reader, first, 100, 140, 16, NAMES)
    assert [each.offset for each in found][:1] == [139]
    assert log.fetched == [100, 124, 138, 139]  # of this log each answer is one batch: nearer to the end
    assert await last_records(reader, first, 100, 100, 16, NAMES) == []


async def test_markers_at_the_end_do_not_count_as_records() -> None:
    log = PaperLog(
        batch(0, b"a", b"b", b"c")
        + b"".join(logged(recs(None), offset, attributes=CONTROL) for offset in range(3, 7))
        + batch(7, b"d")
    )
    found = await last_records(LogReader(cast("Upstream", log)), TopicPartition("orders", 0), 0, 8, 2, NAMES)
    assert [each.offset for each in found] == [7, 2]
