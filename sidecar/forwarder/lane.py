"""One batch on its way, and the order of one partition: at most five batches in flight, muted at the first failure,
retried one by one in order (`recovery`).

Why five: a broker remembers the last five batches of a producer id and recognises repeats of these (KIP-98,
KAFKA-5494).

Numbering. A batch of an idempotent session keeps its stamped sequence through all retries. The node numbers the batches
of a plain session: one that is known not to be in the log returns its number, one whose outcome is unknown keeps it
until it is known. An unanswered batch may get into the log much later, when a stopped broker resumes. So may one that a
leader answered with 6 NOT_LEADER_OR_FOLLOWER, because a leader also answers this if it lost its role after the append.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from uuid import UUID

from sidecar.forwarder.outcome import LONGEST_WAIT_MS, TIMED_OUT, Outcome, Witness
from sidecar.forwarder.recovery import Recovery
from sidecar.forwarder.sequences import PlainSequences, SequenceSpace
from sidecar.protocol import batch as record_batch
from sidecar.protocol.errors import APPEND_IN_DOUBT, NOT_APPENDED, STALE_ROUTE, ErrorCode
from sidecar.protocol.ids import NO_SEQUENCE, ClientSequence, Stamp, StampedSequence
from sidecar.protocol.produce_upstream import table_head

MAX_IN_FLIGHT: Final = 5
_APPENDED: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
"""What a leader answers that has appended the batch, while its replicas have not."""

FENCED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)


class Append:
    """One batch on its way. `sequence` is the stamped one, None while a plain session's batch has no number; of an
    idempotent session's batch it knows the space and the client's own sequences there. `witness`: somebody who keeps
    count of what is in the log.
    """

    __slots__ = (
        "batch", "client_records", "client_sequence", "deadline", "done", "error", "in_doubt",
        "is_appended", "order", "records", "sequence", "size", "space", "stamped", "upstream_timeout_ms", "witness",
    )  # fmt: skip

    def __init__(
        self,
        batch: memoryview,
        records: int,
        deadline: float,
        upstream_timeout_ms: int,
        done: Callable[[Outcome], None],
    ) -> None:
        self.batch = batch
        self.size = len(batch)
        self.records = self.client_records = records
        self.witness: Witness | None = None
        self.sequence: StampedSequence | None = None
        self.space: SequenceSpace | None = None
        self.client_sequence = NO_SEQUENCE
        self.deadline = deadline
        if not 0 <= upstream_timeout_ms <= LONGEST_WAIT_MS:
            upstream_timeout_ms = 0 if upstream_timeout_ms < 0 else LONGEST_WAIT_MS
        self.upstream_timeout_ms = upstream_timeout_ms
        self.done = done
        self.order = 0
        self.stamped = False
        self.in_doubt = False
        self.is_appended = False
        """A leader said that it had it, though perhaps not all its replicas."""
        self.error = TIMED_OUT

    def belongs(self, space: SequenceSpace, client_sequence: ClientSequence) -> None:
        """It is an idempotent session's: stamped by its space, which hears when it is in the log."""
        self.space = space
        self.client_sequence = client_sequence
        self.sequence = space.stamped(client_sequence)
        space.sent()

    @property
    def is_in_order(self) -> bool:
        """See `Witness`."""
        return self.witness is not None and self.witness.in_order

    def note(self, error: int) -> None:
        """What an error says of whether it is in the log."""
        self.in_doubt = self.in_doubt or error in APPEND_IN_DOUBT
        self.is_appended = self.is_appended or error in _APPENDED


class Shipper(Protocol):
    """Carries a lane's batches to the partition's leader; answers with `Lane.settled`, once per batch shipped."""

    def ship(self, lane: Lane, append: Append) -> None: ...
    def leader_lost(self, topic: bytes) -> None: ...
    def released(self, size: int) -> None: ...


class LaneOwner(Protocol):
    """The user of the lane; called when its slot epoch is of no more use."""

    def fenced(self, lane: Lane) -> None:
        """Kafka refuses the stamp: somebody opened a newer epoch."""
        ...

    def numbering_lost(self, lane: Lane) -> None:
        """A plain session's batch was given up with its outcome unknown, or with nothing allowed after it: only a new
        slot epoch can count on. So it is where Kafka refused an idempotent session's batch of which an earlier try may
        be in the log.
        """
        ...


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
    """The shipper's own: the version of the view by which it is right, and the connection to the leader."""
    _queue: deque[Append] = field(default_factory=deque[Append])
    _in_flight: deque[Append] = field(default_factory=deque[Append])
    _recovery: Recovery[Append] | None = None
    """None until something fails: most lanes never need one."""
    _order: int = 0
    _closed: Outcome | None = None

    def __post_init__(self) -> None:
        self.table_head = table_head(self.topic, self.partition)

    @property
    def idle(self) -> bool:
        """Nothing waits, nothing is in flight."""
        return not (self._queue or self._in_flight or self.retried)

    @property
    def retried(self) -> Sequence[Append]:
        """What waits to be sent again."""
        return () if self._recovery is None else self._recovery.retry

    @property
    def used(self) -> bool:
        """Something was sent, whatever became of it."""
        return self._order > 0

    @property
    def muted(self) -> bool:
        """Nothing new goes out."""
        return self._recovery is not None and self._recovery.muted

    @property
    def is_closed(self) -> bool:
        """Its slot epoch is over."""
        return self._closed is not None

    @property
    def flows(self) -> bool:
        """Whether a batch that came now would go out at once."""
        recovery = self._recovery
        return (
            self._closed is None
            and (recovery is None or not recovery.muted)
            and not self._queue
            and len(self._in_flight) < MAX_IN_FLIGHT
        )

    def append(self, append: Append) -> None:
        """Take a batch; its `done` is called once."""
        recovery = self._recovery
        if self._closed is not None:
            self.finish(append, self._closed)
        elif self._queue or len(self._in_flight) >= MAX_IN_FLIGHT or (recovery is not None and recovery.muted):
            self._queue.append(append)
        else:
            self.ship(append)

    def foreign_topic(self) -> None:
        """Another topic has taken the name: nothing of this lane's epoch belongs there. Its owner hears of it in the
        next turn, as that closes what a batch came through: a gate hands one over while it stands in front.
        """
        if self._closed is None:
            asyncio.get_running_loop().call_soon(self._end_foreign)

    def _end_foreign(self) -> None:
        if self._closed is None:
            self._owner.fenced(self)

    def close(self, outcome: Outcome) -> None:
        """End the lane: what waits is answered with `outcome`, what is in flight with its own, or `outcome` if it
        failed.
        """
        if self._closed is not None:
            return
        self._closed = outcome
        waiting = [*(() if self._recovery is None else self._recovery.close()), *self._queue]
        self._queue.clear()
        for append in waiting:
            self.finish(append, outcome)

    def ship(self, append: Append) -> None:
        """Send a batch now."""
        self.begin(append)
        self._shipper.ship(self, append)

    def begin(self, append: Append) -> None:
        """Stamp a batch that goes out now. A caller that does this while the lane `flows` sends it and reports its
        outcome by `acknowledged` or `settled`.
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
        """Whether an earlier batch has failed that no leader is known to have appended."""
        return self._recovery is not None and self._recovery.overtakes(append)

    def acknowledged(self, append: Append, outcome: Outcome | None = None) -> None:
        """A batch that overtakes none is in the log, and its client is answered elsewhere: as `settled`, without
        `done`. A witness hears the outcome.
        """
        recovery = self._recovery
        self._in_flight.remove(append)
        if recovery is not None:
            recovery.failures = 0
        self._shipper.released(append.size)
        if append.space is not None:
            append.space.appended(append.client_sequence, append.client_records)
        if append.witness is not None:
            assert outcome is not None
            append.witness.landed(outcome)
        if self._queue or (recovery is not None and recovery.muted):
            self.go_on()

    def settled(self, append: Append, outcome: Outcome) -> None:
        """The leader's answer for a batch of this lane, or the loss of the connection as an outcome."""
        # Model: Ack.
        self._in_flight.remove(append)
        error = outcome.error
        if error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._appended(append, Outcome(ErrorCode.NONE, *outcome[1:]) if error else outcome)
        elif self._closed is not None:
            append.note(error)
            self.finish(append, self._closed)
        elif error in FENCED:
            self._owner.fenced(self)
            self.finish(append, self._closed or outcome)
        elif self._goes_again(append, error):
            append.note(error)
            self._recover().failed(append, outcome)
            if error in STALE_ROUTE or error == ErrorCode.NETWORK_EXCEPTION:
                self._shipper.leader_lost(self.topic)
        else:
            self._recover().refused(append, outcome)
        if self._recovery is not None and append is self._recovery.alone:
            self._recovery.alone = None
        self.go_on()

    def _recover(self) -> Recovery[Append]:
        if self._recovery is None:
            self._recovery = Recovery(self, self._random)
        return self._recovery

    def _appended(self, append: Append, outcome: Outcome) -> None:
        if not self.overtakes(append):
            if self._recovery is not None:
                self._recovery.failures = 0
            self.finish(append, outcome)
            return
        append.in_doubt = True
        if self._closed is not None:
            self.finish(append, self._closed)
        else:
            self._recover().wait(append, outcome)

    def _goes_again(self, append: Append, error: int) -> bool:
        """Whether a failure is retried here rather than answered.

        45 is retried only after an earlier batch of this lane that failed too, or has no answer yet (where the leader
        moved between the two, the new one is the first to answer): alone it is Kafka's own verdict.
        """
        if error in NOT_APPENDED or error in APPEND_IN_DOUBT:
            return True
        recovery = self._recovery
        if error != ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER or (recovery is not None and append is recovery.alone):
            return False
        return self.muted or any(earlier.order < append.order for earlier in self._in_flight)

    def go_on(self) -> None:
        """Send what waits, as far as there is room; while muted, once everything is back, what has to go again."""
        if self._closed is not None:
            return
        if self._recovery is None or not self._recovery.muted:
            while self._queue and len(self._in_flight) < MAX_IN_FLIGHT:
                self.ship(self._queue.popleft())
        elif not self._in_flight:
            self._recovery.go_on()

    def drop_late(self, now: float) -> None:
        """Answer what waits behind a mute and has no time left."""
        while self._closed is None and self._queue and self._queue[0].deadline <= now:
            append = self._queue.popleft()
            self.finish(append, TIMED_OUT)
            if self.plain is not None and append.is_in_order:
                self._owner.numbering_lost(self)

    def numbering_lost(self) -> None:
        """Only a new slot epoch can count on."""
        self._owner.numbering_lost(self)

    def finish(self, append: Append, outcome: Outcome) -> None:
        """Answer a batch; what keeps count of it hears first."""
        self._shipper.released(append.size)
        if outcome.error and append.order and not append.is_appended and (self.muted or self._closed is not None):
            self._recover().left_out(append)
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
