"""One limit on the memory for requests of all clients: large requests that are being received, and all requests that
the node stores while they wait for something (a broker, a login, an owner, an earlier request).

As with Kafka's `queued.max.request.bytes`, no client gets an error when the memory is used up: the node stops reading
from clients that need more, until there is room. A request in the shared receive buffer takes no memory, so requests
that can be passed on at once are still served. While the memory is used up, the node reads a connection as a broker
does: only after its requests are answered, and in small pieces.

Strangers may begin requests and never complete them. Therefore:

- A request gets memory for the bytes that have arrived, not for the size that it announced.
- The oldest unfinished request gets more even then: otherwise many growing requests would wait for each other for ever.
- While a connection waits, the node closes connections that send nearly nothing of an unfinished request.
- `used` falls when Python frees the bytes, wherever they were: no room has to give memory back.

So the memory in use is at most one and a half times the limit, one request, and one piece for each connection. A
connection that waits gets memory in time: the node first closes connections that store requests behind a parked one,
because the client decides how long that one is parked; after half a minute it closes the connection that has the most.
"""

import asyncio
from typing import Final, Protocol

from sidecar.protocol.primitives import Octets

STEP: Final = 4 * 1024 * 1024
"""Bytes by which a request grows at a time, at most."""
LOOK_S: Final = 2.0
"""Seconds between two looks at which connections have memory, while others wait for it."""
LEAST: Final = 64 * 1024
"""Bytes of an unfinished request that must arrive between two looks."""
PARKED: Final = 2
"""How many looks a connection waits before one that stores requests behind a parked request is closed."""
STUCK: Final = 15
"""How many looks a connection waits before the connection that has the most memory is closed: longer than the node
takes to give up a broker.
"""


class HeldBytes(bytearray):
    """Bytes of one request, counted until Python frees them."""

    __slots__ = ("_granted", "_memory", "counted")

    def __init__(self, given: int | Octets, memory: "RequestMemory") -> None:
        """`given`: the number of zero bytes, or the bytes to copy."""
        super().__init__(given)
        self._memory = memory
        self._granted = 0
        self.counted = size = len(self)
        memory.used += size

    def grant(self, more: int) -> None:
        """Allow `more` bytes, which the next `grow` adds: it must not grow while an event loop reads into it."""
        self._granted += more
        self.counted += more
        self._memory.used += more

    def grow(self, least: int) -> None:
        """Grow by the bytes that were granted, or by `least` bytes if none were."""
        if not self._granted:
            self.grant(least)
        self.extend(bytes(self._granted))
        self._granted = 0

    def __del__(self) -> None:
        self._memory.freed(self.counted)


class Holder(Protocol):
    """A connection that has an unfinished request, or requests that wait; see `sidecar.network.budget.Budget`."""

    is_parked: bool

    @property
    def unfinished_bytes(self) -> int: ...
    @property
    def is_awaited(self) -> bool: ...
    @property
    def held_bytes(self) -> int: ...
    def starve(self) -> None: ...
    def feed(self) -> None: ...
    def refuse(self, reason: str, detail: str) -> None: ...


class _Unfinished:
    """One unfinished request. It keeps a reference to its bytes."""

    __slots__ = ("held", "looks", "seen", "size", "waits")

    def __init__(self, held: HeldBytes, size: int) -> None:
        self.held = held
        self.size = size
        self.seen: int | None = None
        """Bytes that had arrived at the last look; None if it waited for memory then, or did not exist."""
        self.waits = False
        self.looks = 0
        """For how many looks it has waited."""

    @property
    def step(self) -> int:
        return min(self.held.counted, self.size - self.held.counted, STEP)


class RequestMemory:
    """`limit`: bytes for all connections. `used`: bytes in use, which may be somewhat more. `waits`: how often a
    connection has had to wait so far.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.waits = 0
        self._unfinished: dict[Holder, _Unfinished] = {}
        """In order of age, the oldest first."""
        self._held_up: dict[Holder, int] = {}
        """Connections that are not read because of the memory that they have, and for how many looks."""
        self.connections: set[Holder] = set()
        """All connections whose requests may be stored."""
        self._parked: dict[Holder, int] = {}
        """At the last look: the connections with a parked request, and the bytes that each had."""
        self._waiting = 0
        self._serving = False
        self._looking: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def waiting(self) -> int:
        """Connections that wait for memory now."""
        return self._waiting + len(self._held_up)

    def hold_up(self, holder: Holder) -> None:
        """Stop reading from a connection that has some of the memory, until it has none or there is room. Does nothing
        for a connection with an unfinished request: that must be completed first.
        """
        if holder not in self._unfinished and holder not in self._held_up and holder.held_bytes:
            self._held_up[holder] = 0
            self.waits += 1
            holder.starve()
            self._watch()

    def let_go(self, holder: Holder) -> None:
        """The connection has no more memory: read from it again."""
        if self._held_up.pop(holder, None) is not None:
            holder.feed()

    def begin(self, holder: Holder, arrived: int, size: int, least: int) -> HeldBytes:
        """Return bytes for a request of `size` bytes, of which `arrived` have arrived; with room for `least` bytes if
        there is some. The connection may have to wait.
        """
        self.let_go(holder)  # more arrived although it is not read: TLS had read it already
        wanted = min(size, max(4 * arrived, least))
        if self.used + wanted > self.limit and (self._unfinished or not self._may_be_exceeded):
            wanted = arrived
        held = HeldBytes(wanted, self)
        self._unfinished[holder] = each = _Unfinished(held, size)
        if wanted == arrived:
            self._wait(holder, each)
        return held

    def more(self, holder: Holder) -> None:
        """The bytes of a request are full: it grows, now or when there is room."""
        each = self._unfinished[holder]
        if each.waits:  # more arrived although it is not read: TLS had read it already
            return
        if self._may_grow(holder, each):
            each.held.grant(each.step)
        else:
            self._wait(holder, each)

    def end(self, holder: Holder) -> None:
        """The request of the connection is complete, or never will be."""
        self._held_up.pop(holder, None)
        each = self._unfinished.pop(holder, None)
        if each is not None and each.waits:
            self._waiting -= 1
            holder.feed()  # the rest arrived although it is not read: TLS had read it already
        if self._waiting:
            self._serve_soon()

    def freed(self, size: int) -> None:
        """`size` bytes are free again."""
        self.used -= size
        if self._waiting or self._held_up:
            self._serve_soon()

    def _may_grow(self, holder: Holder, each: _Unfinished) -> bool:
        if self.used + each.step <= self.limit:
            return True
        return holder is next(iter(self._unfinished)) and self._may_be_exceeded

    @property
    def _may_be_exceeded(self) -> bool:
        """Whether other memory is at most half the limit: unfinished requests have the rest, and one must complete."""
        return self.used - sum(each.held.counted for each in self._unfinished.values()) <= self.limit // 2

    def _wait(self, holder: Holder, each: _Unfinished) -> None:
        each.waits, each.seen, each.looks = True, None, 0
        self._waiting += 1
        self.waits += 1
        holder.starve()
        self._watch()
        self._serve_soon()

    def _watch(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self._looking is None:
            self._looking = self._loop.call_later(LOOK_S, self._look)

    def _serve_soon(self) -> None:
        if not self._serving and self._loop is not None:
            self._serving = True
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        """Let connections continue for which there is room, the oldest first."""
        self._serving = False
        for holder, each in list(self._unfinished.items()):
            if each.waits and self._may_grow(holder, each):
                each.waits, each.looks = False, 0
                self._waiting -= 1
                each.held.grant(each.step)
                holder.feed()
        if self.used <= self.limit:
            held_up, self._held_up = self._held_up, {}
            for holder in held_up:
                holder.feed()

    def _look(self) -> None:
        self._looking = None
        for holder, each in list(self._unfinished.items()):
            arrived = holder.unfinished_bytes
            if self.waiting and each.seen is not None and holder.is_awaited and arrived - each.seen < LEAST:
                rest = f"{arrived} bytes of a frame of {each.size - 4}"
                holder.refuse("too_slow", f"{rest}, and others wait for memory")
            each.seen = None if each.waits else arrived
            each.looks = each.looks + 1 if each.waits else 0
        for holder in self._held_up:
            self._held_up[holder] += 1
        self._make_way()
        if self._waiting or self._held_up:
            self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)
        else:
            self._parked = {}

    def _make_way(self) -> None:
        """Close a connection that has memory if others have waited too long for it."""
        looks = max((*(each.looks for each in self._unfinished.values()), *self._held_up.values()), default=0)
        if not looks:
            return
        parked = {holder: holder.held_bytes for holder in self.connections if holder.is_parked and holder.held_bytes}
        since = [holder for holder, held in parked.items() if self._parked.get(holder) == held]
        self._parked = parked
        if looks >= PARKED and since:
            _end(max(since, key=parked.__getitem__))
        elif looks >= STUCK and self.connections:
            _end(max(self.connections, key=lambda holder: holder.held_bytes + holder.unfinished_bytes))
            self._begin_anew()

    def _begin_anew(self) -> None:
        """Count from 0 again for those that wait: they get what the closed connection frees."""
        for each in self._unfinished.values():
            each.looks = 0
        self._held_up = dict.fromkeys(self._held_up, 0)


def _end(holder: Holder) -> None:
    held = holder.held_bytes + holder.unfinished_bytes
    holder.refuse("memory", f"{held} bytes of requests that wait, and nothing else gives memory back to others")
