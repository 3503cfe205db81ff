"""Record batches: ours read by another reader, another writer's read by ours, damage always noticed."""

from __future__ import annotations

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from sidecar.changelog.records import RawRecord, UnreadableBatchError, build_batch, read_batches
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp

WRITER = Stamp(ProducerId(4_000), ProducerEpoch(7))
raw_records = st.lists(
    st.builds(RawRecord, st.binary(max_size=200), st.none() | st.binary(max_size=300)), min_size=1, max_size=40
)


@given(raw_records, st.integers(0, 2**31 - 1))
def test_another_reader_finds_what_we_built(records: list[RawRecord], sequence: int) -> None:
    batch = DefaultRecordBatch(bytes(build_batch(records, WRITER, sequence)))
    assert batch.validate_crc()
    assert [(record.key, record.value) for record in batch] == [(record.key, record.value) for record in records]
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (4_000, 7, sequence)
    assert (batch.magic, batch.is_transactional, batch.is_control_batch) == (2, False, False)
    assert batch.next_offset == len(records)


@given(raw_records)
def test_we_find_what_another_writer_built(records: list[RawRecord]) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=4_000,
        producer_epoch=7,
        base_sequence=0,
        batch_size=1 << 20,
    )
    for index, record in enumerate(records):
        builder.append(index, 1_700_000_000_000 + index, record.key, record.value, [("header", b"x")])
    (batch,) = read_batches(bytes(builder.build()))
    assert [record for _, record in batch.records] == records
    assert [offset for offset, _ in batch.records] == list(range(len(records)))
    assert batch.writer == WRITER
    assert batch.timestamp_ms == 1_700_000_000_000 + len(records) - 1


@given(raw_records)
def test_a_batch_comes_back(records: list[RawRecord]) -> None:
    (batch,) = read_batches(bytes(build_batch(records, None)))
    assert [record for _, record in batch.records] == records
    assert batch.writer is None
    assert not batch.is_control
    assert (batch.base_offset, batch.next_offset) == (0, len(records))


def test_batches_follow_each_other_and_one_cut_off_at_the_end_is_left_for_the_next_fetch() -> None:
    first = bytes(build_batch([RawRecord(b"a", b"1")], WRITER, 0))
    second = bytes(build_batch([RawRecord(b"b", None)], WRITER, 1))
    data = first + second
    assert [batch.records[0][1] for batch in read_batches(data)] == [RawRecord(b"a", b"1"), RawRecord(b"b", None)]
    for size in range(len(first), len(data)):
        assert len(list(read_batches(data[:size]))) == 1


@given(raw_records, st.data())
def test_no_damage_to_a_batch_goes_unnoticed(records: list[RawRecord], data: st.DataObject) -> None:
    batch = build_batch(records, WRITER)
    at = data.draw(st.integers(17, len(batch) - 1))
    batch[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(UnreadableBatchError):
        list(read_batches(bytes(batch)))


def test_a_compressed_batch_is_nobody_we_know() -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=DefaultRecordBatch.CODEC_GZIP,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    builder.append(0, 0, b"k", b"v" * 1000, [])
    with pytest.raises(UnreadableBatchError, match="compressed"):
        list(read_batches(bytes(builder.build())))
