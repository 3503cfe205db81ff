"""Sessions with their gates and real lanes on one partition; a leader that takes batches as Kafka does, by sequence; a
keeper whose changelog writes when the test says so; and time that the test turns.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from sidecar.changelog import Clock
from sidecar.dedup.batches import Arrival, Session
from sidecar.dedup.gate import Gate
from sidecar.dedup.partition import IdsServices
from sidecar.dedup.reply import Reply
from sidecar.dedup.topic import TopicIds
from sidecar.forwarder.lane import Lane
from sidecar.forwarder.outcome import Outcome
from sidecar.forwarder.sequences import Append, PlainSequences, SequenceSpace
from sidecar.protocol.batch import read_header
from sidecar.protocol.ids import ClientSequence, ProducerEpoch, ProducerId, Stamp
from tests.unit.dedup.paper import HEADERS, Rec, batch, ids_of, recs
from tests.unit.forwarder.paper import ManualLoop, PaperOwner, PaperShipper, Timer

MODULUS = 2**31
HELD_S = 2.0
"""The longest that a batch waits in a gate."""


class GateLoop(ManualLoop):
    """A `ManualLoop` with the one thing more that gates need."""

    def call_at(self, when: float, callback: Callable[..., object], *arguments: Any) -> Timer:
        return self.call_later(when - self.now, callback, *arguments)


@contextmanager
def gate_time() -> Iterator[GateLoop]:
    """`asyncio.get_running_loop()` is a `GateLoop` within."""
    loop = GateLoop()
    before = asyncio._get_running_loop()
    asyncio._set_running_loop(cast(asyncio.AbstractEventLoop, loop))
    try:
        yield loop
    finally:
        asyncio._set_running_loop(before)


class Shift(NamedTuple):
    """What a keeper is told."""

    from_sequence: int
    base: int
    before: int


class _Written:
    """What a shift waits for."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class PaperKeeper:
    """Implements `Keeper`. `shifts` are those that were asked for; they are in the changelog after `write`."""

    def __init__(self, loop: GateLoop) -> None:
        self.shifts: list[Shift] = []
        self.failures: list[Exception] = []
        self.refusals: list[tuple[int, int]] = []
        self._loop = loop
        self._writing: list[Coroutine[None, None, None]] = []

    async def shift(self, partition: int, from_sequence: int, base: int, before: int) -> None:
        self.shifts.append(Shift(from_sequence, base, before))
        await _Written()

    def shift_failed(self, partition: int, error: Exception) -> None:
        self.failures.append(error)

    def refused(self, partition: int, first: int, records: int) -> None:
        self.refusals.append((first, records))

    def start(self, work: Coroutine[None, None, None]) -> None:
        self._loop.call_soon(self._begin, work)

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        work.send(None)
        self._writing.append(work)

    @property
    def is_writing(self) -> bool:
        return bool(self._writing)

    def write(self) -> None:
        """The shift is in the changelog."""
        try:
            self._writing.pop(0).send(None)
        except StopIteration:
            return

    def fail(self, error: Exception) -> None:
        """It could not be written."""
        try:
            self._writing.pop(0).throw(error)
        except StopIteration:
            return


class Partition:
    """One partition of a topic with sequence ids, and its log. `fences`: how often one was asked for."""

    def __init__(self, loop: GateLoop, names_limit: int = 10_000) -> None:
        self.loop = loop
        self.live: set[str] = set()
        self.fences = 0
        self.dropped = 0
        self.unknown = 0
        self.forgotten = 0
        self.log: list[int | None] = []
        nothing = cast(Any, None)
        changelog = cast(Any, SimpleNamespace(clock=Clock()))
        services = IdsServices(nothing, changelog, nothing, nothing, cast(Any, self), HEADERS, names_limit)
        self.state = TopicIds("orders", services, self.live.__contains__, self._fence_wanted).of(0)
        self.state.is_ready = True

    def _fence_wanted(self) -> None:
        self.fences += 1

    def duplicates_dropped(self, topic: str, records: int) -> None:
        self.dropped += records

    def ids_unknown(self, topic: str) -> None:
        self.unknown += 1

    def names_forgotten(self, topic: str, names: int) -> None:
        self.forgotten += names


@dataclass
class Offered:
    """A batch and what it was answered."""

    arrival: Arrival
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def outcome(self) -> Outcome | None:
        """Fails where it was answered twice."""
        assert len(self.outcomes) <= 1, self.outcomes
        return self.outcomes[0] if self.outcomes else None

    @property
    def error(self) -> int | None:
        return None if self.outcome is None else self.outcome.error


class Client:
    """A session's gate with its lane. `name`: the session's own."""

    def __init__(
        self,
        partition: Partition,
        session: str = "pid:1",
        *,
        name: bytes | None = b"me",
        producer_id: int = 7,
        plain: bool = False,
        base: int = 0,
    ) -> None:
        self.partition, self.loop = partition, partition.loop
        partition.live.add(session)
        self.session = session
        self.shipper, self.owner = PaperShipper(), PaperOwner()
        self.keeper = PaperKeeper(self.loop)
        stamp = Stamp(ProducerId(producer_id), ProducerEpoch(3))
        numbers = PlainSequences() if plain else None
        self.lane = Lane(b"orders", 0, stamp, numbers, self.shipper, self.owner, random.Random(1))
        self.space = None if plain else SequenceSpace(0, ClientSequence(base), ClientSequence(base), written=base != 0)
        its = Session(session, name, producer_id)
        self.gate = Gate(partition.state, its, self.lane, self.space, HEADERS, self.keeper, self.shipper.released)
        self.offered: list[Offered] = []
        self._next = base
        self._stamped = 0
        """The sequence that the leader expects."""

    # The client -------------------------------------------------------------------------------------------------------

    def send(self, *ids: int | bytes | Rec | None, first: int | None = None, timeout_ms: int = 30_000) -> Offered:
        """Offer a batch, the next in order unless told its first sequence."""
        found = [rec if isinstance(rec, Rec) else recs(rec)[0] for rec in ids]
        data = batch(found)
        if first is None:
            first, self._next = self._next, (self._next + len(found)) % MODULUS
        if self.space is None:
            first = -1

        def done(outcome: Outcome) -> None:
            offered.outcomes.append(outcome)

        offered = Offered(Arrival(data, ClientSequence(first), len(found), timeout_ms, Reply(done)))
        self.shipper.held += len(data)
        self.offered.append(offered)
        self.gate.offer(offered.arrival)
        self.loop.turn()
        return offered

    # The leader -------------------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> list[list[int | None]]:
        """The ids of the batches at the leader."""
        return [ids_of(append.batch) for append in self.shipper.shipped]

    @property
    def wire(self) -> list[int]:
        """Stamped sequences in the order in which they were ever sent."""
        return [header.base_sequence for header in self.shipper.history]

    def land(self, count: int = 1) -> None:
        """The leader judges what came first by its sequence, and answers."""
        for _ in range(count):
            append = self.shipper.shipped.pop(0)
            outcome = self._judged(append)
            self.lane.settled(append, outcome)
            self.loop.turn()

    def lose_answer(self, code: int = 13) -> Append:
        """What came first is in the log, and nobody hears of it."""
        append = self.shipper.shipped.pop(0)
        assert self._judged(append).error == 0
        self.lane.settled(append, Outcome(code))
        return append

    def fail(self, code: int, count: int = 1) -> None:
        """The leader takes nothing of what came first."""
        for _ in range(count):
            self.lane.settled(self.shipper.shipped.pop(0), Outcome(code))
            self.loop.turn()

    def _judged(self, append: Append) -> Outcome:
        header = read_header(append.batch, 0, append.size)
        if header.base_sequence != self._stamped:
            return Outcome(46 if (header.base_sequence - self._stamped) % MODULUS >= MODULUS // 2 else 45)
        self._stamped = (self._stamped + header.records) % MODULUS
        log = self.partition.log
        log += ids_of(append.batch)
        return Outcome(0, len(log) - header.records, -1, 0)

    # Shifts -----------------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """A shift is in the changelog."""
        self.keeper.write()
        self.loop.turn()

    def finished(self) -> None:
        """Everything was answered once, and all bytes are given back."""
        assert all(len(offered.outcomes) == 1 for offered in self.offered), self.offered
        assert self.lane.idle
        assert self.gate.is_idle
        assert not self.keeper.is_writing
        assert self.shipper.held == 0
        self.loop.advance(HELD_S)
        assert self.loop.timers == 0
