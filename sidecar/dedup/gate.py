"""The batches of one session in one partition of a topic with sequence ids, on their way to its lane.

Most batches go on at once: the client's next in order, with ids above everything that was sent. A batch that cannot be
decided yet waits here, and all later ones behind it: ids that are in flight, a partition whose marks are being read, a
duplicate behind batches in flight. After two seconds all of them are answered 5 LEADER_NOT_AVAILABLE and the client
retries: a held answer blocks everything else that the client sends.

A dropped record shifts the session's base: stamped sequence = client sequence - base. The shift is in the changelog
before the drop is acknowledged, and before the next batch goes out, so that the next node continues in the right
place (`SequenceBase`; mutants ShiftFirst and DropWaits of the model show what breaks otherwise).

Only here are the records of a batch opened, because here its session may write. A large batch is opened, and written
again without its duplicates, by a thread (`protocol.limits`); it waits at the front meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from sidecar.dedup.content import Content, TooLargeAtOnceError
from sidecar.dedup.order import ClientOrder, Passed, Place
from sidecar.forwarder.append import Append, Outcome
from sidecar.forwarder.sequences import MODULUS
from sidecar.network.aside import aside
from sidecar.protocol.batch import HEADER_BYTES
from sidecar.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from sidecar.dedup.content import Headers
    from sidecar.dedup.marks import Pushed, UnderWay
    from sidecar.dedup.partition import PartitionIds
    from sidecar.forwarder.lane import Lane
    from sidecar.forwarder.sequences import SequenceSpace
    from sidecar.protocol.records import RecordIds

_HELD_S: Final = 2.0
_LATER: Final = Outcome(
    ErrorCode.LEADER_NOT_AVAILABLE, message="it is not known yet whether these sequence ids are in the log; try again"
)
_REPEATED: Final = Outcome(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
_OUT_OF_ORDER: Final = Outcome(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
DUPLICATE: Final = Outcome(ErrorCode.NONE)
"""Acknowledged without an offset: nothing was written."""


class Session(NamedTuple):
    """Who writes: its session id, its producer name (None where it has none that tells it apart), and the producer id
    of its slot.
    """

    id: str
    name: bytes | None
    producer_id: int


class Keeper(Protocol):
    """What a gate needs of the slot epoch at work."""

    async def shift(self, partition: int, from_sequence: int, base: int, before: int) -> None:
        """Write down that the session's base is another one from a stamped sequence on; `before` below it. Raises what
        ends the epoch.
        """
        ...

    def shift_failed(self, partition: int, error: Exception) -> None:
        """The epoch is of no more use."""
        ...

    def refused(self, partition: int, first: int, records: int) -> None:
        """A batch got a final error: the client counts its sequences as used."""
        ...

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Run a task that nobody awaits."""
        ...


@dataclass(slots=True, eq=False)
class Arrival:
    """A batch that wants in. `first` is the client's base sequence, -1 for a plain session. `turn` is asked once, with
    its ids: the answer to a batch that its connection sends out of turn.
    """

    batch: memoryview
    first: int
    records: int
    timeout_ms: int
    done: Callable[[Outcome], None]
    turn: Callable[[Content], Outcome | None] | None = None
    content: Content | None = None
    is_large: bool = False
    """It cannot be opened at once."""
    fault: KafkaError | None = None
    rest: tuple[list[RecordIds], tuple[bytearray, tuple[Pushed, ...]]] | None = None
    """The batch without its duplicates, and the records that were kept for that."""
    until: float = 0.0


class Flight:
    """A batch of `records` in its lane. Implements `sidecar.forwarder.append.Witness`. `shift`: records of the client's
    batch that were left out; `passed` is None for a plain session.
    """

    __slots__ = ("_gate", "in_order", "passed", "records", "shift", "under_way")

    def __init__(self, gate: Gate, under_way: UnderWay, passed: Passed | None, records: int, shift: int) -> None:
        self.under_way = under_way
        self.passed = passed
        self.records = records
        self.shift = shift
        self.in_order = bool(under_way.marks)
        self._gate = gate

    def landed(self, outcome: Outcome) -> None:
        self._gate.landed(self, outcome)

    def failed(self, *, in_doubt: bool) -> None:
        self._gate.failed(self, in_doubt=in_doubt)


class Gate:
    """One session's way into one partition, under one slot epoch. `space` and `order` are None for a plain session."""

    def __init__(
        self,
        state: PartitionIds,
        session: Session,
        lane: Lane,
        space: SequenceSpace | None,
        headers: Headers,
        keeper: Keeper,
        released: Callable[[int], None],
    ) -> None:
        """`released` gives bytes of dropped records back to the forwarder's buffer."""
        self._state = state
        self._session = session
        self._lane = lane
        self._space = space
        self._order = None if space is None else ClientOrder(space.next, has_past=space.has_past)
        self._headers = headers
        self._keeper = keeper
        self._released = released
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Arrival] = deque()
        self._under_way = 0
        self._shifting = False
        """The session's base is about to move: what comes behind is stamped by the new one."""
        self._looking = False
        """A thread looks into the batch in front."""
        self._timer: asyncio.TimerHandle | None = None
        self._read: tuple[bytes, Content] | None = None
        """The batch that was looked at last and not let out at once: its header, with the CRC, and what is in it."""
        self._closed: Outcome | None = None

    @property
    def is_idle(self) -> bool:
        """Nothing waits, nothing is being written down."""
        return not self._queue and not self._shifting

    # The usual case -------------------------------------------------------------------------------------------------

    def admits(self, batch: memoryview, first: int, records: int) -> Content | None:
        """The ids of a batch that may go out at once; None where there is anything to decide. Changes nothing."""
        content = self._content(batch, records) if self._is_free(first) else None
        if content is None or self._is_new(content):
            return content
        self._read = bytes(batch[:HEADER_BYTES]), content
        return None

    def _is_free(self, first: int) -> bool:
        """Whether nothing is in front of a batch that begins at this sequence of the client's."""
        if self._queue or self._shifting or not self._state.is_ready or self._closed is not None:
            return False
        return self._order is None or first == self._order.expected

    def _content(self, batch: memoryview, records: int) -> Content | None:
        """None for a bad one, and for a large one: both are looked at when their turn has come."""
        try:
            return self._opened(batch, records, at_once=True)
        except (KafkaError, TooLargeAtOnceError):
            return None

    def _opened(self, batch: memoryview, records: int, *, at_once: bool = False) -> Content:
        limit = self._state.marks.limit
        return Content(batch, records, self._headers, self._session.name, at_once=at_once, names_limit=limit)

    def _is_new(self, content: Content) -> bool:
        """Whether all of a batch is surely new, and its session may write under its names."""
        session, marks, names = self._session, self._state.marks, self._state.names
        if not content.marks:
            return not names.must_carry(session.id)
        name, first = content.name, content.first
        if first < 0 or name is None:
            return False
        if marks.has_doubts or first <= marks.pushed(name) or not marks.knows(name):
            return False
        return names.session_of(name) == session.id

    def begin(self, content: Content, append: Append, first: int) -> None:
        """A batch that `admits`, or a decision, lets go out: whoever calls this hands it to the lane."""
        self._watch(append, content.marks, first)

    def _watch(self, append: Append, marks: tuple[Pushed, ...], first: int, shift: int = 0) -> None:
        records = append.client_records
        under_way = self._state.marks.push(marks, self._session.producer_id, first, records)
        passed = self._order.take(first, records) if self._order is not None else None
        self._under_way += 1
        append.witness = Flight(self, under_way, passed, append.records, shift)

    # Everything else ------------------------------------------------------------------------------------------------

    def offer(self, arrival: Arrival) -> None:
        """Take a batch; its `done` is called once. Its bytes are admitted to the forwarder's buffer."""
        if self._closed is not None:
            self._answer(arrival, self._closed)
            return
        arrival.content = content = self._content_of(arrival)
        if content is not None and self._is_free(arrival.first) and self._is_new(content):
            if not self._is_out_of_turn(arrival, content):
                self._send(arrival, content)
            return
        if content is not None:
            content.slim()  # the buffer's bound counts the batch as it came
        arrival.until = self._loop.time() + _HELD_S
        self._queue.append(arrival)
        self.pump()

    def _content_of(self, arrival: Arrival) -> Content | None:
        """As `_content`, without reading again what `admits` has read."""
        read, self._read = self._read, None
        if read is not None and read[0] == bytes(arrival.batch[:HEADER_BYTES]):
            return read[1]
        try:
            return self._opened(arrival.batch, arrival.records, at_once=True)
        except TooLargeAtOnceError:
            arrival.is_large = True
        except KafkaError as error:
            arrival.fault = error
        return None

    def pump(self) -> None:
        """Go on with what waits, as far as it can be decided."""
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
        """Forward, drop or answer the batch in front; False where it has to wait. Raises `KafkaError` for a bad one."""
        state = self._state
        if not state.is_ready:
            if state.problem is not None:
                state.undecided()
                self._answer(arrival, state.problem)
                return True
            return state.wait(self)
        if self._order is not None and (place := self._order.place(arrival.first, arrival.records)) is not Place.NEXT:
            return self._answer_place(arrival, place)
        if arrival.fault is not None:
            raise arrival.fault
        content = arrival.content
        if content is None:
            assert arrival.is_large
            return self._look(arrival, lambda: self._open(arrival))
        if self._is_out_of_turn(arrival, content):
            return True
        if not content.marks:
            if state.names.must_carry(self._session.id):
                message = "this producer has sent sequence ids before, so every record needs one"
                raise KafkaError(ErrorCode.INVALID_RECORD, message)
            self._send(arrival, content)
            return True
        if (refusal := self._refusal(content)) is not None:
            self._keeper.refused(state.partition, arrival.first, arrival.records)
            self._answer(arrival, refusal)
            return True
        state.names.hold(content.names, self._session.id)
        return self._decide_ids(arrival, content)

    def _is_out_of_turn(self, arrival: Arrival, content: Content) -> bool:
        """Whether its connection has to send something else first, or sends it too late: then it is answered so."""
        outcome = self._turn_of(arrival, content)
        if outcome is None:
            return False
        if outcome.error == ErrorCode.POLICY_VIOLATION:
            self._keeper.refused(self._state.partition, arrival.first, arrival.records)
        self._answer(arrival, outcome)
        return True

    def _turn_of(self, arrival: Arrival, content: Content) -> Outcome | None:
        """The answer to a batch that is out of turn; asked once, and kept until the batch stands in front."""
        turn, arrival.turn = arrival.turn, None
        outcome = None if turn is None else turn(content)
        if outcome is not None:
            arrival.turn = lambda _: outcome
        return outcome

    def _look(self, arrival: Arrival, work: Callable[[], None]) -> bool:
        """Have a thread look into the batch in front, which waits for that."""
        self._looking = True
        self._keeper.start(self._look_aside(arrival, work))
        return False

    async def _look_aside(self, arrival: Arrival, work: Callable[[], None]) -> None:
        try:
            await aside(work)
        except KafkaError as error:
            arrival.fault = error
        finally:
            self._looking = False
        self.pump()

    def _open(self, arrival: Arrival) -> None:
        arrival.content = self._opened(arrival.batch, arrival.records)

    def _cut(self, arrival: Arrival, content: Content, kept: list[RecordIds]) -> None:
        arrival.rest = kept, content.without_duplicates(kept)

    def _answer_place(self, arrival: Arrival, place: Place) -> bool:
        assert self._order is not None
        if place is Place.REPEAT:
            passed = self._order.passed(arrival.first, arrival.records)
            assert passed is not None
            if passed.answer is None:
                return False  # its outcome is this one's too
            self._answer(arrival, Outcome(ErrorCode.NONE, *passed.answer))
        else:
            self._answer(arrival, _REPEATED if place is Place.OLD else _OUT_OF_ORDER)
        return True

    def _refusal(self, content: Content) -> Outcome | None:
        """Why a session may not write under the names of a batch."""
        state = self._state
        rival = state.names.rival(content.names, self._session.id)
        if rival is not None:
            name = rival.name.decode(errors="replace")
            message = (
                f"producer name {name} is in use by another live session ({rival.session}): only one at a time may"
                " write sequence ids under a name"
            )
            return Outcome(ErrorCode.POLICY_VIOLATION, message=message)
        evicted = state.marks.evicted
        has_room = state.marks.make_room(content.names, state.names.is_live)
        state.has_forgotten |= state.marks.evicted > evicted
        if not has_room:
            message = f"this partition knows {len(state.marks)} producer names, all of them in use"
            return Outcome(ErrorCode.POLICY_VIOLATION, message=message)
        return None

    def _decide_ids(self, arrival: Arrival, content: Content) -> bool:
        state, marks = self._state, self._state.marks
        own = self._session.producer_id
        if any(marks.is_elsewhere(name, own) for name in content.lowest):
            return state.wait(self)  # ids of a name rise in the log: none overtakes what is under way in another slot
        if marks.has_doubts and any(marks.doubtful(name, own) for name in content.lowest):
            state.want_fence()
            return state.wait(self)
        doubts = marks.doubts_of(own) if marks.has_doubts else ()
        if any((doubt.sequence, doubt.marks) == (arrival.first, content.marks) for doubt in doubts):
            self._send(arrival, content)  # under the same sequence: Kafka tells whether it was there
            return True
        if content.first >= 0 and content.first > marks.pushed(content.marks[0].name):
            self._send(arrival, content)
            return True
        if content.last >= 0 and content.last <= marks.persisted(content.marks[0].name):
            kept: list[RecordIds] | None = []
        elif content.takes_long(marks):
            return self._look(arrival, lambda: _take_apart(content))
        else:
            kept = content.kept(marks)
        if kept is None:
            return state.wait(self)
        if len(kept) == content.count:
            self._send(arrival, content)
            return True
        if doubts:
            state.want_fence()  # where the session stands is not known: its base cannot move
            return state.wait(self)
        if self._under_way:
            return False  # an outcome pumps again
        if kept and content.is_large and (arrival.rest is None or arrival.rest[0] != kept):
            return self._look(arrival, lambda: self._cut(arrival, content, kept))
        self._drop(arrival, content, kept)
        return True

    def _send(self, arrival: Arrival, content: Content) -> None:
        append = self._append(arrival, arrival.batch, arrival.records)
        self._watch(append, content.marks, arrival.first)
        self._lane.append(append)

    def _append(self, arrival: Arrival, batch: memoryview, records: int) -> Append:
        deadline = self._loop.time() + arrival.timeout_ms / 1000
        append = Append(batch, records, deadline, arrival.timeout_ms, arrival.done)
        append.client_records = arrival.records
        if self._space is not None:
            append.belongs(self._space, arrival.first)
        return append

    # Duplicates -----------------------------------------------------------------------------------------------------

    def _drop(self, arrival: Arrival, content: Content, kept: list[RecordIds]) -> None:
        """Leave out what the log holds. Nothing of this session is under way."""
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
        """The batches that wait behind a duplicate and are duplicates too: one shift does for all."""
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
                or self._refusal(content) is not None
                or content.kept(self._state.marks) != []
                or self._turn_of(behind, content) is not None
            ):
                break
            content.slim()
            found.append(behind)
            expected = (behind.first + behind.records) % MODULUS
        return found

    async def _shift(self, run: list[Arrival], content: Content, kept: list[RecordIds]) -> None:
        space, partition = self._space, self._state.partition
        assert space is not None
        first = run[0].first
        total = sum(arrival.records for arrival in run)
        base = (space.base + total - len(kept)) % MODULUS
        behind = (space.stamped(first) + len(kept)) % MODULUS
        try:
            await self._keeper.shift(partition, behind, base, space.base)
        except Exception as error:  # noqa: BLE001  the epoch's keeper raises again what it does not know
            self._shifting = False
            self._keeper.shift_failed(partition, error)
            return
        self._shifting = False
        if self._closed is not None:
            return  # answered already; whoever goes on reads what was written down
        dropped, head = total - len(kept), run[0]
        if kept:
            # Meanwhile its answer may have become due, and another session of its names may have written.
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
            self._order_passed(arrival)
            space.sent()
            space.appended(arrival.first, arrival.records)
            if self._queue and self._queue[0] is arrival:
                self._queue.popleft()
                self._answer(arrival, DUPLICATE)
        self.pump()

    def _order_passed(self, arrival: Arrival) -> None:
        assert self._order is not None
        self._order.landed(self._order.take(arrival.first, arrival.records), (-1, -1, -1))

    def _send_rest(self, arrival: Arrival, content: Content, kept: list[RecordIds], shift: int = 0) -> None:
        rest, arrival.rest = arrival.rest, None
        batch, marks = content.without_duplicates(kept) if rest is None or rest[0] != kept else rest[1]
        self._released(len(arrival.batch) - len(batch))
        done = arrival.done
        arrival.done = lambda outcome: done(outcome if outcome.error else outcome._replace(offset=-1))
        append = self._append(arrival, memoryview(batch), len(kept))
        self._watch(append, marks, arrival.first, shift)
        self._lane.append(append)

    # Outcomes -------------------------------------------------------------------------------------------------------

    def landed(self, flight: Flight, outcome: Outcome) -> None:
        """A batch of this gate is in the log."""
        self._under_way -= 1
        self._state.landed(flight.under_way, outcome.offset, flight.records)
        if flight.passed is not None:
            assert self._order is not None
            assert self._space is not None
            offset = -1 if flight.shift else outcome.offset
            self._order.landed(flight.passed, (offset, outcome.log_append_time, outcome.log_start_offset))
            self._space.base = (self._space.base + flight.shift) % MODULUS
        self._over(flight)

    def failed(self, flight: Flight, *, in_doubt: bool) -> None:
        """A batch of this gate was given up."""
        self._under_way -= 1
        is_there = False
        if flight.passed is not None:
            assert self._order is not None
            is_there = not self._order.failed(flight.passed) and in_doubt
        if is_there:  # the lane gives up when all is back: what was sent behind it may have landed
            self._state.landed(flight.under_way, -1, flight.records)
        else:
            self._state.failed(flight.under_way, in_doubt=in_doubt)
        self._over(flight)
        if flight.shift and self._closed is None:
            self._shift_void()

    def _shift_void(self) -> None:
        """The base that was written down for the rest of a batch holds no more, as another batch may come next."""
        self._keeper.shift_failed(self._state.partition, TimeoutError("the rest of a batch did not go out"))

    def _over(self, flight: Flight) -> None:
        if flight.shift:
            self._shifting = False
        if self._queue and not self._shifting:
            self._loop.call_soon(self.pump)

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
        arrival.done(outcome)

    def close(self, outcome: Outcome) -> None:
        """End with the epoch: what waits is answered with `outcome`."""
        if self._closed is None:
            self._closed = outcome
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._answer_all(outcome)


def _take_apart(content: Content) -> None:
    content.records()
