"""Memory for requests of all clients together: large ones that are being received, and all that the node keeps because
something else has to come first (a broker, a login, an owner, an earlier request).

As with Kafka's `queued.max.request.bytes` nobody gets an error when it is used up: clients that need more are not read
until there is room. A request in the shared receive buffer takes none of it, so what can be passed on at once goes on.
While it is used up a connection is read as a broker reads one: nothing more before its requests are answered, and in
small pieces.

Strangers may begin requests and never end them. So memory follows what has arrived, not what was announced; the oldest
unfinished request gets more all the same, or many that grow together would wait for each other for ever; while somebody
waits, who sends nearly nothing of an unfinished request is closed. `used` goes back when the bytes are gone, wherever
they went: no room has to give anything back.

So all that is taken is one and a half times the limit, a request, and a piece for each connection. Who waits is given
something in time: first those are closed that keep requests behind a parked one, as for how long it is parked is for
the client to say; after half a minute the connection that holds most, whichever it is.
"""

import asyncio
from typing import Final, Protocol

from sidecar.protocol.primitives import Octets

STEP: Final = 4 * 1024 * 1024
"""What a request grows by at a time, at most."""
LOOK_S: Final = 2.0
"""Between two looks at who holds memory while others wait."""
LEAST: Final = 64 * 1024
"""Bytes of an unfinished request that have to come between two looks."""
PARKED: Final = 2
"""Looks that somebody has waited for until those are closed that keep requests behind a parked one."""
STUCK: Final = 15
"""Looks that somebody has waited for until the connection that holds most is closed: longer than it takes to give up a
broker.
"""


class HeldBytes(bytearray):
    """Bytes of one request, counted as long as anybody has them."""

    __slots__ = ("_granted", "_memory", "counted")

    def __init__(self, given: int | Octets, memory: "RequestMemory") -> None:
        """`given`: so many bytes of zero, or a copy of these."""
        super().__init__(given)
        self._memory = memory
        self._granted = 0
        self.counted = size = len(self)
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
    """A connection with an unfinished request, or with some that wait."""

    @property
    def unfinished_bytes(self) -> int:
        """How much of it has arrived."""
        ...

    @property
    def is_awaited(self) -> bool:
        """Whether its rest is for the peer to send: the node does not hold it up."""
        ...

    @property
    def held_bytes(self) -> int:
        """Bytes of its requests that wait, or have no answer yet."""
        ...

    @property
    def is_parked(self) -> bool:
        """Whether the first of its requests is answered when the client says."""
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

    def too_much(self) -> None:
        """Close it: nothing else would give memory back."""
        ...


class _Unfinished:
    """One request. Its bytes are kept as long as it is unfinished."""

    __slots__ = ("held", "looks", "seen", "size", "waits")

    def __init__(self, held: HeldBytes, size: int) -> None:
        self.held = held
        self.size = size
        self.seen: int | None = None
        """What had arrived at the last look; None where it waited then, or was not there."""
        self.waits = False
        self.looks = 0
        """Since when it waits."""

    @property
    def step(self) -> int:
        return min(self.held.counted, self.size - self.held.counted, STEP)


class RequestMemory:
    """`limit` bytes for all. `used`: those that are taken, which may be some more; `waits`: how often a connection had
    to wait so far.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.waits = 0
        self._unfinished: dict[Holder, _Unfinished] = {}
        """The oldest first."""
        self._held_up: dict[Holder, int] = {}
        """Connections that are not read because of what they hold, and for how many looks."""
        self.connections: set[Holder] = set()
        """All whose requests may be kept."""
        self._parked: dict[Holder, int] = {}
        """At the last look: connections that kept so many bytes behind a parked request."""
        self._waiting = 0
        self._serving = False
        self._looking: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def waiting(self) -> int:
        """Connections that wait for memory now."""
        return self._waiting + len(self._held_up)

    def hold_up(self, holder: Holder) -> None:
        """Read no more of a connection that holds some of what is used up, until it holds nothing or there is room. One
        with an unfinished request has to end that first.
        """
        if holder not in self._unfinished and holder not in self._held_up and holder.held_bytes:
            self._held_up[holder] = 0
            self.waits += 1
            holder.starve()
            self._watch()

    def let_go(self, holder: Holder) -> None:
        """It holds nothing any more."""
        if self._held_up.pop(holder, None) is not None:
            holder.feed()

    def begin(self, holder: Holder, arrived: int, size: int, least: int) -> HeldBytes:
        """Bytes for a request of `size` of which so many have arrived, room for `least` where there is some. The
        connection may have to wait.
        """
        self.let_go(holder)  # more was read all the same: TLS had it
        wanted = min(size, max(4 * arrived, least))
        if self.used + wanted > self.limit and (self._unfinished or not self._may_be_exceeded):
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
        self._held_up.pop(holder, None)
        each = self._unfinished.pop(holder, None)
        if each is not None and each.waits:
            self._waiting -= 1
            holder.feed()  # its rest was read all the same: TLS had more
        if self._waiting:
            self._serve_soon()

    def freed(self, size: int) -> None:
        """Bytes are gone."""
        self.used -= size
        if self._waiting or self._held_up:
            self._serve_soon()

    def _may_grow(self, holder: Holder, each: _Unfinished) -> bool:
        if self.used + each.step <= self.limit:
            return True
        return holder is next(iter(self._unfinished)) and self._may_be_exceeded

    @property
    def _may_be_exceeded(self) -> bool:
        """Whether it is unfinished requests that take the memory: one of them has to become complete then."""
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
        """Let those go on that there is room for, the oldest first."""
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
                holder.too_slow()
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
        """Close one that keeps what others have waited for so long."""
        looks = max((*(each.looks for each in self._unfinished.values()), *self._held_up.values()), default=0)
        if not looks:
            return
        parked = {holder: holder.held_bytes for holder in self.connections if holder.is_parked and holder.held_bytes}
        since = [holder for holder, held in parked.items() if self._parked.get(holder) == held]
        self._parked = parked
        if looks >= PARKED and since:
            max(since, key=parked.__getitem__).too_much()
        elif looks >= STUCK and self.connections:
            max(self.connections, key=lambda holder: holder.held_bytes + holder.unfinished_bytes).too_much()
            self._begin_anew()

    def _begin_anew(self) -> None:
        """What the one that is closed gives back is for those who wait: they have as long again to get it."""
        for each in self._unfinished.values():
            each.looks = 0
        self._held_up = dict.fromkeys(self._held_up, 0)
