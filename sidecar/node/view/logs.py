"""The logs of topics as the HTTP side sees them; the log of a shadow is its source's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final, TypeVar

from sidecar.cluster.logs import LogMovedError, LogReader, Names, last_records
from sidecar.node import port
from sidecar.node.parts import Parts, rooms_of
from sidecar.node.port import ConflictError, InvalidError, NotFoundError, UnavailableError
from sidecar.protocol.caller import Channel, UnknownTopicError, UpstreamError
from sidecar.protocol.calls.admin import DescribeLogDirs
from sidecar.protocol.errors import ErrorCode, KafkaError, no_topic
from sidecar.protocol.ids import Stamp, TopicPartition
from sidecar.shadow.cursors import ClosedError, Cursor, Log

AnswerT = TypeVar("AnswerT")

PARTITIONS: Final = 16
"""The number of partitions that are read if none is named."""
_KAFKA_S: Final = 10.0
"""The time limit of a call in seconds."""
_UNOPENED: Final = frozenset({
    ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
})  # fmt: skip
"""The errors of a batch that exists but cannot be shown."""


class LogView:
    """Logs of topics. Reads over connections of its own, so that large answers delay no other call.

    All methods may raise `UnavailableError`, and NotFoundError if there is no such topic, ConflictError for a shadow
    whose log cannot be read.
    """

    def __init__(self, node: Parts) -> None:
        self._node = node
        self._logs = LogReader(node.upstream, Channel("records"))
        self._one = asyncio.Lock()

    async def partitions(self, name: str) -> Sequence[port.PartitionLog]:
        """Return first and end offset of each partition's log, by partition. Takes a round trip to each leader."""
        return await self._asked(name, self._partitions(name))

    async def groups(self, name: str) -> Sequence[Cursor]:
        """Return the offsets that groups have committed for the topic, by group; at most a few seconds old."""
        room = rooms_of(self._node).cursors
        cursors = room.cursors if self._is_shadow(name) else room.of_topics
        return await self._asked(name, cursors.of(name))

    async def records(self, name: str, partition: int | None, most: int) -> Sequence[port.ShownRecord]:
        """Return the last records of a partition, or (None) the newest of the first 16 partitions that have any: at
        most `most`, the newest first, with truncated values. Only one call reads at a time.

        Raises InvalidError if there is no such partition, ConflictError for a batch that cannot be opened.
        """
        return await self._asked(name, self._records(name, partition, most))

    def _is_shadow(self, name: str) -> bool:
        return self._node.resolver.is_shadow(name.encode())

    async def _asked(self, name: str, work: Awaitable[AnswerT]) -> AnswerT:
        try:
            async with asyncio.timeout(_KAFKA_S):
                return await work
        except UnknownTopicError:
            raise NotFoundError(no_topic(name)) from None
        except ClosedError as error:
            raise ConflictError(str(error)) from None
        except LogMovedError as error:
            raise UnavailableError(f"the log moved while it was read: {error}") from None
        except KafkaError as error:
            if error.code in _UNOPENED:
                raise ConflictError(str(error)) from None
            raise UnavailableError(f"Kafka does not answer: {error}") from None
        except (UpstreamError, TimeoutError) as error:
            raise UnavailableError(str(error) or f"Kafka does not answer within {_KAFKA_S:g} s") from None

    async def _log(self, name: str) -> Log:
        """Return the log that is read under a name."""
        room = rooms_of(self._node).cursors
        return await (room.cursors if self._is_shadow(name) else room.of_topics).log(name)

    async def _partitions(self, name: str) -> list[port.PartitionLog]:
        topic, _, starts, ends = await self._log(name)
        leaders = (await self._node.upstream.layout(topic)).leaders
        by_leader: dict[int, list[int]] = {}
        for index in ends:
            by_leader.setdefault(leaders.get(index, -1), []).append(index)
        asked = [self._sizes(leader, topic, tuple(some)) for leader, some in by_leader.items() if leader >= 0]
        sizes = {index: size for found in await asyncio.gather(*asked) for index, size in found.items()}
        return [
            port.PartitionLog(index, leaders.get(index, -1), starts[index], ends[index], sizes.get(index))
            for index in sorted(ends)
        ]

    async def _sizes(self, leader: int, topic: str, partitions: tuple[int, ...]) -> dict[int, int]:
        try:
            return await self._node.upstream.call(leader, DescribeLogDirs(topic, partitions))
        except (UpstreamError, KafkaError):  # offsets are worth showing without sizes
            return {}

    async def _records(self, name: str, partition: int | None, most: int) -> list[port.ShownRecord]:
        topic, topic_id, starts, ends = await self._log(name)
        logs = self._logs.bound(topic_id)
        if partition is not None and partition not in ends:
            raise InvalidError(f"{name} has {len(ends)} partitions, and no {partition}")
        filled = [index for index in sorted(ends) if ends[index] > starts[index]]
        chosen = [partition] if partition is not None else filled[:PARTITIONS]
        headers = self._node.settings
        names = Names(headers.sequence_id_header.encode(), headers.producer_name_header.encode())
        found: list[port.LastRecord] = []
        async with self._one:
            for index in chosen:
                where = TopicPartition(topic, index)
                found += await last_records(logs, where, starts[index], ends[index], most, names)
                found = sorted(found, key=lambda each: (each.timestamp_ms, each.offset), reverse=True)[:most]
        generations = self._generations(topic)
        return [port.ShownRecord(each, generations.get(each.writer)) for each in found]

    def _generations(self, topic: str) -> dict[Stamp | None, int]:
        """Return the generations by the stamp under which this node writes now."""
        governed = rooms_of(self._node).governed
        if governed.env.policy_of(topic) is None:
            return {}
        found = [(part.written_under, part.generation) for part in governed.topic(topic).parts]
        return {taken.stamp: generation for taken, generation in found if taken is not None and generation}
