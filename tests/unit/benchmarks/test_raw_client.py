"""What the raw client sends, and how it counts on."""

from __future__ import annotations

import struct
import time

import pytest

from benchmarks.raw_client import IdempotentProducer, RefusedError
from sidecar.protocol.batch import HEADER_BYTES, BatchHeader, crc_matches, read_header
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp

_RECORD_BYTES = 17


def answer(code: int) -> bytearray:
    """Of Produce version 8 for partition 0 of topic t."""
    body = struct.pack(">iih1siihqqqihi", 0, 1, 1, b"t", 1, 0, code, 7, -1, 0, 0, -1, 0)
    return bytearray(struct.pack(">i", len(body)) + body)


def header_of(frame: bytearray) -> BatchHeader:
    start = len(frame) - HEADER_BYTES - _RECORD_BYTES
    assert crc_matches(frame, start, len(frame) - start)
    return read_header(frame, start, len(frame))


def test_a_batch_is_sent_again_as_it_was_until_it_is_appended(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = [1_000.0]
    monkeypatch.setattr(time, "time", lambda: seconds[0])
    producer = IdempotentProducer(Stamp(ProducerId(5), ProducerEpoch(3)), "t", value_bytes=10)
    seconds[0] = 2_000.0
    first = bytes(producer.prepare())
    header = header_of(bytearray(first))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 3, 0)
    assert (header.base_timestamp, header.max_timestamp) == (2_000_000, 2_000_000), "the time of the record is now"
    seconds[0] = 3_000.0
    with pytest.raises(RefusedError) as refused:
        producer.check(answer(6))
    assert refused.value.code == 6
    assert producer.prepare() == first
    producer.check(answer(0))
    header = header_of(producer.prepare())
    assert (header.base_sequence, header.max_timestamp) == (1, 3_000_000)
