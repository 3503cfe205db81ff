"""The order of one idempotent session's batches in one partition of a topic with sequence ids. Pure.

Once records are dropped, the sequences that Kafka sees are not the client's any more, so the node checks those itself:
a gap is answered 45 OUT_OF_ORDER_SEQUENCE_NUMBER before any id is looked at, as Kafka would (KIP-98). Without that
librdkafka reports overtaken batches as delivered (docs/architecture.md, "Sequences").
"""

from collections import deque
from enum import Enum
from typing import Final

from sidecar.forwarder.sequences import MODULUS, REPEAT_WINDOW
from sidecar.protocol.ids import ClientSequence

_HALF: Final = 2**30
KEPT: Final = 5
"""Batches whose repeats get their own answer, as many as a broker remembers (KIP-98)."""


class OrderVerdict(Enum):
    """Where a batch stands."""

    NEXT = "the next one"
    GAP = "ahead of one that is missing, or nowhere near: out of order (45)"
    REPEAT = "one of those that came last"
    OLD = "in front of them: in the log, or dropped as a duplicate"
    ASTRIDE = "overlaps what came before: out of order, as Kafka would say of no batch that it knows"


class Passed:
    """A batch that went through; `answer` is None until it has an outcome."""

    __slots__ = ("answer", "first", "records")

    def __init__(self, first: ClientSequence, records: int) -> None:
        self.first = first
        self.records = records
        self.answer: tuple[int, int, int] | None = None
        """Offset, log append time, log start offset; -1 each where nothing was written."""


class ClientOrder:
    """`expected` is the client's next sequence, modulo 2^31; everything in front of `_reached` is in the
    log, or dropped.
    """

    __slots__ = ("_begin", "_has_past", "_passed", "_reached", "expected")

    def __init__(self, expected: ClientSequence, *, has_past: bool = True) -> None:
        """`has_past`: the client's sequences in front of `expected` are in the log; without it there were none."""
        self.expected: int = expected
        self._reached: int = expected
        self._begin = expected
        self._has_past = has_past
        self._passed: deque[Passed] = deque(maxlen=KEPT)

    def place(self, first: ClientSequence, records: int) -> OrderVerdict:
        """Where a batch of so many records stands."""
        ahead = (first - self.expected) % MODULUS
        if not ahead:
            return OrderVerdict.NEXT
        if ahead < _HALF:
            return OrderVerdict.GAP
        if self.passed(first, records) is not None:
            return OrderVerdict.REPEAT
        behind = MODULUS - ahead
        if behind > REPEAT_WINDOW or not (self._has_past or behind <= (self.expected - self._begin) % MODULUS):
            return OrderVerdict.GAP
        return OrderVerdict.OLD if behind >= records else OrderVerdict.ASTRIDE

    def passed(self, first: ClientSequence, records: int) -> Passed | None:
        """The batch that this one repeats."""
        return next((found for found in self._passed if (found.first, found.records) == (first, records)), None)

    def take(self, first: ClientSequence, records: int) -> Passed:
        """The next batch goes through."""
        found = Passed(first, records)
        self._passed.append(found)
        self.expected = (first + records) % MODULUS
        return found

    def landed(self, batch: Passed, answer: tuple[int, int, int]) -> None:
        """It is in the log or needs not be; so is everything in front of it."""
        batch.answer = answer
        behind = (batch.first + batch.records) % MODULUS
        if (behind - self._reached) % MODULUS < _HALF:
            self._reached = behind
        if (behind - self.expected) % MODULUS < _HALF:
            self.expected = behind

    def failed(self, batch: Passed) -> bool:
        """It was given up: its client sends it again, and what is behind it cannot get into the log before. False where
        something after it is there already: then so is this one, and its client gets that answer when it sends it
        again.
        """
        if batch in self._passed:
            self._passed.remove(batch)
        if (batch.first - self._reached) % MODULUS >= _HALF:
            return False
        if (batch.first - self.expected) % MODULUS >= _HALF:
            self.expected = batch.first
        return True
