"""The last records of a partition, for people who want to see what is in a topic: few, and cut.

One lookup fetches at most six times some 256 KiB (the leader sends one batch whole, however large it is), and opens
batches from the last one backwards in the thread for such work, until it has enough, or has opened 16 MiB: clients'
batches wait for that thread, and 256 KiB can hold gigabytes.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

from sidecar.cluster.logs import LogReader
from sidecar.network.aside import aside
from sidecar.protocol.batch import HEADER_BYTES, BatchHeader, batch_sizes, crc_matches, read_header
from sidecar.protocol.compression import decompress
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp, TopicPartition
from sidecar.protocol.primitives import Octets
from sidecar.protocol.stretches import Columns, unpack

_REACH: Final = 8
"""Offsets that are looked at for each record that is wanted: those of markers, which are no records, among them."""
KEY_BYTES: Final = 512
"""Shown of a key; of a header's value half of that."""
VALUE_BYTES: Final = 2048
HEADERS: Final = 16
"""Shown of one record's headers."""
_FETCH_BYTES: Final = 256 * 1024
_OPENED_BYTES: Final = 16 * 1024 * 1024
"""Of the batches of one answer together, decompressed: those in front are not shown, and no batch that is larger."""
_MARKERS: Final = 20
"""A record is found with 64 times as many of them behind it: an owner that writes nothing leaves four a day."""
_CODEC: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08


class CutBytes(NamedTuple):
    """The beginning of some bytes, and how many there are."""

    data: bytes
    size: int


class LastRecord(NamedTuple):
    """A record as it lies in the log, cut. `timestamp_ms`: Unix time; `headers` in their order, the first `HEADERS`;
    `sequence_id` and `producer_name` as the headers for them say, None where they are absent or bad; `writer` None
    without a producer id.
    """

    partition: int
    offset: int
    timestamp_ms: int
    key: CutBytes | None
    value: CutBytes | None
    headers: tuple[tuple[str, CutBytes | None], ...]
    sequence_id: int | None
    producer_name: str | None
    writer: Stamp | None


class Names(NamedTuple):
    """Of the headers that carry a sequence id and a producer name."""

    sequence_id: bytes
    producer_name: bytes


async def last_records(
    logs: LogReader, where: TopicPartition, start: int, end: int, most: int, names: Names
) -> list[LastRecord]:
    """The `most` last records of a log from `start` to `end`, the last one first. Fewer where nearly all of the last
    `_REACH` times `most` offsets are control batches or were compacted away; none where that holds of as many as
    `_MARKERS` says. Raises as `LogReader.fetch`, and `KafkaError` for a batch that cannot be opened.
    """
    if start >= end:
        return []
    behind = max(most, _MARKERS)
    near, far = (most * _REACH, most, max(1, most // 8), 1), (64 * behind, 8 * behind)
    for reach in (near, far):  # farther where all that is near are markers
        for wanted in dict.fromkeys(reach):
            first = max(start, end - wanted)
            found = await _looked(logs, where, first, end, most, names)
            if found or (found is not None and first == start):
                return found
            if found is not None:
                break  # else the answer was full before the end: nearer to it
    return []


async def _looked(
    logs: LogReader, where: TopicPartition, first: int, end: int, most: int, names: Names
) -> list[LastRecord] | None:
    """The last records from an offset on; None where one answer does not reach to the end."""
    data = await logs.fetch(where, first, _FETCH_BYTES)
    sizes = batch_sizes(data, 0, len(data))
    if not sizes:
        return None
    begin, size = sizes[-1]
    header = read_header(data, begin, begin + size)
    if header.base_offset + header.last_offset_delta + 1 < end:
        return None
    return await aside(partial(open_last, data, where, first, most, names))


def open_last(data: Octets, where: TopicPartition, first: int, most: int, names: Names) -> list[LastRecord]:
    """The last `most` records of a record set from offset `first` on, the last one first; fewer where more than
    `_OPENED_BYTES` would have to be opened for them. Pure. Raises `KafkaError` for a batch, unless some were opened.
    """
    found: list[LastRecord] = []
    room = _OPENED_BYTES
    for start, size in reversed(batch_sizes(data, 0, len(data))):
        header = read_header(data, start, start + size)
        if not header.is_control and header.records:
            try:
                section = _section(memoryview(data)[start : start + size], header, room)
                found += _open(section, header, where, first, most - len(found), names)
            except KafkaError as error:
                if error.code == ErrorCode.MESSAGE_TOO_LARGE and room < _OPENED_BYTES:
                    break
                raise KafkaError(error.code, f"the batch at offset {header.base_offset} of {where}: {error}") from None
            room -= len(section)
        if len(found) >= most:
            break
    return found


def _section(batch: memoryview, header: BatchHeader, room: int) -> Octets:
    if not crc_matches(batch, 0, header.size):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "its CRC-32C does not fit its bytes")
    return decompress(header.attributes & _CODEC, batch[HEADER_BYTES:], room)


def _open(
    section: Octets, header: BatchHeader, where: TopicPartition, first: int, most: int, names: Names
) -> list[LastRecord]:
    low = max(0, first - header.base_offset, header.last_offset_delta + 1 - most)
    columns = Columns()
    unpack(section, header.records, names.sequence_id, names.producer_name, columns, low=low, most_headers=HEADERS)
    writer = Stamp(ProducerId(header.producer_id), ProducerEpoch(header.producer_epoch))
    found: list[LastRecord] = []
    at = 0
    for index, delta in enumerate(columns.offset_deltas):
        count = columns.header_counts[index]
        shown = range(at, at + count)
        name = columns.names[index]
        found.append(
            LastRecord(
                where.partition,
                header.base_offset + delta,
                header.max_timestamp
                if header.attributes & _LOG_APPEND_TIME
                else header.base_timestamp + columns.timestamp_deltas[index],
                _cut(columns.keys[index], KEY_BYTES),
                _cut(columns.values[index], VALUE_BYTES),
                tuple((_name(columns.header_keys[i]), _cut(columns.header_values[i], KEY_BYTES // 2)) for i in shown),
                columns.sequence_ids[index],
                None if name is None else _name(name),
                writer if header.producer_id >= 0 else None,
            )
        )
        at += count
    return found[::-1]


def _name(name: bytes) -> str:
    return bytes(name[: KEY_BYTES // 2]).decode(errors="replace")


def _cut(data: bytes | None, most: int) -> CutBytes | None:
    return None if data is None else CutBytes(bytes(data[:most]), len(data))
