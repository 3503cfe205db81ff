"""Headers of record batches made by another library: read, stamped anew, cut into batches."""

from __future__ import annotations

import contextlib

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from sidecar.protocol import batch
from sidecar.protocol.errors import ErrorCode, KafkaError

_NOW = 1_700_000_000_000


def made(
    count: int = 3, *, transactional: bool = False, producer: tuple[int, int, int] = (4711, 5, 77), compression: int = 0
) -> bytes:
    producer_id, epoch, sequence = producer
    builder = DefaultRecordBatchBuilder(2, compression, transactional, producer_id, epoch, sequence, 100_000)
    for index in range(count):
        assert builder.append(index, _NOW + index, b"key", b"value %d" % index, [("header", b"x")])
    return bytes(builder.build())


@pytest.mark.parametrize("compression", range(4))
@pytest.mark.parametrize("transactional", [False, True])
def test_a_header_is_read(compression: int, transactional: bool) -> None:
    data = made(transactional=transactional, compression=compression)
    found = batch.read_header(b"front" + data, 5, 5 + len(data))
    assert (found.base_offset, found.size, found.magic, found.records) == (0, len(data), 2, 3)
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (4711, 5, 77)
    assert (found.last_offset_delta, found.last_sequence) == (2, 79)
    assert (found.base_timestamp, found.max_timestamp) == (_NOW, _NOW + 2)
    assert (found.is_transactional, found.is_control) == (transactional, False)
    assert batch.crc_matches(data, 0, found.size)


def test_sequences_wrap_behind_the_largest() -> None:
    found = batch.read_header(data := made(producer=(1, 0, 2**31 - 2)), 0, len(data))
    assert found.last_sequence == 0


@given(producer_id=st.integers(-1, 2**63 - 1), epoch=st.integers(-1, 2**15 - 1), sequence=st.integers(-1, 2**31 - 1))
def test_a_stamped_batch_is_valid_and_carries_the_same_records(producer_id: int, epoch: int, sequence: int) -> None:
    original = made()
    buffer = bytearray(b"front" + original + b"behind")
    batch.stamp(buffer, 5, len(original), producer_id, epoch, sequence)
    assert (buffer[:5], buffer[-6:]) == (b"front", b"behind")
    stamped = bytes(buffer[5:-6])
    found = batch.read_header(stamped, 0, len(stamped))
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (producer_id, epoch, sequence)
    reader = DefaultRecordBatch(bytearray(stamped))
    assert reader.validate_crc()
    before = DefaultRecordBatch(bytearray(original))
    assert [(record.offset, record.key, record.value, record.headers) for record in reader] == [
        (record.offset, record.key, record.value, record.headers) for record in before
    ]


@given(at=st.integers(21, 100), bit=st.integers(0, 7))
def test_any_flipped_bit_behind_the_crc_is_noticed(at: int, bit: int) -> None:
    data = bytearray(made())
    data[at % len(data) if at % len(data) > 20 else 21] ^= 1 << bit
    assert not batch.crc_matches(data, 0, len(data))


@pytest.mark.parametrize("magic", [0, 1])
def test_older_message_formats_carry_no_producer(magic: int) -> None:
    builder = LegacyRecordBatchBuilder(magic, 0, 1000)
    assert builder.append(0, _NOW, b"key", b"value", [])
    data = bytes(builder.build())
    with pytest.raises(KafkaError) as refused:
        batch.read_header(data, 0, len(data))
    assert refused.value.code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_a_batch_cut_off_anywhere_is_corrupt() -> None:
    data = made()
    for size in range(len(data)):
        for view in (data[:size], data):
            with pytest.raises(KafkaError) as refused:
                batch.read_header(view, 0, size)
            assert refused.value.code == ErrorCode.CORRUPT_MESSAGE


@given(junk=st.binary(max_size=120))
def test_junk_raises_nothing_but_an_error_for_the_client(junk: bytes) -> None:
    with contextlib.suppress(KafkaError):
        found = batch.read_header(junk, 0, len(junk))
        assert batch.HEADER_BYTES <= found.size <= len(junk)


def test_a_record_set_is_cut_into_its_whole_batches() -> None:
    first, second = made(1), made(4)
    data = b"front" + first + second
    whole = [(5, len(first)), (5 + len(first), len(second))]
    assert batch.batch_sizes(data, 5, len(data)) == whole
    for cut in range(1, len(second) + 1):
        assert batch.batch_sizes(data, 5, len(data) - cut) == whole[:1]
    assert batch.batch_sizes(data, 5, 5) == []


@given(junk=st.binary(max_size=120))
def test_batches_found_in_junk_lie_within_it(junk: bytes) -> None:
    end = 0
    for start, size in batch.batch_sizes(junk, 0, len(junk)):
        assert start == end
        assert size > 12
        end = start + size
    assert end <= len(junk)


@pytest.mark.parametrize("size", [13, 16, 17, batch.HEADER_BYTES - 1])
def test_a_batch_that_says_it_is_shorter_than_its_header_is_left_out_with_all_behind_it(size: int) -> None:
    short = bytearray(size + batch.HEADER_BYTES)
    short[8:12] = (size - 12).to_bytes(4, "big")
    short[16] = 2
    assert batch.batch_sizes(short, 0, len(short)) == []
    assert batch.batch_sizes(short, 0, size) == []
