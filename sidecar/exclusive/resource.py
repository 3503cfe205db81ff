"""One thing that a session can own on this node: a topic, a partition with an owner of its own, or the slot of a shared
session. `ownership.step` decides; this module does what follows, and tells the machine what came of it.

While a work is under way, batches wait for it in order, two seconds at most for one work: a delayed answer blocks
everything else that the client sends. Requests, of operators and of the node itself, precede them.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from sidecar.exclusive.answers import MOVED
from sidecar.exclusive.bindings import FOREIGN
from sidecar.exclusive.environment import Environment
from sidecar.exclusive.offers import GRANTED, Offer
from sidecar.exclusive.refusals import Refusals
from sidecar.exclusive.writer import SlotWriter
from sidecar.forwarder.lane import Lane
from sidecar.forwarder.outcome import Outcome
from sidecar.network.turn import TURN
from sidecar.ownership.state import State, Work
from sidecar.ownership.step import (
    BUSY,
    Act,
    BatchOffered,
    Began,
    Begin,
    Effect,
    Ended,
    EpochLost,
    Event,
    Facts,
    Idle,
    Loss,
    SetTimer,
    Settle,
    Settled,
    StopWriting,
    TimerFired,
    TookLong,
    Verdict,
    step,
)  # fmt: skip
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.ids import ClientSequence
from sidecar.takeover.slots import SlotScope
from sidecar.writing.upkeep import Upkeep

ResultT = TypeVar("ResultT")

_HELD_S: Final = 2.0
_NO_FACTS: Final = Facts()


class Resource(ABC):
    """The state of one resource, its writer, and the work under way. Implements `sidecar.writing.epoch.Writer` for
    the epochs of its writer. What each work does is said by the kinds of resources: `topic`, `shared`.
    """

    def __init__(
        self, scope: SlotScope, environment: Environment, upkeep: Upkeep, refusals: Refusals, state: State
    ) -> None:
        self.name = scope.topic
        self.scope = scope
        self.upkeep = upkeep
        self.refusals = refusals
        self.state = state
        """Only `apply` assigns it."""
        self.writer = SlotWriter(scope.topic, environment, upkeep)
        self._env = environment
        self._held: deque[Offer] = deque()
        """The batches that wait for the work under way."""
        self._requests: deque[Callable[[], Coroutine[None, None, None]]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def busy(self) -> bool:
        """A work is under way: batches wait for it."""
        return self.state.work is not None

    # Events and what follows ----------------------------------------------------------------------------------------

    def apply(self, event: Event, facts: Facts | None = None) -> tuple[Effect, ...]:
        """Make the next state; returns what has to follow."""
        self.state, effects = step(self.state, event, facts or self._graces(), self._env.now())
        return effects

    def tell(self, event: Event) -> None:
        """Make the next state, and do what follows from the event."""
        self._follow(self.apply(event))

    def offer(self, offer: Offer) -> None:
        """Decide on a batch, now or when the work under way is over."""
        try:
            judged = self._judge(offer)
        except Exception:
            self.writer.answer(offer, BUSY)
            raise
        if judged is None:
            self._env.hooks.fenced(self.name, "not_owner")
            self.writer.answer(offer, FOREIGN)
        else:
            self._act(*judged)

    def _judge(self, offer: Offer) -> tuple[Offer, Verdict] | None:
        """The verdict on a batch. None for other clients' batches under the producer id: they change nothing."""
        facts = _NO_FACTS
        if not self.busy:
            claimant = self._env.bindings.admitted(self.name, offer.claimant)
            if claimant is None:
                return None
            offer = offer if claimant is offer.claimant else replace(offer, claimant=claimant)
            facts = self._facts(offer)
        (verdict,) = self.apply(BatchOffered(offer.claimant, offer.is_claim), facts)
        assert isinstance(verdict, Verdict)
        return offer, verdict

    def _act(self, offer: Offer, verdict: Verdict) -> None:
        match verdict.act:
            case Act.FORWARD:
                self._write(offer)
            case Act.GRANT:
                self.writer.answer(offer, GRANTED)
            case Act.HOLD:
                self._held.append(offer)
            case Act.BUSY:
                self.writer.answer(offer, BUSY)
            case Act.MOVED:
                self.writer.answer(offer, MOVED)
            case Act.RENEW | Act.CLAIM | Act.BEGIN_SHARING | Act.OPEN | Act.RELEASE:
                work = self.state.work
                assert work is not None
                self._start(partial(self._perform, work, offer, verdict), offer)
            case _:
                self._act_own(offer, verdict)

    def _write(self, offer: Offer) -> None:
        work = self.writer.write(offer)
        if work is not None:
            self.apply(Began(work))
            self._start(partial(self._perform, work, offer, None), offer)

    def _follow(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case Begin(work):
                    self._start(partial(self._perform, work, None, None))
                case StopWriting(loss):
                    self._stop_writing(loss)
                case Settle(refusal):
                    self._settle(refusal)
                case SetTimer(until):
                    self._set_timer(until)
                case Idle():
                    assert not self._held, "what waits, waits for a work"
                    self._idle()
                case Verdict():
                    raise AssertionError("a verdict is on a batch")

    def _set_timer(self, until: float) -> None:
        if self._timer is None:
            left = until - self._env.now()
            self._timer = asyncio.get_running_loop().call_later(left, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self.tell(TimerFired())

    # The work under way ---------------------------------------------------------------------------------------------

    def begin(self, work: Work) -> asyncio.Task[None]:
        """Begin a work while none is under way; returns the task that ends with it."""
        self.apply(Began(work))
        return self._start(partial(self._perform, work, None, None))

    async def perform(self, request: Callable[[], Coroutine[None, None, ResultT]]) -> ResultT:
        """Carry out a request as a work; returns its result, and raises what it raises. Requests precede the batches
        that wait: each of these might begin another work.
        """
        answered: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()

        async def attempt() -> None:
            try:
                result = await request()
            except BaseException as error:
                if not answered.done():
                    answered.set_exception(error)
                raise
            if not answered.done():  # whoever asked may be gone
                answered.set_result(result)

        self._requests.append(attempt)
        if not self.busy:
            self._begin_request()
        return await answered

    async def _carry_out(self, request: Callable[[], Coroutine[None, None, None]]) -> None:
        """As `perform`; a failure is only reported."""
        with suppress(Exception):
            await self.perform(request)

    def _begin_request(self) -> None:
        self.apply(Began(Work.REQUEST))
        self._start(self._requests.popleft())

    async def over(self) -> None:
        """Wait for the work under way, and those that follow from it."""
        while self._task is not None:
            await asyncio.wait([self._task])

    def _start(self, work: Callable[[], Coroutine[None, None, None]], cause: Offer | None = None) -> asyncio.Task[None]:
        """Start the work that the state has begun. `cause`: a batch that is judged after it, before all others."""
        assert self._task is None, "one work at a time"
        assert self.busy, "the machine has begun it"
        if cause is not None:
            self._held.appendleft(cause)
        self._patience = asyncio.get_running_loop().call_later(_HELD_S, self.tell, TookLong())
        self._task = self._env.tasks.start(self._run(work))
        return self._task

    async def _run(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        refusal: Outcome | None = BUSY
        try:
            await work()
            refusal = None
        except Exception as error:  # noqa: BLE001  `_failed` raises again what it does not know
            refusal = self._failed(error)
        finally:
            if self._patience is not None:
                self._patience.cancel()
            self._task = None
            self.tell(Ended(refusal))

    def _settle(self, refusal: Outcome | None) -> None:
        held, self._held = self._held, deque()
        if self.busy:  # it is slow, and goes on
            self._settle_all(held, refusal)
            return
        if held and refusal is None and self._requests:  # only the batch that the work was for precedes them
            self._held, held = held, deque([held.popleft()])
        try:
            TURN.run(partial(self._settle_all, held, refusal))
        finally:
            if self._requests:
                self.tell(TimerFired())  # a release that is due comes first
                if not self.busy:
                    self._begin_request()
            else:
                self.tell(Settled())

    def _settle_all(self, held: deque[Offer], refusal: Outcome | None) -> None:
        """If a batch fails unexpectedly, the others are still answered."""
        try:
            while held:
                offer = held.popleft()
                if not offer.alive():
                    self.writer.answer(offer, BUSY)
                elif refusal is not None:
                    self.writer.answer(offer, refusal)
                else:
                    self.offer(offer)
        finally:
            if held:
                self._settle_all(held, BUSY)

    def _reject(self, offer: Offer, outcome: Outcome) -> None:
        """Answer the batch that caused the work, unless it was answered already because the work took long."""
        if offer in self._held:
            self._held.remove(offer)
            self.writer.answer(offer, outcome)

    async def _perform(self, work: Work, offer: Offer | None, verdict: Verdict | None) -> None:
        """Do a work. `offer`: the batch that caused it, and its `verdict`."""
        match work, offer:
            case Work.EXAMINE, Offer():
                refusal = await self.writer.examine(offer)
                if refusal is not None:
                    self._reject(offer, refusal)
            case Work.FIND, Offer():
                if await self.writer.exists(offer.partition):
                    await self._grow(offer.partition)
                else:
                    self._reject(offer, Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            case ((Work.RAISE | Work.RENEW), Offer()):
                if await self.writer.raise_epoch(work, offer):
                    self._raised()
                else:
                    await self._resume()
            case Work.RESUME, _:
                await self._resume()
            case _:
                await self._perform_own(work, offer, verdict)

    # Of its writer's epochs -----------------------------------------------------------------------------------------

    def fenced(self, lane: Lane) -> None:
        """See `sidecar.forwarder.lane.LaneOwner`."""
        if self.writer.writes_under(lane):
            self.tell(EpochLost(Loss.FENCED))

    def numbering_lost(self, lane: Lane) -> None:
        """See `sidecar.forwarder.lane.LaneOwner`."""
        if self.writer.writes_under(lane):
            self.tell(EpochLost(Loss.DOUBT))

    def refused(self, partition: int, client_epoch: int, first: ClientSequence, records: int) -> None:
        """Note sequences that the client counts as used: the next epoch begins after them."""
        if self.writer.epoch is not None:
            self.refusals.note(self.writer.epoch.taken.session, partition, client_epoch, first, records)

    # By kind --------------------------------------------------------------------------------------------------------

    def _graces(self) -> Facts:
        """What events that are no batches are judged by."""
        return _NO_FACTS

    @abstractmethod
    def _facts(self, offer: Offer) -> Facts:
        """What a batch is judged by, beside the state."""

    def _act_own(self, offer: Offer, verdict: Verdict) -> None:
        """Do with a batch what only this kind of resource does."""
        raise AssertionError(f"{offer.claimant.session} cannot get this verdict here: {verdict}")

    @abstractmethod
    def _stop_writing(self, loss: Loss) -> None:
        """Close the epoch."""

    @abstractmethod
    def _idle(self) -> None:
        """No work is under way any more."""

    @abstractmethod
    def _failed(self, error: Exception) -> Outcome | None:
        """The answer to batches that waited for a failed work; None: they are judged again."""

    @abstractmethod
    async def _perform_own(self, work: Work, offer: Offer | None, verdict: Verdict | None) -> None:
        """Do a work that only this kind of resource has."""

    @abstractmethod
    async def _resume(self) -> None:
        """Let the same session write under the next epoch, by a takeover."""

    @abstractmethod
    async def _grow(self, partition: int) -> None:
        """Fence again: the topic has partitions that are not fenced, such as this one."""

    @abstractmethod
    def _raised(self) -> None:
        """The session writes under an epoch that was opened from memory."""
