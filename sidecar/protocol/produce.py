"""Produce, api key 0, versions 3 to 9: walk a request without touching its records; the head and the answer of one that
goes on whole; build answers. Requests of the node's own, and answers that are read field by field: `produce_upstream`.

Versions: 3 transactional id · 5 log_start_offset in the answer · 7 zstd · 8 record errors and a message · 9 flexible
(KIP-482). 10 and later carry the brokers' addresses in their answers (KIP-951), 13 names topics by id: not served
(see `api`).
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import Final, NamedTuple

from sidecar.protocol.limits import elements as most_elements
from sidecar.protocol.primitives import (
    I16,
    I32,
    MalformedFrameError,
    Octets,
    RequestReader,
    TooManyElementsError,
    Writer,
    new_tuple,
)

FIRST_FLEXIBLE: Final = 9
_ACKS_TIMEOUT: Final = Struct(">hi")
_ACKS_TIMEOUT_COUNT: Final = Struct(">hii")
_ACKS_TIMEOUT_BYTE: Final = Struct(">hiB")
_INDEX_SIZE: Final = Struct(">ii")
_VARINT_SHIFT: Final = 28
ANSWER: Final = Struct(">ihqqq")
ANSWER_V4: Final = Struct(">ihqq")
FIRST_WITH_START: Final = 5
"""Since then an answer says where the log begins."""
_HEAD: Final = Struct(">ii")
_HEAD_V9: Final = Struct(">iBB")
PLAIN_V8: Final = Struct(">ihqqqih")
_PLAIN_V9: Final = Struct(">ihqqqBBB")
_END_V9: Final = Struct(">iB")
SHORT: Final = 126
_BYTE: Final = [bytes((value,)) for value in range(128)]
NO_OFFSET: Final = -1
_ELEMENTS: Final = most_elements(0)
OWN_CLIENT_ID: Final = b"sidecar"
_WHOLE_HEAD: Final = Struct(f">ihhih{len(OWN_CLIENT_ID)}s")
_PLAIN_BYTES: Final = {3: 22, 4: 22, 5: 30, 6: 30, 7: 30, 8: 36, 9: 33}
"""What a partition takes in an answer that carries no messages."""


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

    def moved(self, by: int) -> ProduceRequest:
        """The same in a copy of its frame, where positions differ by so much."""
        parts = [ProducePart(part.topic, part.partition, part.start + by, part.end + by) for part in self.parts]
        return self._replace(parts=parts)


def walk(buffer: Octets, body: int, end: int, version: int) -> ProduceRequest:
    """Find the partitions of a request whose body begins at `body` (after the client id).

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
        if at > end:
            raise MalformedFrameError(f"a Produce request whose head ends {at - end} bytes behind its frame")
        parts: list[ProducePart] = []
        if topics > _ELEMENTS:
            raise TooManyElementsError(_ELEMENTS)
        for _ in range(_bounded(topics, 6, end - at)):
            length = I16.unpack_from(buffer, at)[0]
            name_end = at + 2 + length
            if length < 0 or name_end > end:
                raise MalformedFrameError(f"a topic name of {length} bytes")
            topic = bytes(buffer[at + 2 : name_end])
            partitions = I32.unpack_from(buffer, name_end)[0]
            at = name_end + 4
            if len(parts) + partitions > _ELEMENTS:
                raise TooManyElementsError(_ELEMENTS)
            for _ in range(_bounded(partitions, 8, end - at)):
                index, size = _INDEX_SIZE.unpack_from(buffer, at)
                start = at + 8
                at = start + size if size > 0 else start
                if at > end or size < -1:
                    raise MalformedFrameError(f"a record set of {size} bytes")
                parts.append(new_tuple(ProducePart, (topic, index, start, at)))
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
                parts.append(new_tuple(ProducePart, (topic, index, start, at)))
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
    """Version 9 in full: tagged fields, a transactional id, long lengths; and what is malformed, reported exactly."""
    reader = RequestReader(buffer, body, end, _ELEMENTS)
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


def bare_bytes(version: int, topic: bytes, sizes: list[int]) -> int:
    """What a request for some partitions of one topic takes after its client id where it has nothing besides: no
    transactional id, no tags, no other topic. `sizes` are those of its record sets.
    """
    if version < FIRST_FLEXIBLE:
        return 18 + len(topic) + 8 * len(sizes) + sum(sizes)
    records = sum([size + 5 + _varint_bytes(size + 1) for size in sizes])
    return 11 + len(topic) + _varint_bytes(len(topic) + 1) + _varint_bytes(len(sizes) + 1) + records


def _varint_bytes(value: int) -> int:
    return (value.bit_length() + 6) // 7


def whole_head(correlation_id: int, version: int, rest: int) -> bytes:
    """The head of a client's request that goes on as the node's own; `rest` bytes follow, those after the client id."""
    size = _WHOLE_HEAD.size - 4 + rest
    return _WHOLE_HEAD.pack(size, 0, version, correlation_id, len(OWN_CLIENT_ID), OWN_CLIENT_ID)


def usual_partitions(buffer: Octets, start: int, end: int, version: int) -> list[tuple[int, int, int, int]] | None:
    """Where the partitions of a usual answer stand: (name from, name to, first partition, number) per topic.

    None for an answer with messages, tags or long lengths, which has to be read field by field.
    """
    flexible = version >= FIRST_FLEXIBLE
    size = _PLAIN_BYTES[version]
    found: list[tuple[int, int, int, int]] = []
    try:
        if flexible:
            topics, at = buffer[start + 9] - 1, start + 10
            if buffer[start + 8] or topics > SHORT:
                return None
        else:
            topics, at = I32.unpack_from(buffer, start + 8)[0], start + 12
        for _ in range(topics):
            if flexible:
                name = at + 1
                at += buffer[at]
                partitions = buffer[at] - 1
                if at - name > SHORT or partitions > SHORT:
                    return None
                at += 1
            else:
                name = at + 2
                at = name + I16.unpack_from(buffer, at)[0]
                partitions = I32.unpack_from(buffer, at)[0]
                at += 4
            found.append((name, at - (1 if flexible else 4), at, partitions))
            at += partitions * size + flexible
            if at > end or partitions < 0:
                return None
    except (struct.error, IndexError):
        return None
    return found if at + 4 + flexible == end else None


def all_appended(buffer: Octets, start: int, end: int, version: int, expected: int) -> bool:
    """Whether an answer frame names `expected` partitions in the usual form, and an error in none. Every
    acknowledgement passes here.
    """
    usual = usual_partitions(buffer, start, end, version)
    if usual is None:
        return False
    size = _PLAIN_BYTES[version]
    for _, _, first, partitions in usual:
        expected -= partitions
        for code in range(first + 4, first + partitions * size, size):
            if buffer[code] or buffer[code + 1]:
                return False
    return not expected


def appended(
    buffer: Octets, start: int, end: int, version: int, expected: int
) -> list[tuple[int, int, int, int]] | None:
    """What an answer of the usual form says of each of `expected` partitions: its number, base offset, append time
    and log start (-1 below version 5). None where `all_appended` is False.
    """
    usual = usual_partitions(buffer, start, end, version)
    if usual is None:
        return None
    size = _PLAIN_BYTES[version]
    layout = ANSWER if version >= FIRST_WITH_START else ANSWER_V4
    found: list[tuple[int, int, int, int]] = []
    for _, _, first, partitions in usual:
        for at in range(first, first + partitions * size, size):
            partition, error, *rest = layout.unpack_from(buffer, at)
            if error:
                return None
            found.append((partition, *rest) if version >= FIRST_WITH_START else (partition, *rest, -1))
    return found if len(found) == expected else None


def rename_answer(buffer: bytearray, start: int, end: int, version: int, correlation_id: int) -> None:
    """Make an answer to the node's own request, in the usual form, that of a client's: its throttle time was the
    node's.
    """
    I32.pack_into(buffer, start + 4, correlation_id)
    I32.pack_into(buffer, end - (5 if version >= FIRST_FLEXIBLE else 4), 0)


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
    topics: dict[bytes, list[ProduceResult]] = {}
    for result in results:
        if result.message is not None or result.record_errors:
            return _encode_answer_in_full(correlation_id, version, results, throttle_ms)
        topics.setdefault(result.topic, []).append(result)
    if version >= FIRST_FLEXIBLE:
        if len(topics) > SHORT or len(results) > SHORT or any(len(topic) > SHORT for topic in topics):
            return _encode_answer_in_full(correlation_id, version, results, throttle_ms)
        parts = [_HEAD_V9.pack(correlation_id, 0, len(topics) + 1)]
        for topic, of_topic in topics.items():
            parts += (_BYTE[len(topic) + 1], topic, _BYTE[len(of_topic) + 1])
            parts += [_PLAIN_V9.pack(*result[1:6], 1, 0, 0) for result in of_topic]
            parts.append(b"\0")
        parts.append(_END_V9.pack(throttle_ms, 0))
    else:
        parts = [_HEAD.pack(correlation_id, len(topics))]
        for topic, of_topic in topics.items():
            parts += (I16.pack(len(topic)), topic, I32.pack(len(of_topic)))
            if version >= 8:
                parts += [PLAIN_V8.pack(*result[1:6], 0, -1) for result in of_topic]
            elif version >= FIRST_WITH_START:
                parts += [ANSWER.pack(*result[1:6]) for result in of_topic]
            else:
                parts += [ANSWER_V4.pack(*result[1:5]) for result in of_topic]
        parts.append(I32.pack(throttle_ms))
    body = b"".join(parts)
    return I32.pack(len(body)) + body


def _encode_answer_in_full(correlation_id: int, version: int, results: list[ProduceResult], throttle_ms: int) -> bytes:
    """As `encode_answer`, for answers with messages."""
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
        write_name(writer, topic, flexible)
        writer.array(len(of_topic), flexible)
        for result in of_topic:
            _write_result(writer, version, result)
        writer.tags(flexible)
    writer.i32(throttle_ms)
    writer.tags(flexible)
    I32.pack_into(writer.out, 0, len(writer.out) - 4)
    return bytes(writer.out)


def write_name(writer: Writer, topic: bytes, flexible: bool) -> None:
    """A topic's name in the form of the version."""
    if flexible:
        writer.uvarint(len(topic) + 1)
    else:
        writer.i16(len(topic))
    writer.raw(topic)


def _write_result(writer: Writer, version: int, result: ProduceResult) -> None:
    flexible = version >= FIRST_FLEXIBLE
    if version >= FIRST_WITH_START:
        writer.raw(
            ANSWER.pack(
                result.partition, result.error, result.base_offset, result.log_append_time, result.log_start_offset
            )
        )
    else:
        writer.raw(ANSWER_V4.pack(result.partition, result.error, result.base_offset, result.log_append_time))
    if version >= 8:
        writer.array(len(result.record_errors), flexible)
        for index, message in result.record_errors:
            writer.i32(index)
            writer.text(message, flexible)
            writer.tags(flexible)
        writer.text(result.message, flexible)
    writer.tags(flexible)
