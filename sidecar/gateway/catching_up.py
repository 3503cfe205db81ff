"""Before a node answers a question about owners, it reads everything that any node acknowledged before the request.

A node learns of the others from the ownership topic and from its heartbeats, and both come a moment late. An
application that one node has just answered may ask another node. That node first reads the ownership topic to the
leader's present end, and waits until Redis answers a heartbeat. Decides nothing and changes nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from sidecar.changelog import ChangelogError
from sidecar.network.tasks import Tasks
from sidecar.protocol.ids import Offset

READ_S: Final = 5.0
"""How long the leader of the ownership topic may take to answer, and this node to read up to there."""


class Log(Protocol):
    """The ownership topic as it is followed (`sidecar.changelog.tailer`)."""

    async def read_to_end(self, timeout: float) -> Offset: ...


class BehindError(Exception):
    """What other nodes acknowledged is not known here now. The message names no broker."""


class CatchingUp:
    """Shared by all callers: one that comes while a round is under way waits for the next one, which begins after it.

    `beat` sends a heartbeat and hears its answer; where Redis does not answer it returns all the same: the ownership
    topic says then which node serves a topic.
    """

    def __init__(self, log: Log, beat: Callable[[], Awaitable[None]], tasks: Tasks) -> None:
        self._log = log
        self._beat = beat
        self._tasks = tasks
        self._running: asyncio.Task[bool] | None = None
        self._next: asyncio.Task[bool] | None = None

    async def now(self) -> None:
        """Returns once everything is known that any node acknowledged before this was called. Raises `BehindError`."""
        if self._next is None:
            self._next = self._tasks.start(self._round(self._running))
        if not await asyncio.shield(self._next):
            raise BehindError(
                "this node cannot read the ownership topic to its end now; try again, or ask another node"
            )

    async def _round(self, before: asyncio.Task[bool] | None) -> bool:
        if before is not None and not before.done():
            await asyncio.wait([before])
        self._running, self._next = self._next, None
        read, _ = await asyncio.gather(self._read(), self._beat())
        return read

    async def _read(self) -> bool:
        try:
            await self._log.read_to_end(READ_S)
        except (ChangelogError, TimeoutError):
            return False
        return True
