"""One batch on its way, and the order of one partition: at most five batches in flight, muted at the first failure,
retried one by one in order.

Why five: a broker remembers the last five batches of a producer id and recognises repeats of these (KIP-98,
KAFKA-5494).

A mute restores order. Nothing new is sent; the batches in flight return; those to be retried are sent one after the
other before the lane sends anything new. It ends on each outcome: success, a final error, a timeout, the lane's end.

A batch that is acknowledged although an earlier one failed proves in most cases that the earlier one is in the log too:
Kafka refuses a gap with 45 OUT_OF_ORDER_SEQUENCE_NUMBER. Not in a topic that was created anew under its name: there any
sequence may be a producer's first. So that acknowledgement waits until the earlier batch is there. If that batch is
given up, the outcome is unknown. If the leader reported it appended, nothing waits.

Numbering. A batch of an idempotent session keeps its stamped sequence through all retries. The node numbers the batches
of a plain session: one that is known not to be in the log returns its number, one whose outcome is unknown keeps it
until it is known. An unanswered batch may get into the log much later, when a stopped broker resumes. So may one that a
leader answered with 6 NOT_LEADER_OR_FOLLOWER, because a leader also answers this if it lost its role after the append.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, Protocol
from uuid import UUID

from sidecar.forwarder.outcome import TIMED_OUT, Outcome
from sidecar.forwarder.sequences import Append, PlainSequences
from sidecar.protocol import batch as record_batch
from sidecar.protocol.errors import APPEND_IN_DOUBT, NOT_APPENDED, STALE_ROUTE, ErrorCode
from sidecar.protocol.ids import Stamp
from sidecar.protocol.produce_upstream import table_head

MAX_IN_FLIGHT: Final = 5
FENCED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
_OURS: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.NETWORK_EXCEPTION})
"""Not passed to clients: OUT_OF_ORDER_SEQUENCE_NUMBER after a failure, which the lane handles (librdkafka would end for
good), and NETWORK_EXCEPTION, which no broker sends. A batch given up with no other outcome timed out.
"""
_BACKOFF_FIRST: Final = 0.02
_BACKOFF_MAX: Final = 1.0
_NO_HOLE: Final = 1 << 62


class Shipper(Protocol):
    """Carries a lane's batches to the partition's leader; answers with `Lane.settled`, once per batch shipped."""

    def ship(self, lane: Lane, append: Append) -> None: ...
    def leader_lost(self, topic: bytes) -> None: ...
    def released(self, size: int) -> None: ...


class LaneOwner(Protocol):
    """The user of the lane; called when its slot epoch is of no more use."""

    def fenced(self, lane: Lane) -> None:
        """Kafka refuses the stamp: a newer epoch of the slot was opened."""

    def numbering_lost(self, lane: Lane) -> None:
        """The numbering can continue only under a new slot epoch. Either a plain session's batch was given up with an
        unknown outcome, or with no batch allowed after it; or Kafka refused an idempotent session's batch, and an
        earlier try of it may be in the log.
        """


@dataclass(slots=True, eq=False)
class Lane:
    """One partition under one slot epoch. Ends with it: a new epoch gets new lanes."""

    topic: bytes
    partition: int
    stamp: Stamp
    plain: PlainSequences | None
    _shipper: Shipper
    _owner: LaneOwner
    _random: random.Random
    topic_id: UUID | None = None
    table_head: bytes = field(init=False)
    route: tuple[int, Any] | None = None
    """Used by the shipper only: the connection to the leader, and the version of the view that it is valid for."""
    muted: bool = False
    """No new batch is sent."""
    retried: list[Append] = field(default_factory=list[Append])
    """Batches to be sent again, in no order. Empty unless the lane is muted."""
    failures: int = 0
    """Consecutive failures."""
    _queue: deque[Append] = field(default_factory=deque[Append])
    _in_flight: deque[Append] = field(default_factory=deque[Append])
    _alone: Append | None = None
    """The retried batch that is in flight."""
    _gap: Append | None = None
    """The first plain batch that was given up and is not in the log."""
    _hole: int = _NO_HOLE
    _timer: asyncio.TimerHandle | None = None
    _order: int = 0
    _closed: Outcome | None = None

    def __post_init__(self) -> None:
        self.table_head = table_head(self.topic, self.partition)

    @property
    def idle(self) -> bool:
        """Nothing waits, nothing is in flight."""
        return not (self._queue or self._in_flight or self.retried)

    @property
    def used(self) -> bool:
        """Whether a batch was sent, with any outcome."""
        return self._order > 0

    @property
    def flows(self) -> bool:
        """Whether a new batch would be sent at once."""
        return self._closed is None and not self.muted and not self._queue and len(self._in_flight) < MAX_IN_FLIGHT

    def append(self, append: Append) -> None:
        """Take a batch; its `done` is called once."""
        if self._closed is not None:
            self._finish(append, self._closed)
        elif self._queue or len(self._in_flight) >= MAX_IN_FLIGHT or self.muted:
            self._queue.append(append)
        else:
            self._ship(append)

    def foreign_topic(self) -> None:
        """Another topic now has the name, so the lane's batches must not reach it. The owner is called in the next turn
        of the loop: it closes the gate that may be handing over a batch right now.
        """
        if self._closed is None:
            asyncio.get_running_loop().call_soon(self._end_foreign)

    def _end_foreign(self) -> None:
        if self._closed is None:
            self._owner.fenced(self)

    def close(self, outcome: Outcome) -> None:
        """Ends the lane. Waiting batches get `outcome`; batches in flight get their own outcome if they are appended,
        else `outcome`.
        """
        if self._closed is not None:
            return
        self._closed = outcome
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting = [*self.retried, *self._queue]
        self.retried = []
        self._queue.clear()
        for append in waiting:
            self._finish(append, outcome)

    def _ship(self, append: Append) -> None:
        self.begin(append)
        self._shipper.ship(self, append)

    def begin(self, append: Append) -> None:
        """Stamps a batch that is sent now. A caller may do this while the lane `flows`; it then sends the batch, and
        reports its outcome by `acknowledged` or `settled`.
        """
        if append.sequence is None:
            assert self.plain is not None
            append.sequence = self.plain.take(append.records)
        if not append.stamped:
            record_batch.stamp(append.batch, 0, append.size, self.stamp.producer_id, self.stamp.epoch, append.sequence)
            append.stamped = True
        if not append.order:
            self._order += 1
            append.order = self._order
        self._in_flight.append(append)

    # Answers ------------------------------------------------------------------------------------------------------

    def overtakes(self, append: Append) -> bool:
        """Whether an earlier batch has failed and is not known to be appended by any leader."""
        if not self.muted or append is self._alone:
            return False
        return append.order > self._hole or any(
            earlier.order < append.order and not earlier.is_appended for earlier in self.retried
        )

    def acknowledged(self, append: Append, outcome: Outcome | None = None) -> None:
        """A batch that overtakes none is in the log. As `settled`, but `done` is not called: the caller answers the
        client. A witness gets the outcome.
        """
        self._in_flight.remove(append)
        if self.failures:
            self.failures = 0
        self._shipper.released(append.size)
        if append.space is not None:
            append.space.appended(append.client_sequence, append.client_records)
        if append.witness is not None:
            assert outcome is not None
            append.witness.landed(outcome)
        if self._queue or self.muted:
            self._go_on()

    def settled(self, append: Append, outcome: Outcome) -> None:
        """The leader's answer for a batch of this lane, or the loss of the connection as an outcome."""
        # Model: Ack.
        self._in_flight.remove(append)
        error = outcome.error
        if error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._appended(append, Outcome(ErrorCode.NONE, *outcome[1:]) if error else outcome)
        elif self._closed is not None:
            append.note(error)
            self._finish(append, self._closed)
        elif error in FENCED:
            self._owner.fenced(self)
            self._finish(append, self._closed or outcome)
        elif self._goes_again(append, error):
            append.note(error)
            self._failed(append, outcome)
            if error in STALE_ROUTE or error == ErrorCode.NETWORK_EXCEPTION:
                self._shipper.leader_lost(self.topic)
        else:
            self._refused(append, outcome)
        if append is self._alone:
            self._alone = None
        self._go_on()

    def _appended(self, append: Append, outcome: Outcome) -> None:
        if not self.overtakes(append):
            self.failures = 0
            self._finish(append, outcome)
            return
        append.in_doubt = True
        if self._closed is not None:
            self._finish(append, self._closed)
        else:  # its answer waits for the batch that it overtook
            append.error = outcome
            self.retried.append(append)

    def _goes_again(self, append: Append, error: int) -> bool:
        """Whether a failure is retried here rather than answered.

        45 is retried only after an earlier batch of this lane that failed too, or has no answer yet (where the leader
        moved between the two, the new one is the first to answer): alone it is Kafka's own verdict.
        """
        if error in NOT_APPENDED or error in APPEND_IN_DOUBT:
            return True
        if error != ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER or append is self._alone:
            return False
        return self.muted or any(earlier.order < append.order for earlier in self._in_flight)

    def _failed(self, append: Append, outcome: Outcome) -> None:
        """A batch has to be sent again: the lane sends no new batch until then."""
        self.failures += append is self._alone or not self.muted
        if outcome.error not in _OURS:
            append.error = outcome
        self.retried.append(append)
        self.muted = True

    def _refused(self, append: Append, outcome: Outcome) -> None:
        """Kafka refused the batch. An earlier try may still be in the log, unless the error is
        OUT_OF_ORDER_SEQUENCE_NUMBER: Kafka checks the sequence last, and recognises a batch that is in the log.
        Otherwise only the log shows it, after a fence; the client retries.
        """
        if not append.in_doubt or outcome.error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            self._drop(append, outcome)
        elif self.plain is not None:
            self._drop(append, TIMED_OUT)
        else:
            self._finish(append, TIMED_OUT)
            self._owner.numbering_lost(self)

    def _drop(self, append: Append, outcome: Outcome) -> None:
        """Gives a batch up. Kafka refuses the batches after the gap with OUT_OF_ORDER_SEQUENCE_NUMBER. An idempotent
        client gets that error, a plain one must not.
        """
        if self.plain is None:
            self._finish(append, outcome)
            return
        out_of_order = outcome.error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self._finish(append, TIMED_OUT if out_of_order else outcome)
        if self._closed is not None:
            return
        if append.in_doubt or out_of_order or append.is_in_order:
            self._owner.numbering_lost(self)
            return
        self.muted = True
        if self._gap is None or append.order < self._gap.order:
            self._gap = append

    def _finish(self, append: Append, outcome: Outcome) -> None:
        """Calls a batch's `done`, after its space and its witness."""
        self._shipper.released(append.size)
        if outcome.error and append.order and not append.is_appended and (self.muted or self._closed is not None):
            self.muted = True  # what comes after a batch that was given up proves nothing of it
            self._hole = min(self._hole, append.order)
        if append.space is not None:
            if not outcome.error:
                append.space.appended(append.client_sequence, append.client_records)
            elif append.in_doubt:
                append.space.doubted(append.client_sequence, append.client_records)
        if append.witness is not None:
            if not outcome.error:
                append.witness.landed(outcome)
            else:
                append.witness.failed(in_doubt=append.in_doubt)
        append.done(outcome)

    # Going on -----------------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Sends waiting batches, as far as the limit allows. While muted: recovers once no batch is in flight."""
        if self._closed is not None:
            return
        if not self.muted:
            while self._queue and len(self._in_flight) < MAX_IN_FLIGHT:
                self._ship(self._queue.popleft())
        elif not self._in_flight and self._timer is None:
            self._recover()

    def _recover(self) -> None:
        """No batch is in flight: sends the next batch to be retried, alone and in order, or ends the mute."""
        now = asyncio.get_running_loop().time()
        self.retried.sort(key=attrgetter("order"))
        self._close_gap()
        while self._closed is None and self.retried:
            append = self.retried[0]
            if not append.error.error:  # acknowledged already
                self._finish(self.retried.pop(0), append.error if append.order < self._hole else TIMED_OUT)
            elif append.deadline <= now:
                self._drop(self.retried.pop(0), append.error)
                self._close_gap()
            else:
                break
        while self._closed is None and self._queue and self._queue[0].deadline <= now:
            append = self._queue.popleft()
            self._finish(append, TIMED_OUT)
            if self.plain is not None and append.is_in_order:
                self._owner.numbering_lost(self)
        if self._closed is not None:
            return
        if not self.retried:
            self.muted, self._hole = False, _NO_HOLE
            self._go_on()
            return
        delay = self._backoff() if self.failures else 0.0
        self._timer = asyncio.get_running_loop().call_later(delay, self._resend)

    def _close_gap(self) -> None:
        """Numbers the batches after a given-up plain batch again: it is not in the log, so no later number is either.

        Not if the outcome of a later batch is in doubt: with the gap closed Kafka would append it after all, under a
        number that another batch has by then. Then the owner needs a new slot epoch.
        """
        gap, self._gap = self._gap, None
        if gap is None or self.plain is None or gap.sequence is None:
            return
        behind = [append for append in self.retried if append.order > gap.order]
        if any(append.in_doubt for append in behind):
            self._owner.numbering_lost(self)
            return
        self.plain.next = gap.sequence
        for append in behind:
            append.sequence, append.stamped = None, False

    def _resend(self) -> None:
        self._timer = None
        if self._closed is None and self.retried:
            self._alone = self.retried.pop(0)
            self._ship(self._alone)

    def _backoff(self) -> float:
        ceiling = min(_BACKOFF_MAX, _BACKOFF_FIRST * 2 ** min(self.failures - 1, 10))
        return ceiling * (0.5 + 0.5 * self._random.random())
