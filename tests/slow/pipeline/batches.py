"""Record batches as they lie in a log, written by the book (KIP-98): any writer, any codec, compacted ones too."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

from crc32c import crc32c

from sidecar.protocol.compression import compress

ID = "sidecar-sequence-id"
NAME = "sidecar-producer-name"
NOW = (int(time.time()) - 3_600) * 1_000
"""Unix ms an hour ago: of what is older than seven days Kafka rids itself whenever it looks, every five minutes."""


@dataclass(frozen=True)
class Written:
    """A record; `delta` is its offset behind the batch's."""

    delta: int = 0
    headers: Sequence[tuple[str | bytes, bytes | None]] = ()
    key: bytes | None = None
    value: bytes | None = b"value"
    time_delta: int = 0


def named(delta: int, sequence_id: int | bytes | None, name: bytes | None = None) -> Written:
    """A record with these headers, where they are not None."""
    text = str(sequence_id).encode() if isinstance(sequence_id, int) else sequence_id
    headers = [(key, value) for key, value in ((ID, text), (NAME, name)) if value is not None]
    return Written(delta, headers, time_delta=delta)


def varint(value: int) -> bytes:
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


def _field(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


def _record(record: Written) -> bytes:
    body = b"\0" + varint(record.time_delta) + varint(record.delta) + _field(record.key) + _field(record.value)
    body += varint(len(record.headers))
    for key, value in record.headers:
        body += _field(key if isinstance(key, bytes) else key.encode()) + _field(value)
    return varint(len(body)) + body


def encode(
    records: Sequence[Written],
    base_offset: int = 0,
    *,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    last_delta: int | None = None,
    codec: int = 0,
    transactional: bool = False,
    control: bool = False,
    log_append_time: int | None = None,
) -> bytes:
    """One batch; `last_delta` is that of the last record before compaction took it."""
    section = b"".join(map(_record, records))
    attributes = codec | 0x10 * transactional | 0x20 * control | 0x08 * (log_append_time is not None)
    last = last_delta if last_delta is not None else max((record.delta for record in records), default=0)
    newest = NOW + max((record.time_delta for record in records), default=0)
    tail = struct.pack(
        ">hiqqqhii",
        attributes,
        last,
        NOW,
        newest if log_append_time is None else log_append_time,
        producer_id,
        epoch,
        sequence,
        len(records),
    )
    tail += bytes(compress(codec, section, b"x" * len(section)) if codec == 2 else compress(codec, section, section))
    return struct.pack(">qiibI", base_offset, len(tail) + 9, 0, 2, crc32c(tail)) + tail


def marker(base_offset: int, producer_id: int, epoch: int, *, commits: bool) -> bytes:
    """What ends a transaction."""
    record = Written(0, (), struct.pack(">hh", 0, commits), struct.pack(">hi", 0, 0))
    return encode([record], base_offset, producer_id=producer_id, epoch=epoch, transactional=True, control=True)
