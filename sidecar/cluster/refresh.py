"""Leaders that are asked for again, ten times a second at most: each question names all that is wanted by then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from sidecar.cluster.resolver import is_legal

_EVERY_S: Final = 0.1


class Refresh:
    """Topics whose leaders are to be found anew. `find` asks Kafka for some; False where it could not be asked."""

    def __init__(self, find: Callable[[Iterable[bytes]], Awaitable[bool]]) -> None:
        self._find = find
        self._topics: set[bytes] = set()
        self._running: asyncio.Task[None] | None = None
        self._next_round: asyncio.Future[bool] | None = None
        self._last = -1e9

    def soon(self, topics: Iterable[bytes]) -> None:
        """Ask for these topics' leaders again, even if others ask too."""
        self._topics.update(topic for topic in topics if is_legal(topic))
        if self._topics and self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._run())

    async def learn(self, topic: bytes) -> bool:
        """Ask for one with the next question. Returns whether Kafka could be asked."""
        if not is_legal(topic):
            return True
        if self._next_round is None:
            self._next_round = asyncio.get_running_loop().create_future()
        asked = self._next_round
        self.soon((topic,))
        return await asyncio.shield(asked)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        asked: asyncio.Future[bool] | None = None
        try:
            while self._topics:
                await asyncio.sleep(max(0.0, self._last + _EVERY_S - loop.time()))
                names, self._topics = self._topics, set()
                asked, self._next_round = self._next_round, None
                self._last = loop.time()
                found = await self._find(names)  # if it fails, waiting requests are refused and clients retry
                if asked is not None:
                    asked.set_result(found)
                    asked = None
        finally:
            self._running = None
            for unanswered in (asked, self._next_round):
                if unanswered is not None and not unanswered.done():
                    unanswered.set_result(False)
            self._next_round = None

    def cancel(self) -> list[asyncio.Task[None]]:
        """Ask no more; waiting callers get False. Returns what has yet to end."""
        if self._running is None:
            return []
        self._running.cancel()
        return [self._running]
