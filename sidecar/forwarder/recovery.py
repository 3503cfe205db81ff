"""A lane after its first failure: it is muted, and what failed goes again, alone and in order, until it flows on.

A mute restores order. Nothing new is sent; the batches in flight return; those to be retried are sent one after the
other before the lane sends anything new. It ends on each outcome: success, a final error, a timeout, the lane's end.

A batch that is acknowledged although an earlier one failed proves in most cases that the earlier one is in the log too:
Kafka refuses a gap with 45 OUT_OF_ORDER_SEQUENCE_NUMBER. Not in a topic that was created anew under its name: there any
sequence may be a producer's first. So that acknowledgement waits until the earlier batch is there. If that batch is
given up, the outcome is unknown. If the leader reported it appended, nothing waits.

Sends nothing by itself: its lane does.
"""

import asyncio
import random
from typing import Final, Generic, Protocol, TypeVar

from sidecar.forwarder.outcome import TIMED_OUT, Outcome
from sidecar.forwarder.sequences import PlainSequences
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.ids import StampedSequence

_BACKOFF_FIRST: Final = 0.02
_BACKOFF_MAX: Final = 1.0
_NO_HOLE: Final = 1 << 62
_OURS: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.NETWORK_EXCEPTION})
"""Not passed to clients: OUT_OF_ORDER_SEQUENCE_NUMBER after a failure, which the lane handles (librdkafka would end for
good), and NETWORK_EXCEPTION, which no broker sends. A batch given up with no other outcome timed out.
"""


class Retried(Protocol):
    """A batch that may go again (`sidecar.forwarder.lane.Append`)."""

    order: int
    sequence: StampedSequence | None
    stamped: bool
    deadline: float
    in_doubt: bool
    is_appended: bool
    error: Outcome

    @property
    def is_in_order(self) -> bool:
        """Where it is given up, nothing that came after it may get into the log."""
        ...


B = TypeVar("B", bound=Retried)
B_contra = TypeVar("B_contra", bound=Retried, contravariant=True)


class Flow(Protocol[B_contra]):
    """The lane that is muted (`sidecar.forwarder.lane.Lane`)."""

    plain: PlainSequences | None

    @property
    def is_closed(self) -> bool:
        """Its slot epoch is over."""
        ...

    def ship(self, append: B_contra) -> None:
        """Send a batch now."""
        ...

    def finish(self, append: B_contra, outcome: Outcome) -> None:
        """Answer a batch."""
        ...

    def drop_late(self, now: float) -> None:
        """Answer what waits behind a mute and has no time left."""
        ...

    def go_on(self) -> None:
        """Send what waits, as far as there is room."""
        ...

    def numbering_lost(self) -> None:
        """Numbering can continue only under a new slot epoch."""
        ...


class Recovery(Generic[B]):
    """What a lane has to send again. Made at its first failure. `retry`: what failed, in no order; `alone`: the one of
    them that is under way; `failures`: in a row.
    """

    __slots__ = ("_gap", "_hole", "_lane", "_random", "_timer", "alone", "failures", "muted", "retry")

    def __init__(self, lane: Flow[B], rng: random.Random) -> None:
        self.muted = False
        self.alone: B | None = None
        self.failures = 0
        self.retry: list[B] = []
        self._lane = lane
        self._random = rng
        self._gap: B | None = None
        self._hole = _NO_HOLE
        self._timer: asyncio.TimerHandle | None = None

    def overtakes(self, append: B) -> bool:
        """Whether an earlier batch has failed that no leader is known to have appended."""
        if append is self.alone:
            return False
        return append.order > self._hole or any(
            earlier.order < append.order and not earlier.is_appended for earlier in self.retry
        )

    def wait(self, append: B, outcome: Outcome) -> None:
        """A batch is acknowledged that overtook another: its answer waits for that one."""
        append.error = outcome
        self.retry.append(append)

    def failed(self, append: B, outcome: Outcome) -> None:
        """A batch has to go again: from now on nothing new goes out."""
        self.failures += append is self.alone or not self.muted
        if outcome.error not in _OURS:
            append.error = outcome
        self.retry.append(append)
        self.muted = True

    def left_out(self, append: B) -> None:
        """A batch was given up: what comes after it proves nothing of it."""
        self._hole = min(self._hole, append.order)

    def refused(self, append: B, outcome: Outcome) -> None:
        """Kafka refused the batch. That says nothing of an earlier try in doubt, unless it is
        OUT_OF_ORDER_SEQUENCE_NUMBER: Kafka looks at the sequence last, and knows a batch that is in the log. Otherwise
        only the log shows it, after a fence; the client asks again.
        """
        if not append.in_doubt or outcome.error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            self._drop(append, outcome)
        elif self._lane.plain is not None:
            self._drop(append, TIMED_OUT)
        else:
            self._lane.finish(append, TIMED_OUT)
            self._lane.numbering_lost()

    def _drop(self, append: B, outcome: Outcome) -> None:
        """Give a batch up. It leaves a gap, which Kafka refuses with OUT_OF_ORDER_SEQUENCE_NUMBER: an idempotent client
        gets that answer, a plain one must not.
        """
        lane = self._lane
        if lane.plain is None:
            lane.finish(append, outcome)
            return
        out_of_order = outcome.error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        lane.finish(append, TIMED_OUT if out_of_order else outcome)
        if lane.is_closed:
            return
        if append.in_doubt or out_of_order or append.is_in_order:
            lane.numbering_lost()
            return
        self.muted = True
        if self._gap is None or append.order < self._gap.order:
            self._gap = append

    def go_on(self) -> None:
        """Everything is back: send again what must go again, alone and in order, or let the lane flow on."""
        if self._timer is not None:
            return
        lane, now = self._lane, asyncio.get_running_loop().time()
        self.retry.sort(key=_order_of)
        self._close_gap()
        while not lane.is_closed and self.retry:
            append = self.retry[0]
            if not append.error.error:  # acknowledged already
                lane.finish(self.retry.pop(0), append.error if append.order < self._hole else TIMED_OUT)
            elif append.deadline <= now:
                self._drop(self.retry.pop(0), append.error)
                self._close_gap()
            else:
                break
        if not lane.is_closed:
            lane.drop_late(now)
        if lane.is_closed:
            return
        if not self.retry:
            self.muted, self._hole = False, _NO_HOLE
            lane.go_on()
            return
        delay = self._backoff() if self.failures else 0.0
        self._timer = asyncio.get_running_loop().call_later(delay, self._resend)

    def _close_gap(self) -> None:
        """Count anew after a plain batch that was given up: it is not in the log, so nothing numbered after it is.

        Unless one of those is still on its way somewhere: with the gap closed it would get in after all, under a number
        that is another batch's by then.
        """
        (gap, self._gap), plain = (self._gap, None), self._lane.plain
        if gap is None or plain is None or gap.sequence is None:
            return
        behind = [append for append in self.retry if append.order > gap.order]
        if any(append.in_doubt for append in behind):
            self._lane.numbering_lost()
            return
        plain.rewind(gap.sequence)
        for append in behind:
            append.sequence, append.stamped = None, False

    def _resend(self) -> None:
        self._timer = None
        if not self._lane.is_closed and self.retry:
            self.alone = self.retry.pop(0)
            self._lane.ship(self.alone)

    def _backoff(self) -> float:
        ceiling = min(_BACKOFF_MAX, _BACKOFF_FIRST * 2 ** min(self.failures - 1, 10))
        return ceiling * (0.5 + 0.5 * self._random.random())

    def close(self) -> list[B]:
        """The lane ends: what would have gone again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self.retry = self.retry, []
        return waiting


def _order_of(append: Retried) -> int:
    return append.order
