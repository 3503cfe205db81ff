"""Limits how much work of one kind runs at a time, and shares the places by client address: addresses whose work never
ends leave places for others. There is no timeout here: a caller that waits too long cancels its own wait.
"""

import asyncio
from collections import Counter, deque
from typing import Final

from sidecar.network.admission import address_group

_PART: Final = 4
"""One address (`address_group`) gets a quarter of all places at most."""


class Places:
    """`count` places. A free place goes to the address whose turn it is, not to the one with the most requests."""

    def __init__(self, count: int) -> None:
        self.free = count
        self._most = max(1, count // _PART)
        self._taken: Counter[str] = Counter()
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        """Waiters by address; the first address is the next to get a place."""

    @property
    def taken(self) -> int:
        """How many places are in use."""
        return self._taken.total()

    @property
    def waiting(self) -> int:
        """How many callers wait for a place."""
        return sum(map(len, self._queues.values()))

    async def take(self, host: str) -> None:
        """Wait for a place; the caller must give it back."""
        group = address_group(host)
        if self.free and group not in self._queues and self._taken.get(group, 0) < self._most:
            self._give(group)
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue = self._queues.setdefault(group, deque())
        queue.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.cancelled():
                self._forget(group, place)
            else:
                self.give_back(host)
            raise

    def give_back(self, host: str) -> None:
        """Return a place that the caller no longer needs."""
        group = address_group(host)
        self.free += 1
        self._taken[group] -= 1
        if not self._taken[group]:
            del self._taken[group]
        self._hand_on()

    def _give(self, group: str) -> None:
        self.free -= 1
        self._taken[group] += 1

    def _forget(self, group: str, place: asyncio.Future[None]) -> None:
        queue = self._queues.get(group)
        if queue is not None and place in queue:
            queue.remove(place)
            if not queue:
                del self._queues[group]

    def _hand_on(self) -> None:
        """Give free places to the first addresses that may have one; each then goes to the end of the order."""
        for group in list(self._queues):
            if not self.free:
                return
            if self._taken.get(group, 0) >= self._most:
                continue
            queue = self._queues.pop(group)
            while queue and queue[0].cancelled():  # its waiter was cancelled in this turn
                queue.popleft()
            if not queue:
                continue
            place = queue.popleft()
            if queue:
                self._queues[group] = queue
            self._give(group)
            place.set_result(None)
