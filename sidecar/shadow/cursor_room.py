"""The cursors and readers of shadows on a node, and their statistics.

Readers and bytes are those of this node, counted when answers to Fetch are sent. Groups and lag are those of the whole
cluster: they are read on request, and every half minute for the metrics. For the metrics only the node responsible for
the shadow reads them, so that sums over nodes are correct.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from sidecar.changelog import FAILURES
from sidecar.cluster.nodes import NodeDirectory
from sidecar.cluster.resolver import NameResolver
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.network.tasks import Tasks
from sidecar.protocol import fetch
from sidecar.protocol.primitives import Octets
from sidecar.shadow.auto_reset import AutoReset, Moved, detail, reset_of
from sidecar.shadow.catalog import Shadow, ShadowCatalog
from sidecar.shadow.cursors import CURSOR_FAILURES, ClosedError, Cursors, Lag, TopicCursors
from sidecar.shadow.records import ShadowRecords
from sidecar.v1 import state_pb2 as state

WINDOW_S: Final = 30.0
"""How long after its last Fetch a connection counts as a reader."""


class Reading(NamedTuple):
    """The readers of a shadow that one node has seen since it started. `last_read_ms`: Unix ms, 0 for never."""

    readers: int
    record_bytes: int
    last_read_ms: int


_NOTHING: Final = Reading(0, 0, 0)


class _Seen:
    """One shadow; `readers` by the time of their last read, oldest first."""

    __slots__ = ("last", "readers", "record_bytes")

    def __init__(self) -> None:
        self.record_bytes = 0
        self.last = 0.0
        self.readers: OrderedDict[int, float] = OrderedDict()


class Readers:
    """The readers of all shadows. Stores only connections of the last 30 s and shadows that exist."""

    __slots__ = ("_resolver", "_shadows", "took")

    def __init__(self, resolver: NameResolver) -> None:
        self._resolver = resolver
        self.took: Callable[[bytes, int, int], None] | None = None
        """Called for each answer, if set, with the shadow, the connection, and the bytes of records."""
        self._shadows: dict[bytes, _Seen] = {}

    def read(self, shadow: bytes, reader: int, record_bytes: int) -> None:
        """Count `record_bytes` of record batches that were sent from a shadow's partition to the connection `reader`.

        Takes well under a microsecond.
        """
        seen = self._shadows.get(shadow)
        if seen is None:
            seen = self._add(shadow)
        now = time.monotonic()
        seen.record_bytes += record_bytes
        seen.last = now
        readers = seen.readers
        if reader not in readers:
            _drop_gone(readers, now)
        readers[reader] = now
        readers.move_to_end(reader)
        if self.took is not None:
            self.took(shadow, reader, record_bytes)

    def answered(self, reader: int, version: int, elements: list[tuple[bytes, Octets]]) -> None:
        """Count the shadows' elements of a Fetch response (`sidecar.protocol.fetch`)."""
        if not self._resolver.has_shadows:
            return
        for topic, element in elements:
            if self._resolver.is_shadow(topic):
                self.read(topic, reader, fetch.record_bytes(element, version))

    def answered_one(self, reader: int, topic: bytes, record_bytes: int) -> None:
        """As `answered`, for a response with one partition and `record_bytes` of record batches."""
        if self._resolver.is_shadow(topic):
            self.read(topic, reader, record_bytes)

    def _add(self, shadow: bytes) -> _Seen:
        self._shadows = {name: seen for name, seen in self._shadows.items() if self._resolver.is_shadow(name)}
        seen = self._shadows[shadow] = _Seen()
        return seen

    def of(self, shadow: bytes) -> Reading:
        """Return the reading of one shadow; all zero if the shadow does not exist any more."""
        seen = self._shadows.get(shadow)
        if seen is None:
            return _NOTHING
        now = time.monotonic()
        _drop_gone(seen.readers, now)
        last_read_ms = int((time.time() - (now - seen.last)) * 1000)
        return Reading(len(seen.readers), seen.record_bytes, last_read_ms)

    def forget(self, shadow: bytes) -> None:
        """Forget a deleted shadow: a new one of its name starts from zero."""
        self._shadows.pop(shadow, None)


def _drop_gone(readers: OrderedDict[int, float], now: float) -> None:
    while readers:
        oldest = next(iter(readers))
        if now - readers[oldest] < WINDOW_S:
            return
        del readers[oldest]


_ROUND_S: Final = 30.0
_SHARE: Final = 20
"""Reading cursors takes at most 1/20 of the time."""
_PATIENCE_S: Final = 5.0
"""Seconds after which a caller gets this node's numbers alone."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """The statistics of a shadow. `lag` is None if it is unknown, or only another node knows it."""

    name: str
    reading: Reading
    resets: int
    lag: Lag | None


class Statistics:
    """The statistics of all shadows on a node."""

    def __init__(self, readers: Readers, cursors: Cursors, nodes: NodeDirectory) -> None:
        self._readers = readers
        self._cursors = cursors
        self._nodes = nodes
        self._shadows: list[Shadow] = []
        self._lags: dict[str, Lag] = {}
        self._resets: dict[str, int] = {}

    def known(self, shadows: Sequence[Shadow]) -> None:
        """Replace the list of shadows."""
        names = {shadow.name for shadow in shadows}
        for gone in {shadow.name for shadow in self._shadows} - names:
            self._readers.forget(gone.encode())
            self._lags.pop(gone, None)
            self._resets.pop(gone, None)
        self._shadows = sorted(shadows, key=lambda shadow: (shadow.created_ms, shadow.name))

    def reset(self, shadow: str, cursors: int) -> None:
        """Count `cursors` resets of cursors that fell too far behind; each partition counts as one."""
        self._resets[shadow] = self._resets.get(shadow, 0) + cursors

    async def of(self, shadow: str) -> Numbers:
        """Return a shadow's statistics of the last seconds; without a lag if Kafka does not answer in time."""
        lag = None
        try:
            async with asyncio.timeout(_PATIENCE_S):
                lag = await self._cursors.lag(shadow)
        except CURSOR_FAILURES:
            pass
        return self._numbers(shadow, lag)

    def all(self) -> list[Numbers]:
        """Return the statistics of every shadow, oldest shadow first, with the lags of the last round."""
        return [self._numbers(shadow.name, self._lags.get(shadow.name)) for shadow in self._shadows]

    def _numbers(self, shadow: str, lag: Lag | None) -> Numbers:
        return Numbers(shadow, self._readers.of(shadow.encode()), self._resets.get(shadow, 0), lag)

    async def keep(self, failed: Callable[[str, BaseException], None]) -> None:
        """Read the cursors of the shadows that this node is responsible for, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            for shadow in list(self._shadows):
                await self._look(shadow, failed)
            await asyncio.sleep(max(_ROUND_S, _SHARE * (loop.time() - began)))

    async def _look(self, shadow: Shadow, failed: Callable[[str, BaseException], None]) -> None:
        name = shadow.name
        if not shadow.is_made or self._nodes.placement.of_topic(name.encode()) != self._nodes.me.id:
            self._lags.pop(name, None)
            return
        try:
            lag = await self._cursors.lag(name)
        except CURSOR_FAILURES as error:
            self._lags.pop(name, None)
            if not isinstance(error, ClosedError):
                failed(name, error)
        else:
            if shadow in self._shadows:
                self._lags[name] = lag


class CursorHooks(Protocol):
    """Events that are reported to the node; implementations are cheap and never raise."""

    def cursors_failed(self, shadow: str, error: BaseException) -> None:
        """The cursors of a shadow could not be read, or a reset could not be reported."""

    def cursors_reset(self, shadow: str, group: str, detail: str) -> None: ...


class CursorRoom:
    """Readers, cursors and statistics of the shadows. Create it before the catalog starts, so that it sees every
    change.
    """

    def __init__(
        self,
        upstream: KafkaUpstream,
        resolver: NameResolver,
        nodes: NodeDirectory,
        catalog: ShadowCatalog,
        records: ShadowRecords,
        tasks: Tasks,
        hooks: CursorHooks,
    ) -> None:
        self._records = records
        self._tasks = tasks
        self._hooks = hooks
        self.readers = Readers(resolver)
        self.cursors = Cursors(upstream, resolver)
        self.of_topics = TopicCursors(upstream, resolver)
        self.auto_reset = AutoReset(upstream, resolver, hooks.cursors_failed, self._was_reset)
        self.statistics = Statistics(self.readers, self.cursors, nodes)
        catalog.changed = self._changed

    def _changed(self, shadows: Sequence[Shadow]) -> None:
        self.auto_reset.limits = {
            shadow.name: shadow.auto_reset_backlog_entries for shadow in shadows if shadow.auto_reset_backlog_entries
        }
        self.statistics.known(shadows)

    async def keep(self) -> None:
        """Keep the statistics for the metrics up to date, until cancelled."""
        await self.statistics.keep(self._hooks.cursors_failed)

    async def close(self) -> None:
        """Stop reading and counting."""
        await self.cursors.close()
        await self.of_topics.close()
        await self.auto_reset.close()

    def _was_reset(self, shadow: str, group: str, limit: int, moved: Collection[Moved]) -> None:
        text = detail(group, limit, moved)
        self._hooks.cursors_reset(shadow, group, text)
        self.statistics.reset(shadow, len(moved))
        self._tasks.start(self._add_event(shadow, text, reset_of(group, limit, moved)))

    async def _add_event(self, shadow: str, text: str, reset: state.CursorReset) -> None:
        try:
            await self._records.add_event(shadow, text, state.EventDetails(reset=reset))
        except FAILURES as error:
            self._hooks.cursors_failed(shadow, error)
