"""Places for work that only so much of may be under way, shared out by address: those of strangers who never finish
leave places to others. It knows no time: whoever waits too long gives up by itself.
"""

import asyncio
from collections import Counter, deque
from typing import Final

from sidecar.network.admission import address_group

_PART: Final = 4
"""One address has a quarter of all places at most."""


class Places:
    """`count` places. A place that is free goes to the address whose turn it is, not to who asks most often."""

    def __init__(self, count: int) -> None:
        self.free = count
        self._most = max(1, count // _PART)
        self._taken: Counter[str] = Counter()
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        """Who waits, by address; the address whose turn is next stands first."""

    @property
    def taken(self) -> int:
        """How many are not free."""
        return self._taken.total()

    @property
    def waiting(self) -> int:
        """How many wait for a place."""
        return sum(map(len, self._queues.values()))

    async def take(self, host: str) -> None:
        """Returns with a place, which has to be given back."""
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
        """A place is not needed any more."""
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
        """Give what is free to the first address that may have one, and let it stand behind the others."""
        for group in list(self._queues):
            if not self.free:
                return
            if self._taken.get(group, 0) >= self._most:
                continue
            queue = self._queues.pop(group)
            while queue and queue[0].cancelled():  # whoever waited for it gave up in this turn
                queue.popleft()
            if not queue:
                continue
            place = queue.popleft()
            if queue:
                self._queues[group] = queue
            self._give(group)
            place.set_result(None)
