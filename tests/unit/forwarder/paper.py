"""Time that tests turn by hand, and the two ends of a lane: who ships its batches, who owns it."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

from sidecar.changelog.records import RawRecord, build_batch
from sidecar.forwarder.lane import Lane
from sidecar.forwarder.outcome import Outcome
from sidecar.forwarder.sequences import Append, PlainSequences, SequenceSpace
from sidecar.protocol.batch import BatchHeader, read_header
from sidecar.protocol.ids import ClientSequence as Client
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp

STAMP = Stamp(ProducerId(7_000), ProducerEpoch(3))


def record_batch(values: list[bytes]) -> bytearray:
    """A batch as a client sends it, without a producer id."""
    return build_batch([RawRecord(b"", value) for value in values], None, 0)


class Timer:
    """What `call_later` gives."""

    def __init__(self, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self.callback: Callable[..., object] | None = callback
        self.arguments = arguments

    def cancel(self) -> None:
        self.callback = None

    def run(self) -> None:
        callback, self.callback = self.callback, None
        if callback is not None:
            callback(*self.arguments)


class ManualLoop:
    """As much of an event loop as lanes need; nothing happens but by `turn` and `advance`."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = count()

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[..., object], *arguments: Any) -> Timer:
        timer = Timer(callback, arguments)
        heapq.heappush(self._timers, (self.now + delay, next(self._order), timer))
        return timer

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> Timer:
        return self.call_later(0.0, callback, *arguments)

    @property
    def timers(self) -> int:
        """How many callbacks are still to come."""
        return sum(timer.callback is not None for _, _, timer in self._timers)

    def advance(self, seconds: float) -> None:
        """Let time pass; everything that is due happens at its own time."""
        end = self.now + seconds
        while self._timers and self._timers[0][0] <= end:
            when, _, timer = heapq.heappop(self._timers)
            self.now = max(self.now, when)
            timer.run()
        self.now = end

    def turn(self) -> None:
        """What is due now."""
        self.advance(0.0)


@contextmanager
def manual_time() -> Iterator[ManualLoop]:
    """`asyncio.get_running_loop()` is a `ManualLoop` within."""
    loop = ManualLoop()
    before = asyncio._get_running_loop()
    asyncio._set_running_loop(cast(asyncio.AbstractEventLoop, loop))
    try:
        yield loop
    finally:
        asyncio._set_running_loop(before)


@dataclass
class PaperShipper:
    """Keeps what a lane ships until the test says what became of it."""

    shipped: list[Append] = field(default_factory=list)
    history: list[BatchHeader] = field(default_factory=list)
    lost: int = 0
    held: int = 0

    def ship(self, lane: Lane, append: Append) -> None:
        self.shipped.append(append)
        self.history.append(read_header(append.batch, 0, append.size))

    def leader_lost(self, topic: bytes) -> None:
        self.lost += 1

    def released(self, size: int) -> None:
        self.held -= size
        assert self.held >= 0, "released more than was taken"


@dataclass
class PaperOwner:
    """Ends the lane when it is told to, as a governed topic does."""

    fenced_lanes: list[Lane] = field(default_factory=list)
    lost_lanes: list[Lane] = field(default_factory=list)
    ends: bool = True

    def fenced(self, lane: Lane) -> None:
        self.fenced_lanes.append(lane)
        if self.ends:
            lane.close(Outcome(6))

    def numbering_lost(self, lane: Lane) -> None:
        self.lost_lanes.append(lane)
        if self.ends:
            lane.close(Outcome(7))


class Bench:
    """One lane with both its ends, and the outcomes of its batches by value."""

    def __init__(self, loop: ManualLoop, *, plain: bool = False, owner_ends: bool = True) -> None:
        self.loop = loop
        self.shipper = PaperShipper()
        self.owner = PaperOwner(ends=owner_ends)
        numbers = PlainSequences() if plain else None
        self.lane = Lane(b"orders", 0, STAMP, numbers, self.shipper, self.owner, random.Random(1))
        self.space = SequenceSpace(0, Client(0), Client(0))
        self.outcomes: dict[str, list[Outcome]] = {}
        self.answered: list[str] = []
        self.appends: dict[str, Append] = {}
        self._next = 0

    def append(self, *values: str, records: int = 1, timeout: float = 30.0) -> None:
        """Put batches in, one record each unless told otherwise."""
        for value in values:
            data = record_batch([value.encode()] * records)
            self.outcomes[value] = []
            self.shipper.held += len(data)

            def done(outcome: Outcome, value: str = value) -> None:
                self.outcomes[value].append(outcome)
                self.answered.append(value)

            append = Append(memoryview(data), records, self.loop.time() + timeout, 30_000, done)
            if self.lane.plain is None:
                append.belongs(self.space, Client(self._next))
                self._next += records
            self.appends[value] = append
            self.lane.append(append)

    def settle(self, *outcomes: int) -> None:
        """Answer what was shipped first, one code for each; 0 carries an offset."""
        for code in outcomes:
            append = self.shipper.shipped.pop(0)
            self.lane.settled(append, Outcome(code, 100 + append.order) if code == 0 else Outcome(code))

    def settle_as(self, value: str, code: int) -> None:
        """Answer one batch, whatever was shipped before it."""
        self.shipper.shipped.remove(self.appends[value])
        self.lane.settled(self.appends[value], Outcome(code, 5) if code == 0 else Outcome(code))

    @property
    def in_flight(self) -> list[str]:
        """What is at the broker, in the order in which it was sent."""
        names = {id(append): value for value, append in self.appends.items()}
        return [names[id(append)] for append in self.shipper.shipped]

    @property
    def wire(self) -> list[int]:
        """Stamped sequences in the order in which they were ever sent."""
        return [header.base_sequence for header in self.shipper.history]

    def errors(self) -> dict[str, int]:
        """The one outcome of every batch that has one. Fails where a batch was answered twice."""
        assert all(len(found) <= 1 for found in self.outcomes.values()), self.outcomes
        return {value: found[0].error for value, found in self.outcomes.items() if found}

    def finished(self) -> None:
        """Everything was answered once and given back, nothing is left under way."""
        assert all(len(found) == 1 for found in self.outcomes.values()), self.outcomes
        assert self.lane.idle
        assert self.shipper.held == 0
        assert self.loop.timers == 0
