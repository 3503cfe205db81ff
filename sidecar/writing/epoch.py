"""One slot epoch at work: its lanes and sequences per partition, for the one session that owns the topic.

The next epoch gets its bases from memory in two cases: the client raised its own epoch (`raise_for`), or a partition
reached the record limit of an epoch, above which its base would lag (`renew`). All other cases need a takeover. Both
methods name the present epoch when they request the next one (KIP-360): Kafka refuses if another node took over since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, Protocol, TypeVar

from sidecar.access.services import NodeServices
from sidecar.changelog import FAILURES, Key, Kind, Position, Record, unpack_positions
from sidecar.cluster.logs import LogReader
from sidecar.dedup.batches import Arrival, Session
from sidecar.dedup.content import Content
from sidecar.dedup.gate import Gate
from sidecar.dedup.names import producer_name
from sidecar.dedup.reply import Reply
from sidecar.dedup.topic import TopicIds
from sidecar.forwarder.forwarder import Forwarder, WholeRequest
from sidecar.forwarder.lane import Lane, LaneOwner
from sidecar.forwarder.outcome import Outcome
from sidecar.forwarder.sequences import EPOCH_RECORDS, MODULUS, Append, PlainSequences, SequenceSpace, Verdict
from sidecar.protocol.batch import BatchHeader
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.ids import NO_SEQUENCE, ClientSequence, StampedSequence
from sidecar.takeover import records
from sidecar.takeover.requests import Memory
from sidecar.takeover.slots import TakenSlot
from sidecar.takeover.succession import NOTHING, Sequences
from sidecar.v1 import state_pb2 as state

_QUIET_S: Final = 5.0
_POLL_S: Final = 0.002
_OTHER_TOPIC: Final = Outcome(ErrorCode.UNKNOWN_TOPIC_ID)


class Writer(LaneOwner, Protocol):
    """The session that writes under a slot epoch."""

    def refused(self, partition: int, client_epoch: int, first: ClientSequence, records: int) -> None:
        """Sequences of the session got a final error: its client counts them as used."""


MadeT = TypeVar("MadeT")


class AtFirstUse(dict[int, MadeT]):
    """State by partition, made when it is first looked up by `[]`. A topic may have thousands of partitions to which a
    session never writes, and there are up to 64 sessions beside each other.
    """

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[int], MadeT]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, partition: int) -> MadeT:
        made = self[partition] = self._make(partition)
        return made

    def in_order(self) -> list[MadeT]:
        """What was made so far, by partition."""
        return [self[index] for index in sorted(self)]


class SlotEpoch:
    """Appends of one session under one (producer id, epoch). Implements `sidecar.dedup.gate.Keeper`. It has lanes,
    sequences and gates for the partitions that the session writes to; for all others its bases say where it stands.
    """

    def __init__(
        self,
        taken: TakenSlot,
        forwarder: Forwarder,
        owner: Writer,
        ids: TopicIds | None = None,
        limit: int = EPOCH_RECORDS,
    ) -> None:
        """`ids`: the sequence ids of the topic, if it has any. `limit`: after this number of the session's records in
        one partition, the epoch has to be replaced.
        """
        self.taken = taken
        self.ids = ids
        self._limit = limit
        self._name = taken.scope.topic.encode()
        self._forwarder = forwarder
        self._owner = owner
        self._loop = asyncio.get_running_loop()  # each lookup is a system call (getpid)
        self._idempotent = taken.session.is_idempotent
        count = len(taken.partitions)
        whole = range(count)  # a set would take 200 KB for 5,000 partitions
        self._covered = whole if tuple(taken.partitions) == tuple(whole) else frozenset(taken.partitions)
        self._closed: Outcome | None = None
        self._spaces = AtFirstUse(self._space)
        self._lanes = AtFirstUse(self._lane)
        self._gates = None if ids is None else AtFirstUse(partial(self._gate, ids))

    def _space(self, index: int) -> SequenceSpace:
        position, refused = self.taken.bases[index], self.taken.refused.get(index)
        # A base above 0 shows earlier batches; a partition that was never written takes any client epoch.
        base, written = ClientSequence(position.sequence % MODULUS), position.sequence != 0
        return SequenceSpace(position.client_epoch, base, base, written=written, refused=refused, limit=self._limit)

    def _lane(self, index: int) -> Lane:
        plain, taken = None if self._idempotent else PlainSequences(), self.taken
        lane = self._forwarder.lane(self._name, index, taken.stamp, plain, self._owner, taken.topic_id)
        if self._closed is not None:
            lane.close(self._closed)
        return lane

    def _gate(self, ids: TopicIds, index: int) -> Gate:
        taken = self.taken
        session = Session(taken.session, producer_name(taken.name), taken.stamp.producer_id)
        space = self._spaces[index] if self._idempotent else None
        released = self._forwarder.released
        gate = Gate(ids.of(index), session, self._lanes[index], space, ids.services.headers, self, released)
        if self._closed is not None:
            gate.close(self._closed)
        return gate

    def covers(self, partition: int) -> bool:
        """Whether the partition was fenced for this epoch."""
        return partition in self._covered

    def verdict(self, partition: int, header: BatchHeader, connection: int | None = None) -> Verdict:
        """The verdict on a batch by the session's sequences. `connection`: the one that carried it; an UNHEARD batch is
        forwarded if it was answered so on that connection before.
        """
        # Model: AckRepeat.
        if not self._idempotent:
            return Verdict.FORWARD
        space = self._spaces[partition]
        found = space.judge(header.producer_epoch, header.base_sequence, header.records)
        if found is Verdict.UNHEARD and connection is not None and space.is_heard_on(connection):
            return Verdict.FORWARD
        if self.ids is not None and found in (Verdict.REPEAT, Verdict.ASTRIDE, Verdict.STRAY):
            return Verdict.FORWARD  # its gate remembers more of the last batches
        return found

    def answered(self, partition: int, verdict: Verdict, connection: int) -> None:
        """Note that a batch of the session was answered by its verdict on this connection."""
        self._spaces[partition].answered(verdict, connection)

    def append(self, partition: int, header: BatchHeader, batch: memoryview, timeout_ms: int, reply: Reply) -> None:
        """Stamp and send a batch that `verdict` forwards, and that the forwarder's buffer has admitted. It is
        refused if its request named the topic by another id (KIP-516): that is another topic of the same name.
        """
        # Model: Forward.
        if reply.topic_id and reply.topic_id != self.taken.topic_id.bytes:
            self._forwarder.released(len(batch))
            reply.answer(_OTHER_TOPIC)
            return
        if self._gates is not None:
            first = header.base_sequence if self._idempotent else NO_SEQUENCE
            self._gates[partition].offer(Arrival(batch, first, header.records, timeout_ms, reply))
            return
        deadline = self._loop.time() + timeout_ms / 1000
        append = Append(batch, header.last_offset_delta + 1, deadline, timeout_ms, reply.answer)
        if self._idempotent:
            append.belongs(self._spaces[partition], header.base_sequence)
        self._lanes[partition].append(append)

    def append_whole(self, request: WholeRequest, size: int) -> bool:
        """Stamp and send a whole request, with `size` bytes of batches, if all of them can be sent to one leader at
        once. Otherwise returns False and does nothing.
        """
        lanes: list[Lane] = []
        contents: list[Content] = []
        forwarder, link = self._forwarder, None
        idempotent, spaces, all_lanes, gates = self._idempotent, self._spaces, self._lanes, self._gates
        for (_, partition, _, _), batch, (_, epoch, first, count, _) in request.batches:
            lane = all_lanes.get(partition)
            if lane is None and partition in self._covered:
                lane = all_lanes[partition]
            if lane is None or not lane.flows:
                return False
            if idempotent and spaces[partition].judge(epoch, first, count) is not Verdict.FORWARD:
                return False
            if gates is not None:
                content = gates[partition].admits(batch, first if idempotent else NO_SEQUENCE, count)
                if content is None:
                    return False
                contents.append(content)
            its_link = forwarder.link_of(lane)
            if its_link is None or (link is not None and link is not its_link):
                return False
            link = its_link
            lanes.append(lane)
        if link is None or not link.take_whole() or not forwarder.admit(size):
            return False
        timeout_ms, settle = request.timeout_ms, request.asker.settle_outcome
        deadline = self._loop.time() + timeout_ms / 1000
        sent: list[tuple[Lane, Append]] = []
        for index, (part, batch, numbers) in enumerate(request.batches):
            lane, partition, first = lanes[index], part.partition, numbers.base_sequence
            append = Append(batch, numbers.records, deadline, timeout_ms, partial(settle, part, numbers))
            if idempotent:
                append.belongs(spaces[partition], first)
            if gates is not None:
                gates[partition].begin(contents[index], append, first)
            lane.begin(append)
            sent.append((lane, append))
        link.send_whole(request, sent)
        return True

    def close(self, outcome: Outcome) -> None:
        """Answer all waiting batches with `outcome`."""
        self._closed = self._closed or outcome
        for gate in () if self._gates is None else self._gates.in_order():
            gate.close(outcome)
        for lane in self._lanes.in_order():
            lane.close(outcome)

    @property
    def certain(self) -> bool:
        """Whether the outcome of every batch is known."""
        return all(space.certain for space in self._spaces.values())

    def stands_at(self) -> dict[int, Position]:
        """The client's next sequence in each partition, by the answers so far."""
        bases, spaces = self.taken.bases, self._spaces
        return {
            index: bases[index]
            if (space := spaces.get(index)) is None
            else Position(space.client_epoch, space.stands_at)
            for index in self.taken.partitions
        }

    def memory(self) -> Memory:
        """The session's positions as this node remembers them, for its next takeover."""
        return Memory(self.taken.topic_id, self.taken.stamp, self.stands_at())

    def wrote(self) -> list[int]:
        """The partitions whose logs are known to have batches of this epoch."""
        if not self._idempotent:
            lanes = self._lanes.items()
            return sorted(index for index, lane in lanes if lane.plain and lane.plain.next and lane.idle)
        return sorted(index for index, space in self._spaces.items() if space.next != space.base)

    def touched(self) -> set[int]:
        """The partitions to which a batch was ever sent under this epoch."""
        return {index for index, lane in self._lanes.items() if lane.used}

    def acknowledged(self, partition: int) -> StampedSequence:
        """The last stamped sequence that is known to be in the log, `NOTHING` without one."""
        space = self._spaces.get(partition)
        if space is None:
            return NOTHING
        return StampedSequence(space.stamped(space.next) - 1)  # -1 is `NOTHING`

    @property
    def idle(self) -> bool:
        """Whether no batch is under way."""
        gates = () if self._gates is None else self._gates.values()
        return all(lane.idle for lane in self._lanes.values()) and all(gate.is_idle for gate in gates)

    async def quiet(self) -> bool:
        """Wait a few seconds at most until no batch is under way; returns whether that was reached."""
        deadline = asyncio.get_running_loop().time() + _QUIET_S
        while not self.idle:
            if asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(_POLL_S)
        return True

    async def raise_for(self, services: NodeServices, partition: int, client_epoch: int) -> SlotEpoch:
        """The next slot epoch, for a session whose client raised its own epoch on one partition; see `renew`."""
        # Model: RaiseFor.
        return await self._next(services, {partition: Position(client_epoch, ClientSequence(0))}, {})

    async def renew(self, services: NodeServices) -> SlotEpoch:
        """The next slot epoch for the same session; every base is its client's next sequence (KIP-360).

        Before the call no batch is under way (`quiet`), and every outcome is known (`certain`). Raises `FencedError` if
        another node took the topic over since: Kafka then refuses the raise.
        """
        # Model: Renew.
        ends = await LogReader(services.upstream, topic_id=self.taken.topic_id).ends(
            self.taken.scope.topic, self.wrote()
        )
        return await self._next(services, {}, ends)

    async def _next(self, services: NodeServices, raised: Mapping[int, Position], ends: Mapping[int, int]) -> SlotEpoch:
        """Open the next epoch, and append its record. `raised`: bases that replace the session's positions. `ends`:
        offsets before all batches of the new epoch, so that a takeover right after it need not read the older ones.
        """
        bases, begins = {**self.stands_at(), **raised}, {**self.taken.begins, **ends}
        refused = {index: found for index, found in self.taken.refused.items() if index not in raised}
        taken = self.taken
        stamp = await taken.slot.raise_epoch()
        journal = services.changelog.journal(stamp)
        known = taken.scope.opened(services.changelog.view)
        last = known.value if known is not None else None
        left = list(last.left) if last is not None else []
        own = unpack_positions(last.own) if last is not None else {}
        entry = records.opening(
            taken.topic_id,
            services.node_id,
            stamp,
            (taken.session, taken.name),
            None if taken.scope.is_shared else taken.generation,
            Sequences(bases, refused, left, own),
            services.changelog.clock.now_ms(),
            retired_ids=last.retired_producer_ids if last is not None else (),
            former=last.former if last is not None else (),
            ids_from=taken.ids_from,
            begins=begins,
            caller=taken.caller,
            under=last.under if last is not None else 0,
        )
        await journal.append([Record(taken.scope.key, entry)])
        following = replace(taken, stamp=stamp, journal=journal, bases=bases, refused=refused, begins=begins)
        if self.ids is not None and taken.scope.is_master:
            self.ids.renewed(stamp)
        return SlotEpoch(following, self._forwarder, self._owner, self.ids, self._limit)

    # Keeper of its gates --------------------------------------------------------------------------------------------

    async def shift(
        self, partition: int, from_sequence: StampedSequence, base: ClientSequence, before: ClientSequence
    ) -> None:
        """See `sidecar.dedup.gate.Keeper`."""
        # Model: Drop.
        taken, scope = self.taken, self.taken.scope
        record = state.SequenceBase(
            topic_id=taken.topic_id.bytes,
            producer_id=taken.stamp.producer_id,
            producer_epoch=taken.stamp.epoch,
            session=taken.session,
            client_epoch=self._spaces[partition].client_epoch,
            from_sequence=from_sequence,
            base=base,
            base_before=before,
        )
        await taken.journal.append([Record(Key(Kind.SEQUENCE_BASE, scope.topic, scope.slot, partition), record)])

    def shift_failed(self, partition: int, error: Exception) -> None:
        """See `sidecar.dedup.gate.Keeper`."""
        if not isinstance(error, FAILURES):
            raise error
        self._owner.fenced(self._lanes[partition])

    def refused(self, partition: int, first: ClientSequence, records: int) -> None:
        """See `sidecar.dedup.gate.Keeper`."""
        if self._idempotent:
            self._owner.refused(partition, self._spaces[partition].client_epoch, first, records)

    def start(self, work: Coroutine[None, None, None]) -> None:
        """See `sidecar.dedup.gate.Keeper`."""
        assert self.ids is not None
        self.ids.services.tasks.start(work)
