"""Statistics of shadows: readers, cursors and their lag.

Readers and bytes are those of this node. Groups and lag are the cluster's: read on request, and every half minute for
the metrics. For the metrics only the node that is responsible for the shadow reads them, so that sums over nodes are
right.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sidecar.cluster.nodes import NodeDirectory
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.errors import KafkaError
from sidecar.shadow.catalog import Shadow
from sidecar.shadow.cursors import ClosedError, Cursors, Lag
from sidecar.shadow.readers import Readers, Reading

_ROUND_S: Final = 30.0
_SHARE: Final = 20
"""Looking at cursors takes one part in so many of the time at most."""
_PATIENCE_S: Final = 5.0
"""A caller gets at least this node's numbers within this time."""

FAILURES: Final = (ClosedError, KafkaError, UpstreamError, TimeoutError)


@dataclass(frozen=True, slots=True)
class Numbers:
    """A shadow in numbers. `lag` None: not known, or known to another node alone."""

    name: str
    reading: Reading
    resets: int
    lag: Lag | None


class Statistics:
    """The numbers of all shadows of a node."""

    def __init__(self, readers: Readers, cursors: Cursors, nodes: NodeDirectory) -> None:
        self._readers = readers
        self._cursors = cursors
        self._nodes = nodes
        self._shadows: list[Shadow] = []
        self._lags: dict[str, Lag] = {}
        self._resets: dict[str, int] = {}

    def known(self, shadows: Sequence[Shadow]) -> None:
        """These are the shadows now."""
        names = {shadow.name for shadow in shadows}
        for gone in {shadow.name for shadow in self._shadows} - names:
            self._readers.forget(gone.encode())
            self._lags.pop(gone, None)
            self._resets.pop(gone, None)
        self._shadows = sorted(shadows, key=lambda shadow: (shadow.created_ms, shadow.name))

    def reset(self, shadow: str, cursors: int) -> None:
        """`cursors` were reset because they fell too far behind, counted per partition."""
        self._resets[shadow] = self._resets.get(shadow, 0) + cursors

    async def of(self, shadow: str) -> Numbers:
        """A shadow's numbers as of the last seconds, without a lag where Kafka does not answer in time."""
        lag = None
        try:
            async with asyncio.timeout(_PATIENCE_S):
                lag = await self._cursors.lag(shadow)
        except FAILURES:
            pass
        return self._numbers(shadow, lag)

    def all(self) -> list[Numbers]:
        """Every shadow's, oldest shadow first; their lags as of the last round."""
        return [self._numbers(shadow.name, self._lags.get(shadow.name)) for shadow in self._shadows]

    def _numbers(self, shadow: str, lag: Lag | None) -> Numbers:
        return Numbers(shadow, self._readers.of(shadow.encode()), self._resets.get(shadow, 0), lag)

    async def keep(self, failed: Callable[[str, BaseException], None]) -> None:
        """Look at the cursors of the shadows that this node is first in line for. Until cancelled."""
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
        except FAILURES as error:
            self._lags.pop(name, None)
            if not isinstance(error, ClosedError):
                failed(name, error)
        else:
            if shadow in self._shadows:
                self._lags[name] = lag
