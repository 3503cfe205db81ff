"""The batches of one session in one partition. At the gate: their content. In the lane: what each batch changes in the
marks and in the client's order, once its outcome is known.

After a record is dropped, the sequences that Kafka sees differ from the client's. So the node checks the client's
sequences itself (`ClientOrder`, pure). It refuses a gap with 45 OUT_OF_ORDER_SEQUENCE_NUMBER before it reads any id, as
Kafka would (KIP-98). Without that check librdkafka reports overtaken batches as delivered
(docs/internals/architecture.md, "Sequences").
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from sidecar.dedup.content import Content, Headers, TooLargeAtOnceError
from sidecar.dedup.marks import Pushed, UnderWay
from sidecar.dedup.partition import PartitionIds
from sidecar.dedup.reply import Reply
from sidecar.forwarder.lane import Lane
from sidecar.forwarder.outcome import Outcome
from sidecar.forwarder.sequences import MODULUS, REPEAT_WINDOW, Append, SequenceSpace
from sidecar.network.turn import TURN
from sidecar.protocol import limits
from sidecar.protocol.batch import HEADER_BYTES
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.ids import ClientSequence
from sidecar.protocol.records import RecordIds

_BYTES_AN_ELEMENT: Final = 8 * 1024
"""Opened bytes that take as long as one element of a request."""


class Session(NamedTuple):
    """The writer: its session id, its producer name (None if it has none), and the producer id of its slot."""

    id: str
    name: bytes | None
    producer_id: int


@dataclass(slots=True, eq=False)
class Arrival:
    """A batch at the gate. `first` is the client's base sequence, -1 for a plain session."""

    batch: memoryview
    first: ClientSequence
    records: int
    timeout_ms: int
    reply: Reply
    content: Content | None = None
    is_large: bool = False
    """Whether opening it would block the event loop for too long."""
    fault: KafkaError | None = None
    rest: tuple[list[RecordIds], tuple[bytearray, tuple[Pushed, ...]]] | None = None
    """The records that were kept, and the batch rewritten with only those."""
    is_part: bool = False
    """Whether only some of its records are sent: then its answer has no offset."""
    is_asked: bool = False
    until: float = 0.0
    _out_of_turn: Outcome | None = None

    def cut(self, content: Content, kept: list[RecordIds]) -> None:
        """Rewrite the batch with only these records; for a thread, as it takes long."""
        self.rest = kept, content.without_duplicates(kept)

    def out_of_turn(self, content: Content) -> Outcome | None:
        """See `Reply.out_of_turn`; asked once, and kept until the batch is first in the queue."""
        if not self.is_asked:
            self.is_asked, self._out_of_turn = True, self.reply.out_of_turn(content)
        return self._out_of_turn

    def answer(self, outcome: Outcome) -> None:
        """Answer the batch."""
        self.reply.answer(outcome._replace(offset=-1) if self.is_part and not outcome.error else outcome)


class Contents:
    """Opens the batches of one session. The fault of a batch is reported when the batch is first in the queue
    (`Arrival.fault`).
    """

    __slots__ = ("_headers", "_name", "_names_limit", "_read")

    def __init__(self, headers: Headers, name: bytes | None, names_limit: int) -> None:
        self._headers = headers
        self._name = name
        self._names_limit = names_limit
        self._read: tuple[bytes, Content] | None = None
        """The last batch that was opened and not sent at once: its header, which includes the CRC, and its content."""

    def at_once(self, batch: memoryview, records: int) -> Content | None:
        """The content of a small valid batch. None for an invalid or a large batch: both are opened when they are first
        in the queue.
        """
        try:
            return self.opened(batch, records, at_once=True)
        except (KafkaError, TooLargeAtOnceError):
            return None

    def look_into(self, arrival: Arrival) -> None:
        """Open a large batch that is offered; for a thread, as it takes long. Raises `KafkaError`."""
        arrival.content = self.opened(arrival.batch, arrival.records)

    def opened(self, batch: memoryview, records: int, *, at_once: bool = False) -> Content:
        """Return the content of a batch. Raises `KafkaError`. With `at_once`, raises `TooLargeAtOnceError` for a large
        batch, or if more than `limits.OPENED_A_TURN` bytes were opened in this turn.
        """
        counts = at_once and TURN.running
        if counts and TURN.opened > limits.OPENED_A_TURN:
            raise TooLargeAtOnceError
        size = limits.BATCH_AT_ONCE_BYTES  # a batch that fails may have used the whole limit
        try:
            found = Content(batch, records, self._headers, self._name, at_once=at_once, names_limit=self._names_limit)
            size = found.size
        finally:
            if counts:
                TURN.opened += size
                TURN.elements += size // _BYTES_AN_ELEMENT
        return found

    def remember(self, batch: memoryview, content: Content) -> None:
        """Store the content of a batch that is about to be offered, so that `of` need not open it again."""
        self._read = bytes(batch[:HEADER_BYTES]), content

    def of(self, arrival: Arrival) -> Content | None:
        """Return the content of an offered batch; None if it is invalid or large, which is set in `arrival`."""
        read, self._read = self._read, None
        if read is not None and read[0] == bytes(arrival.batch[:HEADER_BYTES]):
            return read[1]
        try:
            return self.opened(arrival.batch, arrival.records, at_once=True)
        except TooLargeAtOnceError:
            arrival.is_large = True
        except KafkaError as error:
            arrival.fault = error
        return None


_HALF: Final = 2**30
KEPT: Final = 5
"""The number of batches whose repeats get the first answer again; a broker remembers the same number (KIP-98)."""


class OrderVerdict(Enum):
    """The position of a batch among the client's sequences."""

    NEXT = "the next one"
    GAP = "ahead of one that is missing, or nowhere near: out of order (45)"
    REPEAT = "one of those that came last"
    OLD = "in front of them: in the log, or dropped as a duplicate"
    ASTRIDE = "overlaps what came before: out of order, as Kafka would say of no batch that it knows"


@dataclass(slots=True, eq=False)
class Passed:
    """A batch that passed the gate; `answer` is None until its outcome is known."""

    first: ClientSequence
    records: int
    answer: tuple[int, int, int] | None = None
    """Offset, log append time, log start offset; each is -1 if nothing was written."""


class ClientOrder:
    """The order of a client's sequences. `expected` is its next sequence, modulo 2^31; everything before `_reached` is
    in the log, or was dropped.
    """

    __slots__ = ("_begin", "_has_past", "_passed", "_reached", "expected")

    def __init__(self, expected: ClientSequence, *, has_past: bool = True) -> None:
        """`has_past`: whether the client's sequences before `expected` are in the log; if false, there are none."""
        self.expected: int = expected
        self._reached: int = expected
        self._begin = expected
        self._has_past = has_past
        self._passed: deque[Passed] = deque(maxlen=KEPT)

    def place(self, first: ClientSequence, records: int) -> OrderVerdict:
        """Return the position of a batch with this base sequence and number of records."""
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
        """Return the earlier batch that this one repeats."""
        return next((found for found in self._passed if (found.first, found.records) == (first, records)), None)

    def take(self, first: ClientSequence, records: int) -> Passed:
        """Record that the next batch passes the gate."""
        found = Passed(first, records)
        self._passed.append(found)
        self.expected = (first + records) % MODULUS
        return found

    def landed(self, batch: Passed, answer: tuple[int, int, int]) -> None:
        """Record that a batch, and everything before it, is in the log or was dropped."""
        batch.answer = answer
        behind = (batch.first + batch.records) % MODULUS
        if (behind - self._reached) % MODULUS < _HALF:
            self._reached = behind
        if (behind - self.expected) % MODULUS < _HALF:
            self.expected = behind

    def failed(self, batch: Passed) -> bool:
        """Record that a batch was given up: its client sends it again, and no later batch can get into the log before
        it. Returns False if a later batch is in the log already. Then this one is too, and the client's retry is
        answered so.
        """
        if batch in self._passed:
            self._passed.remove(batch)
        if (batch.first - self._reached) % MODULUS >= _HALF:
            return False
        if (batch.first - self.expected) % MODULUS >= _HALF:
            self.expected = batch.first
        return True


@dataclass(slots=True, eq=False)
class Flight:
    """A batch of `records` records in its lane. Implements `sidecar.forwarder.outcome.Witness`. `shift`: the number of
    records dropped from the client's batch; `passed` is None for a plain session.
    """

    _out: Outgoing
    under_way: UnderWay
    passed: Passed | None
    records: int
    shift: int
    in_order: bool

    def landed(self, outcome: Outcome) -> None:
        """Handle a batch that is in the log."""
        out = self._out
        out.under_way -= 1
        out.state.landed(self.under_way, outcome.offset, self.records, outcome.log_start_offset)
        if self.passed is not None:
            assert out.order is not None
            assert out.space is not None
            offset = -1 if self.shift else outcome.offset
            out.order.landed(self.passed, (offset, outcome.log_append_time, outcome.log_start_offset))
            if self.shift:
                out.space.base = ClientSequence((out.space.base + self.shift) % MODULUS)
        out.over(self, True)

    def failed(self, *, in_doubt: bool) -> None:
        """Handle a batch that was given up."""
        out = self._out
        out.under_way -= 1
        is_there = False
        if self.passed is not None:
            assert out.order is not None
            is_there = not out.order.failed(self.passed) and in_doubt
        if is_there:  # the lane gives up once all batches have an outcome: a later one may be in the log
            out.state.landed(self.under_way, -1, self.records)
        else:
            out.state.failed(self.under_way, in_doubt=in_doubt)
        out.over(self, False)


@dataclass(eq=False)
class Outgoing:
    """The batches of one gate in its lane. `space` and `order` are None for a plain session. `over` is called when an
    outcome is known, with whether the batch is in the log.
    """

    state: PartitionIds
    _producer_id: int
    _lane: Lane
    space: SequenceSpace | None
    order: ClientOrder | None
    over: Callable[[Flight, bool], None]
    under_way: int = 0

    def watch(self, append: Append, marks: tuple[Pushed, ...], first: ClientSequence, shift: int = 0) -> None:
        """Register a batch with these marks, which the caller then passes to the lane. `shift`: see `Flight`."""
        records = append.client_records
        under_way = self.state.marks.push(marks, self._producer_id, first, records)
        passed = self.order.take(first, records) if self.order is not None else None
        self.under_way += 1
        append.witness = Flight(self, under_way, passed, append.records, shift, bool(marks))

    def send(self, arrival: Arrival, content: Content) -> None:
        """Append a whole batch to the lane."""
        self.send_part(arrival, arrival.batch, arrival.records, content.marks, 0)

    def send_part(
        self, arrival: Arrival, batch: memoryview, records: int, marks: tuple[Pushed, ...], shift: int
    ) -> None:
        """Append the new records of a batch to the lane."""
        deadline = asyncio.get_running_loop().time() + arrival.timeout_ms / 1000
        append = Append(batch, records, deadline, arrival.timeout_ms, arrival.answer)
        append.client_records = arrival.records
        if self.space is not None:
            append.belongs(self.space, arrival.first)
        self.watch(append, marks, arrival.first, shift)
        arrival.content = None  # `append` keeps the arrival for its answer; the buffer counts only what was received
        self._lane.append(append)
