"""Read the logs of topics: first and end offsets, batches, and, for people who look at a topic, a few last records with
truncated values.

Each request goes to the partition's leader, and its answer is about the topic that was looked up: if it was created
again meanwhile, that is an error (`Upstream.call_on`). If that broker is no longer the leader, the leaders are looked
up again and the caller gets the error. An empty answer to Fetch is never taken for the end of a log (`LogReader.read`).

One lookup of last records does at most six fetches of about 256 KiB each (the leader sends one batch whole, however
large it is). A worker thread decompresses batches from the last one backwards until it has enough records, or 16 MiB:
clients' batches wait for the same thread, and 256 KiB can decompress to gigabytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from sidecar.network.aside import aside
from sidecar.protocol.batch import HEADER_BYTES, BatchHeader, batch_sizes, crc_matches, read_header
from sidecar.protocol.caller import SHARED_CHANNEL, Channel, TopicLayout, Upstream, UpstreamError
from sidecar.protocol.calls.logs import Fetched, FetchPartition, ListedOffset, ListOffsets, OffsetAt
from sidecar.protocol.compression import decompress
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import Offset, ProducerEpoch, ProducerId, Stamp, TopicPartition
from sidecar.protocol.primitives import Octets
from sidecar.protocol.stretches import Columns, unpack

FETCH_BYTES: Final = 1024 * 1024
_EMPTY_ANSWERS: Final = 10
"""The number of consecutive answers without progress after which reading fails: about 7 s with the brokers' waits."""
_MAX_WAIT_MS: Final = 500
_FIRST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 0.5


class LogMovedError(KafkaError):
    """The log begins after the next offset to be read: retention or DeleteRecords deleted the records in between.
    `start` is the log's first offset now.
    """

    def __init__(self, partition: TopicPartition, offset: int, start: int) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition} begins at {start}, offset {offset} is gone")
        self.start = start


class LogReader:
    """Reads the partitions of topics; `channel` is the connection for reading records. With a `topic_id` it reads that
    topic alone: 5 LEADER_NOT_AVAILABLE if its name belongs to another one. Without one each of its methods reads one
    topic, the present one; `starts_of` alone compares no ids.
    """

    def __init__(self, upstream: Upstream, channel: Channel = SHARED_CHANNEL, topic_id: UUID | None = None) -> None:
        self._upstream = upstream
        self._channel = channel
        self._topic_id = topic_id

    def bound(self, topic_id: UUID) -> LogReader:
        """Return a reader of the topic with this id alone."""
        return LogReader(self._upstream, self._channel, topic_id)

    async def topic_id(self, topic: str) -> UUID:
        """Return the id of the topic with this name. Raises what `ends` raises."""
        return (await self._layout(topic)).topic_id

    async def _layout(self, topic: str) -> TopicLayout:
        layout = await self._upstream.layout(topic)
        if self._topic_id in (None, layout.topic_id):
            return layout
        layout = await self._upstream.layout(topic, refresh=True)
        if layout.topic_id != self._topic_id:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic} was created again: its id is {layout.topic_id}")
        return layout

    async def ends(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Return the end (high watermark) of each partition. Raises `KafkaError`, `UpstreamError`."""
        listed = await self.listed(topic, partitions)
        return {index: each.offset for index, each in listed.items()}

    async def starts(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Return the first offset of each partition's log. Raises what `ends` raises."""
        listed = await self.listed(topic, partitions, OffsetAt.EARLIEST)
        return {index: each.offset for index, each in listed.items()}

    async def starts_of(self, leaders: Mapping[str, Mapping[int, int]]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition of these topics, by one request to each broker. `leaders`: the
        brokers to ask, by topic and partition. Left out is what has no leader, or where the broker does not lead or
        does not answer.
        """
        by_leader: dict[int, list[TopicPartition]] = {}
        for topic, of_topic in leaders.items():
            for index, leader in of_topic.items():
                if leader >= 0:
                    by_leader.setdefault(leader, []).append(TopicPartition(topic, index))
        requests = [
            self._upstream.call(leader, ListOffsets(dict.fromkeys(asked, OffsetAt.EARLIEST)), channel=self._channel)
            for leader, asked in by_leader.items()
        ]
        found: dict[TopicPartition, int] = {}
        for answer in await asyncio.gather(*requests, return_exceptions=True):
            if isinstance(answer, UpstreamError):
                continue
            if isinstance(answer, BaseException):
                raise answer
            found.update((partition, listed.offset) for partition, listed in answer.items() if not listed.error)
        return found

    async def listed(
        self,
        topic: str,
        partitions: Iterable[int],
        at: OffsetAt | int = OffsetAt.LATEST,
        leaders: Mapping[int, int] | None = None,
        channel: Channel = SHARED_CHANNEL,
    ) -> dict[int, ListedOffset]:
        """Return an end of each partition, or the offset of its first record not older than `at` (Unix ms; -1: there is
        none), with the leader epoch. `leaders`: the brokers to ask, if given. Raises what `ends` raises.
        """
        layout = await self._layout(topic)
        leaders = layout.leaders if leaders is None else leaders
        by_leader: dict[int, list[TopicPartition]] = {}
        for index in partitions:
            leader = leaders.get(index, -1)
            if leader < 0:
                await self._upstream.layout(topic, refresh=True)
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"the offsets of {topic}-{index}")
            by_leader.setdefault(leader, []).append(TopicPartition(topic, index))
        requests = [
            self._upstream.call_on(
                leader,
                ListOffsets(dict.fromkeys(asked, at)),
                topic,
                layout.topic_id,
                asked[0].partition,
                channel=channel,
            )
            for leader, asked in by_leader.items()
        ]
        found: dict[int, ListedOffset] = {}
        for answer in await asyncio.gather(*requests):
            for partition, listed in answer.items():
                if listed.error:
                    await self._upstream.layout(topic, refresh=True)
                    raise KafkaError(_of_a_leader(listed.error), f"the offsets of {partition}")
                found[partition.partition] = listed
        return found

    async def read(
        self, partition: TopicPartition, start: int, end: int, max_bytes: int = FETCH_BYTES
    ) -> AsyncGenerator[bytes, None]:
        """Yield the batches of a log from offset `start` to `end`, in order, in sets of at least one whole batch. The
        first batch may begin before `start`, the last one may end after `end`; the last one of a set may be cut off.

        Returns only when `end` is reached. An empty answer does not mean the end: a new leader's high watermark may
        lag, or a read of a tiered log may take too long. Compaction cannot have removed the last batch before a known
        end, because it never cleans the newest segment.

        Raises `LogMovedError`, `KafkaError` (5 LEADER_NOT_AVAILABLE if no more records come, or the log now ends before
        `end`), `UpstreamError`.
        """
        offset, empty, pause = start, 0, _FIRST_PAUSE_S
        reader: LogReader | None = None
        while offset < end:
            reader = reader or self.bound(await self.topic_id(partition.topic))
            records = await reader.fetch(partition, offset, max_bytes)
            behind = _behind(records, offset)
            if behind > offset:
                offset, empty, pause = behind, 0, _FIRST_PAUSE_S
                yield records
                continue
            empty += 1
            if empty == _EMPTY_ANSWERS:
                await self._upstream.layout(partition.topic, refresh=True)
                message = f"reading {partition}: nothing comes from offset {offset} on, in front of {end}"
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, message)
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE_S, 2 * pause)

    async def fetch(self, partition: TopicPartition, offset: int, max_bytes: int) -> bytes:
        """Return the leader's answer to one Fetch: batches from the one with `offset` on, the last one possibly cut
        off. An empty answer does not mean the end of the log; see `read`. Raises what `read` raises.
        """
        layout = await self._layout(partition.topic)
        leader = layout.leaders.get(partition.partition, -1)
        if leader < 0:
            await self._upstream.layout(partition.topic, refresh=True)
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"reading {partition}")
        answer = await self._ask(leader, partition, layout.topic_id, offset, max_bytes)
        if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            first = (await self.starts(partition.topic, [partition.partition]))[partition.partition]
            if offset < first:
                raise LogMovedError(partition, offset, first)
            await self._upstream.layout(partition.topic, refresh=True)
        elif answer.error:
            await self._upstream.layout(partition.topic, refresh=True)
            raise KafkaError(_of_a_leader(answer.error), f"reading {partition} from offset {offset}")
        return answer.records

    async def _ask(
        self, leader: int, partition: TopicPartition, topic_id: UUID, offset: int, max_bytes: int
    ) -> Fetched:
        request = FetchPartition(partition, Offset(offset), max_wait_ms=_MAX_WAIT_MS, max_bytes=max_bytes)
        topic, index = partition
        return await self._upstream.call_on(leader, request, topic, topic_id, index, channel=self._channel)


def _of_a_leader(error: int) -> int:
    """Translate an error of a partition's leader: 3 UNKNOWN_TOPIC_OR_PARTITION becomes 5 LEADER_NOT_AVAILABLE. The
    leader of a new partition returns it until it knows the partition, which another broker's metadata named. A client
    would treat it as final. A deleted topic is noticed when its leaders are looked up.
    """
    return ErrorCode.LEADER_NOT_AVAILABLE if error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else error


def _behind(records: bytes, offset: int) -> int:
    """Return the offset after the last whole batch of a record set, or `offset` (the requested one) without any."""
    sizes = batch_sizes(records, 0, len(records))
    if not sizes:
        return offset
    start, size = sizes[-1]
    header = read_header(records, start, start + size)
    return max(offset, header.base_offset + header.last_offset_delta + 1)


_REACH: Final = 8
"""The number of offsets to look at for each wanted record; some are offsets of markers, which are not records."""
KEY_BYTES: Final = 512
"""The number of bytes shown of a key; half of it is shown of a header's value."""
VALUE_BYTES: Final = 2048
HEADERS: Final = 16
"""The number of headers shown of one record."""
_FETCH_BYTES: Final = 256 * 1024
_OPENED_BYTES: Final = 16 * 1024 * 1024
"""The limit for all batches of one answer together, decompressed. Batches before it, and larger ones, are not shown."""
_MARKERS: Final = 20
"""A record is found if at most 64 times this number of markers follow it; an idle owner's topic gets four a day."""
_CODEC: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08


class CutBytes(NamedTuple):
    """The first bytes of a value, and its whole size in bytes."""

    data: bytes
    size: int


class LastRecord(NamedTuple):
    """A record of the log, truncated. `timestamp_ms`: Unix time; `headers`: the first `HEADERS`, in their order;
    `sequence_id` and `producer_name`: from their headers, None if absent or invalid; `writer`: None without a producer
    id.
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
    """The names of the headers for the sequence id and the producer name."""

    sequence_id: bytes
    producer_name: bytes


async def last_records(
    logs: LogReader, where: TopicPartition, start: int, end: int, most: int, names: Names
) -> list[LastRecord]:
    """Return the `most` last records of a log from `start` to `end`, the last one first. Returns fewer if nearly all of
    the last `_REACH` times `most` offsets are control batches or were compacted away; none if also the offsets that
    `_MARKERS` allows are. Raises what `LogReader.fetch` raises, and `KafkaError` for a batch that cannot be opened.
    """
    if start >= end:
        return []
    behind = max(most, _MARKERS)
    near, far = (most * _REACH, most, max(1, most // 8), 1), (64 * behind, 8 * behind)
    for reach in (near, far):  # search further back if there are only markers near the end
        for wanted in dict.fromkeys(reach):
            first = max(start, end - wanted)
            found = await _looked(logs, where, first, end, most, names)
            if found or (found is not None and first == start):
                return found
            if found is not None:
                break  # else one answer did not reach the end: start nearer to it
    return []


async def _looked(
    logs: LogReader, where: TopicPartition, first: int, end: int, most: int, names: Names
) -> list[LastRecord] | None:
    """Return the last records from an offset on; None if one answer does not reach the end."""
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
    """Return the last `most` records of a record set from offset `first` on, the last one first; fewer if they need
    more than `_OPENED_BYTES` decompressed. No I/O. Raises `KafkaError` for an invalid batch, or if the last one is too
    large.
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
