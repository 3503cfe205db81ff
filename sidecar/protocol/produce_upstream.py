"""Produce to brokers: parts of clients' requests, the node's own requests for governed topics, and their answers.

The node's own requests are version 8, or 13 if topics are named by id, with acks=all and without a transactional id.
Records are never copied: a request is a list of parts for one gathered write.
"""

from struct import Struct
from typing import Final

from sidecar.protocol.leaders import Found, read_leader
from sidecar.protocol.primitives import I16, I32, Octets, Reader, Writer, new_tuple, request_frame
from sidecar.protocol.produce import (
    ANSWER,
    ANSWER_V4,
    FIRST_BY_ID,
    FIRST_FLEXIBLE,
    FIRST_WITH_LEADERS,
    FIRST_WITH_START,
    KEY,
    LEADER_TAG,
    OWN_CLIENT_ID,
    PLAIN_V8,
    PLAIN_V9,
    ProduceResult,
    usual_partitions,
    write_topic,
)
from sidecar.protocol.topic_ids import ID_BYTES, NO_NAMES, Ids, Names

Leaders = dict[tuple[bytes, int], Found]

SINGLE_VERSION: Final = 8
BY_ID_VERSION: Final = FIRST_BY_ID
_PLAIN: Final = {SINGLE_VERSION: (PLAIN_V8, [0, -1]), BY_ID_VERSION: (PLAIN_V9, [1, 0, 0])}
"""The end of a partition without messages in a usual answer."""
_ACKS_TIMEOUT: Final = Struct(">hi")
_INDEX_SIZE: Final = Struct(">ii")
_HEAD: Final = Struct(">ii")


def encode_request(
    correlation_id: int,
    client_id: bytes,
    version: int,
    acks: int,
    timeout_ms: int,
    records: list[tuple[bytes, int, Octets]],
    transactional_id: str | None = None,
    ids: Ids | None = None,
) -> list[Octets]:
    """A whole request frame as parts; the records (topic, partition, batch) are not copied. `ids`: the topics' ids,
    from version 13 on.
    """
    flexible = version >= FIRST_FLEXIBLE
    writer = request_frame(KEY, version, correlation_id, client_id, flexible)
    writer.text(transactional_id, flexible)
    writer.raw(_ACKS_TIMEOUT.pack(acks, timeout_ms))
    by_topic: dict[bytes, list[tuple[int, Octets]]] = {}
    for topic, index, batch in records:
        by_topic.setdefault(topic, []).append((index, batch))
    parts: list[Octets] = []
    size = 0
    writer.array(len(by_topic), flexible)
    for topic, of_topic in by_topic.items():
        write_topic(writer, topic, flexible, ids)
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


_SINGLE_HEAD: Final = Struct(">ihhi")
_SINGLE_CONSTANT: Final = Struct(">h7shh").pack(len(OWN_CLIENT_ID), OWN_CLIENT_ID, -1, -1)
_COUNT: Final = Struct(">i")
_SINGLE_TERMS: Final = Struct(">hhi")


def table_head(topic: bytes, partition: int) -> bytes:
    """The part of a version 8 request that names one partition: made once, used by `encode_single` for each batch."""
    return b"".join((I32.pack(1), I16.pack(len(topic)), topic, Struct(">ii").pack(1, partition)))


def encode_single(correlation_id: int, timeout_ms: int, table: bytes, batch: Octets) -> list[Octets]:
    """The node's own request with one batch: version 8, acks=all, no transactional id. The batch is not copied."""
    size = len(batch)
    head = b"".join(
        (
            _SINGLE_HEAD.pack(16 + len(_SINGLE_CONSTANT) + len(table) + size, KEY, SINGLE_VERSION, correlation_id),
            _SINGLE_CONSTANT,
            _COUNT.pack(timeout_ms),
            table,
            _COUNT.pack(size),
        )
    )
    return [head, batch]


_BY_ID_HEAD: Final = Struct(f">ihhih{len(OWN_CLIENT_ID)}sBBhi")
_BY_ID_END: Final = b"\0\0\0"


def table_head_by_id(topic_id: bytes, partition: int) -> bytes:
    """As `table_head`, for `encode_single_by_id`."""
    return b"".join((b"\x02", topic_id, b"\x02", I32.pack(partition)))


def encode_single_by_id(correlation_id: int, timeout_ms: int, table: bytes, batch: Octets) -> list[Octets]:
    """As `encode_single`, in the version that names topics by id: a recreated topic has another id and gets nothing."""
    records = Writer()
    records.uvarint(len(batch) + 1)
    rest = len(table) + len(records.out) + len(batch) + len(_BY_ID_END)
    size = _BY_ID_HEAD.size - 4 + rest
    head = _BY_ID_HEAD.pack(
        size, KEY, BY_ID_VERSION, correlation_id, len(OWN_CLIENT_ID), OWN_CLIENT_ID, 0, 0, -1, timeout_ms
    )
    return [head + table + records.out, batch, _BY_ID_END]


def single_body(timeout_ms: int, table: bytes, size: int) -> bytes:
    """Return the part between the header and the batch of `size` bytes in a request of `encode_single`."""
    return b"".join((_SINGLE_TERMS.pack(-1, -1, timeout_ms), table, _COUNT.pack(size)))


def encode_batches(correlation_id: int, timeout_ms: int, batches: list[tuple[bytes, int, Octets]]) -> list[Octets]:
    """As `encode_single`, for the batches of several partitions (topic, partition, batch)."""
    by_topic: dict[bytes, list[tuple[int, Octets]]] = {}
    for topic, partition, batch in batches:
        by_topic.setdefault(topic, []).append((partition, batch))
    parts: list[Octets] = [b""]
    pending = _SINGLE_CONSTANT + _HEAD.pack(timeout_ms, len(by_topic))
    size = 8
    for topic, of_topic in by_topic.items():
        pending += I16.pack(len(topic)) + topic + I32.pack(len(of_topic))
        for partition, batch in of_topic:
            pending += _INDEX_SIZE.pack(partition, len(batch))
            size += len(pending) + len(batch)
            parts += (pending, batch)
            pending = b""
    parts[0] = _SINGLE_HEAD.pack(size, KEY, SINGLE_VERSION, correlation_id)
    return parts


# Answers -------------------------------------------------------------------------------------------------------------


def decode_answer(
    buffer: Octets, start: int, end: int, version: int, names: Names = NO_NAMES, leaders: Leaders | None = None
) -> tuple[list[ProduceResult], int]:
    """The results and the throttle time (ms) of an answer frame that begins with its length prefix at `start`. `names`:
    topics by id. New leaders that the broker names are added to `leaders`.
    """
    results: list[ProduceResult] = []
    usual = usual_partitions(buffer, start, end, version) if version in _PLAIN else None
    if usual is not None:
        layout, nothing = _PLAIN[version]
        for name, name_end, first, partitions in usual:
            topic = bytes(buffer[name:name_end])
            topic = topic if version < FIRST_BY_ID else names.get(topic, topic)
            for at in range(first, first + partitions * layout.size, layout.size):
                index, error, offset, time, log_start, *rest = layout.unpack_from(buffer, at)
                if rest != nothing:
                    return _decode_in_full(buffer, start, end, version, names, leaders)
                results.append(new_tuple(ProduceResult, (topic, index, error, offset, time, log_start, None, ())))
        return results, I32.unpack_from(buffer, end - (5 if version >= FIRST_FLEXIBLE else 4))[0]
    return _decode_in_full(buffer, start, end, version, names, leaders)


def _decode_in_full(
    buffer: Octets, start: int, end: int, version: int, names: Names, leaders: Leaders | None
) -> tuple[list[ProduceResult], int]:
    """As `decode_answer`, field by field."""
    reader = Reader(buffer, start + 8, end)
    reader.tags(version >= FIRST_FLEXIBLE)
    return read_body(reader, version, names, leaders)


def read_body(
    reader: Reader, version: int, names: Names = NO_NAMES, leaders: Leaders | None = None
) -> tuple[list[ProduceResult], int]:
    """As `decode_answer`, for a reader after the header."""
    results = _read_results(reader, version, names, {} if leaders is None else leaders)
    throttle_ms = reader.i32()
    reader.tags(version >= FIRST_FLEXIBLE)
    return results, throttle_ms


def throttle_at(answer: bytes, version: int) -> int:
    """Return the position of `throttle_time_ms` in an answer frame of version 1 or later. From version 10 on the new
    leaders' addresses follow it. Raises `MalformedFrameError`.
    """
    reader = Reader(answer, 8)
    reader.tags(version >= FIRST_FLEXIBLE)
    _read_results(reader, version, NO_NAMES, {})
    return reader.position


def _read_results(reader: Reader, version: int, names: Names, leaders: Leaders) -> list[ProduceResult]:
    flexible = version >= FIRST_FLEXIBLE
    results: list[ProduceResult] = []
    for _ in range(reader.array(flexible)):
        if version >= FIRST_BY_ID:
            topic_id = reader.raw(ID_BYTES)
            topic = names.get(topic_id, topic_id)
        else:
            topic = reader.name(flexible)
        results += [_read_result(reader, version, topic, leaders) for _ in range(reader.array(flexible))]
        reader.tags(flexible)
    return results


def _read_result(reader: Reader, version: int, topic: bytes, leaders: Leaders) -> ProduceResult:
    flexible = version >= FIRST_FLEXIBLE
    log_start, message = -1, None
    record_errors: tuple[tuple[int, str | None], ...] = ()
    if version >= FIRST_WITH_START:
        index, error, base_offset, append_time, log_start = ANSWER.unpack_from(reader.buffer, reader.skip(30))
    else:
        index, error, base_offset, append_time = ANSWER_V4.unpack_from(reader.buffer, reader.skip(22))
    if version >= 8:
        record_errors = tuple(_read_record_error(reader, flexible) for _ in range(reader.array(flexible)))
        message = reader.nullable_text(flexible)
    if version < FIRST_WITH_LEADERS:
        reader.tags(flexible)
    elif (leader := read_leader(reader, LEADER_TAG)) is not None:
        leaders[topic, index] = leader
    return ProduceResult(topic, index, error, base_offset, append_time, log_start, message, record_errors)


def _read_record_error(reader: Reader, flexible: bool) -> tuple[int, str | None]:
    found = reader.i32(), reader.nullable_text(flexible)
    reader.tags(flexible)
    return found
