"""Composes the parts for cursors and readers of shadows, and is their interface to the node."""

from collections.abc import Collection, Sequence
from typing import Protocol

from sidecar.changelog import FAILURES
from sidecar.cluster.nodes import NodeDirectory
from sidecar.cluster.resolver import NameResolver
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.network.tasks import Tasks
from sidecar.shadow.auto_reset import AutoReset, Moved, detail, reset_of
from sidecar.shadow.catalog import Shadow, ShadowCatalog
from sidecar.shadow.cursor_reset import CursorReset
from sidecar.shadow.cursors import Cursors, TopicCursors
from sidecar.shadow.records import ShadowRecords
from sidecar.shadow.statistics import Readers, Statistics
from sidecar.v1 import state_pb2 as state


class CursorHooks(Protocol):
    """What the node wants to know; implementations are cheap and never raise."""

    def cursors_failed(self, shadow: str, error: BaseException) -> None:
        """The cursors of a shadow could not be looked at, or their reset not be reported."""

    def cursors_reset(self, shadow: str, group: str, detail: str) -> None: ...


class CursorRoom:
    """Follows the catalog from when it is made: make it before the catalog starts."""

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
        self.reset = CursorReset(upstream, self.cursors)
        self.auto_reset = AutoReset(upstream, resolver, self)
        self.statistics = Statistics(self.readers, self.cursors, nodes)
        catalog.changed = self._changed

    def _changed(self, shadows: Sequence[Shadow]) -> None:
        self.auto_reset.limits = {
            shadow.name: shadow.auto_reset_backlog_entries for shadow in shadows if shadow.auto_reset_backlog_entries
        }
        self.statistics.known(shadows)

    async def keep(self) -> None:
        """Keep the numbers for the metrics. Until cancelled."""
        await self.statistics.keep(self._hooks.cursors_failed)

    async def close(self) -> None:
        """Look and count no more."""
        await self.cursors.close()
        await self.of_topics.close()
        await self.auto_reset.close()

    # Implements `auto_reset.ResetHooks` -------------------------------------------------------------------------------

    def operation_failed(self, topic: str, error: BaseException) -> None:
        self._hooks.cursors_failed(topic, error)

    def cursor_reset(self, shadow: str, group: str, limit: int, moved: Collection[Moved]) -> None:
        text = detail(group, limit, moved)
        self._hooks.cursors_reset(shadow, group, text)
        self.statistics.reset(shadow, len(moved))
        self._tasks.start(self._add_event(shadow, text, reset_of(group, limit, moved)))

    async def _add_event(self, shadow: str, text: str, reset: state.CursorReset) -> None:
        try:
            await self._records.add_event(shadow, text, state.EventDetails(reset=reset))
        except FAILURES as error:
            self._hooks.cursors_failed(shadow, error)
