"""Which sequence a batch of a session is stamped with. Pure: docs/architecture.md "Sequences" has the theory.

Kafka stays the judge of gaps, repeats and order: a stamped sequence is the client's minus a base that is constant for
one slot epoch and partition, so every verdict of the broker about the stamped sequence holds for the client's. The
base never comes from the batch that happens to arrive first: clients pipeline, and librdkafka reports batches as
delivered that were overtaken.

Sequences count modulo 2^31, client epochs modulo 2^15 (librdkafka wraps from 32767 to 0).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

MODULUS: Final = 2**31
_HALF: Final = 2**30
_EPOCHS: Final = 2**15
_AHEAD: Final = 2**14
_SPANS_KEPT: Final = 16


class Verdict(Enum):
    """What becomes of a batch of an idempotent session."""

    FORWARD = "stamp it and let Kafka judge"
    REPEAT = "below the base: in the log since an earlier slot epoch"
    REFUSED = "below the base: refused for good while another session owned the topic, and not in the log"
    ASTRIDE = "begins below the base and ends above it: out of order, as Kafka would say of no batch that it knows"
    RAISE = "the client raised its epoch here: a new slot epoch, base 0 on this partition"
    WAIT = "a raised epoch that does not begin at 0: out of order until its first batch comes"
    STALE = "an epoch that the client itself has left"


@dataclass(slots=True)
class SequenceSpace:
    """The sequences of one idempotent session on one partition, within one slot epoch.

    `client_epoch` and `base` are those of the newest `Serving`; `next` is the client sequence behind the last one
    known to be in the log (`base` before any); `written` whether the session has, or may have, anything on this
    partition; `reach` the sequence behind the last batch of unknown outcome; `refused` what is below the base without
    being in the log.
    """

    client_epoch: int
    base: int
    next: int
    written: bool = False
    reach: int | None = None
    refused: RefusedSequences | None = None

    def judge(self, epoch: int, sequence: int, records: int) -> Verdict:
        """What to do with a batch of `records` that begins at `sequence` of client epoch `epoch`."""
        if epoch != self.client_epoch:
            if self.written and not 0 < (epoch - self.client_epoch) % _EPOCHS < _AHEAD:
                return Verdict.STALE
            return Verdict.RAISE if sequence == 0 else Verdict.WAIT
        if (sequence - self.base) % MODULUS >= _HALF:
            refused = self.refused
            if refused is not None and refused.client_epoch == epoch and refused.touches(sequence, records):
                return Verdict.REFUSED
            return Verdict.REPEAT if (self.base - sequence) % MODULUS >= records else Verdict.ASTRIDE
        return Verdict.FORWARD

    def stamped(self, sequence: int) -> int:
        """The sequence for Kafka."""
        return (sequence - self.base) % MODULUS

    def sent(self) -> None:
        """Something of the session may be on this partition from now on."""
        self.written = True

    def appended(self, sequence: int, records: int) -> None:
        """A batch is known to be in the log."""
        behind = (sequence + records) % MODULUS
        if (behind - self.next) % MODULUS < _HALF:
            self.next = behind

    def doubted(self, sequence: int, records: int) -> None:
        """A batch was given up that may be in the log, or still get there."""
        behind = (sequence + records) % MODULUS
        if self.reach is None or (behind - self.reach) % MODULUS < _HALF:
            self.reach = behind

    @property
    def certain(self) -> bool:
        """Whether `next` tells all: False while a batch behind it may be in the log."""
        return self.reach is None or (self.next - self.reach) % MODULUS < _HALF


@dataclass(slots=True)
class PlainSequences:
    """The numbering of a session without sequences (no idempotence): the node counts records itself, from 0."""

    next: int = 0

    def take(self, records: int) -> int:
        """The sequence of a batch, and count on."""
        found = self.next
        self.next = (found + records) % MODULUS
        return found

    def rewind(self, sequence: int) -> None:
        """The batches from `sequence` on are not in the log: count anew from there."""
        self.next = sequence


@dataclass(slots=True)
class RefusedSequences:
    """Sequences that this node answered with a final error: the client counts them as used (aiokafka never goes back).

    `spans` are (first, behind the last), neither touching nor overlapping, the newest 16. They say nothing of where
    the session's sequences begin: who knows that asks what lies `behind` it.
    """

    client_epoch: int
    spans: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def refused(self, epoch: int, sequence: int, records: int) -> None:
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
        self.spans = [*apart, (first, (first + length) % MODULUS)][-_SPANS_KEPT:]

    def touches(self, sequence: int, records: int) -> bool:
        """Whether any of these records was refused."""
        return any(
            (sequence - first) % MODULUS < (behind - first) % MODULUS or (first - sequence) % MODULUS < records
            for first, behind in self.spans
        )

    def behind(self, expected: int) -> int:
        """What the client sends next, where `expected` would be next if none of these had been refused."""
        for first, behind in self.spans:
            if (expected - first) % MODULUS < (behind - first) % MODULUS:
                return behind
        return expected
