"""Cursors that fall too far behind are reset to the end of the log (PIP-180: shadowReplicatorAutoResetBacklogEntries).

The reset happens when a group asks for its cursor: OffsetFetch returns the end instead of the committed offset, if more
records than the shadow's limit lie between them. Kafka keeps the committed offset until the group commits again. If the
backlog cannot be counted in time, the cursor is not reset.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, Protocol

from sidecar.cluster.logs import LogReader
from sidecar.cluster.resolver import NameResolver, Source
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.protocol.caller import Channel, UpstreamError
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.ids import TopicPartition
from sidecar.shadow.backlog import Backlogs, Stretch
from sidecar.v1 import state_pb2 as state

_CHANNEL: Final = Channel("backlogs")
_WAIT_S: Final = 3.0
"""How long a group waits for its offsets while records are counted."""
_ENDS_S: Final = 1.0
_REMEMBERED: Final = 10_000


class Moved(NamedTuple):
    """A cursor that was reset: where it was, and the end of the log where it is now."""

    partition: int
    committed: int
    end: int


class ResetHooks(Protocol):
    """What the node wants to know; implementations are cheap and never raise."""

    def operation_failed(self, topic: str, error: BaseException) -> None: ...

    def cursor_reset(self, shadow: str, group: str, limit: int, moved: Collection[Moved]) -> None:
        """Called once for each reset, however often the cursor is asked for."""


class AutoReset:
    """The shadows with a limit. `limits` (records, by name) is replaced as shadows come and go."""

    def __init__(self, upstream: KafkaUpstream, resolver: NameResolver, hooks: ResetHooks) -> None:
        self.limits: Mapping[str, int] = {}
        self._upstream = upstream
        self._resolver = resolver
        self._hooks = hooks
        self._logs = LogReader(upstream, _CHANNEL)
        self._backlogs = Backlogs(self._logs)
        self._moved: OrderedDict[tuple[str, str, int, int], int] = OrderedDict()
        """Where a cursor was reset to, by shadow, group, partition and what is committed: it stands there until the
        group commits, however often it starts without.
        """

    async def reset(self, group: str, shadow: str, committed: Mapping[int, int]) -> dict[int, int]:
        """The partitions in which a cursor has passed its shadow's limit, and where it stands instead in each: at the
        end that the log had then.

        `committed`: by partition, none negative. Never raises: what cannot be known stays as it is.
        """
        limit = self.limits.get(shadow, 0)
        source = self._resolver.source(shadow.encode())
        if not limit or source is None or source.is_closed or not committed:
            return {}
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _WAIT_S
        try:
            async with asyncio.timeout(_ENDS_S):
                ends = await self._ends(source, committed)
        except (KafkaError, UpstreamError, TimeoutError) as error:
            self._hooks.operation_failed(shadow, error)
            return {}
        places = {index: self._moved.get((shadow, group, index, committed[index]), committed[index]) for index in ends}
        stands = {index: place for index, place in places.items() if place != committed[index]}
        far = {index: end for index, end in ends.items() if end - places[index] > limit}
        if not far:
            return stands

        async def passes(index: int) -> bool:
            stretch = Stretch(source.topic_id, TopicPartition(source.topic.decode(), index), places[index])
            try:
                return bool(await self._backlogs.passes(stretch, far[index], limit, max(0.0, deadline - loop.time())))
            except (KafkaError, UpstreamError) as error:
                self._hooks.operation_failed(shadow, error)
                return False

        found = await asyncio.gather(*map(passes, far))
        moved = {index: end for (index, end), is_past in zip(far.items(), found, strict=True) if is_past}
        self._remember(group, shadow, limit, [Moved(index, committed[index], end) for index, end in moved.items()])
        return stands | moved

    async def _ends(self, source: Source, partitions: Collection[int]) -> dict[int, int]:
        """Where the log ends, as long as it is the one that the shadow was made of."""
        topic = source.topic.decode()
        layout = await self._upstream.layout(topic)
        if layout.topic_id != source.topic_id:
            return {}
        return await self._logs.ends(topic, [index for index in partitions if index in layout.leaders])

    def _remember(self, group: str, shadow: str, limit: int, moved: list[Moved]) -> None:
        for found in moved:
            self._moved[shadow, group, found.partition, found.committed] = found.end
            if len(self._moved) > _REMEMBERED:
                self._moved.popitem(last=False)
        if moved:
            self._hooks.cursor_reset(shadow, group, limit, moved)

    async def close(self) -> None:
        """Count no more."""
        await self._backlogs.close()


def detail(group: str, limit: int, moved: Collection[Moved], shown: int = 10) -> str:
    """For people: whose cursor was reset, and where to."""
    places = [f"{found.partition}: {found.committed} to {found.end}" for found in moved]
    more = f" and {len(places) - shown} more" if len(places) > shown else ""
    partitions = ", ".join(places[:shown]) + more
    return f"cursor of group {group} reset to the end: more than {limit} records lay behind it (partition {partitions})"


def reset_of(group: str, limit: int, moved: Collection[Moved]) -> state.CursorReset:
    """The same for programs."""
    found = state.CursorReset(group=group, limit=limit)
    for each in moved:
        found.partition.append(each.partition)
        found.from_offset.append(each.committed)
        found.to_offset.append(each.end)
    return found
