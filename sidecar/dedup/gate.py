"""The batches of one session in one partition of a topic with sequence ids, on their way to its lane.

Most batches are forwarded at once: the client's next in order, with ids above everything that was sent. A batch that
cannot be decided yet waits here, and all later batches wait behind it. Reasons are: its ids are in flight, the marks of
the partition are being read, or a duplicate follows batches in flight. After two seconds all waiting batches are
answered with 5 LEADER_NOT_AVAILABLE, and the client retries: a delayed answer blocks everything else that the client
sends.

A dropped record shifts the session's base: stamped sequence = client sequence - base. The shift is written to the
changelog before the drop is acknowledged and before the next batch is sent, so that the next node continues with the
right sequence (`SequenceBase`; mutants ShiftFirst and DropWaits of the model show what breaks otherwise).

Only the gate opens the records of a batch, because here its session may write. A thread opens a large batch while it is
first in the queue (`protocol.limits`).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol

from sidecar.dedup.batches import Arrival, ClientOrder, Contents, Flight, OrderVerdict, Outgoing, Session
from sidecar.dedup.content import Content, Headers, Next, decide, is_new
from sidecar.dedup.partition import PartitionIds
from sidecar.forwarder.lane import Lane
from sidecar.forwarder.outcome import Outcome
from sidecar.forwarder.sequences import MODULUS, Append, SequenceSpace
from sidecar.network.aside import aside
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import ClientSequence, StampedSequence
from sidecar.protocol.limits import BATCH_BYTES
from sidecar.protocol.records import RecordIds

_HELD_S: Final = 2.0
_LATER: Final = Outcome(
    ErrorCode.LEADER_NOT_AVAILABLE, message="it is not known yet whether these sequence ids are in the log; try again"
)
_REPEATED: Final = Outcome(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
_OUT_OF_ORDER: Final = Outcome(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
DUPLICATE: Final = Outcome(ErrorCode.NONE)  # acknowledged without an offset, as nothing was written


class Keeper(Protocol):
    """What a gate needs from the present slot epoch."""

    async def shift(
        self, partition: int, from_sequence: StampedSequence, base: ClientSequence, before: ClientSequence
    ) -> None:
        """Write a session's new base to the changelog, valid from a stamped sequence on; `before` is valid below it.
        Raises the errors that end the epoch.
        """

    def shift_failed(self, partition: int, error: Exception) -> None:
        """Report that the shift failed: the epoch cannot be used any more."""

    def refused(self, partition: int, first: ClientSequence, records: int) -> None:
        """Report that a batch got a final error: the client counts its sequences as used."""

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Start a background task."""


@dataclass(eq=False)
class Gate:
    """The gate of one session into one partition, under one slot epoch. `_space` and `_order` are None for a plain
    session. `_released` returns the bytes of dropped records to the forwarder's buffer.
    """

    _state: PartitionIds
    _session: Session
    _lane: Lane
    _space: SequenceSpace | None
    _headers: Headers
    _keeper: Keeper
    _released: Callable[[int], None]

    def __post_init__(self) -> None:
        state, session, space = self._state, self._session, self._space
        self._order = None if space is None else ClientOrder(space.next, has_past=space.has_past)
        self._contents = Contents(self._headers, session.name, state.marks.limit)
        self._out = Outgoing(state, session.producer_id, self._lane, space, self._order, self._over)
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Arrival] = deque()
        self._shifting = False  # the session's base is about to change: later batches are stamped by the new base
        self._looking = False  # a thread is opening the first batch of the queue
        self._timer: asyncio.TimerHandle | None = None
        self._closed: Outcome | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no batch waits and no shift is being written."""
        return not self._queue and not self._shifting

    # The usual case -------------------------------------------------------------------------------------------------

    def admits(self, batch: memoryview, first: ClientSequence, records: int) -> Content | None:
        """Return the ids of a batch that may be sent at once; None if it has to be offered. Changes no mark and no
        order.
        """
        content = self._contents.at_once(batch, records) if self._is_free(first) else None
        if content is None or is_new(content, self._state.marks, self._state.names, self._session.id):
            return content
        self._contents.remember(batch, content)
        return None

    def _is_free(self, first: ClientSequence) -> bool:
        """Whether a batch that begins at this client sequence has nothing to wait for."""
        if self._queue or self._shifting or not self._state.is_ready or self._closed is not None:
            return False
        return self._order is None or first == self._order.expected

    def begin(self, content: Content, append: Append, first: ClientSequence) -> None:
        """Register a batch that was admitted; the caller then passes it to the lane."""
        self._out.watch(append, content.marks, first)

    # Everything else ------------------------------------------------------------------------------------------------

    def offer(self, arrival: Arrival) -> None:
        """Take a batch whose bytes the forwarder's buffer has admitted; it is answered once."""
        if self._closed is not None:
            self._answer(arrival, self._closed)
            return
        arrival.content = content = self._contents.of(arrival)
        state = self._state
        if (
            content is not None
            and self._is_free(arrival.first)
            and is_new(content, state.marks, state.names, self._session.id)
        ):
            if not self._is_out_of_turn(arrival, content):
                self._out.send(arrival, content)
            return
        if content is not None:
            content.slim()  # the buffer's limit counts only the batch as received
        arrival.until = self._loop.time() + _HELD_S
        self._queue.append(arrival)
        self.pump()

    def pump(self) -> None:
        """Decide about waiting batches, in order, until one has to wait longer."""
        while self._queue and not self._shifting and not self._looking and self._closed is None:
            try:
                is_settled = self._decide(self._queue[0])
            except KafkaError as error:
                self._answer(self._queue[0], Outcome(error.code, message=error.message))
                is_settled = True
            if not is_settled:
                break
            if not self._shifting:
                self._queue.popleft()
        if self._queue and self._timer is None and self._closed is None:
            self._timer = self._loop.call_at(self._queue[0].until, self._held_too_long)
        elif not self._queue and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _decide(self, arrival: Arrival) -> bool:
        """Forward, drop or answer the first batch; False if it has to wait. Raises `KafkaError` for an invalid one."""
        state = self._state
        if not state.is_ready:
            if state.problem is not None:
                state.undecided()
                self._answer(arrival, state.problem)
                return True
            return state.wait(self.pump)
        order = self._order
        if order is not None and (place := order.place(arrival.first, arrival.records)) is not OrderVerdict.NEXT:
            return self._answer_place(arrival, place)
        if arrival.fault is not None:
            raise arrival.fault
        content = arrival.content
        if content is None:
            assert arrival.is_large
            return self._look(arrival, lambda: self._contents.look_into(arrival))
        if self._is_out_of_turn(arrival, content):
            return True
        if not content.marks:
            if state.names.must_carry(self._session.id):
                message = "this producer has sent sequence ids before, so every record needs one"
                raise KafkaError(ErrorCode.INVALID_RECORD, message)
            self._out.send(arrival, content)
            return True
        if (refusal := state.refusal(content.names, self._session.id)) is not None:
            self._keeper.refused(state.partition, arrival.first, arrival.records)
            self._answer(arrival, refusal)
            return True
        state.names.hold(content.names, self._session.id)
        return self._decide_ids(arrival, content)

    def _is_out_of_turn(self, arrival: Arrival, content: Content) -> bool:
        """Whether the batch's connection has to send another batch first, or sends this one too late. If so, answer it
        with that error.
        """
        outcome = arrival.out_of_turn(content)
        if outcome is None:
            return False
        if outcome.error == ErrorCode.POLICY_VIOLATION:
            self._keeper.refused(self._state.partition, arrival.first, arrival.records)
        self._answer(arrival, outcome)
        return True

    def _look(self, arrival: Arrival, work: Callable[[], object]) -> bool:
        """Have a thread process the first batch, which waits for the result."""
        self._looking = True
        self._keeper.start(self._look_aside(arrival, work))
        return False

    async def _look_aside(self, arrival: Arrival, work: Callable[[], object]) -> None:
        try:
            allowance = arrival.reply.allowance
            async with allowance:
                if self._queue and self._queue[0] is arrival:  # else it was answered meanwhile
                    try:
                        await aside(work)
                    finally:
                        allowance.spend(BATCH_BYTES if arrival.content is None else arrival.content.size)
        except KafkaError as error:
            arrival.fault = error
        finally:
            self._looking = False
        self.pump()

    def _answer_place(self, arrival: Arrival, place: OrderVerdict) -> bool:
        assert self._order is not None
        if place is OrderVerdict.REPEAT:
            passed = self._order.passed(arrival.first, arrival.records)
            assert passed is not None
            if passed.answer is None:
                return False  # this one gets the same answer when the outcome is known
            self._answer(arrival, Outcome(ErrorCode.NONE, *passed.answer))
        else:
            self._answer(arrival, _REPEATED if place is OrderVerdict.OLD else _OUT_OF_ORDER)
        return True

    def _decide_ids(self, arrival: Arrival, content: Content) -> bool:
        state = self._state
        found = decide(content, state.marks, arrival.first, self._session.producer_id)
        if found is Next.SEND:
            self._out.send(arrival, content)
            return True
        if found is Next.TAKE_APART:
            return self._look(arrival, content.records)
        if isinstance(found, Next):
            if found is Next.FENCE:
                state.want_fence()
            return state.wait(self.pump)
        if self._out.under_way:
            return False  # an outcome pumps again
        if found and content.is_large and (arrival.rest is None or arrival.rest[0] != found):
            return self._look(arrival, lambda: arrival.cut(content, found))
        self._drop(arrival, content, found)
        return True

    # Duplicates -----------------------------------------------------------------------------------------------------

    def _drop(self, arrival: Arrival, content: Content, kept: list[RecordIds]) -> None:
        """Drop the records that are in the log. No batch of this session may be in flight."""
        if self._space is None:
            self._state.dropped(content.count - len(kept))
            if kept:
                self._send_rest(arrival, content, kept)
            else:
                self._answer(arrival, DUPLICATE)
            return
        run = [arrival]
        if not kept:
            run += self._duplicates_behind(arrival)
        self._shifting = True
        self._keeper.start(self._shift(run, content, kept))

    def _duplicates_behind(self, arrival: Arrival) -> list[Arrival]:
        """Return the batches that wait directly behind a duplicate and are duplicates too: one shift covers all."""
        assert self._order is not None
        found: list[Arrival] = []
        expected = (arrival.first + arrival.records) % MODULUS
        for behind in islice(self._queue, 1, None):
            if behind.first != expected:
                break
            content = behind.content
            if (
                content is None
                or not content.marks
                or content.takes_long(self._state.marks)
                or self._state.refusal(content.names, self._session.id) is not None
                or content.kept(self._state.marks) != []
                or behind.out_of_turn(content) is not None
            ):
                break
            content.slim()
            found.append(behind)
            expected = (behind.first + behind.records) % MODULUS
        return found

    async def _shift(self, run: list[Arrival], content: Content, kept: list[RecordIds]) -> None:
        space, partition = self._space, self._state.partition
        assert space is not None
        assert self._order is not None
        first = run[0].first
        total = sum(arrival.records for arrival in run)
        base = ClientSequence((space.base + total - len(kept)) % MODULUS)
        behind = StampedSequence((space.stamped(first) + len(kept)) % MODULUS)
        try:
            await self._keeper.shift(partition, behind, base, space.base)
        except Exception as error:  # noqa: BLE001  the epoch's keeper raises again what it does not know
            self._shifting = False
            self._keeper.shift_failed(partition, error)
            return
        self._shifting = False
        if self._closed is not None:
            return  # answered already; the next epoch reads the shift from the changelog
        dropped, head = total - len(kept), run[0]
        if kept:
            # Meanwhile the batch may have been answered, or another session may have written under its names.
            if self._queue and self._queue[0] is head and content.kept(self._state.marks) == kept:
                self._state.dropped(dropped)
                self._queue.popleft()
                self._shifting = True  # until these are in the log
                self._send_rest(head, content, kept, dropped)
            else:
                self._shift_void()
            return
        self._state.dropped(dropped)
        space.base = base
        for arrival in run:
            self._order.landed(self._order.take(arrival.first, arrival.records), (-1, -1, -1))
            space.sent()
            space.appended(arrival.first, arrival.records)
            if self._queue and self._queue[0] is arrival:
                self._queue.popleft()
                self._answer(arrival, DUPLICATE)
        self.pump()

    def _send_rest(self, arrival: Arrival, content: Content, kept: list[RecordIds], shift: int = 0) -> None:
        rest, arrival.rest = arrival.rest, None
        batch, marks = content.without_duplicates(kept) if rest is None or rest[0] != kept else rest[1]
        self._released(len(arrival.batch) - len(batch))
        arrival.is_part = True
        self._out.send_part(arrival, memoryview(batch), len(kept), marks, shift)

    # Outcomes -------------------------------------------------------------------------------------------------------

    def _shift_void(self) -> None:
        """End the epoch: the base in the changelog is wrong, because another batch than the rest of this one may come
        next.
        """
        self._keeper.shift_failed(self._state.partition, TimeoutError("the rest of a batch did not go out"))

    def _over(self, flight: Flight, is_there: bool) -> None:
        if flight.shift:
            self._shifting = False
        if self._queue and not self._shifting:
            self._loop.call_soon(self.pump)
        if flight.shift and not is_there and self._closed is None:
            self._shift_void()

    def _held_too_long(self) -> None:
        self._timer = None
        if self._queue and self._queue[0].until > self._loop.time():
            self.pump()
            return
        for _ in self._queue:
            self._state.undecided()
        self._answer_all(_LATER)

    def _answer_all(self, outcome: Outcome) -> None:
        queue, self._queue = self._queue, deque()
        for arrival in queue:
            self._answer(arrival, outcome)

    def _answer(self, arrival: Arrival, outcome: Outcome) -> None:
        self._released(len(arrival.batch))
        arrival.answer(outcome)

    def close(self, outcome: Outcome) -> None:
        """Close the gate, as its epoch ends: waiting batches are answered with `outcome`."""
        if self._closed is None:
            self._closed = outcome
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._answer_all(outcome)
