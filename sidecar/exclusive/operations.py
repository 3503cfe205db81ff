"""One operation at a time on a topic; batches that arrive meanwhile wait in order, two seconds at most.

Then they are answered 5 LEADER_NOT_AVAILABLE and the client retries: a delayed answer blocks everything else that the
client sends. The topic defines what an operation does and how its failure is answered.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from sidecar.dedup.reply import Reply
from sidecar.forwarder.forwarder import Forwarder
from sidecar.forwarder.outcome import Outcome
from sidecar.network.tasks import Tasks
from sidecar.network.turn import TURN
from sidecar.ownership.state import Claimant
from sidecar.protocol.batch import BatchHeader
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.ids import NO_SEQUENCE

_HELD_S: Final = 2.0
NO_BATCH: Final = BatchHeader(0, 0, 2, 0, 0, 0, 0, -1, 0, NO_SEQUENCE, 0)
GRANTED: Final = Outcome(ErrorCode.NONE)
BUSY: Final = Outcome(ErrorCode.LEADER_NOT_AVAILABLE, message="the topic is changing its owner; try again")


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """A batch to write, or a claim by request (`NO_BATCH`, no bytes), which is only granted. Both are judged alike.

    `alive` returns whether its client is still connected; `reply` is answered once.
    """

    claimant: Claimant
    client: str
    partition: int
    header: BatchHeader
    batch: memoryview
    timeout_ms: int
    alive: Callable[[], bool]
    reply: Reply

    @property
    def is_claim(self) -> bool:
        """Whether there is nothing to write."""
        return self.header is NO_BATCH


@dataclass(eq=False)
class Operations:
    """The operation under way, if any, and what waits for it.

    `judge` decides on a batch while nothing is under way, and may begin an operation. `failed` takes the exception
    that ended one, and returns the answer to the batches that waited, or None to judge them again. It raises unexpected
    exceptions again. `idle` is called when an operation has ended and its waiting batches were handled.
    """

    _tasks: Tasks
    _forwarder: Forwarder
    _judge: Callable[[Offer], None]
    _failed: Callable[[Exception], Outcome | None]
    _idle: Callable[[], None]
    busy: bool = False
    _slow: bool = False
    _task: asyncio.Task[None] | None = None
    _held: deque[Offer] = field(default_factory=deque[Offer])
    _timer: asyncio.TimerHandle | None = None

    def offer(self, offer: Offer) -> None:
        """Judge a batch, now or when the operation under way is over."""
        if not self.busy:
            self._judge(offer)
        elif self._slow:
            self.answer(offer, BUSY)
        else:
            self._held.append(offer)

    def answer(self, offer: Offer, outcome: Outcome) -> None:
        """Answer a batch that is not forwarded."""
        self._forwarder.released(len(offer.batch))
        offer.reply.answer(outcome)

    def begin(self, work: Callable[[], Coroutine[None, None, None]], cause: Offer | None = None) -> asyncio.Task[None]:
        """Start an operation; the batch that caused it is judged again after it, before all others."""
        assert not self.busy
        if cause is not None:
            self._held.appendleft(cause)
        self.busy, self._slow = True, False
        self._timer = asyncio.get_running_loop().call_later(_HELD_S, self._too_slow)
        self._task = self._tasks.start(self._run(work))
        return self._task

    async def perform(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Run `work` as an operation, and wait for it. Raises what `work` raises."""
        failures: list[Exception] = []

        async def operation() -> None:
            try:
                await work()
            except Exception as error:
                failures.append(error)
                raise

        await asyncio.wait([self.begin(operation)])
        if failures:
            raise failures[0]

    def reject(self, offer: Offer, outcome: Outcome) -> None:
        """Answer the batch that caused the operation, unless it was answered already because the operation took
        long.
        """
        if offer in self._held:
            self._held.remove(offer)
            self.answer(offer, outcome)

    async def over(self) -> None:
        """Wait for the present operation, and those that follow from it."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        refusal: Outcome | None = BUSY
        try:
            await work()
            refusal = None
        except Exception as error:  # noqa: BLE001  the topic raises again what it does not know
            refusal = self._failed(error)
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self.busy, self._task = False, None
            held, self._held = self._held, deque()
            try:
                TURN.run(partial(self._settle, held, refusal))
            finally:
                if not self.busy:
                    self._idle()

    def _settle(self, held: deque[Offer], refusal: Outcome | None) -> None:
        """Answer the batches that waited, or judge them again if there is no refusal. If one fails unexpectedly, the
        others are still answered.
        """
        try:
            while held:
                offer = held.popleft()
                if not offer.alive():
                    self.answer(offer, BUSY)
                elif refusal is not None:
                    self.answer(offer, refusal)
                else:
                    self.offer(offer)
        finally:
            if held:
                self._settle(held, BUSY)

    def _too_slow(self) -> None:
        """Answer all waiting batches, because the operation takes long: it shall not block clients."""
        self._slow = True
        held, self._held = self._held, deque()
        for offer in held:
            self.answer(offer, BUSY)
