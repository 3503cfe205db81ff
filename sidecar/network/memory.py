"""Memory for large requests of all clients together: those that are being received, and those that wait to be sent on.

As with Kafka's `queued.max.request.bytes` nobody gets an error when it is used up: clients that need more are not read
until there is room. A request in the shared receive buffer takes none of it, so ordinary ones go on meanwhile.

Strangers may begin requests and never end them. So memory follows what has arrived, not what was announced; the oldest
unfinished request always gets more, or many that grow together would wait for each other for ever; and while somebody
waits, who sends nearly nothing of an unfinished request is closed. `used` goes back when the bytes are gone, wherever
they went: no room has to give anything back.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

STEP: Final = 4 * 1024 * 1024
"""What a request grows by at a time, at most."""
LOOK_S: Final = 2.0
"""Between two looks at who holds memory while others wait."""
LEAST: Final = 64 * 1024
"""Bytes of an unfinished request that have to come between two looks."""


class HeldBytes(bytearray):
    """Bytes of one request, counted as long as anybody has them."""

    __slots__ = ("_granted", "_memory", "counted")

    def __init__(self, size: int, memory: RequestMemory) -> None:
        super().__init__(size)
        self._memory = memory
        self._granted = 0
        self.counted = size
        memory.used += size

    def grant(self, more: int) -> None:
        """It may have so many bytes more, which it takes when it `grow`s: not while an event loop reads into it."""
        self._granted += more
        self.counted += more
        self._memory.used += more

    def grow(self, least: int) -> None:
        """Room for what was granted, or for `least` bytes where nothing was."""
        if not self._granted:
            self.grant(least)
        self.extend(bytes(self._granted))
        self._granted = 0

    def __del__(self) -> None:
        self._memory.freed(self.counted)


class Holder(Protocol):
    """A connection with an unfinished request."""

    @property
    def unfinished_bytes(self) -> int:
        """How much of it has arrived."""
        ...

    @property
    def is_awaited(self) -> bool:
        """Whether its rest is for the peer to send: the node does not hold it up."""
        ...

    def starve(self) -> None:
        """Read no more until `feed`."""
        ...

    def feed(self) -> None:
        """Read on."""
        ...

    def too_slow(self) -> None:
        """Close it: others wait for its memory."""
        ...


class _Unfinished:
    """One request. Its bytes are kept as long as it is unfinished."""

    __slots__ = ("held", "seen", "size", "waits")

    def __init__(self, held: HeldBytes, size: int) -> None:
        self.held = held
        self.size = size
        self.seen: int | None = None
        """What had arrived at the last look; None where it waited then, or was not there."""
        self.waits = False

    @property
    def step(self) -> int:
        return min(self.held.counted, self.size - self.held.counted, STEP)


class RequestMemory:
    """`limit` bytes for all. `used`: those that are taken; `waits`: how often a connection had to wait so far."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.waits = 0
        self._unfinished: dict[Holder, _Unfinished] = {}
        """The oldest first."""
        self._waiting = 0
        self._serving = False
        self._looking: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def waiting(self) -> int:
        """Connections that wait for memory now."""
        return self._waiting

    def begin(self, holder: Holder, arrived: int, size: int, least: int) -> HeldBytes:
        """Bytes for a request of `size` of which so many have arrived, room for `least` where there is some. The
        connection may have to wait.
        """
        wanted = min(size, max(4 * arrived, least))
        if self.used + wanted > self.limit and self._unfinished:
            wanted = arrived
        held = HeldBytes(wanted, self)
        self._unfinished[holder] = each = _Unfinished(held, size)
        if wanted == arrived:
            self._wait(holder, each)
        return held

    def more(self, holder: Holder) -> None:
        """What a request has is full: it grows, now or when there is room."""
        each = self._unfinished[holder]
        if each.waits:  # it was read all the same: TLS had more
            return
        if self._may_grow(holder, each):
            each.held.grant(each.step)
        else:
            self._wait(holder, each)

    def end(self, holder: Holder) -> None:
        """Its request is complete, or never will be."""
        each = self._unfinished.pop(holder, None)
        if each is not None and each.waits:
            self._waiting -= 1
            holder.feed()  # its rest was read all the same: TLS had more
        if self._waiting:
            self._serve_soon()

    def freed(self, size: int) -> None:
        """Bytes are gone."""
        self.used -= size
        if self._waiting:
            self._serve_soon()

    def _may_grow(self, holder: Holder, each: _Unfinished) -> bool:
        return self.used + each.step <= self.limit or holder is next(iter(self._unfinished))

    def _wait(self, holder: Holder, each: _Unfinished) -> None:
        each.waits, each.seen = True, None
        self._waiting += 1
        self.waits += 1
        holder.starve()
        self._loop = asyncio.get_running_loop()
        if self._looking is None:
            self._looking = self._loop.call_later(LOOK_S, self._look)
        self._serve_soon()

    def _serve_soon(self) -> None:
        if not self._serving and self._loop is not None:
            self._serving = True
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        """Let those go on that there is room for, the oldest first."""
        self._serving = False
        for holder, each in list(self._unfinished.items()):
            if each.waits and self._may_grow(holder, each):
                each.waits = False
                self._waiting -= 1
                each.held.grant(each.step)
                holder.feed()

    def _look(self) -> None:
        self._looking = None
        for holder, each in list(self._unfinished.items()):
            arrived = holder.unfinished_bytes
            if self._waiting and each.seen is not None and holder.is_awaited and arrived - each.seen < LEAST:
                holder.too_slow()
            each.seen = None if each.waits else arrived
        if self._waiting:
            self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)
