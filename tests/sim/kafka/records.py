"""The records inside a batch (`DefaultRecord`), and what a leader wants of them (`LogValidator`)."""

from __future__ import annotations

from typing import Final, NamedTuple

from sidecar.protocol.compression import decompress
from sidecar.protocol.errors import KafkaError
from tests.sim.kafka import errors
from tests.sim.kafka.batches import HEADER_BYTES, Batch, varint
from tests.sim.kafka.errors import RefusedError
from tests.sim.kafka.topics import TopicConfig

_LONGEST: Final = 1 << 26


class Record(NamedTuple):
    """`data` are all its bytes; `time` is Unix milliseconds as its client wrote it."""

    delta: int
    time: int
    key: bytes | None
    value: bytes | None
    data: bytes


def parse(batch: Batch) -> list[Record]:
    """All records of a batch. Raises `IndexError` where they are cut off."""
    section = batch.data[HEADER_BYTES:]
    if batch.attributes & 0x07:
        section = bytes(decompress(batch.attributes & 0x07, section, _LONGEST))
    first = int.from_bytes(batch.data[27:35], "big", signed=True)
    found: list[Record] = []
    at = 0
    for _ in range(batch.count):
        begin = at
        length, at = _varint(section, at)
        end = at + length
        if end > len(section):
            raise IndexError(end)
        later, at = _varint(section, at + 1)
        delta, at = _varint(section, at)
        key, at = _bytes(section, at)
        value, at = _bytes(section, at)
        headers, at = _varint(section, at)
        for _ in range(2 * headers):
            _, at = _bytes(section, at)
        if at != end:
            raise IndexError(at)
        found.append(Record(delta, first + later, key, value, section[begin:end]))
    if at != len(section):
        raise IndexError(at)
    return found


def moved(record: Record, base_ms: int) -> bytes:
    """Its bytes in a batch whose times count from `base_ms`."""
    _, at = _varint(record.data, 0)
    _, behind = _varint(record.data, at + 1)
    body = record.data[at : at + 1] + varint(record.time - base_ms) + record.data[behind:]
    return varint(len(body)) + body


def check(batch: Batch, config: TopicConfig, now_ms: int) -> None:
    """Keys, timestamps and number of a client's records; the newest timestamp becomes that of the records.

    Compressed bytes that make no sense are answered -1: `GzipCompression.wrapForInput` and the like raise what is no
    `ApiException` (ran on 3.9.1, 4.1.1, 4.3.1).
    """
    try:
        found = parse(batch)
    except KafkaError:
        raise RefusedError(errors.UNKNOWN_SERVER_ERROR, "records that cannot be decompressed") from None
    except IndexError:
        raise RefusedError(errors.INVALID_RECORD, "records that do not fill their batch") from None
    if config.compacted and any(record.key is None for record in found):
        raise RefusedError(errors.INVALID_RECORD, "a record without a key on a compacted topic")
    if config.log_append_time:
        return
    for record in found:
        if record.time != -1 and (
            now_ms - record.time > config.before_max_ms or record.time - now_ms > config.after_max_ms
        ):
            raise RefusedError(errors.INVALID_TIMESTAMP, f"timestamp {record.time} at {now_ms}")
    batch.max_ts = max(record.time for record in found)


def _bytes(section: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(section, at)
    return (None, at) if size < 0 else (section[at : at + size], at + size)


def _varint(section: bytes, at: int) -> tuple[int, int]:
    byte = section[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    value = shift = 0
    while True:
        byte = section[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
