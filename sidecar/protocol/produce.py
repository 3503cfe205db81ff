"""Produce, api key 0, versions 3 to 9: walk a request without touching its records, build and read answers.

Versions: 3 transactional id · 5 log_start_offset in the answer · 7 zstd · 8 record errors and a message · 9 flexible
(KIP-482). 10 and later carry the brokers' addresses in their answers (KIP-951), 13 names topics by id: not served
(see `api`).
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import Final, NamedTuple

from sidecar.protocol.primitives import I16, I32, MalformedFrameError, Octets, Reader, Writer

FIRST_FLEXIBLE: Final = 9
_ACKS_TIMEOUT: Final = Struct(">hi")
_ACKS_TIMEOUT_COUNT: Final = Struct(">hii")
_ACKS_TIMEOUT_BYTE: Final = Struct(">hiB")
_INDEX_SIZE: Final = Struct(">ii")
_VARINT_SHIFT: Final = 28
_ANSWER: Final = Struct(">ihqqq")
_ANSWER_V4: Final = Struct(">ihqq")
_PLAIN_HEAD: Final = Struct(">iiih")
_PLAIN_TAIL_V3: Final = Struct(">iihqqi")
_PLAIN_TAIL_V5: Final = Struct(">iihqqqi")
_PLAIN_TAIL_V8: Final = Struct(">iihqqqihi")
_PLAIN_HEAD_V9: Final = Struct(">iiBBB")
_PLAIN_TAIL_V9: Final = Struct(">BihqqqBBBBiB")
_SHORT_NAME: Final = 127
NO_OFFSET: Final = -1


class ProducePart(NamedTuple):
    """The records for one partition: `start` to `end` in the request's buffer, without their length prefix."""

    topic: bytes
    partition: int
    start: int
    end: int


class ProduceRequest(NamedTuple):
    """A walked request. `timeout_ms` is the client's own."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    parts: list[ProducePart]


def walk(buffer: Octets, body: int, end: int, version: int) -> ProduceRequest:
    """Find the partitions of a request whose body begins at `body` (behind the client id).

    Raises `MalformedFrameError`. Costs a microsecond for one partition: every Produce passes here.
    """
    if version >= FIRST_FLEXIBLE:
        return _walk_flexible(buffer, body, end)
    try:
        length = I16.unpack_from(buffer, body)[0]
        transactional_id = None
        at = body + 2
        if length >= 0:
            transactional_id = str(buffer[at : at + length], "utf-8")
            at += length
        acks, timeout_ms, topics = _ACKS_TIMEOUT_COUNT.unpack_from(buffer, at)
        at += 10
        parts: list[ProducePart] = []
        for _ in range(_bounded(topics, 6, end - at)):
            length = I16.unpack_from(buffer, at)[0]
            name_end = at + 2 + length
            if length < 0 or name_end > end:
                raise MalformedFrameError(f"a topic name of {length} bytes")
            topic = bytes(buffer[at + 2 : name_end])
            partitions = I32.unpack_from(buffer, name_end)[0]
            at = name_end + 4
            for _ in range(_bounded(partitions, 8, end - at)):
                index, size = _INDEX_SIZE.unpack_from(buffer, at)
                start = at + 8
                at = start + size if size > 0 else start
                if at > end or size < -1:
                    raise MalformedFrameError(f"a record set of {size} bytes")
                parts.append(ProducePart(topic, index, start, at))
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedFrameError(str(error)) from None
    if at != end:
        raise MalformedFrameError(f"a Produce request that ends {at - end} bytes behind its frame")
    return ProduceRequest(transactional_id, acks, timeout_ms, parts)


def _bounded(count: int, element_bytes: int, left: int) -> int:
    """A collection's length, if it can fit into what is left; a null one counts as empty."""
    if count * element_bytes > left or count < -1:
        raise MalformedFrameError(f"a collection of {count} elements, {left} bytes left")
    return max(0, count)


def _walk_flexible(buffer: Octets, body: int, end: int) -> ProduceRequest:
    """Version 9. What clients really send, no tags and short lengths, is read without a call per field."""
    try:
        if buffer[body] or buffer[body + 1]:
            return _walk_tagged(buffer, body, end)
        acks, timeout_ms, topics = _ACKS_TIMEOUT_BYTE.unpack_from(buffer, body + 2)
        at = body + 9
        if topics > 0x7F:
            return _walk_tagged(buffer, body, end)
        parts: list[ProducePart] = []
        for _ in range(topics - 1):
            length = buffer[at]
            at += length
            topic = bytes(buffer[at - length + 1 : at])
            partitions = buffer[at]
            at += 1
            if length > 0x7F or not length or partitions > 0x7F:
                return _walk_tagged(buffer, body, end)
            for _ in range(partitions - 1):
                index = I32.unpack_from(buffer, at)[0]
                at += 4
                size, shift = buffer[at] & 0x7F, 0
                while buffer[at] > 0x7F:
                    at += 1
                    shift += 7
                    size |= (buffer[at] & 0x7F) << shift
                start = at + 1
                at = start + size - 1 if size else start
                if at >= end or buffer[at] or shift > _VARINT_SHIFT:
                    return _walk_tagged(buffer, body, end)
                parts.append(ProducePart(topic, index, start, at))
                at += 1
            if at >= end or buffer[at]:
                return _walk_tagged(buffer, body, end)
            at += 1
        if at != end - 1 or buffer[at]:
            return _walk_tagged(buffer, body, end)
    except (struct.error, IndexError):
        return _walk_tagged(buffer, body, end)
    return ProduceRequest(None, acks, timeout_ms, parts)


def _walk_tagged(buffer: Octets, body: int, end: int) -> ProduceRequest:
    """Version 9 in full: tagged fields, a transactional id, long lengths; and what is malformed, told exactly."""
    reader = Reader(buffer, body, end)
    reader.skip_tags()
    transactional_id = reader.compact_nullable_string()
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(buffer, reader.skip(6))
    parts: list[ProducePart] = []
    for _ in range(reader.array(flexible=True, element_bytes=3)):
        topic = reader.raw(reader.uvarint() - 1)
        for _ in range(reader.array(flexible=True, element_bytes=6)):
            index = reader.i32()
            size = max(0, reader.uvarint() - 1)
            start = reader.skip(size)
            parts.append(ProducePart(topic, index, start, start + size))
            reader.skip_tags()
        reader.skip_tags()
    reader.skip_tags()
    if reader.position != end:
        raise MalformedFrameError(f"{end - reader.position} bytes behind the end of a Produce request")
    return ProduceRequest(transactional_id, acks, timeout_ms, parts)


class ProduceResult(NamedTuple):
    """What one partition is answered. Offsets and times are -1 where there are none; `message` needs version 8."""

    topic: bytes
    partition: int
    error: int
    base_offset: int = NO_OFFSET
    log_append_time: int = -1
    log_start_offset: int = -1
    message: str | None = None
    record_errors: tuple[tuple[int, str | None], ...] = ()


def encode_answer(correlation_id: int, version: int, results: list[ProduceResult], throttle_ms: int = 0) -> bytes:
    """A whole answer frame. Results of one topic should stand together; they are grouped as they come."""
    if len(results) == 1:
        result = results[0]
        if result.message is None and not result.record_errors and len(result.topic) < _SHORT_NAME:
            return _encode_plain(correlation_id, version, result, throttle_ms)
    flexible = version >= FIRST_FLEXIBLE
    writer = Writer()
    writer.i32(0)
    writer.i32(correlation_id)
    writer.tags(flexible)
    by_topic: dict[bytes, list[ProduceResult]] = {}
    for result in results:
        by_topic.setdefault(result.topic, []).append(result)
    writer.array(len(by_topic), flexible)
    for topic, of_topic in by_topic.items():
        _write_name(writer, topic, flexible)
        writer.array(len(of_topic), flexible)
        for result in of_topic:
            _write_result(writer, version, result)
        writer.tags(flexible)
    writer.i32(throttle_ms)
    writer.tags(flexible)
    I32.pack_into(writer.out, 0, len(writer.out) - 4)
    return bytes(writer.out)


def _encode_plain(correlation_id: int, version: int, result: ProduceResult, throttle_ms: int) -> bytes:
    """The usual answer, one partition without a message: what nearly every acknowledgement is."""
    topic = result.topic
    length = len(topic)
    if version >= FIRST_FLEXIBLE:
        return b"".join(
            (
                _PLAIN_HEAD_V9.pack(length + 47, correlation_id, 0, 2, length + 1),
                topic,
                _PLAIN_TAIL_V9.pack(2, *result[1:6], 1, 0, 0, 0, throttle_ms, 0),
            )
        )
    if version >= 8:
        tail = _PLAIN_TAIL_V8.pack(1, *result[1:6], 0, -1, throttle_ms)
    elif version >= 5:
        tail = _PLAIN_TAIL_V5.pack(1, *result[1:6], throttle_ms)
    else:
        tail = _PLAIN_TAIL_V3.pack(1, *result[1:5], throttle_ms)
    return b"".join((_PLAIN_HEAD.pack(10 + length + len(tail), correlation_id, 1, length), topic, tail))


def _write_name(writer: Writer, topic: bytes, flexible: bool) -> None:
    if flexible:
        writer.uvarint(len(topic) + 1)
    else:
        writer.i16(len(topic))
    writer.raw(topic)


def _write_result(writer: Writer, version: int, result: ProduceResult) -> None:
    flexible = version >= FIRST_FLEXIBLE
    if version >= 5:
        writer.raw(
            _ANSWER.pack(
                result.partition, result.error, result.base_offset, result.log_append_time, result.log_start_offset
            )
        )
    else:
        writer.raw(_ANSWER_V4.pack(result.partition, result.error, result.base_offset, result.log_append_time))
    if version >= 8:
        writer.array(len(result.record_errors), flexible)
        for index, message in result.record_errors:
            writer.i32(index)
            writer.text(message, flexible)
            writer.tags(flexible)
        writer.text(result.message, flexible)
    writer.tags(flexible)


def has_error(buffer: Octets, start: int, end: int, version: int) -> bool:
    """Whether any partition of an answer frame carries an error; for unusual answers True, so that somebody looks
    closer.

    The usual answer, one topic with one partition, is told by one look; it decides what every acknowledgement costs.
    """
    if version < FIRST_FLEXIBLE:
        topics, length = _TOPICS.unpack_from(buffer, start + 8)
        if topics == 1:
            at = start + 14 + length
            partitions, _, error = _FIRST.unpack_from(buffer, at)
            if partitions == 1:
                return bool(error)
    elif buffer[start + 9] == 2 and buffer[start + 10] < 0x80:
        at = start + 10 + buffer[start + 10]
        if buffer[at] == 2:
            return bool(_FIRST_FLEXIBLE.unpack_from(buffer, at + 1)[1])
    return any(result.error for result in decode_answer(buffer, start, end, version)[0])


_TOPICS: Final = Struct(">ih")
_FIRST: Final = Struct(">iih")
_FIRST_FLEXIBLE: Final = Struct(">ih")


def decode_answer(buffer: Octets, start: int, end: int, version: int) -> tuple[list[ProduceResult], int]:
    """The results and the throttle time (ms) of an answer frame that begins with its length prefix at `start`."""
    if version == 8 and end - start > _PLAIN_TAIL_V8.size:
        topics, length = _TOPICS.unpack_from(buffer, start + 8)
        at = start + 14 + length
        if topics == 1 and at + _PLAIN_TAIL_V8.size == end:
            count, *result, record_errors, message, throttle_ms = _PLAIN_TAIL_V8.unpack_from(buffer, at)
            if count == 1 and record_errors == 0 and message == -1:
                return [ProduceResult(bytes(buffer[start + 14 : at]), *result)], throttle_ms
    flexible = version >= FIRST_FLEXIBLE
    reader = Reader(buffer, start + 8, end)
    reader.tags(flexible)
    results: list[ProduceResult] = []
    for _ in range(reader.array(flexible)):
        topic = reader.raw(reader.uvarint() - 1 if flexible else reader.i16())
        results += [_read_result(reader, version, topic) for _ in range(reader.array(flexible))]
        reader.tags(flexible)
    throttle_ms = reader.i32()
    reader.tags(flexible)
    return results, throttle_ms


def _read_result(reader: Reader, version: int, topic: bytes) -> ProduceResult:
    flexible = version >= FIRST_FLEXIBLE
    log_start, message = -1, None
    record_errors: tuple[tuple[int, str | None], ...] = ()
    if version >= 5:
        index, error, base_offset, append_time, log_start = _ANSWER.unpack_from(reader.buffer, reader.skip(30))
    else:
        index, error, base_offset, append_time = _ANSWER_V4.unpack_from(reader.buffer, reader.skip(22))
    if version >= 8:
        record_errors = tuple(_read_record_error(reader, flexible) for _ in range(reader.array(flexible)))
        message = reader.nullable_text(flexible)
    reader.tags(flexible)
    return ProduceResult(topic, index, error, base_offset, append_time, log_start, message, record_errors)


def _read_record_error(reader: Reader, flexible: bool) -> tuple[int, str | None]:
    found = reader.i32(), reader.nullable_text(flexible)
    reader.tags(flexible)
    return found


def encode_request(
    correlation_id: int,
    client_id: bytes,
    version: int,
    acks: int,
    timeout_ms: int,
    records: list[tuple[bytes, int, Octets]],
    transactional_id: str | None = None,
) -> list[Octets]:
    """A whole request frame as parts; the records (topic, partition, batch) are not copied."""
    flexible = version >= FIRST_FLEXIBLE
    writer = Writer()
    writer.raw(b"\0\0\0\0\0\0")
    writer.i16(version)
    writer.i32(correlation_id)
    writer.i16(len(client_id))
    writer.raw(client_id)
    writer.tags(flexible)
    writer.text(transactional_id, flexible)
    writer.raw(_ACKS_TIMEOUT.pack(acks, timeout_ms))
    by_topic: dict[bytes, list[tuple[int, Octets]]] = {}
    for topic, index, batch in records:
        by_topic.setdefault(topic, []).append((index, batch))
    parts: list[Octets] = []
    size = 0
    writer.array(len(by_topic), flexible)
    for topic, of_topic in by_topic.items():
        _write_name(writer, topic, flexible)
        writer.array(len(of_topic), flexible)
        for index, batch in of_topic:
            writer.i32(index)
            if flexible:
                writer.uvarint(len(batch) + 1)
            else:
                writer.i32(len(batch))
            parts += (writer.out, batch)
            size += len(writer.out) + len(batch)
            writer.out = bytearray()
            writer.tags(flexible)
        writer.tags(flexible)
    writer.tags(flexible)
    if writer.out or not parts:
        parts.append(writer.out)
        size += len(writer.out)
    head = parts[0]
    assert isinstance(head, bytearray)
    I32.pack_into(head, 0, size - 4)
    return parts


OWN_CLIENT_ID: Final = b"sidecar"
SINGLE_VERSION: Final = 8
_SINGLE_HEAD: Final = Struct(">ihhi")
_SINGLE_CONSTANT: Final = Struct(">h7shh").pack(len(OWN_CLIENT_ID), OWN_CLIENT_ID, -1, -1)
_COUNT: Final = Struct(">i")


def table_head(topic: bytes, partition: int) -> bytes:
    """The part of a version 8 request that names one partition: made once, used by `encode_single` for each batch."""
    return b"".join((I32.pack(1), I16.pack(len(topic)), topic, Struct(">ii").pack(1, partition)))


def encode_single(correlation_id: int, timeout_ms: int, table: bytes, batch: Octets) -> list[Octets]:
    """The node's own request with one batch: version 8, acks=all, no transactional id. The batch is not copied."""
    size = len(batch)
    head = b"".join(
        (
            _SINGLE_HEAD.pack(16 + len(_SINGLE_CONSTANT) + len(table) + size, 0, SINGLE_VERSION, correlation_id),
            _SINGLE_CONSTANT,
            _COUNT.pack(timeout_ms),
            table,
            _COUNT.pack(size),
        )
    )
    return [head, batch]
