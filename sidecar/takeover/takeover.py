"""The takeover of a slot: a node makes a session the owner of a topic or partition, lets a shared session write, or
continues to serve the present owner.

The order is what makes it safe. Each step may be the last one before a crash; a model checker broke the protocol for
each step that was left out or moved:

0. Look at the ownership topic without fencing: a deposed session ends here.
1. Claim in Redis: arbitration and the generation.
2. Note where the previous epoch stopped (`tails`), then InitProducerId: the next epoch E.
3. Fence every partition and the ownership partition at E; a takeover of a whole topic fences all its slots. The
   partitions must be those that step 2 looked at, else the takeover starts again. Step 0 fails unless they include
   every partition that an epoch wrote to.
4. Read the ownership topic up to that marker: the records that step 0 read must still be the newest. Before a
   topic or partition gets an owner, or sessions share it, make sure that it keeps its policy (`PolicyCatalog.hold`).
5. Read the logs from the tails on, for each slot up to its own marker: this finds the batches that its previous epoch
   appended in between. Slots are fenced one after another, so one may write after the marker of another.
6. Append `Serving` (and `Ownership`), stamped with E, sequence 0: the commit point.
7. Publish to Redis, append an event, serve.

No batch of an older epoch is appended after the fence. Only the node that has the master slot opens other slots. It
checks, after it has appended its record, that it still has the master slot. Another node that takes the topic reads the
ownership topic after its fence. Either it finds that record and fences the slot, or its fence came first and the check
finds it.

`model/` has these steps as actions: functions name theirs (`Model: NoteTails`), and actions name their functions.

This module performs the steps, one method each, in the order of `Takeover._attempt`. `ownership.step` decides
which sessions may start them, `requests` has their purposes. `slots` reads the ownership topic; `succession` and
`records` make what step 6 writes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from sidecar.access.services import NodeServices
from sidecar.changelog import (
    Entry,
    Key,
    Kind,
    Opened,
    Position,
    Record,
    SlotName,
    StampedJournal,
    retired_ids,
    unpack_offsets,
)
from sidecar.dedup.topic import TopicIds
from sidecar.fencing.slot import WriterSlot, transactional_id
from sidecar.fencing.topic import FencedTopic, fence_topic, open_slots
from sidecar.protocol.ids import Offset, Stamp, StampedSequence
from sidecar.protocol.session import NO_SESSION, Session
from sidecar.takeover import records, succession
from sidecar.takeover.arbitration import Arbitration
from sidecar.takeover.records import FormerWriters
from sidecar.takeover.requests import FOR_NOBODY, Request
from sidecar.takeover.slots import Known, SlotRecords, SlotScope, TakenSlot, stamp_of
from sidecar.takeover.succession import Sequences
from sidecar.takeover.tails import Look, Tail, TailReader, trusted_ends
from sidecar.v1 import state_pb2 as state

_ATTEMPTS: Final = 4
_RECORDS_AT_ONCE: Final = 500
_SEEN_S: Final = 10.0


class LostRaceError(Exception):
    """Every attempt of this takeover was disturbed, for example by another node's takeover."""


@dataclass(frozen=True, slots=True)
class _Start:
    """Step 0: the content of the ownership topic before the fence. `keeps`: the last owner and its generation stay."""

    topic_id: UUID
    partitions: tuple[int, ...]
    known: Known
    keeps: bool


@dataclass(frozen=True, slots=True)
class _Noted:
    """Step 2: the look at the leaders, the slots' newest records (`formers`), and the tails of their writers."""

    reader: TailReader
    look: Look
    formers: Mapping[SlotName, Entry[Opened]]
    tails: Mapping[SlotName, Mapping[int, Tail]]


@dataclass(frozen=True, slots=True)
class _Fenced:
    """Step 3: the topic as it was fenced, and the slots under their new epochs."""

    topic: FencedTopic
    slots: Mapping[SlotName, WriterSlot]


class Takeover:
    """One takeover of one slot. `run` performs it, and starts again if it was disturbed.

    `master`: this node's stamp of the master slot, if another slot is taken over. `trusted_ms`: how far back leaders
    surely remember every producer. `ids`: the topic's sequence ids, if it has any.
    """

    def __init__(
        self,
        services: NodeServices,
        scope: SlotScope,
        request: Request,
        master: Stamp | None = None,
        trusted_ms: float = 0.0,
        ids: TopicIds | None = None,
    ) -> None:
        self._services = services
        self._scope = scope
        self._topic = scope.topic
        self._request = request
        self._trusted_ms = trusted_ms
        self._has_ids = ids is not None
        self._former = FormerWriters(scope.topic, ids, scope.is_master)
        self._records = SlotRecords(services.changelog.view, services.changelog.clock, scope, request, master)
        self._arbitration = Arbitration(services, scope, request)

    async def run(
        self, granted: Callable[[], None] = lambda: None, fenced: Callable[[], Awaitable[None]] | None = None
    ) -> TakenSlot:
        """Perform the takeover. `granted` is called when the claim is granted: writers under older epochs should stop.
        `fenced` is called behind the fence, before anything is committed; what it raises ends the takeover.

        Raises `OutdatedMasterError`, `GenerationError`, `HeldError`, `LostRaceError`, `KafkaError`,
        `MetadataUnavailable`, and what the rooms below raise.
        """
        # Model: StartOver.
        for _ in range(_ATTEMPTS):
            taken = await self._attempt(granted, fenced)
            if taken is not None:
                return taken
        raise LostRaceError(f"the ownership of {self._scope.resource} kept changing")

    async def _attempt(
        self, granted: Callable[[], None], is_fenced: Callable[[], Awaitable[None]] | None
    ) -> TakenSlot | None:
        """Perform all steps in order. Returns None if they were disturbed and have to start again."""
        start = await self._look()
        token, generation = await self._arbitration.claim(start.known.ownership, start.known.opened, keeps=start.keeps)
        is_published = False
        granted()
        try:
            noted = await self._note_tails(start)
            fenced = await self._fence(noted, start.known.others)
            if not await self._still_holds(start, fenced):
                return None
            if is_fenced is not None:
                await is_fenced()
            ends = await noted.reader.ends(start.partitions)
            sequences = await self._sequences(start, noted, fenced, ends)
            if sequences is None:
                return None
            committed = await self._commit(start, fenced, sequences, ends, generation)
            taken = replace(committed, fenced_from=noted.look.ends)
            if not self._is_unowned(start):
                await self._arbitration.publish(taken, token)
            is_published = True
            return taken
        finally:
            if not is_published:
                await self._arbitration.abandon(token)

    # 0. Look at the ownership topic ---------------------------------------------------------------------------------

    async def _look(self) -> _Start:
        """Read the slot's state, without fencing. Raises `KafkaError`, `OutdatedMasterError`, `GenerationError`."""
        layout = await self._services.upstream.whole_layout(self._topic)
        self._records.check_topic(layout.topic_id)
        partitions = self._records.partitions(layout)
        known = self._records.known(layout.topic_id)
        keeps = self._records.keeps(known.ownership)
        self._former.check(self._services.node_id, known.opened)
        return _Start(layout.topic_id, partitions, known, keeps)

    # 2. Note where the previous epoch stopped -----------------------------------------------------------------------

    async def _note_tails(self, start: _Start) -> _Noted:
        """Find where each slot's session stopped, and store it in the changelog: the fence makes leaders forget it."""
        # Model: NoteTails.
        reader = TailReader(self._services.upstream, self._topic, start.topic_id)
        look = await reader.look(start.partitions)
        formers = start.known.others | self._records.followed(start.topic_id)
        if start.known.opened is not None:
            formers[self._scope.slot] = start.known.opened
        found: dict[SlotName, dict[int, Tail]] = {}
        news: list[Record] = []
        for name, entry in formers.items():
            if not Session(entry.value.session).is_idempotent:
                continue  # it has no session, or a plain one, which never comes back
            former, writer = SlotScope(self._topic, name), stamp_of(entry)
            since = unpack_offsets(entry.value.begins) | trusted_ends(
                self._services.changelog.view, self._services.changelog.clock, former, entry, look, self._trusted_ms
            )
            view, indexes = self._services.changelog.view, former.of(look.ends)
            found[name] = reader.before(view, name, writer, look, indexes, since)
            news += reader.records(view, name, start.topic_id, writer, found[name], self._records.now_ms)
            await asyncio.sleep(0)  # there may be hundreds of slots, with hundreds of partitions each
        for first in range(0, len(news), _RECORDS_AT_ONCE):
            await self._services.changelog.append(news[first : first + _RECORDS_AT_ONCE])
        return _Noted(reader, look, formers, found)

    # 3. Open the next epochs, and fence -----------------------------------------------------------------------------

    async def _fence(self, noted: _Noted, others: Mapping[SlotName, Entry[Opened]]) -> _Fenced:
        """Open each slot's next epoch, and fence: partitions and internal topics then refuse older ones."""
        services, scope = self._services, self._scope
        names = (scope.slot, *others, *noted.formers)
        ids = {name: transactional_id(services.cluster, self._topic, name) for name in names}
        slots = {name: WriterSlot(services.upstream, ids[name]) for name in (scope.slot, *others)}
        await open_slots([*slots.values()])
        former = {ids[name]: stamp_of(entry).producer_id for name, entry in noted.formers.items()}
        partitions = {id_: SlotScope(self._topic, name).partition for name, id_ in ids.items()}
        only = {id_: one for id_, one in partitions.items() if one is not None}
        also = services.changelog.fenced(self._topic if self._has_ids and scope.is_master else None)
        fenced = await fence_topic(
            services.upstream, [*slots.values()], self._topic, also=also, former=former, only=only
        )
        return _Fenced(fenced, slots)

    # 4. Read the ownership topic up to the marker -------------------------------------------------------------------

    async def _still_holds(self, start: _Start, fenced: _Fenced) -> bool:
        """Whether the records of step 0 are the newest after the fence, which fenced all partitions of that topic."""
        await self._services.changelog.tailer.seen(fenced.slots[self._scope.slot].stamp, timeout=_SEEN_S)
        known = self._records.known(start.topic_id)
        if fenced.topic.topic_id != start.topic_id:
            return False  # the topic was created again
        return known == start.known and tuple(self._scope.of(fenced.topic.partitions)) == start.partitions

    # 5. Read the logs up to the markers -----------------------------------------------------------------------------

    async def _last(
        self, noted: _Noted, fenced: _Fenced, ends: Mapping[int, int]
    ) -> dict[SlotName, dict[int, StampedSequence]]:
        """The last stamped sequences of the slot's former session, and of the new session in other slots. Each log is
        read up to the marker that fenced the slot, now or earlier.
        """
        # Model: ReadLogs.
        session, own, slots = self._request.session, self._scope.slot, fenced.slots
        formers = noted.formers
        return {
            name: await noted.reader.behind(stamp_of(formers[name]), tails, slots.get(name, slots[own]).stamp, ends)
            for name, tails in noted.tails.items()
            if name == own or formers[name].value.session == session
        }

    async def _sequences(
        self, start: _Start, noted: _Noted, fenced: _Fenced, ends: Mapping[int, int]
    ) -> Sequences | None:
        """Where the session's sequences continue, and where those of other sessions stopped. None if the look of step 2
        does not show that (`TailReader.own`).
        """
        # Model: Claim.
        slot, opened, topic_id = self._scope.slot, start.known.opened, fenced.topic.topic_id
        last = await self._last(noted, fenced, ends)
        memory = self._records.memory(topic_id, opened)
        own: Mapping[int, Position] | None = {}
        producer_id = self._request.session.producer_id
        if producer_id is not None and not memory:  # it may have written while the topic had no policy
            own = await noted.reader.own(
                producer_id, noted.look, fenced.slots[slot].stamp, ends, others_write=self._scope.is_shared
            )
        if own is None:
            return None
        return succession.sequences(
            self._request,
            opened.value if opened is not None else None,
            start.partitions,
            last.get(slot, {}),
            own,
            self._records.now_ms,
            memory=memory,
            at=opened.offset if opened is not None else 0,
            elsewhere=self._records.mentions(topic_id, last),
            shifts=self._records.shifts(slot, opened),
        )

    # 6. Commit ------------------------------------------------------------------------------------------------------

    async def _commit(
        self, start: _Start, fenced: _Fenced, sequences: Sequences, ends: Mapping[int, int], generation: int
    ) -> TakenSlot:
        """Commit: append the records of the new writer and of where all sequences continue."""
        # Model: ReadAndCommit.
        scope, request, ownership = self._scope, self._request, start.known.ownership
        slot, topic_id = fenced.slots[scope.slot], fenced.topic.topic_id
        ids_from = self._former.ids_from(start.known.opened, ends)
        owned = ownership.value if ownership is not None else None
        if self._is_unowned(start):
            owner = state.Ownership(session=request.session, name=request.name)
        else:
            owner = records.ownership(
                request, owned, topic_id, generation, ends, self._records.now_ms, keeps=start.keeps
            )
        writer = self._records.writer(owner, topic_id)
        former = start.known.opened.value if start.known.opened is not None else None
        session, name = (NO_SESSION, "") if request.purpose in FOR_NOBODY else (writer.session, writer.name)
        entry = records.opening(
            topic_id,
            self._services.node_id,
            slot.stamp,
            (session, name),
            None if scope.is_shared else generation,
            sequences,
            self._records.now_ms,
            retired_ids=retired_ids(former, slot.stamp),
            former=self._former.listed(former, slot.stamp, name),
            ids_from=ids_from,
            begins=ends,
            caller=writer.caller,
            under=self._records.under(),
        )
        journal = self._services.changelog.journal(slot.stamp)
        is_changed = not self._is_unowned(start) and owner != owned
        offset = await self._append(journal, entry, owner if is_changed else None)
        return TakenSlot(
            scope,
            topic_id,
            slot.stamp,
            slot,
            journal,
            writer.session,
            writer.name,
            generation,
            sequences.bases,
            sequences.refused,
            tuple(scope.of(fenced.topic.partitions)),
            owner,
            offset + 1 if is_changed else ownership.offset if ownership is not None else offset,
            {name: each for name, each in fenced.slots.items() if name != scope.slot},
            ids_from,
            ends,
            writer.caller,
        )

    async def _append(self, journal: StampedJournal, entry: Opened, owner: state.Ownership | None) -> Offset:
        """Append the slot's record and, if the owner changed, the owner's. Returns the first one's offset."""
        # Model: Commit, Serve.
        tailer = self._services.changelog.tailer
        batch = [Record(self._scope.key, entry)]
        if owner is not None:
            batch.append(Record(Key(Kind.OWNERSHIP, self._topic, self._scope.slot), owner))
        offset = await journal.append(batch)
        await tailer.reached(Offset(offset + len(batch) - 1), timeout=_SEEN_S)
        self._records.check_master()
        return offset

    def _is_unowned(self, start: _Start) -> bool:
        """Whether nobody owns what is taken: a shared slot, or a topic that never had an owner and gets none now."""
        return self._scope.is_shared or (self._request.purpose in FOR_NOBODY and start.known.ownership is None)
