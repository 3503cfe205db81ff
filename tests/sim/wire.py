"""What clients put on the wire and read from it: written anew here, so that it shares no mistake with the product.

Versions without tagged fields where there are any; record batches uncompressed. Also the connection that the clients of
the simulator use.
"""

from __future__ import annotations

import asyncio
import gzip
from collections import deque
from dataclasses import dataclass, field
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from crc32c import crc32c

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
DELETE_RECORDS: Final = 21
INIT_PRODUCER_ID: Final = 22
ADD_PARTITIONS_TO_TXN: Final = 24
END_TXN: Final = 26
OWN: Final = 1000
RELEASE: Final = 1001
DESCRIBE_OWNERS: Final = 1002
LAST_SEQUENCE: Final = 1003
WATCH: Final = 1004
_VERSIONS: Final = {
    PRODUCE: 8, FETCH: 4, LIST_OFFSETS: 1, METADATA: 4, OFFSET_COMMIT: 5, OFFSET_FETCH: 2, FIND_COORDINATOR: 0,
    JOIN_GROUP: 2, HEARTBEAT: 1, LEAVE_GROUP: 0, SYNC_GROUP: 1, CREATE_TOPICS: 3, DELETE_TOPICS: 1,
    INIT_PRODUCER_ID: 1, ADD_PARTITIONS_TO_TXN: 0, END_TXN: 0,
}  # fmt: skip
_FLEXIBLE: Final = 3
"""InitProducerId from here on is sent in its version with tagged fields."""

_I16: Final = Struct(">h")
_I32: Final = Struct(">i")
_I64: Final = Struct(">q")
_HEAD: Final = Struct(">hhi")
_BATCH: Final = Struct(">qiibIhiqqqhii")
BATCH_BYTES: Final = _BATCH.size


class Writer:
    """Big-endian fields one after the other."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def i8(self, value: int) -> Writer:
        self.parts.append(value.to_bytes(1, "big", signed=True))
        return self

    def i16(self, value: int) -> Writer:
        self.parts.append(_I16.pack(value))
        return self

    def i32(self, value: int) -> Writer:
        self.parts.append(_I32.pack(value))
        return self

    def i64(self, value: int) -> Writer:
        self.parts.append(_I64.pack(value))
        return self

    def text(self, value: str | None) -> Writer:
        if value is None:
            return self.i16(-1)
        data = value.encode()
        self.parts.append(_I16.pack(len(data)) + data)
        return self

    def data(self, value: bytes) -> Writer:
        self.parts.append(_I32.pack(len(value)) + value)
        return self

    def done(self) -> bytes:
        return b"".join(self.parts)


class Reader:
    """The opposite of `Writer`."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def i8(self) -> int:
        self.at += 1
        return int.from_bytes(self.data[self.at - 1 : self.at], "big", signed=True)

    def i16(self) -> int:
        self.at += 2
        return _I16.unpack_from(self.data, self.at - 2)[0]

    def i32(self) -> int:
        self.at += 4
        return _I32.unpack_from(self.data, self.at - 4)[0]

    def i64(self) -> int:
        self.at += 8
        return _I64.unpack_from(self.data, self.at - 8)[0]

    def text(self) -> str | None:
        size = self.i16()
        if size < 0:
            return None
        self.at += size
        return self.data[self.at - size : self.at].decode()

    def blob(self) -> bytes:
        size = max(0, self.i32())
        self.at += size
        return self.data[self.at - size : self.at]

    def count(self) -> range:
        return range(max(0, self.i32()))


# Records ----------------------------------------------------------------------------------------------------------


class Record(NamedTuple):
    """A record as the log has it. `batch`: the base offset of the batch that it stands in."""

    offset: int
    value: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    producer_id: int
    producer_epoch: int
    sequence: int
    batch: int
    key: bytes | None = None
    at: float = 0.0
    """When a leader appended it, where that is known."""


@dataclass(slots=True)
class Writable:
    """What a producer wants written as one record."""

    value: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()
    key: bytes | None = None


def batch_of(
    records: Sequence[Writable], timestamp_ms: int, producer_id: int = -1, epoch: int = -1, sequence: int = -1,
    *, compressed: bool = False, transactional: bool = False,
) -> bytes:  # fmt: skip
    """A record batch v2; `compressed`: with gzip."""
    body = bytearray()
    for delta, record in enumerate(records):
        entry = bytearray(b"\x00\x00")  # attributes, timestamp delta
        entry += _varint(delta) + (_varint(-1) if record.key is None else _varint(len(record.key)) + record.key)
        entry += _varint(len(record.value)) + record.value
        entry += _varint(len(record.headers))
        for name, value in record.headers:
            entry += _varint(len(name)) + name + _varint(len(value)) + value
        body += _varint(len(entry)) + entry
    attributes = int(compressed) | 0x10 * int(transactional)
    if compressed:
        body = bytearray(gzip.compress(bytes(body), 1, mtime=0))
    head = bytearray(
        _BATCH.pack(
            0, BATCH_BYTES - 12 + len(body), -1, 2, 0, attributes, len(records) - 1, timestamp_ms, timestamp_ms,
            producer_id, epoch, sequence, len(records),
        )
    )  # fmt: skip
    return with_crc(bytes(head + body))


def with_crc(data: bytes) -> bytes:
    """A batch under the checksum of what it holds."""
    return data[:17] + crc32c(memoryview(data)[21:]).to_bytes(4, "big") + data[21:]


def records_of(data: bytes) -> list[Record]:
    """The data records of some batches; markers are left out, and a last batch that is not whole."""
    found: list[Record] = []
    at = 0
    while at + BATCH_BYTES <= len(data):
        fields = _BATCH.unpack_from(data, at)
        base, length, attributes, count = fields[0], fields[1], fields[5], fields[12]
        end = at + 12 + length
        if end > len(data):
            break
        if not attributes & 0x20:
            section, place = data, at + BATCH_BYTES
            if attributes & 0x7:
                section, place = gzip.decompress(data[place:end]), 0
            for _ in range(count):
                place = _read_record(section, place, base, fields, found)
        at = end
    return found


def end_of(data: bytes) -> int | None:
    """The offset behind the last whole batch; None where there is none."""
    at, behind = 0, None
    while at + BATCH_BYTES <= len(data):
        fields = _BATCH.unpack_from(data, at)
        if at + 12 + fields[1] > len(data):
            break
        behind = fields[0] + fields[6] + 1
        at += 12 + fields[1]
    return behind


def _read_record(data: bytes, place: int, base: int, fields: tuple[Any, ...], found: list[Record]) -> int:
    size, place = _read_varint(data, place)
    end = place + size
    _, place = _read_varint(data, place + 1)
    delta, place = _read_varint(data, place)
    length, place = _read_varint(data, place)
    key = None if length < 0 else data[place : place + length]
    place += max(0, length)
    length, place = _read_varint(data, place)
    value = data[place : place + max(0, length)]
    place += max(0, length)
    count, place = _read_varint(data, place)
    headers: list[tuple[bytes, bytes]] = []
    for _ in range(count):
        length, place = _read_varint(data, place)
        name, place = data[place : place + length], place + length
        length, place = _read_varint(data, place)
        headers.append((name, data[place : place + length]))
        place += length
    sequence = fields[11] if fields[11] < 0 else (fields[11] + delta) % 2**31
    found.append(Record(base + delta, value, tuple(headers), fields[9], fields[10], sequence, base, key))
    return end


def _varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    if value < len(_VARINTS):
        return _VARINTS[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_VARINTS: Final = (
    *(bytes((value,)) for value in range(1 << 7)),
    *(bytes((value & 0x7F | 0x80, value >> 7)) for value in range(1 << 7, 1 << 12)),
)
"""Those of one and two bytes, by the zigzag of their value: most that are written."""


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    shift = value = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


# Requests and answers ---------------------------------------------------------------------------------------------


class Produced(NamedTuple):
    """An answer to a batch."""

    error: int
    offset: int
    message: str


class Layout(NamedTuple):
    """Metadata: node addresses, and the leader of each partition of each topic (-1: none)."""

    nodes: Mapping[int, tuple[str, int]]
    topics: Mapping[str, Mapping[int, int]]
    errors: Mapping[str, int]


class Fetched(NamedTuple):
    """What one partition gave."""

    error: int
    high_watermark: int
    records: bytes


def produce(topic: str, batches: Mapping[int, bytes], timeout_ms: int, acks: int = -1) -> bytes:
    out = Writer().text(None).i16(acks).i32(timeout_ms).i32(1).text(topic).i32(len(batches))
    for partition, batch in batches.items():
        out.i32(partition).data(batch)
    return out.done()


def produced(data: bytes) -> dict[int, Produced]:
    read, found = Reader(data), dict[int, Produced]()
    for _ in read.count():
        read.text()
        for _ in read.count():
            partition, error, offset = read.i32(), read.i16(), read.i64()
            read.at += 16
            for _ in read.count():
                read.i32()
                read.text()
            found[partition] = Produced(error, offset, read.text() or "")
    return found


def metadata(topics: Sequence[str]) -> bytes:
    out = Writer().i32(len(topics))
    for topic in topics:
        out.text(topic)
    return out.i8(0).done()


def layout(data: bytes) -> Layout:
    read = Reader(data)
    read.i32()
    nodes = dict[int, tuple[str, int]]()
    for _ in read.count():
        node, host, port = read.i32(), read.text() or "", read.i32()
        read.text()
        nodes[node] = host, port
    read.text()
    read.i32()
    topics, errors = dict[str, dict[int, int]](), dict[str, int]()
    for _ in read.count():
        error, name = read.i16(), read.text() or ""
        read.i8()
        errors[name] = error
        leaders = topics[name] = dict[int, int]()
        for _ in read.count():
            read.i16()
            partition, leader = read.i32(), read.i32()
            leaders[partition] = leader
            for _ in range(2):
                for _ in read.count():
                    read.i32()
    return Layout(nodes, topics, errors)


def fetch(topic: str, offsets: Mapping[int, int], max_wait_ms: int, isolation: int = 0) -> bytes:
    out = Writer().i32(-1).i32(max_wait_ms).i32(1).i32(1 << 20).i8(isolation).i32(1).text(topic).i32(len(offsets))
    for partition, offset in offsets.items():
        out.i32(partition).i64(offset).i32(1 << 20)
    return out.done()


SHARED_FETCH: Final = 11
"""A version of Fetch whose readers a node lets wait together."""


def shared_fetch(topic: str, offsets: Mapping[int, int], max_wait_ms: int) -> bytes:
    """A Fetch of that version, without a session."""
    out = Writer().i32(-1).i32(max_wait_ms).i32(1).i32(1 << 20).i8(0).i32(0).i32(-1)
    out.i32(1).text(topic).i32(len(offsets))
    for partition, offset in offsets.items():
        out.i32(partition).i32(-1).i64(offset).i64(-1).i32(1 << 20)
    return out.i32(0).text("").done()


def fetched(data: bytes, *, shared: bool = False) -> dict[int, Fetched]:
    """What each partition brought. `shared`: it is the answer to a `shared_fetch`."""
    read, found = Reader(data), dict[int, Fetched]()
    read.i32()
    if shared:
        read.i16()
        read.i32()
    for _ in read.count():
        read.text()
        for _ in read.count():
            partition, error, high_watermark = read.i32(), read.i16(), read.i64()
            read.i64()
            if shared:
                read.i64()
            for _ in read.count():
                read.i64()
                read.i64()
            if shared:
                read.i32()
            found[partition] = Fetched(error, high_watermark, read.blob())
    return found


def earliest(topic: str, partition: int) -> bytes:
    """ListOffsets: where a log begins."""
    return Writer().i32(-1).i32(1).text(topic).i32(1).i32(partition).i64(-2).done()


def listed(data: bytes) -> int | None:
    """The offset of one partition; None where there was an error."""
    read = Reader(data)
    for _ in read.count():
        read.text()
        for _ in read.count():
            read.i32()
            error = read.i16()
            read.i64()
            return None if error else read.i64()
    return None


def init_producer_id(transactional_id: str | None = None) -> bytes:
    return Writer().text(transactional_id).i32(60_000).done()


def init_again(producer_id: int, epoch: int) -> bytes:
    """Version 3, which names the producer id so far."""
    return b"\x00" + Writer().i32(60_000).i64(producer_id).i16(epoch).done() + b"\x00"


def add_partitions(transactional_id: str, producer_id: int, epoch: int, topic: str, partition: int) -> bytes:
    out = Writer().text(transactional_id).i64(producer_id).i16(epoch).i32(1).text(topic)
    return out.i32(1).i32(partition).done()


def added(data: bytes) -> int:
    """The error of the one partition."""
    read = Reader(data)
    read.i32()
    for _ in read.count():
        read.text()
        for _ in read.count():
            read.i32()
            return read.i16()
    return 0


def end_txn(transactional_id: str, producer_id: int, epoch: int, *, commit: bool) -> bytes:
    return Writer().text(transactional_id).i64(producer_id).i16(epoch).i8(int(commit)).done()


def ended(data: bytes) -> int:
    return Reader(data, 4).i16()


def delete_topics(topics: Sequence[str]) -> bytes:
    out = Writer().i32(len(topics))
    for topic in topics:
        out.text(topic)
    return out.i32(10_000).done()


def producer_id(data: bytes, *, flexible: bool = False) -> tuple[int, int, int]:
    """Error, producer id, epoch; `flexible`: behind the tags of the header."""
    read = Reader(data, int(flexible))
    read.i32()
    return read.i16(), read.i64(), read.i16()


def delete_records(topic: str, offsets: Mapping[int, int], timeout_ms: int) -> bytes:
    """By partition; -1 for the end of a log."""
    out = Writer().i32(1).text(topic).i32(len(offsets))
    for partition, offset in offsets.items():
        out.i32(partition).i64(offset)
    return out.i32(timeout_ms).done()


def deleted(data: bytes) -> dict[int, int]:
    """Error by partition."""
    read, found = Reader(data), dict[int, int]()
    read.i32()
    for _ in read.count():
        read.text()
        for _ in read.count():
            partition = read.i32()
            read.i64()
            found[partition] = read.i16()
    return found


def create_topics(topics: Mapping[str, int], replicas: int) -> bytes:
    out = Writer().i32(len(topics))
    for name, partitions in topics.items():
        out.text(name).i32(partitions).i16(replicas).i32(0).i32(0)
    return out.i32(30_000).i8(0).done()


def created(data: bytes) -> dict[str, int]:
    read, found = Reader(data), dict[str, int]()
    read.i32()
    for _ in read.count():
        name = read.text() or ""
        found[name] = read.i16()
        read.text()
    return found


# Connections ------------------------------------------------------------------------------------------------------


class LostError(ConnectionError):
    """The connection ended before the answer came, or could not be opened. `sent`: whether the request left."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


@dataclass(slots=True, eq=False)
class Wire(asyncio.Protocol):
    """A connection of a client. Requests are answered in order."""

    client_id: str | None
    transport: Any = None
    closed: bool = False
    _waiting: deque[tuple[int, asyncio.Future[bytes]]] = field(default_factory=deque)
    _buffer: bytes = b""
    _correlation: int = 0

    @classmethod
    async def open(cls, address: tuple[str, int], client_id: str | None, timeout: float = 3.0) -> Wire:
        """Connect. Raises `LostError`."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                _, wire = await loop.create_connection(lambda: cls(client_id), *address)
        except (OSError, TimeoutError) as error:
            raise LostError(f"{address}: {error}", sent=False) from None
        return wire

    def send(self, key: int, body: bytes, *, version: int | None = None) -> asyncio.Future[bytes]:
        """Send a request; the body of its answer, or `LostError`."""
        return self.send_row(key, [body], version=version)[0]

    def send_row(self, key: int, bodies: Sequence[bytes], *, version: int | None = None) -> list[asyncio.Future[bytes]]:
        """Send requests in one go, behind each other."""
        frames: list[bytes] = []
        answers = [self._write(frames, key, body, version) for body in bodies]
        if frames:
            self.transport.write(b"".join(frames))
        return answers

    def _write(self, frames: list[bytes], key: int, body: bytes, version: int | None) -> asyncio.Future[bytes]:
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if self.closed:
            answer.set_exception(LostError("closed", sent=False))
            return answer
        self._correlation += 1
        known = _VERSIONS.get(key, 0) if version is None else version
        tags = b"\x00" if key == INIT_PRODUCER_ID and known >= _FLEXIBLE else b""
        frame = _HEAD.pack(key, known, self._correlation) + Writer().text(self.client_id).done() + tags + body
        self._waiting.append((self._correlation, answer))
        frames += [_I32.pack(len(frame)), frame]
        return answer

    async def call(self, key: int, body: bytes, timeout: float, *, version: int | None = None) -> bytes:
        """As `send`; the connection is closed where no answer comes in time, as clients do."""
        answer = self.send(key, body, version=version)
        await asyncio.wait([answer], timeout=timeout)
        if not answer.done():
            self.close()
            raise LostError("no answer in time", sent=True)
        return answer.result()

    @property
    def unanswered(self) -> int:
        return len(self._waiting)

    def close(self) -> None:
        """Close; waiting readers get the end."""
        if not self.closed and self.transport is not None:
            self.transport.abort()
        self._end("closed by the client")

    def _end(self, reason: str) -> None:
        self.closed = True
        waiting, self._waiting = self._waiting, deque()
        for _, answer in waiting:
            if not answer.done():
                answer.set_exception(LostError(reason, sent=True))
                answer.exception()  # not everybody looks

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            size = _I32.unpack_from(self._buffer)[0] + 4
            if len(self._buffer) < size:
                return
            frame, self._buffer = self._buffer[4:size], self._buffer[size:]
            correlation, answer = self._waiting.popleft()
            assert _I32.unpack_from(frame)[0] == correlation, "answers out of order"
            if not answer.done():
                answer.set_result(frame[4:])

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(f"the node closed the connection: {exc}")
