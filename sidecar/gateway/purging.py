"""DeleteRecords of topics with sequence ids (KIP-107): Kafka is asked when a snapshot has the ids of what it deletes.

The node that serves a topic writes its snapshots. So another node answers 6 NOT_LEADER_OR_FOLLOWER, and the client
looks up the leader, which is the serving node. Partitions of which no snapshot can be written in time are answered
7 REQUEST_TIMED_OUT, with which clients try again, and nothing of them is deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from struct import Struct
from typing import Final

from sidecar.changelog import FAILURES
from sidecar.cluster.resolver import is_legal
from sidecar.exclusive.governed_topics import GovernedTopics
from sidecar.gateway.sequence_ids import IdsError, SequenceIds, Why
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.limits import PORTION
from sidecar.protocol.partitioned import Table, TablePart
from sidecar.protocol.primitives import I32

_I64: Final = Struct(">q")
_OFFSET_AT: Final = 4
"""Where a partition's element has the offset, after the index."""
_LONGEST_S: Final = 30.0
_KNOW_S: Final = 5.0
_ANSWERS: Final = {Why.ELSEWHERE: ErrorCode.NOT_LEADER_OR_FOLLOWER, Why.NOT_NOW: ErrorCode.LEADER_NOT_AVAILABLE}
"""Topics that do not exist or have no ids are left to Kafka."""


class Purging:
    """Has snapshots written before records are deleted."""

    def __init__(self, governed: GovernedTopics, ids: SequenceIds) -> None:
        self._governed = governed
        self._ids = ids

    async def prepare(
        self, buffer: bytearray, table: Table, parts: Iterable[TablePart]
    ) -> dict[tuple[bytes, int], ErrorCode]:
        """Have the ids of what these parts of a request delete saved; return the error of those that must not be
        deleted now. The offset -1 (the end of the log) is replaced in `buffer`, because the log grows meanwhile.
        """
        by_topic: dict[bytes, list[TablePart]] = {}
        for number, part in enumerate(parts, 1):
            if part.topic in by_topic or self._has_ids(part.topic):
                by_topic.setdefault(part.topic, []).append(part)
            if not number % PORTION:
                await asyncio.sleep(0)
        now = asyncio.get_running_loop().time
        deadline = now() + min(_LONGEST_S, max(0, I32.unpack_from(buffer, table.suffix)[0]) / 1000)
        refused: dict[tuple[bytes, int], ErrorCode] = {}
        for number, (topic, asked) in enumerate(by_topic.items()):
            if number and now() > deadline:  # a client may name thousands, each of which takes seconds
                refused.update(((part.topic, part.partition), ErrorCode.REQUEST_TIMED_OUT) for part in asked)
            else:
                refused |= await self._cover(buffer, topic.decode(), asked, deadline)
        return refused

    def _has_ids(self, topic: bytes) -> bool:
        return is_legal(topic) and self._governed.env.deduplicates(topic.decode())

    async def _cover(
        self, buffer: bytearray, topic: str, asked: list[TablePart], deadline: float
    ) -> dict[tuple[bytes, int], ErrorCode]:
        now = asyncio.get_running_loop().time
        try:
            known = await self._ids.of(topic, min(_KNOW_S, max(0.0, deadline - now())))
        except IdsError as error:
            code = _ANSWERS.get(error.why)
            return {} if code is None else {(part.topic, part.partition): code for part in asked}
        offsets = {part: _I64.unpack_from(buffer, part.start + _OFFSET_AT)[0] for part in asked}
        wanted: dict[int, int] = {}
        for part, offset in offsets.items():
            if part.partition in known.partitions:
                before = wanted.get(part.partition, 0)
                wanted[part.partition] = -1 if -1 in (offset, before) else max(offset, before)
        try:
            found = await known.ids.cover(wanted, max(0.0, deadline - now()))
        except FAILURES:
            return {(part.topic, part.partition): ErrorCode.LEADER_NOT_AVAILABLE for part in asked}
        refused: dict[tuple[bytes, int], ErrorCode] = {}
        for part, offset in offsets.items():
            saved = found.get(part.partition)
            if saved is None and part.partition in wanted:
                refused[part.topic, part.partition] = ErrorCode.REQUEST_TIMED_OUT
            elif saved == -1:  # the log may have grown before Kafka compares the offset with its end
                refused[part.topic, part.partition] = ErrorCode.OFFSET_OUT_OF_RANGE
            elif saved is not None and offset == -1:
                _I64.pack_into(buffer, part.start + _OFFSET_AT, saved)
        return refused
