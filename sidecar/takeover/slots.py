"""The writer slots of a topic: the whole topic's (slot 0, the master slot), one for each partition with its own owner
(slot pN), one for each session of a shared topic (1, 2, …). Extracts what a takeover needs from the records of the
ownership topic, and defines what a takeover returns. No IO, no state.

Records with another topic id (KIP-516) belong to a deleted topic of the same name and do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from metadata.ownership import Generation, Ownership
from sidecar.changelog import (
    MASTER_SLOT,
    Clock,
    Entry,
    Key,
    Kind,
    Opened,
    Position,
    SlotName,
    StampedJournal,
    View,
    partition_of,
    partition_slot,
)
from sidecar.dedup.names import FORGOTTEN, WriterNames, producer_name
from sidecar.fencing.slot import WriterSlot
from sidecar.forwarder.sequences import RefusedSequences
from sidecar.ownership.step import RecordRead
from sidecar.protocol.caller import TopicLayout
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp, StampedSequence
from sidecar.protocol.session import Caller, Session, is_default_name
from sidecar.takeover import records, succession
from sidecar.takeover.requests import FOR_NOBODY, Request
from sidecar.takeover.succession import Mention
from sidecar.v1 import state_pb2 as state


@dataclass(frozen=True, slots=True)
class SlotScope:
    """A slot of a topic."""

    topic: str
    slot: SlotName = MASTER_SLOT

    @classmethod
    def of_partition(cls, topic: str, partition: int) -> SlotScope:
        """One partition of a topic whose partitions have their own owners."""
        return cls(topic, partition_slot(partition))

    @property
    def partition(self) -> int | None:
        """The one partition of the slot; None: all partitions."""
        return partition_of(self.slot)

    @property
    def is_master(self) -> bool:
        """Whether it is the whole topic's slot: a takeover of it fences every other slot."""
        return self.slot == MASTER_SLOT

    @property
    def is_shared(self) -> bool:
        """Whether it belongs to one of several shared sessions. Such a slot has no owner and no generation."""
        return not self.is_master and self.partition is None

    @property
    def resource(self) -> str:
        """The name under which Redis arbitrates its owner. A topic's name contains no slash."""
        return self.topic if self.is_master else f"{self.topic}/{self.slot}"

    def covers(self, partition: int) -> bool:
        """Whether its slot may write there."""
        return self.partition in (None, partition)

    def of(self, partitions: Iterable[int]) -> list[int]:
        """The partitions that the slot covers, of those given, in order."""
        return sorted(index for index in partitions if self.covers(index))

    def overlaps(self, slot: SlotName) -> bool:
        """Whether another slot's owner might write where this one's does."""
        other = partition_of(slot)
        return self.partition is None or other is None or self.partition == other

    @property
    def key(self) -> Key:
        """The key of the records that open its epochs."""
        return Key(Kind.SLOT, self.topic, self.slot) if self.is_shared else Key(Kind.SERVING, self.topic, self.slot)

    def opened(self, view: View) -> Entry[state.Serving] | Entry[state.Slot] | None:
        """The record that opened its newest epoch."""
        return view.slot(self.topic, self.slot) if self.is_shared else view.serving(self.topic, self.slot)


class EpochWriter(NamedTuple):
    """The session that an epoch is opened for.

    `caller`: the client that it belongs to. None if a request claimed for a producer id whose client is not known yet:
    then nothing is written under the epoch (`GovernedTopic`). `name`: the client's own name, under which sequence ids
    are counted. If the client's name is unknown or a library's default, it is the owner's name.
    """

    session: Session
    name: str
    caller: Caller | None


@dataclass(frozen=True, slots=True)
class TakenSlot:
    """What a takeover returns: an epoch under which only this node writes, for one session."""

    scope: SlotScope
    topic_id: UUID
    stamp: Stamp
    slot: WriterSlot
    journal: StampedJournal
    session: Session
    name: str
    generation: int
    bases: Mapping[int, Position]
    refused: Mapping[int, RefusedSequences]
    partitions: tuple[int, ...]
    ownership: state.Ownership
    """The changelog's owner of the topic or partition; without a generation if it was never owned."""
    position: int
    """The offset of that record in the ownership topic."""
    others: Mapping[SlotName, WriterSlot]
    """The other slots of the topic. They were fenced too: no batch of their earlier epochs is appended any more."""
    ids_from: Mapping[int, int] | None = None
    """Where each log ended when the topic began to have sequence ids; None if it has none."""
    begins: Mapping[int, int] = field(default_factory=dict[int, int])
    """Offsets before everything that is written under this epoch, by partition."""
    caller: Caller | None = None
    """As in `EpochWriter`, with `session` and `name`."""
    fenced_from: Mapping[int, int] = field(default_factory=dict[int, int])
    """The end of each partition before the fence: its markers are at these offsets or after them."""


class GenerationError(Exception):
    """The operation was allowed under certain generations only, and `current` is none of them."""

    def __init__(self, resource: str, current: int) -> None:
        super().__init__(f"the generation of {resource} is {current}")
        self.current = current


class OutdatedMasterError(KafkaError):
    """The node took the master slot in a deleted topic of the same name. The present topic has to be fenced as a whole
    first.
    """


def owner_record(resource: str, value: state.Ownership, position: int, writer: Stamp | None, node_id: int) -> Ownership:
    """A changelog record in the form for Redis: `position` is its offset, `writer` the stamp of its writer."""
    return Ownership(
        resource=resource,
        generation=Generation(value.generation),
        position=position,
        session=None if value.released_ms or not value.session else value.session,
        name=value.name,
        mode=records.mode_of(value.mode),
        since_ms=value.since_ms,
        node_id=node_id,
        producer_id=writer.producer_id if writer else -1,
        producer_epoch=writer.epoch if writer else -1,
    )


def is_outdated(view: View, scope: SlotScope, entry: Entry[state.Ownership]) -> bool:
    """Whether the whole topic had an owner since a partition's record was written: its scope was changed."""
    whole = None if scope.is_master else view.ownership(scope.topic)
    return whole is not None and whole.offset > entry.offset


def read_owner(view: View, scope: SlotScope, node_id: int) -> RecordRead:
    """The owner of a topic or partition by the changelog's newest record, which may be another node's."""
    entry, floor = view.ownership(scope.topic, scope.slot), generation_floor(view, scope)
    if entry is None:
        return RecordRead(None, -1, floor, None)
    value = entry.value
    is_gone = value.released_ms or not value.session or is_outdated(view, scope, entry)
    recorded = None if is_gone else owner_record(scope.resource, value, entry.offset, entry.writer, node_id)
    return RecordRead(value, entry.offset, floor, recorded)


def generation_floor(view: View, scope: SlotScope) -> int:
    """The highest generation of any slot that overlaps this one, also from before a change of the scope."""
    slots = {MASTER_SLOT, *view.opened(scope.topic)}  # a deleted topic keeps only the master slot's generation
    owners = [view.ownership(scope.topic, slot) for slot in slots if scope.overlaps(slot)]
    return max((found.value.generation for found in owners if found is not None), default=0)


def generation_of(view: View, scope: SlotScope) -> int:
    """The generation of a topic or partition; 0 if nobody ever owned it."""
    own = view.ownership(scope.topic, scope.slot)
    return max(own.value.generation if own is not None else 0, generation_floor(view, scope))


def check_generation(view: View, scope: SlotScope, generations: frozenset[int] | None) -> None:
    """Raise `GenerationError` unless the generation is one of these; None: any."""
    if generations is not None and (current := generation_of(view, scope)) not in generations:
        raise GenerationError(scope.resource, current)


def writer_names(view: View, topic: str) -> WriterNames:
    """The producer names of the epochs of a topic's slots, as far as the changelog has them."""
    found = WriterNames()
    for entry in view.opened(topic).values():
        value = entry.value
        for former in value.former:
            name = FORGOTTEN if former.forgotten else producer_name(former.name)
            found.add(former.producer_id, former.last_epoch, name)
        found.add(value.producer_id, value.producer_epoch, producer_name(value.name))
    return found


def stamp_of(opened: Entry[Opened] | None) -> Stamp:
    """The stamp of the epoch that a record opened; -1 without a record."""
    if opened is None:
        return Stamp(ProducerId(-1), ProducerEpoch(-1))
    return Stamp(ProducerId(opened.value.producer_id), ProducerEpoch(opened.value.producer_epoch))


class Known(NamedTuple):
    """The owner's record, the record of the slot to take, and the records of slots that are fenced with it."""

    ownership: Entry[state.Ownership] | None
    opened: Entry[Opened] | None
    others: dict[SlotName, Entry[Opened]]


class SlotRecords:
    """The ownership topic's records, for one request to take one slot. `master`: this node's stamp of the master slot,
    if another slot is taken.
    """

    def __init__(self, view: View, clock: Clock, scope: SlotScope, request: Request, master: Stamp | None) -> None:
        self._view = view
        self._clock = clock
        self._scope = scope
        self._topic = scope.topic
        self._request = request
        self._master = master

    @property
    def now_ms(self) -> int:
        """The brokers' time in Unix ms: after the fence, by the node's own marker, which was read back."""
        return self._clock.now_ms()

    def known(self, topic_id: UUID) -> Known:
        """The records as they are now."""
        # Model: ReadLast.
        scope = self._scope
        ownership = None if scope.is_shared else self._view.ownership(self._topic, scope.slot)
        if ownership is not None and ownership.value.topic_id != topic_id.bytes:
            ownership = None
        opened = self._opened(topic_id)
        return Known(ownership, opened.pop(scope.slot, None), opened if scope.is_master else {})

    def _opened(self, topic_id: UUID) -> dict[SlotName, Entry[Opened]]:
        """The newest record of every slot of the topic."""
        entries = self._view.opened(self._topic).items()
        return {name: entry for name, entry in entries if entry.value.topic_id == topic_id.bytes}

    def _others(self, topic_id: UUID) -> dict[SlotName, Entry[Opened]]:
        """The same without the slot to take; empty if the request is for no session."""
        entries = self._opened(topic_id).items() if self._request.session else ()
        return {name: entry for name, entry in entries if name != self._scope.slot}

    def followed(self, topic_id: UUID) -> dict[SlotName, Entry[Opened]]:
        """Other slots that the session had. Each was fenced with the master slot, above its record's epoch."""
        session = self._request.session
        return {name: entry for name, entry in self._others(topic_id).items() if entry.value.session == session}

    def keeps(self, ownership: Entry[state.Ownership] | None) -> bool:
        """Whether the last owner continues, so that the generation stays.

        Raises `KafkaError` 90 PRODUCER_FENCED for a deposed session, `GenerationError` if a fence is wanted under
        another generation. A takeover commits nothing if this changes before.
        """
        request = self._request
        check_generation(self._view, self._scope, request.generations)
        if ownership is None:
            return False
        if request.purpose in FOR_NOBODY:
            return True
        if any(deposed.session == request.session for deposed in ownership.value.deposed):
            raise KafkaError(ErrorCode.PRODUCER_FENCED, f"{request.name} was fenced from {self._topic}")
        if is_outdated(self._view, self._scope, ownership):
            return False
        same = ownership.value.session == request.session
        return same and (request.asked is None or request.asked <= ownership.value.generation)

    def partitions(self, layout: TopicLayout) -> tuple[int, ...]:
        """The slot's partitions. Raises `KafkaError` if they lack one that was ever written through a slot: brokers
        that lag may know fewer partitions.
        """
        there = self._scope.of(layout.leaders)
        written = {
            index
            for entry in self._opened(layout.topic_id).values()
            for index in self._scope.of(entry.value.base.partition)
        }
        if missing := sorted(written.difference(there)):
            message = f"no broker that answers knows of partition {missing[0]} of {self._topic}; try again"
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, message)
        if not there:
            message = f"{self._topic} has no partition {self._scope.partition}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        return tuple(there)

    # The master slot ------------------------------------------------------------------------------------------------

    def check_master(self) -> None:
        """Check that the node still has the master slot. Raises `KafkaError` 6 NOT_LEADER_OR_FOLLOWER if it has
        not.
        """
        # Model: Serve.
        master = self._master
        if master is None:
            return
        serving = self._view.opened(self._topic).get(MASTER_SLOT)
        if stamp_of(serving) != master or self._view.epoch(master.producer_id) != master.epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"another node took {self._topic} over")

    def check_topic(self, topic_id: UUID) -> None:
        """Check that the master slot was taken in the present topic of this name. Raises `OutdatedMasterError`."""
        if self._master is None:
            return
        serving = self._view.opened(self._topic).get(MASTER_SLOT)
        if serving is not None and serving.value.topic_id != topic_id.bytes:
            message = f"{self._topic} was created anew; try again"
            raise OutdatedMasterError(ErrorCode.LEADER_NOT_AVAILABLE, message)

    def under(self) -> int:
        """The offset of this node's master record; 0 if the master slot itself is taken over. Raises `KafkaError`
        with NOT_LEADER_OR_FOLLOWER if another node's master record is there now.
        """
        if self._master is None:
            return 0
        self.check_master()
        return self._view.opened(self._topic)[MASTER_SLOT].offset

    # Sequences ------------------------------------------------------------------------------------------------------

    def mentions(self, topic_id: UUID, last: Mapping[SlotName, Mapping[int, StampedSequence]]) -> list[Mention]:
        """What the records of other slots contain about the session."""
        session = self._request.session
        found = [
            succession.mention(
                session, entry.value, entry.offset, last.get(name, {}), self.now_ms, self.shifts(name, entry)
            )
            for name, entry in self._others(topic_id).items()
        ]
        return [said for said in found if said is not None]

    def shifts(self, name: SlotName, entry: Entry[Opened] | None) -> dict[int, state.SequenceBase]:
        """Where the bases of a slot's session moved within its newest epoch; complete after the fence."""
        writer = stamp_of(entry)
        found = {key.partition: shift for key, shift in self._view.shifts(self._topic, name)}
        return {
            index: shift
            for index, shift in found.items()
            if index is not None and (shift.producer_id, shift.producer_epoch) == (writer.producer_id, writer.epoch)
        }

    def writer(self, owner: state.Ownership, topic_id: UUID) -> EpochWriter:
        """The session of an owner, with its client's name and its client."""
        session = Session(owner.session)
        caller = self._caller(session, topic_id)
        is_named = caller is not None and not is_default_name(caller.client_id)
        return EpochWriter(session, caller.client_id if caller is not None and is_named else owner.name, caller)

    def _caller(self, session: Session, topic_id: UUID) -> Caller | None:
        """The client that a session belongs to: from the request, else from the newest record that has it."""
        if session == self._request.session and self._request.caller is not None:
            return self._request.caller
        entries = sorted(self._opened(topic_id).values(), key=lambda entry: entry.offset, reverse=True)
        found = (records.callers(entry.value).get(session) for entry in entries)
        return next((caller for caller in found if caller is not None), None)

    def memory(self, topic_id: UUID, opened: Entry[Opened] | None) -> Mapping[int, Position]:
        """The session's positions as this node remembers them, or empty if they may be outdated. They count if
        their epoch is still the newest, or if the topic was created anew and no record of it names the session.
        """
        session, memory = self._request.session, self._request.memory
        if memory is None:
            return {}
        if opened is not None and stamp_of(opened) == memory.stamp:
            return memory.stands_at
        if memory.topic_id == topic_id:
            return {}
        entries = self._opened(topic_id).values()
        is_known = any(succession.mention(session, each.value, each.offset, {}, self.now_ms) for each in entries)
        return {} if is_known else memory.stands_at
