"""New batches, read by another library."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st

from sidecar.protocol.batch import crc_matches, read_header
from sidecar.protocol.codec import Codec
from sidecar.protocol.new_batch import NewRecord, build_batch

SOME = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=70), SOME), max_size=3).map(tuple)
NOW = 1_700_000_000_000
RECORDS = st.lists(st.tuples(SOME, SOME, HEADERS, st.integers(NOW - 2**33, NOW + 2**33)), min_size=1, max_size=80)


@given(RECORDS, st.sampled_from(Codec), st.integers(0, 2**31 - 1))
def test_other_libraries_read_what_is_built(records: list[Any], codec: Codec, sequence: int) -> None:
    batch = build_batch([NewRecord(*each) for each in records], 4711, 5, sequence, codec)
    header = read_header(batch, 0, len(batch))
    assert crc_matches(batch, 0, len(batch))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4711, 5, sequence)
    assert (header.records, header.last_offset_delta) == (len(records), len(records) - 1)
    assert header.max_timestamp == max(at_ms for *_, at_ms in records)
    read = DefaultRecordBatch(bytearray(batch))
    assert read.compression_type == codec
    found = [(each.offset, each.key, each.value, tuple(each.headers), each.timestamp) for each in read]
    assert found == [(index, *each) for index, each in enumerate(records)]


def test_a_batch_without_records_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="without records"):
        build_batch([], -1, -1, -1)
