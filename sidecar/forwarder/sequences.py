"""A batch on its way, and the sequence that it is stamped with. Pure: docs/architecture.md "Sequences" has the theory.

Kafka judges gaps, repeats and order (KIP-98): a stamped sequence is the client's minus a base that is constant for
one slot epoch and partition, so every verdict of the broker about the stamped sequence holds for the client's. The
base never comes from the batch that happens to arrive first: clients pipeline, and librdkafka reports
overtaken batches as delivered.

Sequences count modulo 2^31, client epochs modulo 2^15 (librdkafka wraps from 32767 to 0). So "behind" and "ahead" are
defined only within bounds, and a base that lags by half of that range makes every new batch a repeat: acknowledged, and
in no log. Two bounds prevent that. A slot epoch ends `EPOCH_RECORDS` after its base (`Verdict.RENEW`). And only what
lies within `REPEAT_WINDOW` after the place where a batch is expected may be called a repeat.

Refused sequences count as used, as aiokafka never sends them again. Other clients do, under a new epoch, unless they
were answered: written behind them, a batch would be in the log before records that its client sent earlier. On a topic
with sequence ids those would then be taken for duplicates: acknowledged, and in no log. So the first batch behind
refused ones is answered with a retriable error once (`Verdict.UNHEARD`). Answers keep the order of requests, and a
client that has lost answers begins with the earliest batch that has none. So if the batch comes a second time on the
same connection, and no refused one did since, its client knows of the refusal and goes on all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from sidecar.forwarder.outcome import LONGEST_WAIT_MS, TIMED_OUT, Outcome, Witness
from sidecar.protocol.errors import APPEND_IN_DOUBT, ErrorCode
from sidecar.protocol.ids import NO_SEQUENCE, ClientSequence, StampedSequence

MODULUS: Final = 2**31
_TYPED_MODULUS: Final[Any] = MODULUS
"""A number modulo this is the kind of sequence that its place declares: a `NewType` is a Python call per batch."""
_HALF: Final = 2**30
EPOCH_RECORDS: Final = 2**28
"""Records of a session in one partition after which its slot epoch is replaced: 7 hours at 10,000 records per second.

An eighth of a round. What is in flight or in the forwarder's buffer comes on top, and `REPEAT_WINDOW` begins seven
eighths of a round less that window ahead of the base: nothing that is new gets there.
"""

REPEAT_WINDOW: Final = 2**27
"""How far behind the expected sequence a batch may begin and still be a repeat of one that is in the log.

What a client repeats is one of its batches in flight, five at most (KIP-98). A request is 100 MB at most
(socket.request.max.bytes), a record 7 bytes at least (DefaultRecord: six one-byte fields and its length), and Java
bounds a batch by its size before compression, librdkafka by 1,000,000 messages. So five batches hold 75 million records
at most, and 2^27 is 134 million. What begins farther behind is in no client's hands any more, or not behind but ahead.
"""
_FIRST: Final = StampedSequence(0)
_EPOCHS: Final = 2**15
_AHEAD: Final = 2**14
_SPANS_KEPT: Final = 16
_APPENDED: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
"""What a leader answers that has appended the batch, while its replicas have not."""


def place_behind(sequence: int) -> ClientSequence:
    """The sequence after something, as positions spell it: 1 to 2^31. There 0 says that nothing is in front; what
    wrapped to 0 is 2^31.
    """
    return ClientSequence((sequence - 1) % MODULUS + 1)


class Verdict(Enum):
    """What becomes of a batch of an idempotent session."""

    FORWARD = "stamp it and let Kafka judge"
    RENEW = "in order, but so far behind its base that the slot epoch has to be replaced first"
    STRAY = "neither near behind the next expected sequence nor near ahead of it: out of order"
    REPEAT = "below the base: in the log since an earlier slot epoch"
    REFUSED = "below the base: refused for good while another session owned the topic, and not in the log"
    UNHEARD = "right behind refused ones, of which its client may not have heard: it has to come once more"
    ASTRIDE = "begins below the base and ends above it: out of order, as Kafka would say of no batch that it knows"
    FORGOTTEN = "so far below the base that it is not known whether it was refused or is in the log: out of order"
    RAISE = "the client raised its epoch here: a new slot epoch, base 0 on this partition"
    WAIT = "a raised epoch that does not begin at 0: out of order until its first batch comes"
    STALE = "an epoch that the client itself has left"


@dataclass(slots=True)
class SequenceSpace:
    """The sequences of one idempotent session on one partition, within one slot epoch.

    `client_epoch` and `base` are those of the newest `Serving`; `next` is the client sequence after the last one
    known to be in the log (`base` before any); `written` whether the session has, or may have, anything on this
    partition; `reach` the sequence after the last batch of unknown outcome; `refused` what is below the base without
    being in the log. `limit` is how many records the slot epoch may have here. `has_past`: something of this client
    epoch is below the base. Without it nothing there is a repeat: base 0 alone says that the session is new, or raised
    its epoch, not that its sequences wrapped. `unheard`: the base is behind refused sequences, and the client may not
    know of that.
    """

    client_epoch: int
    base: ClientSequence
    next: ClientSequence
    written: bool = False
    reach: int | None = None
    refused: RefusedSequences | None = None
    limit: int = EPOCH_RECORDS
    has_past: bool = field(init=False)
    unheard: bool = field(init=False)
    _asked_on: int | None = field(default=None, init=False)
    """The connection whose batch at the base was answered UNHEARD; none of it was answered REFUSED since."""

    def __post_init__(self) -> None:
        self.has_past = self.written
        refused = self.refused
        self.unheard = refused is not None and refused.client_epoch == self.client_epoch and refused.ends_at(self.base)

    def judge(self, epoch: int, sequence: ClientSequence, records: int) -> Verdict:
        """What to do with a batch of `records` that begins at `sequence` of client epoch `epoch`."""
        if epoch != self.client_epoch:
            if self.written and not 0 < (epoch - self.client_epoch) % _EPOCHS < _AHEAD:
                return Verdict.STALE
            return Verdict.RAISE if sequence == 0 else Verdict.WAIT
        if (sequence - self.base) % MODULUS < self.limit:
            return Verdict.UNHEARD if self.unheard and sequence == self.base else Verdict.FORWARD
        below = (self.base - sequence) % MODULUS
        if self.has_past and below <= REPEAT_WINDOW >= (self.next - sequence) % MODULUS:
            refused = self.refused
            if refused is not None and refused.client_epoch == epoch:
                if refused.touches(sequence, records):
                    return Verdict.REFUSED
                if refused.may_have_forgotten(sequence):
                    return Verdict.FORGOTTEN
            return Verdict.REPEAT if below >= records else Verdict.ASTRIDE
        if (self.next - self.base) % MODULUS >= self.limit:
            return Verdict.RENEW  # by what is in the log: a batch far ahead cannot end an epoch
        return Verdict.FORWARD if (sequence - self.next) % MODULUS < REPEAT_WINDOW else Verdict.STRAY

    def is_heard_on(self, connection: int) -> bool:
        """Whether a batch that is UNHEARD shows by coming on this connection that its client knows of the refusal. Then
        it goes on, and none is UNHEARD any more.
        """
        if self._asked_on == connection:
            self.unheard = False
        return not self.unheard

    def answered(self, verdict: Verdict, connection: int) -> None:
        """A batch of this connection is answered by its verdict."""
        if verdict is Verdict.UNHEARD:
            self._asked_on = connection
        elif verdict is Verdict.REFUSED:
            self._asked_on = None

    def stamped(self, sequence: ClientSequence) -> StampedSequence:
        """The sequence for Kafka."""
        return (sequence - self.base) % _TYPED_MODULUS

    def sent(self) -> None:
        """Something of the session may be on this partition from now on."""
        self.written = True

    def appended(self, sequence: ClientSequence, records: int) -> None:
        """A batch is known to be in the log."""
        # Model: Answered.
        reached: ClientSequence = (sequence + records) % _TYPED_MODULUS
        if (reached - self.next) % MODULUS < _HALF:
            self.next = reached

    def doubted(self, sequence: ClientSequence, records: int) -> None:
        """A batch was given up that may be in the log, or still get there: one near `next`, as Kafka refuses others."""
        # Model: GiveUp.
        ahead = (sequence + records - self.next) % MODULUS
        if ahead < _HALF and (self.reach is None or self.certain or ahead > (self.reach - self.next) % MODULUS):
            self.reach = (sequence + records) % MODULUS

    @property
    def certain(self) -> bool:
        """Whether `next` is complete: False while a batch after it may be in the log."""
        return self.reach is None or (self.next - self.reach) % MODULUS < _HALF

    @property
    def stands_at(self) -> ClientSequence:
        """`next` as positions spell it: see `place_behind`."""
        return self.next or ClientSequence(MODULUS if self.has_past or self.base else 0)


@dataclass(slots=True)
class PlainSequences:
    """The numbering of a session without sequences (no idempotence): the node counts records itself, from 0."""

    next: StampedSequence = _FIRST

    def take(self, records: int) -> StampedSequence:
        """The sequence of a batch, and count on."""
        found = self.next
        self.next = (found + records) % _TYPED_MODULUS
        return found


@dataclass(slots=True)
class RefusedSequences:
    """Sequences that this node answered with a final error: the client counts them as used (aiokafka never goes back).

    `spans` are (first, after the last), neither touching nor overlapping, in order, the highest 16. They say nothing
    of where the session's sequences begin: a caller that knows that asks what lies `behind` it. Below 16 of them there
    may have been others: a batch from there is neither known to be in the log nor to have been refused.
    """

    client_epoch: int
    spans: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def refused(self, epoch: int, sequence: ClientSequence, records: int) -> None:
        """A batch got a final error."""
        if epoch != self.client_epoch:
            if (epoch - self.client_epoch) % _EPOCHS >= _AHEAD:
                return
            self.client_epoch, self.spans = epoch, []
        first, length = sequence, records
        apart: list[tuple[int, int]] = []
        for its_first, its_behind in self.spans:
            its_length = (its_behind - its_first) % MODULUS
            if (its_first - first) % MODULUS <= length:
                length = max(length, (its_first - first) % MODULUS + its_length)
            elif (first - its_first) % MODULUS <= its_length:
                length = max(its_length, (first - its_first) % MODULUS + length)
                first = its_first
            else:
                apart.append((its_first, its_behind))
        if length >= MODULUS:  # a client that is refused for days comes round to where it began: the newest one counts
            first, length = sequence + records + 1, MODULUS - 1
        apart.append((first % MODULUS, (first + length) % MODULUS))
        highest = apart[0][0]
        for its_first, _ in apart:
            if (its_first - highest) % MODULUS < _HALF:
                highest = its_first
        apart.sort(key=lambda span: (highest - span[0]) % MODULUS, reverse=True)
        self.spans = apart[-_SPANS_KEPT:]

    def touches(self, sequence: ClientSequence, records: int) -> bool:
        """Whether any of these records was refused."""
        return any(
            (sequence - first) % MODULUS < (behind - first) % MODULUS or (first - sequence) % MODULUS < records
            for first, behind in self.spans
        )

    def ends_at(self, sequence: ClientSequence) -> bool:
        """Whether the sequence is the first one behind refused ones."""
        return any(behind == sequence for _, behind in self.spans)

    def may_have_forgotten(self, sequence: ClientSequence) -> bool:
        """Whether a span that a batch from here belonged to may be forgotten: it lies below all that are known."""
        return len(self.spans) >= _SPANS_KEPT and 0 < (self.spans[0][0] - sequence) % MODULUS < _HALF

    def behind(self, expected: ClientSequence) -> ClientSequence:
        """What the client sends next, as positions spell it, where `expected` would be next if none of these had been
        refused.
        """
        for first, behind in self.spans:
            if (expected - first) % MODULUS < (behind - first) % MODULUS:
                return place_behind(behind)
        return expected


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
