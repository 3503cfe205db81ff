"""Which sequence a batch of a session is stamped with. Pure: docs/architecture.md "Sequences" has the theory.

Kafka stays the judge of gaps, repeats and order: a stamped sequence is the client's minus a base that is constant for
one slot epoch and partition, so every verdict of the broker about the stamped sequence holds for the client's. The
base never comes from the batch that happens to arrive first: clients pipeline, and librdkafka reports batches as
delivered that were overtaken.

Sequences count modulo 2^31, client epochs modulo 2^15 (librdkafka wraps from 32767 to 0).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

MODULUS: Final = 2**31
_HALF: Final = 2**30
_EPOCHS: Final = 2**15
_AHEAD: Final = 2**14


class Verdict(Enum):
    """What becomes of a batch of an idempotent session."""

    FORWARD = "stamp it and let Kafka judge"
    REPEAT = "below the base: in the log since an earlier slot epoch"
    RAISE = "the client raised its epoch here: a new slot epoch, base 0 on this partition"
    WAIT = "a raised epoch that does not begin at 0: out of order until its first batch comes"
    STALE = "an epoch that the client itself has left"


@dataclass(slots=True)
class SequenceSpace:
    """The sequences of one idempotent session on one partition, within one slot epoch.

    `client_epoch` and `base` are those of the newest `Serving`; `next` is the client sequence behind the last one
    known to be in the log (`base` before any); `written` whether the session has, or may have, anything on this
    partition.
    """

    client_epoch: int
    base: int
    next: int
    written: bool = False

    def judge(self, epoch: int, sequence: int) -> Verdict:
        """What to do with a batch that begins at `sequence` of client epoch `epoch`."""
        if epoch != self.client_epoch:
            if self.written and not 0 < (epoch - self.client_epoch) % _EPOCHS < _AHEAD:
                return Verdict.STALE
            return Verdict.RAISE if sequence == 0 else Verdict.WAIT
        if (sequence - self.base) % MODULUS >= _HALF:
            return Verdict.REPEAT
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

    `next` is what the client sends next if it goes on behind the refused ones.
    """

    client_epoch: int
    next: int = 0

    def refused(self, epoch: int, sequence: int, records: int) -> None:
        """A batch got a final error."""
        if epoch != self.client_epoch:
            self.client_epoch, self.next = epoch, 0
        if sequence == self.next:
            self.next = (sequence + records) % MODULUS
