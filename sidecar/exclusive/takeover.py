"""The takeover of a slot: how a node makes a session the owner of a topic or partition, lets one write beside others,
or goes on serving the one it has.

The order is what makes it safe. Each step may be the last one before a crash; a model checker broke the protocol for
each step that was left out or moved:

0. Look at the ownership topic without fencing: a deposed session ends here.
1. Claim in Redis: arbitration and the generation.
2. Note where the previous epoch stopped (`tails`), then InitProducerId: the next epoch E.
3. Fence every partition and the ownership partition at E; who takes a whole topic fences all its slots. The partitions
   are the ones that step 2 looked at, and no fewer than any epoch wrote to: else all begins anew.
4. Read the ownership topic up to that marker: what step 0 saw must still hold.
5. Read the logs on from the tails, each slot's up to that slot's own marker: what its previous epoch got in meanwhile.
   Slots are fenced one after another, so one may write behind the marker of another.
6. Append `Serving` (and `Ownership`), stamped with E, sequence 0: the commit point.
7. Publish to Redis, append an event, serve.

Nothing of an older epoch is behind the fence. Slots beside the master slot are opened by the node that has that one: it
looks, behind its own record, whether it still has. Another node that takes the topic reads the ownership topic behind
its fence: either it finds that record, and fences the slot, or its fence is found.

`model/` has these steps as actions: functions name theirs (`Model: NoteTails`), and actions name their functions.

This module performs the steps; who may ask for them is decided in `claims`, what the records of step 6 say in
`succession`.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final, Protocol

from sidecar.changelog import MASTER_SLOT, Record, ownership_key, unpack_offsets
from sidecar.exclusive import succession
from sidecar.exclusive.arbitration import Arbitration
from sidecar.exclusive.domain import Domain
from sidecar.exclusive.tenure import Tenure, check_generation, is_outdated, stamp_of, tail_reader
from sidecar.fencing import WriterSlot, fence_topic, open_slots, transactional_id
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import Offset, ProducerId, TopicPartition
from sidecar.v1 import state_pb2 as state

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from sidecar.changelog import Entry, Opened, Position, SlotName, StampedJournal
    from sidecar.exclusive.succession import Intent, Mention, Sequences
    from sidecar.exclusive.tails import Look, Tail, TailReader
    from sidecar.exclusive.tenure import Surroundings
    from sidecar.fencing import FencedTopic
    from sidecar.protocol.caller import TopicLayout
    from sidecar.protocol.ids import Stamp

_ATTEMPTS: Final = 4
_RECORDS_AT_ONCE: Final = 500
_SEEN_S: Final = 10.0
_FORMER_KEPT: Final = 200
_FORMER_WITHOUT_IDS: Final = 20


class Covered(Protocol):
    """What snapshots have of a topic's sequence ids. `since`: behind this offset of the ownership topic it has them; -1
    where that was never seen to begin.
    """

    since: int

    def is_covered(self, producer_id: int, last_epoch: int) -> bool:
        """Everything that was written up to this epoch."""
        ...

    def urge(self) -> None:
        """New ones are needed soon."""
        ...

    def distrust(self) -> None:
        """Another node served the topic meanwhile: what this one remembers of it is not all there is."""
        ...


def _never_covered(*_: int) -> bool:
    """Of a topic without sequence ids there are no snapshots."""
    return False


class LostRaceError(Exception):
    """Somebody else took the topic over while this takeover was under way."""


class Takeover:
    """One takeover of one slot; `run` performs it, again from the start where somebody interfered.

    `master` is the master slot's stamp of this node, where another slot is taken. `trusted_ms`: how far back leaders
    surely remember every producer. `ids`: what snapshots have of the topic's sequence ids, where it has any.
    """

    def __init__(
        self,
        around: Surroundings,
        domain: Domain,
        intent: Intent,
        master: Stamp | None = None,
        trusted_ms: float = 0.0,
        ids: Covered | None = None,
    ) -> None:
        self._around = around
        self._domain = domain
        self._topic = domain.topic
        self._intent = intent
        self._master = master
        self._trusted_ms = trusted_ms
        self._ids = ids
        self._view = around.changelog.view
        self._arbitration = Arbitration(around, domain, intent)
        self._clock = around.changelog.clock

    async def run(self, granted: Callable[[], None] = lambda: None) -> Tenure:
        """`granted` is called once nobody objects: what writes under an older epoch should stop now.

        Raises `GenerationError`, `HeldError`, `LostRaceError`, `KafkaError`, `MetadataUnavailable`, and what the rooms
        below raise.
        """
        # Model: StartOver.
        for _ in range(_ATTEMPTS):
            tenure = await self._attempt(granted)
            if tenure is not None:
                return tenure
        raise LostRaceError(f"the ownership of {self._domain.resource} changed again and again")

    async def _attempt(self, granted: Callable[[], None]) -> Tenure | None:
        around, domain = self._around, self._domain
        layout = await around.upstream.whole_layout(self._topic)
        partitions = self._partitions(layout)
        known = self._known(layout.topic_id)
        ownership, opened, others = known
        keeps = self._keeps(ownership)
        self._check_former(opened)
        if self._ids is not None and opened is not None and opened.value.node != around.node_id and domain.is_master:
            self._ids.distrust()
        token, generation = await self._arbitration.claim(ownership, opened, keeps=keeps)
        published = False
        granted()
        try:
            reader = tail_reader(around, self._topic)
            look = await reader.look(partitions)
            formers = others | self._followed(layout.topic_id)
            if opened is not None:
                formers[domain.slot] = opened
            tails = await self._note_tails(reader, look, layout.topic_id, formers, ownership)

            slots = {name: self._slot(name) for name in (domain.slot, *others)}
            await open_slots([*slots.values()])
            fenced = await self._fence([*slots.values()], formers)
            await around.changelog.tailer.seen(slots[domain.slot].stamp, timeout=_SEEN_S)
            if self._known(fenced.topic_id) != known or tuple(domain.of(fenced.partitions)) != partitions:
                return None

            ends = await reader.ends(partitions)
            last = await self._last(reader, formers, tails, slots, ends)
            memory = self._memory(fenced.topic_id, opened)
            own: Mapping[int, Position] | None = {}
            if not memory:
                own = await self._own(reader, look, slots[domain.slot].stamp, ends)
            if own is None:
                return None
            sequences = self._sequences(fenced.topic_id, partitions, opened, last, own, memory)
            tenure = await self._open(fenced, slots, ownership, opened, sequences, ends, generation, keeps=keeps)
            if not self._is_unowned(ownership):
                await self._arbitration.publish(tenure, token)
            published = True
            return tenure
        finally:
            if not published:
                await self._arbitration.abandon(token)

    async def _open(
        self,
        fenced: FencedTopic,
        slots: Mapping[SlotName, WriterSlot],
        ownership: Entry[state.Ownership] | None,
        opened: Entry[Opened] | None,
        sequences: Sequences,
        ends: Mapping[int, int],
        generation: int,
        *,
        keeps: bool,
    ) -> Tenure:
        """The commit point: who writes from now on, and where everybody's sequences stand."""
        # Model: ReadAndCommit.
        around, domain, intent = self._around, self._domain, self._intent
        slot, (bases, refused, left, own) = slots[domain.slot], sequences
        record = opened.value if opened is not None else None
        ids_from = self._ids_from(opened, ends)
        owned = ownership.value if ownership is not None else None
        owner = succession.ownership(intent, owned, fenced.topic_id, generation, ends, self._now_ms, keeps=keeps)
        if self._is_unowned(ownership):
            owner = state.Ownership(session=intent.session, name=intent.name)
        entry = succession.opening(
            fenced.topic_id,
            around.node_id,
            slot.stamp,
            ("", "") if intent.adopts else (owner.session, owner.name),
            None if domain.is_shared else generation,
            bases,
            refused,
            left,
            succession.retired(record, slot.stamp),
            self._now_ms,
            self._former(record, slot.stamp, "" if intent.adopts else intent.name),
            ids_from,
            ends,
            client_id=self._client_id(owner.session, fenced.topic_id),
            own=own,
            under=self._under,
        )
        journal = around.changelog.journal(slot.stamp)
        changed = not self._is_unowned(ownership) and owner != owned
        offset = await self._commit(journal, entry, owner if changed else None)
        return Tenure(
            domain,
            fenced.topic_id,
            slot.stamp,
            slot,
            journal,
            owner.session,
            owner.name,
            generation,
            bases,
            refused,
            tuple(domain.of(fenced.partitions)),
            owner,
            offset + 1 if changed else ownership.offset if ownership is not None else offset,
            {name: each for name, each in slots.items() if name != domain.slot},
            ids_from,
            ends,
        )

    def _is_unowned(self, ownership: Entry[state.Ownership] | None) -> bool:
        """Nobody owns what is taken: a shared slot, or a topic that never had an owner and is adopted."""
        return self._domain.is_shared or (self._intent.adopts and ownership is None)

    @property
    def _now_ms(self) -> int:
        """At the brokers: behind the fence its own marker, which was read back, says what time it is."""
        return self._clock.now_ms()

    @property
    def _under(self) -> int:
        """The offset of this node's master record; 0 if the master slot itself is taken over. Raises `KafkaError` 6 if
        another node's master record stands there by now.
        """
        if self._master is None:
            return 0
        self._check_master()
        return self._view.opened_now(self._topic)[MASTER_SLOT].offset

    async def _commit(self, journal: StampedJournal, entry: Opened, owner: state.Ownership | None) -> Offset:
        """Write down that the slot is this epoch's, and whose the topic is where that changed; where it stands."""
        # Model: Commit, Serve.
        tailer = self._around.changelog.tailer
        batch = [Record(self._domain.key, entry)]
        if owner is not None:
            batch.append(Record(ownership_key(self._topic, self._domain.slot), owner))
        offset = await journal.append(batch)
        await tailer.reached(Offset(offset + len(batch) - 1), timeout=_SEEN_S)
        self._check_master()
        return offset

    # What the changelog says ----------------------------------------------------------------------------------------

    def _known(
        self, topic_id: UUID
    ) -> tuple[Entry[state.Ownership] | None, Entry[Opened] | None, dict[SlotName, Entry[Opened]]]:
        """The owner, the record of this slot, and those of the slots that are taken with it; a topic of another id
        under the name is none of ours.
        """
        # Model: ReadLast.
        domain = self._domain
        ownership = None if domain.is_shared else self._view.ownership(self._topic, domain.slot)
        if ownership is not None and ownership.value.topic_id != topic_id.bytes:
            ownership = None
        records = self._opened(topic_id)
        return ownership, records.pop(domain.slot, None), records if domain.is_master else {}

    def _opened(self, topic_id: UUID) -> dict[SlotName, Entry[Opened]]:
        """The newest record of every slot of the topic."""
        records = self._view.opened(self._topic).items()
        return {name: entry for name, entry in records if entry.value.topic_id == topic_id.bytes}

    def _followed(self, topic_id: UUID) -> dict[SlotName, Entry[Opened]]:
        """Other slots that the session had: each was fenced, above the epoch of its record, with the master slot."""
        session, own = self._intent.session, self._domain.slot
        records = self._opened(topic_id).items() if session else ()
        return {name: entry for name, entry in records if name != own and entry.value.session == session}

    def _sequences(
        self,
        topic_id: UUID,
        partitions: tuple[int, ...],
        opened: Entry[Opened] | None,
        last: Mapping[SlotName, Mapping[int, int]],
        own: Mapping[int, Position],
        memory: Mapping[int, Position],
    ) -> Sequences:
        """Where the sequences of the session go on, and where those of others stopped."""
        # Model: Claim.
        slot = self._domain.slot
        return succession.sequences(
            self._intent,
            opened.value if opened is not None else None,
            partitions,
            last.get(slot, {}),
            own,
            self._now_ms,
            memory=memory,
            at=opened.offset if opened is not None else 0,
            elsewhere=self._mentions(topic_id, last),
            shifts=self._shifts(slot, opened),
        )

    def _mentions(self, topic_id: UUID, last: Mapping[SlotName, Mapping[int, int]]) -> list[Mention]:
        """What other slots' records say of the session."""
        session, own = self._intent.session, self._domain.slot
        found = [
            succession.mention(
                session, entry.value, entry.offset, last.get(name, {}), self._now_ms, self._shifts(name, entry)
            )
            for name, entry in self._opened(topic_id).items()
            if name != own and session
        ]
        return [said for said in found if said is not None]

    def _client_id(self, session: str, topic_id: UUID) -> str | None:
        """The client.id that a session belongs to, as the claim says it, or the newest record that does."""
        if session == self._intent.session and self._intent.client_id is not None:
            return self._intent.client_id
        records = sorted(self._opened(topic_id).values(), key=lambda entry: entry.offset, reverse=True)
        found = (succession.client_ids(entry.value).get(session) for entry in records)
        return next((client_id for client_id in found if client_id is not None), None)

    def _shifts(self, name: SlotName, entry: Entry[Opened] | None) -> dict[int, state.SequenceBase]:
        """Where the bases of a slot's session moved within its newest epoch: behind the fence nothing is added."""
        writer = stamp_of(entry)
        found = {key.partition: shift for key, shift in self._view.shifts(self._topic, name)}
        return {
            index: shift
            for index, shift in found.items()
            if index is not None and (shift.producer_id, shift.producer_epoch) == (writer.producer_id, writer.epoch)
        }

    def _check_former(self, opened: Entry[Opened] | None) -> None:
        """Raises `KafkaError` 5 where more writers of a slot came and went than its record can name."""
        ids = self._ids
        if ids is None or opened is None or len(opened.value.former) < _FORMER_KEPT:
            return
        if not any(each.forgotten or ids.is_covered(each.producer_id, each.last_epoch) for each in opened.value.former):
            ids.urge()
            message = f"{_FORMER_KEPT} writers of {self._topic} came and went since its last snapshot; try again"
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, message)

    def _former(self, record: Opened | None, stamp: Stamp, name: str) -> list[state.FormerWriter]:
        """Whose the slot's earlier epochs were."""
        ids = self._ids
        if ids is None:
            return succession.former_writers(record, stamp, name, _never_covered, _FORMER_WITHOUT_IDS)
        return succession.former_writers(record, stamp, name, ids.is_covered, 2 * _FORMER_KEPT)

    def _ids_from(self, opened: Entry[Opened] | None, ends: Mapping[int, int]) -> dict[int, int] | None:
        """Where the topic's logs ended when it began to have sequence ids: now, where it had none since."""
        if self._ids is None or not self._domain.is_master:
            return None
        if opened is None or opened.offset < self._ids.since:
            return dict(ends)
        value = opened.value
        if isinstance(value, state.Serving) and value.HasField("ids_from"):
            return unpack_offsets(value.ids_from)
        return dict(ends)

    def _keeps(self, ownership: Entry[state.Ownership] | None) -> bool:
        """Whether the session is the last owner and goes on: the generation stays. Raises `KafkaError` 90 for a
        deposed one, `GenerationError` where the takeover is wanted under another: nothing is committed where this
        changes meanwhile.
        """
        check_generation(self._view, self._domain, self._intent.generations)
        if ownership is None:
            return False
        if self._intent.adopts:
            return True
        if any(deposed.session == self._intent.session for deposed in ownership.value.deposed):
            raise KafkaError(ErrorCode.PRODUCER_FENCED, f"{self._intent.name} was fenced from {self._topic}")
        if is_outdated(self._view, self._domain, ownership):
            return False
        asked = self._intent.asked
        same = ownership.value.session == self._intent.session
        return same and (asked is None or asked <= ownership.value.generation)

    def _check_master(self) -> None:
        """Behind its own record the node has the master slot still. Raises `KafkaError` 6 where it has not."""
        # Model: Serve.
        master = self._master
        if master is None:
            return
        serving = self._view.opened(self._topic).get(MASTER_SLOT)
        if stamp_of(serving) != master or self._view.epoch(master.producer_id) != master.epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"another node took {self._topic} over")

    def _partitions(self, layout: TopicLayout) -> tuple[int, ...]:
        """The partitions concerned, all that were ever written through a slot among them: brokers that lag may know
        fewer. Raises `KafkaError`.
        """
        there = self._domain.of(layout.leaders)
        written = {
            index
            for entry in self._opened(layout.topic_id).values()
            for index in self._domain.of(entry.value.base.partition)
        }
        if missing := sorted(written.difference(there)):
            message = f"no broker that answers knows of partition {missing[0]} of {self._topic}; try again"
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, message)
        if not there:
            message = f"{self._topic} has no partition {self._domain.partition}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        return tuple(there)

    # Slots and logs -------------------------------------------------------------------------------------------------

    def _slot(self, name: SlotName) -> WriterSlot:
        return WriterSlot(self._around.upstream, transactional_id(self._around.cluster, self._topic, name))

    async def _note_tails(
        self,
        reader: TailReader,
        look: Look,
        topic_id: UUID,
        formers: Mapping[SlotName, Entry[Opened]],
        ownership: Entry[state.Ownership] | None,
    ) -> dict[SlotName, dict[int, Tail]]:
        """Where the sessions stand that had these slots, also in the changelog: the fence makes leaders forget it."""
        # Model: NoteTails.
        found: dict[SlotName, dict[int, Tail]] = {}
        records: list[Record] = []
        owned = unpack_offsets(ownership.value.start) if ownership is not None else {}
        for name, entry in formers.items():
            if not entry.value.session.startswith("pid:"):
                continue  # nobody's, or of somebody who never comes back
            former, writer = Domain(self._topic, name), stamp_of(entry)
            indexes = former.of(look.ends)
            if entry.value.HasField("begins"):
                since = unpack_offsets(entry.value.begins)
            else:  # an older node wrote it
                since = {} if former.is_shared else owned
            since = since | self._trusted(former, entry, look)
            found[name] = reader.before(self._view, name, writer, look, indexes, since)
            records += reader.records(self._view, name, topic_id, writer, found[name], self._now_ms)
            await asyncio.sleep(0)  # there may be hundreds, of hundreds of partitions each
        for first in range(0, len(records), _RECORDS_AT_ONCE):
            await self._around.changelog.append(records[first : first + _RECORDS_AT_ONCE])
        return found

    async def _last(
        self,
        reader: TailReader,
        formers: Mapping[SlotName, Entry[Opened]],
        tails: Mapping[SlotName, Mapping[int, Tail]],
        slots: Mapping[SlotName, WriterSlot],
        ends: Mapping[int, int],
    ) -> dict[SlotName, dict[int, int]]:
        """The last stamped sequences of the slot's own former session, and of the new one in other slots: each up to
        the marker that fenced it now, or one that did before.
        """
        # Model: ReadLogs.
        session, own = self._intent.session, self._domain.slot
        return {
            name: await reader.behind(stamp_of(formers[name]), its_tails, slots.get(name, slots[own]).stamp, ends)
            for name, its_tails in tails.items()
            if name == own or formers[name].value.session == session
        }

    def _memory(self, topic_id: UUID, opened: Entry[Opened] | None) -> Mapping[int, Position]:
        """Where the session stands by this node's memory. Empty if the memory may be outdated: it counts if its epoch
        is still the newest, or if the topic was created anew and no record of the new topic names the session.
        """
        session, memory = self._intent.session, self._intent.memory
        if memory is None:
            return {}
        if opened is not None and stamp_of(opened) == memory.stamp:
            return memory.stands_at
        if memory.topic_id == topic_id:
            return {}
        records = self._opened(topic_id).values()
        is_known = any(succession.mention(session, each.value, each.offset, {}, self._now_ms) for each in records)
        return {} if is_known else memory.stands_at

    async def _own(
        self, reader: TailReader, look: Look, fence: Stamp, ends: Mapping[int, int]
    ) -> Mapping[int, Position] | None:
        """Where the session stands by its own producer id: it wrote while the topic had no policy. None where that
        cannot be told by this look.
        """
        producer_id = succession.own_producer_id(self._intent.session)
        if producer_id is None:
            return {}
        return await reader.own(producer_id, look, fence, ends, others_write=self._domain.is_shared)

    def _trusted(self, former: Domain, entry: Entry[Opened], look: Look) -> dict[int, int]:
        """The ends of the partitions whose leader remembers no batch of a slot and cannot have forgotten one.

        Reading starts there instead of at the begin of the slot's epoch: others may have written much since, and
        retention may have deleted it. A leader that knows a higher epoch has forgotten this one. A leader that knows a
        batch of the slot may hold it in front of its end. Empty while the brokers' time is not known.
        """
        oldest = self._now_ms - self._trusted_ms if self._clock.is_confirmed else math.inf
        writer = stamp_of(entry)
        ends: dict[int, int] = {}
        for index, end in look.ends.items():
            active = look.remembered[TopicPartition(self._topic, index)].of(writer.producer_id)
            if active is not None and (active.stamp.epoch > writer.epoch or active.last_sequence >= 0):
                continue
            tail = self._view.tail(self._topic, former.slot, index)
            if max(entry.at_ms, min(tail.at_ms, tail.value.at_ms) if tail is not None else 0) > oldest:
                ends[index] = end
        return ends

    async def _fence(self, slots: list[WriterSlot], formers: Mapping[SlotName, Entry[Opened]]) -> FencedTopic:
        around, partition = self._around, self._around.changelog.partition
        former: dict[str, ProducerId] = {}
        only: dict[str, int] = {}
        for name, entry in formers.items():
            former[transactional_id(around.cluster, self._topic, name)] = stamp_of(entry).producer_id
        for name in (*formers, self._domain.slot):
            if (one := Domain(self._topic, name).partition) is not None:
                only[transactional_id(around.cluster, self._topic, name)] = one
        also = {partition.topic: [partition.partition]}
        if self._ids is not None and self._domain.is_master:
            snapshots = around.changelog.snapshots_of(self._topic)
            also[snapshots.topic] = [snapshots.partition]
        return await fence_topic(around.upstream, slots, self._topic, also=also, former=former, only=only)
