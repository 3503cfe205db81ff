"""Produce, api key 0, versions 3 to 9: walk a request without touching its records, build and read answers.

Versions: 3 transactional id · 5 log_start_offset in the answer · 7 zstd · 8 record errors and a message · 9 flexible
(KIP-482). 10 and later carry the brokers' addresses in their answers (KIP-951), 13 names topics by id: not served
(see `api`).
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from sidecar.protocol.primitives import I32, MalformedFrameError, Octets, Reader, Writer

FIRST_FLEXIBLE: Final = 9
_ACKS_TIMEOUT: Final = Struct(">hi")
_ANSWER: Final = Struct(">ihqqq")
_ANSWER_V4: Final = Struct(">ihqq")
NO_OFFSET: Final = -1


class ProducePart(NamedTuple):
    """The records for one partition: `start` to `end` in the request's buffer, without their length prefix."""

    topic: bytes
    partition: int
    start: int
    end: int


class ProduceRequest(NamedTuple):
    """A walked request. `timeout_ms` is the client's; `null_records` where a partition came with no record set at all.
    """

    transactional_id: str | None
    acks: int
    timeout_ms: int
    parts: list[ProducePart]


def walk(buffer: Octets, body: int, end: int, version: int) -> ProduceRequest:
    """Find the partitions of a request whose body begins at `body` (behind the client id). Raises
    `MalformedFrameError`.
    """
    reader = Reader(buffer, body, end)
    flexible = version >= FIRST_FLEXIBLE
    reader.tags(flexible)
    transactional_id = reader.nullable_text(flexible)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(buffer, reader.skip(6))
    parts: list[ProducePart] = []
    for _ in range(reader.array(flexible, element_bytes=3)):
        topic = reader.raw(reader.uvarint() - 1 if flexible else reader.i16())
        for _ in range(reader.array(flexible, element_bytes=5)):
            index = reader.i32()
            size = reader.uvarint() - 1 if flexible else reader.i32()
            start = reader.skip(max(0, size))
            parts.append(ProducePart(topic, index, start, start + max(0, size)))
            if flexible:
                reader.skip_tags()
        if flexible:
            reader.skip_tags()
    reader.tags(flexible)
    if reader.position != end:
        raise MalformedFrameError(f"{end - reader.position} bytes behind the end of a Produce request")
    return ProduceRequest(transactional_id, acks, timeout_ms, parts)


@dataclass(frozen=True, slots=True)
class ProduceResult:
    """What one partition is answered. `base_offset` and times are -1 where there are none; `message` needs version 8.
    """

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
