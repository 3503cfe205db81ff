"""Produce, api key 0, versions 3 to 13: walk a request without reading its records; head and answer of a request
that is forwarded whole; build answers. The node's own requests, and reading answers field by field: `produce_upstream`.

Versions: 3 transactional id · 5 log_start_offset in the answer · 7 zstd · 8 record errors and a message · 9 flexible
(KIP-482) · 10 new leaders in the answer, with addresses (KIP-951) · 11 and 12 errors of transactions, and partitions
that Produce adds to them (KIP-890) · 13 topics by id (KIP-516).
"""

import struct
from collections.abc import Mapping
from struct import Struct
from typing import Final, NamedTuple

from sidecar.protocol.api import ApiKey
from sidecar.protocol.compiled import COMPILED
from sidecar.protocol.leaders import Leader, endpoint_tags, leader_tags
from sidecar.protocol.limits import BOUNDS
from sidecar.protocol.primitives import (
    I16,
    I32,
    Octets,
    RequestReader,
    TooManyElementsError,
    Writer,
    answer_frame,
    new_tuple,
)
from sidecar.protocol.topic_ids import ID_BYTES, NO_NAMES, Ids, Names, named

KEY: Final = ApiKey.PRODUCE.value
"""A plain number, because it is packed with every request to a leader."""
FIRST_FLEXIBLE: Final = 9
FIRST_WITH_START: Final = 5
"""The first version whose answers have the log start offset."""
FIRST_WITH_LEADERS: Final = 10
LEADER_TAG: Final = 0
FIRST_BY_ID: Final = 13
ANSWER: Final = Struct(">ihqqq")
ANSWER_V4: Final = Struct(">ihqq")
NO_OFFSET: Final = -1
_NO_LEADERS: Final[dict[tuple[bytes, int], Leader]] = {}
_ACKS_TIMEOUT: Final = Struct(">hi")
_HEAD: Final = Struct(">ii")
_HEAD_V9: Final = Struct(">iBB")
PLAIN_V8: Final = Struct(">ihqqqih")
PLAIN_V9: Final = Struct(">ihqqqBBB")
_END_V9: Final = Struct(">iB")
SHORT: Final = 126
_BYTE: Final = [bytes((value,)) for value in range(128)]
OWN_CLIENT_ID: Final = b"sidecar"
_WHOLE_HEAD: Final = Struct(f">ihhih{len(OWN_CLIENT_ID)}s")
_PLAIN_BYTES: Final = {3: 22, 4: 22, 5: 30, 6: 30, 7: 30, 8: 36, 9: 33, 10: 33, 11: 33, 12: 33, 13: 33}
"""Bytes of a partition in an answer without messages, by version."""


class ProducePart(NamedTuple):
    """The records for one partition: `start` to `end` in the request's buffer, without their length prefix."""

    topic: bytes
    partition: int
    start: int
    end: int


class ProduceRequest(NamedTuple):
    """A walked request. `timeout_ms` is the client's own; `ids`: the ids of its topics, None if it has names."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    parts: list[ProducePart]
    ids: Ids | None = None

    def moved(self, by: int) -> "ProduceRequest":
        """Return the same request for a copy of its frame, with `by` added to all positions."""
        parts = [ProducePart(part.topic, part.partition, part.start + by, part.end + by) for part in self.parts]
        return self._replace(parts=parts)


class ProduceResult(NamedTuple):
    """The answer for one partition. Offsets and times are -1 if there are none; `message` needs version 8."""

    topic: bytes
    partition: int
    error: int
    base_offset: int = NO_OFFSET
    log_append_time: int = -1
    log_start_offset: int = -1
    message: str | None = None
    record_errors: tuple[tuple[int, str | None], ...] = ()


def walk(buffer: Octets, body: int, end: int, version: int, names: Names = NO_NAMES) -> ProduceRequest:
    """Find the partitions of a request whose body begins at `body` (after the client id). `names`: topics by id.

    Raises `MalformedFrameError`. Every Produce passes here: the compiled twin reads what clients usually send.
    """
    if COMPILED is not None:
        found = COMPILED.walk_produce(buffer, body, end, version, names, ProducePart, ProduceRequest, BOUNDS.produce)
        if found is not None:
            return found
    flexible = version >= FIRST_FLEXIBLE
    ids: Ids | None = None if version < FIRST_BY_ID else {}
    reader = RequestReader(buffer, body, end, BOUNDS.produce if flexible else 2 * BOUNDS.produce)
    reader.tags(flexible)
    transactional_id = reader.nullable_text(flexible)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(buffer, reader.skip(_ACKS_TIMEOUT.size))
    parts: list[ProducePart] = []
    for _ in range(_bounded(reader.array(flexible, element_bytes=3))):
        topic = reader.name(flexible) if ids is None else named(reader.raw(ID_BYTES), names, ids)
        for _ in range(_bounded(reader.array(flexible, element_bytes=5), len(parts))):
            index = reader.i32()
            size = reader.uvarint() - 1 if flexible else reader.i32()
            start = reader.skip(size if size != -1 else 0)
            parts.append(new_tuple(ProducePart, (topic, index, start, reader.position)))
            reader.tags(flexible)
        reader.tags(flexible)
    reader.tags(flexible)
    reader.finish()
    return ProduceRequest(transactional_id, acks, timeout_ms, parts, ids)


def _bounded(count: int, before: int = 0) -> int:
    """Return `count`, if `before` and `count` together are within a request's limit. Before version 9 topics and
    partitions are counted separately, as in the compiled twin.
    """
    if before + count > BOUNDS.produce:
        raise TooManyElementsError(BOUNDS.produce)
    return count


def bare_bytes(version: int, topic: bytes, parts: list[ProducePart]) -> int:
    """Return the bytes after the client id of a request that has only these partitions of one topic: no transactional
    id, no tags, no other topic.
    """
    if COMPILED is not None:
        size: int = COMPILED.bare_bytes(version, topic, parts)
        return size
    sizes = [part.end - part.start for part in parts]
    if version < FIRST_FLEXIBLE:
        return 18 + len(topic) + 8 * len(sizes) + sum(sizes)
    records = sum([size + 5 + _varint_bytes(size + 1) for size in sizes])
    called = ID_BYTES if version >= FIRST_BY_ID else len(topic) + _varint_bytes(len(topic) + 1)
    return 11 + called + _varint_bytes(len(sizes) + 1) + records


def _varint_bytes(value: int) -> int:
    return (value.bit_length() + 6) // 7


def whole_head(correlation_id: int, version: int, rest: int) -> bytes:
    """Return the head for a client's request that the node forwards as its own. The `rest` bytes after the client id
    follow.
    """
    size = _WHOLE_HEAD.size - 4 + rest
    return _WHOLE_HEAD.pack(size, KEY, version, correlation_id, len(OWN_CLIENT_ID), OWN_CLIENT_ID)


def usual_partitions(buffer: Octets, start: int, end: int, version: int) -> list[tuple[int, int, int, int]] | None:
    """Find the partitions of a usual answer: (name start, name end, first partition, number) for each topic.

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
                name = at + 1 if version < FIRST_BY_ID else at
                at += buffer[at] if version < FIRST_BY_ID else ID_BYTES
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
    return found if at + 4 + flexible == end and not (flexible and buffer[end - 1]) else None


def all_appended(buffer: Octets, start: int, end: int, version: int, expected: int) -> bool:
    """Whether an answer frame has `expected` partitions in the usual form, and no error. Called for every
    acknowledgement.
    """
    if COMPILED is not None and COMPILED.all_appended(buffer, start, end, version, expected):
        return True
    return appended(buffer, start, end, version, expected) is not None


def appended(
    buffer: Octets, start: int, end: int, version: int, expected: int
) -> list[tuple[int, int, int, int]] | None:
    """Return number, base offset, append time and log start (-1 below version 5) of each of the `expected` partitions
    of an answer in the usual form. None where `all_appended` is False.
    """
    if COMPILED is not None:
        result = COMPILED.appended(buffer, start, end, version, expected)
        if result is not None:
            return result
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
    """Turn a usual answer to the node's own request into the answer to a client's. Sets the throttle time to 0, as it
    was for the node.
    """
    if COMPILED is not None:
        COMPILED.rename_answer(buffer, start, end, version, correlation_id)
        return
    I32.pack_into(buffer, start + 4, correlation_id)
    I32.pack_into(buffer, end - (5 if version >= FIRST_FLEXIBLE else 4), 0)


def encode_answer(
    correlation_id: int,
    version: int,
    results: list[ProduceResult],
    throttle_ms: int = 0,
    ids: Ids | None = None,
    leaders: Mapping[tuple[bytes, int], Leader] | None = None,
) -> bytes:
    """A whole answer frame. Results are grouped by topic. `ids`: those of the request. `leaders`: new leaders by
    partition, sent from version 10 on.
    """
    topics: dict[bytes, list[ProduceResult]] = {}
    for result in results:
        if result.message is not None or result.record_errors:
            return _encode_in_full(correlation_id, version, results, throttle_ms, ids, leaders)
        topics.setdefault(result.topic, []).append(result)
    if version >= FIRST_FLEXIBLE:
        if len(results) > SHORT or any(len(topic) > SHORT for topic in topics) or leaders:
            return _encode_in_full(correlation_id, version, results, throttle_ms, ids, leaders)
        parts = [_HEAD_V9.pack(correlation_id, 0, len(topics) + 1)]
        for topic, of_topic in topics.items():
            parts += (_BYTE[len(topic) + 1], topic) if ids is None else (ids[topic],)
            parts.append(_BYTE[len(of_topic) + 1])
            parts += [PLAIN_V9.pack(*result[1:6], 1, 0, 0) for result in of_topic]
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


def _encode_in_full(
    correlation_id: int,
    version: int,
    results: list[ProduceResult],
    throttle_ms: int,
    ids: Ids | None,
    leaders: Mapping[tuple[bytes, int], Leader] | None,
) -> bytes:
    """As `encode_answer`, field by field: with messages, new leaders, or long lists."""
    flexible = version >= FIRST_FLEXIBLE
    known = leaders if leaders and version >= FIRST_WITH_LEADERS else _NO_LEADERS
    topics: dict[bytes, list[ProduceResult]] = {}
    for result in results:
        topics.setdefault(result.topic, []).append(result)
    writer = answer_frame(correlation_id, flexible)
    writer.array(len(topics), flexible)
    for topic, of_topic in topics.items():
        write_topic(writer, topic, flexible, ids)
        writer.array(len(of_topic), flexible)
        for result in of_topic:
            _write_result(writer, version, result, known.get((topic, result.partition)))
        writer.tags(flexible)
    writer.i32(throttle_ms)
    if flexible:
        writer.raw(endpoint_tags(known.values()))
    return writer.frame()


def write_topic(writer: Writer, topic: bytes, flexible: bool, ids: Ids | None) -> None:
    """A topic in the form of the version: its name, or its id if there are `ids`."""
    if ids is None:
        writer.name(topic, flexible)
    else:
        writer.raw(ids[topic])


def _write_result(writer: Writer, version: int, result: ProduceResult, leader: Leader | None) -> None:
    flexible = version >= FIRST_FLEXIBLE
    writer.raw(ANSWER.pack(*result[1:6]) if version >= FIRST_WITH_START else ANSWER_V4.pack(*result[1:5]))
    if version >= 8:
        writer.array(len(result.record_errors), flexible)
        for index, message in result.record_errors:
            writer.i32(index)
            writer.text(message, flexible)
            writer.tags(flexible)
        writer.text(result.message, flexible)
    if flexible:
        writer.raw(leader_tags(LEADER_TAG, leader))
