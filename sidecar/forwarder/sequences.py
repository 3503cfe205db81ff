"""A batch on its way, and its stamped sequence. Pure: docs/internals/architecture.md "Sequences" has the theory.

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
"""`MODULUS` as `Any`: a result modulo it needs no conversion to a `NewType`, which would be a call per batch."""
_HALF: Final = 2**30
EPOCH_RECORDS: Final = 2**28
"""Records of a session in one partition after which its slot epoch is replaced: 7 hours at 10,000 records per second.

An eighth of the modulus. Batches in flight and in the forwarder's buffer are added to it. `REPEAT_WINDOW` ends at the
base, so it begins 2^31 - 2^27 ahead of it: no new batch can reach it.
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
"""The errors of a leader that has appended the batch, while its replicas have not."""


def place_behind(sequence: int) -> ClientSequence:
    """Converts the sequence after a batch to the form used in positions, 1 to 2^31. In positions 0 means that no batch
    came before; a sequence that wrapped to 0 is written as 2^31.
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
        """Decides on a batch of `records` records that begins at `sequence` of client epoch `epoch`."""
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
        """Whether the client knows of the refusal, because it sent an UNHEARD batch again on the same connection. If
        so, the batch is forwarded, and no batch is UNHEARD any more.
        """
        if self._asked_on == connection:
            self.unheard = False
        return not self.unheard

    def answered(self, verdict: Verdict, connection: int) -> None:
        """A batch of this connection was answered according to `verdict`."""
        if verdict is Verdict.UNHEARD:
            self._asked_on = connection
        elif verdict is Verdict.REFUSED:
            self._asked_on = None

    def stamped(self, sequence: ClientSequence) -> StampedSequence:
        """The sequence for Kafka."""
        return (sequence - self.base) % _TYPED_MODULUS

    def sent(self) -> None:
        """From now on a batch of the session may be in this partition."""
        self.written = True

    def appended(self, sequence: ClientSequence, records: int) -> None:
        """A batch is known to be in the log."""
        # Model: Answered.
        reached: ClientSequence = (sequence + records) % _TYPED_MODULUS
        if (reached - self.next) % MODULUS < _HALF:
            self.next = reached

    def doubted(self, sequence: ClientSequence, records: int) -> None:
        """A given-up batch may be in the log, or still be appended: only one near `next`, as Kafka refuses others."""
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
        """`next` in the form used in positions: see `place_behind`."""
        return self.next or ClientSequence(MODULUS if self.has_past or self.base else 0)


@dataclass(slots=True)
class PlainSequences:
    """The numbering of a session without sequences (no idempotence): the node counts records itself, from 0."""

    next: StampedSequence = _FIRST

    def take(self, records: int) -> StampedSequence:
        """Returns a batch's sequence, and advances by its records."""
        found = self.next
        self.next = (found + records) % _TYPED_MODULUS
        return found


@dataclass(slots=True)
class RefusedSequences:
    """Sequences that this node answered with a final error: the client counts them as used (aiokafka never goes back).

    `spans` are the highest 16 ranges (first, after the last) in order; they neither touch nor overlap. They do not show
    where the session's sequences begin: for a known beginning `behind` returns the next sequence. With 16 ranges, lower
    ones may have been dropped: of a batch below them it is not known whether it was refused or is in the log.
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
        """Whether the sequence is the first one after refused sequences."""
        return any(behind == sequence for _, behind in self.spans)

    def may_have_forgotten(self, sequence: ClientSequence) -> bool:
        """Whether this batch's span may have been dropped: the sequence is below all known spans."""
        return len(self.spans) >= _SPANS_KEPT and 0 < (self.spans[0][0] - sequence) % MODULUS < _HALF

    def behind(self, expected: ClientSequence) -> ClientSequence:
        """Returns the client's next sequence, in the form used in positions. `expected` would be next without the
        refusals.
        """
        for first, behind in self.spans:
            if (expected - first) % MODULUS < (behind - first) % MODULUS:
                return place_behind(behind)
        return expected


class Append:
    """A batch to be appended. `sequence` is the stamped sequence, None while a plain session's batch has no number. For
    an idempotent session, `space` and `client_sequence` are its sequence space and the client's sequence. `witness`
    tracks the log's contents.
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
        """A leader reported that it has appended the batch, though perhaps not all replicas have."""
        self.error = TIMED_OUT

    def belongs(self, space: SequenceSpace, client_sequence: ClientSequence) -> None:
        """Marks it as an idempotent session's batch: `space` gives its sequence, and is called once it is appended."""
        self.space = space
        self.client_sequence = client_sequence
        self.sequence = space.stamped(client_sequence)
        space.sent()

    @property
    def is_in_order(self) -> bool:
        """See `Witness`."""
        return self.witness is not None and self.witness.in_order

    def note(self, error: int) -> None:
        """Records what an error shows about whether the batch is in the log."""
        self.in_doubt = self.in_doubt or error in APPEND_IN_DOUBT
        self.is_appended = self.is_appended or error in _APPENDED
