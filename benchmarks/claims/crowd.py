"""A process whose claims wait by the thousand: `python -m benchmarks.claims.crowd ORDER`, the order a JSON of `Order`.

A step of it is a line on standard input, and a line says that it is done: `connected` at the start; `wait` takes a
place for every claim and keeps it (`waiting`, with how long that took); `rest` forgets the repeats so far (`resting`);
`pass N` lets go N times, each time for the next one to own (`Passed` as JSON).

Who listens has a connection of its own with an Own under way all the time. All others share connections, on which each
claim is asked for again before its place lapses.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import uvloop

from benchmarks.claims.caller import Caller
from benchmarks.claims.calls import expect, new_token, own, release, strings
from sidecar.protocol.caller import decode_frame, encode_frame
from sidecar.protocol.own import Own
from sidecar.v1 import control_pb2 as control

if TYPE_CHECKING:
    from collections.abc import Coroutine

ResultT = TypeVar("ResultT")

CONNECTED: Final = "connected"
WAITING: Final = "waiting"
RESTING: Final = "resting"
_AT_ONCE: Final = 50
_PAUSE_S: Final = 0.05
_LISTEN_MS: Final = 300_000
_HEARD_S: Final = 60.0
_SPARE_FILES: Final = 100
_OF_ONE_REQUEST: Final = 1_000
_HOLDER_SESSION: Final = 1


@dataclass(frozen=True, slots=True)
class Order:
    """So many claims on one string, or on as many strings (`apart`), of which so many are listened for; the others
    share so many connections, on which each claim is asked for again every so often.
    """

    port: int
    prefix: str
    claims: int
    listeners: int
    connections: int
    apart: bool
    repeat_s: float = 4.0

    def string(self, number: int) -> str:
        """What the claim with this number is on."""
        return f"{self.prefix}-{number}" if self.apart else self.prefix


@dataclass(slots=True)
class Passed:
    """Milliseconds from when an owner sends its Release to when the next one hears of its grant; of the repeats while
    all rested; how often a repeat came later than a place is kept for; what went wrong, in words.
    """

    handovers: list[float] = field(default_factory=list[float])
    repeats: list[float] = field(default_factory=list[float])
    late: int = 0
    faults: list[str] = field(default_factory=list[str])


class Claim:
    """One claim that waits: the same Own again and again, under the session of a producer id of its own."""

    def __init__(self, order: Order, number: int) -> None:
        self.string = order.string(number)
        self.token = new_token()
        self.session = _HOLDER_SESSION + 1 + number
        self.frame = encode_frame(self._own(0), 0, "bench")
        self.asked_at = 0.0

    def _own(self, wait_ms: int) -> Own:
        wanted, mode = strings(self.string), control.WAIT_FOR_EXCLUSIVE
        return own(wanted, self.token, mode, wait_ms=wait_ms, session=self.session)

    async def keep(self, caller: Caller) -> float:
        """Take the place, or keep it; how many milliseconds that took. Raises NotAnsweredError."""
        began = time.perf_counter()
        answer = await caller.exchange(self.frame)
        told = decode_frame(_OWN, 0, answer, 4, len(answer))
        expect("Own", told.error, told.message, control.TIMED_OUT)
        self.asked_at = time.perf_counter()
        return (self.asked_at - began) * 1000

    async def owned(self, caller: Caller) -> float:
        """Wait until it is granted; when that was heard. Raises NotAnsweredError."""
        told = await caller.ask(self._own(_LISTEN_MS))
        heard = time.perf_counter()
        expect("Own", told.error, told.message)
        return heard


_OWN: Final = own([], b"")
"""What an answer is decoded by."""
KEPT_S: Final = 5.0
"""For so long after an answer a place is kept."""


class Crowd:
    """All claims, their connections, and the owner of what they wait for."""

    def __init__(self, order: Order) -> None:
        self.found = Passed()
        self._order = order
        self._tasks: set[asyncio.Task[None]] = set()
        self._heard: asyncio.Queue[tuple[float, int]] = asyncio.Queue()
        self._claims = [Claim(order, number) for number in range(order.claims)]
        self._listening: list[Caller] = []
        self._sharing: list[Caller] = []
        self._holder: Caller | None = None
        self._held: list[tuple[bytes, list[str]]] = []

    async def connect(self) -> None:
        """All connections; the owner gets what all others will wait for. Raises OSError, NotAnsweredError."""
        order = self._order
        self._listening = await _connected(order.port, order.listeners)
        self._sharing = await _connected(order.port, order.connections)
        self._holder = await Caller.connect(order.port)
        names = list(dict.fromkeys(claim.string for claim in self._claims))
        for first in range(0, len(names), _OF_ONE_REQUEST):
            some, token = names[first : first + _OF_ONE_REQUEST], new_token()
            told = await self._holder.ask(own(strings(*some), token, session=_HOLDER_SESSION))
            expect("Own", told.error, told.message)
            self._held.append((token, some))

    async def wait(self) -> float:
        """A place for everybody; in how many seconds. The listeners' come first."""
        began = time.perf_counter()
        listeners = self._order.listeners
        await _limited([claim.keep(self._listening[at]) for at, claim in enumerate(self._claims[:listeners])])
        for number in range(listeners):
            self._start(self._listen(number))
            if number % _AT_ONCE == 0:
                await asyncio.sleep(_PAUSE_S)  # nobody says when a call waits, and all at once would be another load
        shared = [self._claims[listeners:][at :: len(self._sharing)] for at in range(len(self._sharing))]
        await asyncio.gather(*[self._begin(*each) for each in zip(self._sharing, shared, strict=True)])
        return time.perf_counter() - began

    def rest(self) -> None:
        """What came so far was the way there."""
        self.found.repeats.clear()
        self.found.late = 0

    async def hand_over(self, times: int) -> Passed:
        """The owner lets go, the next one hears of it, and lets go in its turn (`apart`: the owner again, of the next).

        Raises NotAnsweredError, TimeoutError.
        """
        assert self._holder is not None
        caller, (token, _) = self._holder, self._held[0]
        for number in range(times):
            token = self._held[number // _OF_ONE_REQUEST][0] if self._order.apart else token
            request = release(token, strings(self._order.string(number)) if self._order.apart else None)
            began = time.perf_counter()
            told = await caller.ask(request)
            expect("Release", told.error, told.message)
            async with asyncio.timeout(_HEARD_S):
                heard, who = await self._heard.get()
            self.found.handovers.append((heard - began) * 1000)
            if not self._order.apart:
                caller, token = self._listening[who], self._claims[who].token
            if not self._heard.empty():
                self.found.faults.append("two were granted what one let go of")
        return self.found

    async def _begin(self, caller: Caller, claims: list[Claim]) -> None:
        for claim in claims:
            await claim.keep(caller)
        self._start(self._repeat(caller, claims))

    async def _repeat(self, caller: Caller, claims: list[Claim]) -> None:
        pause = self._order.repeat_s / len(claims)
        while True:
            for claim in claims:
                due = claim.asked_at + self._order.repeat_s
                await asyncio.sleep(max(0.0, min(pause, due - time.perf_counter())))
                since = claim.asked_at
                self.found.repeats.append(await claim.keep(caller))
                self.found.late += claim.asked_at - since > KEPT_S

    async def _listen(self, number: int) -> None:
        self._heard.put_nowait((await self._claims[number].owned(self._listening[number]), number))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        async def told() -> None:
            try:
                await work
            except (RuntimeError, OSError) as error:
                self.found.faults.append(f"{type(error).__name__}: {error}")

        task = asyncio.get_running_loop().create_task(told())
        self._tasks.add(task)


async def _connected(port: int, size: int) -> list[Caller]:
    return await _limited([Caller.connect(port) for _ in range(size)])


async def _limited(work: list[Coroutine[Any, Any, ResultT]]) -> list[ResultT]:
    """All of it, a few at a time."""
    limit = asyncio.Semaphore(_AT_ONCE)

    async def one(each: Coroutine[Any, Any, ResultT]) -> ResultT:
        async with limit:
            return await each

    return await asyncio.gather(*map(one, work))


async def _run(order: Order) -> None:
    crowd = Crowd(order)
    await crowd.connect()
    _say(CONNECTED)
    read = asyncio.get_running_loop().run_in_executor
    while line := await read(None, sys.stdin.readline):
        step, _, rest = line.strip().partition(" ")
        if step == "wait":
            _say(f"{WAITING} {await crowd.wait()}")
        elif step == "rest":
            crowd.rest()
            _say(RESTING)
        else:
            _say(json.dumps(asdict(await crowd.hand_over(int(rest)))))


def _say(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    """Run the order of the command line; 1 where this process may not open so many connections."""
    order = Order(**json.loads(sys.argv[1]))
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if order.listeners + order.connections + _SPARE_FILES > most:
        sys.stderr.write(f"{order.listeners + order.connections} connections need as many files: ulimit -n is {most}\n")
        return 1
    uvloop.run(_run(order))
    return 0


if __name__ == "__main__":
    sys.exit(main())
