"""Record batches: headers, times, codecs, sequence ids, and batches with fewer records. What the compiled walk says of
any bytes the one in Python says too.

Input: which way, then a batch. Its length and CRC are made right, as a mutation would never get past them; or, one way,
they stay as they are.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from crc32c import crc32c

from sidecar.dedup.content import Content, Headers, TooLargeAtOnceError
from sidecar.protocol import _records_pure as pure
from sidecar.protocol import batch as batches
from sidecar.protocol import records, stretches
from sidecar.protocol.compression import decompress
from sidecar.protocol.errors import KafkaError
from tests.sim import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ID: Final = b"sidecar-sequence-id"
_NAME: Final = b"sidecar-producer-name"
_HEADERS: Final = Headers(_ID, _NAME)
_AS_IT_IS: Final = 0xFF
_LIMIT: Final = 256 * 1024
_SHOWN: Final = 1_000
"""The walk in Python takes 10 µs for each record."""


def play(data: bytes) -> None:
    if not data:
        return
    way, found = data[0], bytearray(data[1:])
    if way != _AS_IT_IS and len(found) >= batches.HEADER_BYTES:
        struct.pack_into(">i", found, 8, len(found) - 12)
        found[16] = 2
        struct.pack_into(">I", found, 17, crc32c(bytes(found[21:])))
    _header(found)
    view = memoryview(found)
    numbers = batches.read_numbers(view)
    if numbers is None:
        return
    header = batches.read_header(found, 0, len(found))
    assert header.size == len(found)
    assert batches.crc_matches(found, 0, header.size)
    try:
        section = decompress(batches.codec_of(view), view[batches.HEADER_BYTES :], _LIMIT)
    except KafkaError:
        section = None
    if section is not None:
        assert len(section) <= _LIMIT
        if header.records <= _SHOWN:
            _section(found, bytes(section), header.records)
    try:
        content = Content(view, header.records, _HEADERS, b"own" if way & 1 else None, at_once=True)
        assert all(pushed.id >= 0 for pushed in content.marks)
    except (KafkaError, TooLargeAtOnceError):
        pass


def _header(found: bytearray) -> None:
    for start, size in batches.batch_sizes(found, 0, len(found)):
        assert 0 < size <= len(found) - start
        batches.batch_end(found, start)
        batches.leader_epoch(found, start)
    try:
        header = batches.read_header(found, 0, len(found))
    except KafkaError:
        return
    newest = batches.surely_newest(found, header.attributes, header.base_timestamp, header.max_timestamp)
    assert newest == batches.NO_TIME or newest <= header.max_timestamp
    stamped = bytearray(found[: header.size])
    batches.stamp(stamped, 0, header.size, 7, 3, 9)
    assert batches.crc_matches(stamped, 0, header.size)


def _section(found: bytearray, section: bytes, count: int) -> None:
    walker = records.walker()
    for dense in (True, False):
        _alike("summarise", lambda twin: twin.summarise(section, count, _ID, _NAME, dense))  # noqa: B023 - called here
        _alike("walk", lambda twin: twin.walk(section, count, _ID, _NAME, dense, b"own"))  # noqa: B023 - called here
    base = batches.read_header(found, 0, len(found)).base_timestamp
    _alike("newest", lambda twin: twin.newest(section, count, base))
    _alike("stretches", lambda twin: twin.stretches(section, count, _ID, _NAME, 0, stretches.HIGHEST_DELTA))
    try:
        rows = records.each(section, count, _ID, _NAME)
    except KafkaError:
        return
    assert walker is records.walker()
    kept = rows[::2]
    smaller = records.keep(found, section, kept)
    header = batches.read_header(smaller, 0, len(smaller))
    assert header.records == len(kept)
    again = decompress(header.attributes & 7, memoryview(smaller)[batches.HEADER_BYTES :], 2 * _LIMIT)
    ids = [(row.sequence_id, row.name) for row in records.each(again, len(kept), _ID, _NAME)]
    assert ids == [(row.sequence_id, row.name) for row in kept], "another record than was kept"


def _alike(what: str, call: Callable[[Any], object]) -> None:
    said = []
    for twin in (pure, records.walker()):
        try:
            said.append(("says", call(twin)))
        except KafkaError as error:
            said.append(("refuses", (error.code, error.message)))
    assert said[0] == said[1], f"{what}: {said[0]} in Python, {said[1]} compiled"


def seeds() -> Iterator[bytes]:
    from sidecar.protocol.codecs import compress  # noqa: PLC0415 - for seeds alone

    plain = [
        wire.batch_of([wire.Writable(b"v", ((_ID, b"%d" % n),)) for n in range(4)], 1_700_000_000_000),
        wire.batch_of([wire.Writable(b"v", ((_ID, b"8"), (_NAME, b"n"))), wire.Writable(b"", ())], 1_700_000_000_000),
        wire.batch_of([wire.Writable(b"v" * 200, ((b"other", b""),), b"key")] * 3, 0, 5, 0, 0),
        wire.batch_of([wire.Writable(b"v", ((_ID, b"x"), (_ID, b"-1")))], 1),
    ]
    for batch in plain:
        yield b"\1" + batch
        yield bytes((_AS_IT_IS,)) + batch
        for codec in (1, 2, 3, 4):
            head = bytearray(batch[: batches.HEADER_BYTES])
            head[22] = codec
            yield b"\0" + bytes(head) + bytes(compress(codec, batch[batches.HEADER_BYTES :], batch))
