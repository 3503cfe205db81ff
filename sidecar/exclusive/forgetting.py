"""Deletes what is stored of topics that Kafka no longer has, except the generation, which never falls.

A topic counts as deleted when every live broker has answered twice, half a minute apart, that it does not know it; a
silent broker may be the one that has it. Then the node that may serve it

1. releases it, so that this node does not write under its slots any more;
2. opens all its slots and fences them on the internal partitions, and reads up to its own marker: it sees everything
   that another node stored before, and no record of an older epoch follows;
3. checks again that the topic is absent and no node has stored anything;
4. deletes snapshots, then what Redis has, then all records but one, in a batch of the master slot's new epoch.

A node that takes the topic over meanwhile, because it was created again, has a newer epoch of that slot. Either it
reads the batch of step 4 before its own marker, or Kafka refuses that batch: a newer record is never deleted. One
`Ownership` without an owner remains. After a crash between the steps records remain, so all steps are done again.

No batch waits for this, and only some topics are handled at a time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from metadata import MetadataUnavailable
from sidecar.access.services import NodeServices
from sidecar.changelog import FAILURES, MASTER_SLOT, Entry, Key, Kind, RawRecord, Record, SlotName, View, read_batches
from sidecar.cluster.logs import LogReader
from sidecar.fencing.slot import WriterSlot, transactional_id
from sidecar.fencing.topic import fence_slot, open_slots
from sidecar.fencing.witness import FencingRefusedError
from sidecar.protocol.ids import Stamp, TopicPartition
from sidecar.takeover.slots import SlotScope, stamp_of
from sidecar.takeover.succession import REMEMBERED_MS
from sidecar.telemetry.ownership_reports import OwnershipReports
from sidecar.v1 import state_pb2 as state

_AT_ONCE: Final = 20
"""The limit of topics in one call of `look`, once a minute."""
_SLOTS_AT_ONCE: Final = 64
_RECORDS_AT_ONCE: Final = 500
_SCAN_BYTES: Final = 4 * 1024 * 1024
_SEEN_S: Final = 10.0
_APART_S: Final = 30.0
_CONNECTED_S: Final = 3600.0
"""How long, in seconds, a deleted topic is kept for connected clients that wrote to it: they continue if it is created
again."""
_FAILURES: Final = (*FAILURES, MetadataUnavailable, FencingRefusedError)


class Left(NamedTuple):
    """What the changelog still contains of a deleted topic. `known`: the offsets of its records, apart from those
    of partitions; any takeover changes them.
    """

    known: dict[Key, int]
    records: list[Record]
    """Deletions of the records, apart from those in `final`, which are appended last and together."""
    final: list[Record]
    generation: int

    def batches(self) -> list[list[Record]]:
        """The batches to append, in order; none is empty."""
        hints = [self.records[at : at + _RECORDS_AT_ONCE] for at in range(0, len(self.records), _RECORDS_AT_ONCE)]
        return [*hints, self.final] if self.final else hints


def is_ripe(view: View, topic: str, now_ms: int) -> bool:
    """Whether there is anything to forget of a topic, and no deposed session has to be remembered any more."""
    entries = _forgettable(view, topic)
    if all(entry.key.kind is Kind.OWNERSHIP for entry in entries):
        return False
    owned = (entry.value for entry in entries if isinstance(entry.value, state.Ownership))
    return not any(now_ms - lost.last_try_ms < REMEMBERED_MS for value in owned for lost in value.deposed)


def left_of(view: View, topic: str, now_ms: int) -> Left:
    """The records that delete what is stored of a topic, and the one that stays: its highest generation, under the
    master slot, which counts for every partition too.
    """
    entries = _forgettable(view, topic)
    hints = [entry for entry in entries if entry.key.partition is not None]
    rest = [entry for entry in entries if entry.key.partition is None]
    rest.sort(key=lambda entry: (entry.key.kind is Kind.OWNERSHIP, entry.key.slot != MASTER_SLOT))
    owned = [entry for entry in rest if entry.key.kind is Kind.OWNERSHIP]
    stays = Key(Kind.OWNERSHIP, topic, MASTER_SLOT)
    final = [Record(entry.key, None) for entry in rest if entry.key != stays]
    newest: Entry[state.Ownership] | None = max(owned, key=lambda entry: entry.value.generation, default=None)
    if newest is not None:
        value, generation = newest.value, newest.value.generation
        final.append(Record(stays, state.Ownership(topic_id=value.topic_id, generation=generation, released_ms=now_ms)))
    return Left(
        {entry.key: entry.offset for entry in rest},
        [Record(entry.key, None) for entry in hints],
        final,
        newest.value.generation if newest is not None else 0,
    )


def _forgettable(view: View, topic: str) -> list[Entry[Any]]:
    """The records that takeovers wrote of a topic; not a policy or shadow of its name, which administrators set."""
    return [entry for entry in view.of_topic(topic) if entry.key.kind.parts > 1]


@dataclass(eq=False)
class Forgetting:
    """Deletes the stored state of deleted topics, on one node. `look` may be called at any rate.

    `_has_clients` returns whether a client that claimed the topic is connected to this node. `_try_to_let_go` takes the
    right to serve a topic and stops serving it; False if another node has the right.
    """

    _services: NodeServices
    _logs: LogReader
    _hooks: OwnershipReports
    _has_clients: Callable[[str], bool]
    _try_to_let_go: Callable[[str], Awaitable[bool]]
    _since: dict[str, float] = field(default_factory=dict[str, float])
    _looking: bool = False

    @property
    def _view(self) -> View:
        return self._services.changelog.view

    async def look(self, names: Collection[str]) -> list[str]:
        """Continue with the topics that a broker does not know. `names`: all of them that this node serves, or would
        serve first. Returns the topics whose state was deleted.
        """
        self._since = {name: since for name, since in self._since.items() if name in names}
        if self._looking or not names:
            return []
        self._looking = True
        try:
            return await self._look(names)
        except _FAILURES as error:
            self._hooks.operation_failed(min(names), error)
            return []
        finally:
            self._looking = False

    async def _look(self, names: Collection[str]) -> list[str]:
        now, now_ms = asyncio.get_running_loop().time(), self._services.changelog.clock.now_ms()
        ripe = [name for name in names if is_ripe(self._view, name, now_ms)]
        due = sorted((name for name in ripe if self._is_due(name, now)), key=self._since.__getitem__)[:_AT_ONCE]
        fresh = [name for name in ripe if name not in self._since][:_AT_ONCE]
        if not due and not fresh:
            return []
        absent = await self._services.upstream.absent([*due, *fresh])
        self._since.update(dict.fromkeys((name for name in fresh if name in absent), now))
        forgotten: list[str] = []
        gone = [name for name in due if self._since.pop(name, None) is not None and name in absent]
        gone = [name for name in gone if await self._let_go(name)]
        snapshots = await self._snapshots(gone)
        for name in gone:
            try:
                if await self._forget(name, snapshots[name]):
                    forgotten.append(name)
            except _FAILURES as error:  # it is tried again, after the others
                self._hooks.operation_failed(name, error)
        return forgotten

    def _is_due(self, name: str, now: float) -> bool:
        since = self._since.get(name)
        if since is None:
            return False
        return now - since >= (_CONNECTED_S if self._has_clients(name) else _APART_S)

    async def _let_go(self, name: str) -> bool:
        try:
            return await self._try_to_let_go(name)
        except _FAILURES as error:
            self._hooks.operation_failed(name, error)
            return False

    async def _forget(self, name: str, snapshots: list[bytes]) -> bool:
        services, changelog, clock = self._services, self._services.changelog, self._services.changelog.clock
        before = left_of(self._view, name, clock.now_ms())
        opened = self._view.opened(name).values()
        partitions = sorted({index for each in opened for index in each.value.base.partition})  # ever written to
        stamp = await self._fence(name)
        await changelog.tailer.seen(stamp, timeout=_SEEN_S)
        left = left_of(self._view, name, clock.now_ms())
        if left.known != before.known or name not in await services.upstream.absent([name]):
            return False
        journal = changelog.snapshot_journal(stamp, name)
        for first in range(0, len(snapshots), _RECORDS_AT_ONCE):
            await journal.append([RawRecord(key, None) for key in snapshots[first : first + _RECORDS_AT_ONCE]])
        resources = sorted({name, *(SlotScope(name, key.slot or MASTER_SLOT).resource for key in left.known)})
        if not await services.store.forget(
            name, services.node_id, services.boot, left.generation, resources, partitions
        ):
            return False
        records = changelog.journal(stamp)
        for batch in left.batches():
            await changelog.tailer.reached(await records.append(batch), timeout=_SEEN_S)
        self._hooks.topic_gone(name, left.generation)
        return True

    async def _fence(self, name: str) -> Stamp:
        """Open all slots of a topic, and fence them on the internal partitions; returns the master slot's stamp."""
        services, opened = self._services, self._view.opened(name)
        names: list[SlotName] = [MASTER_SLOT, *sorted(self._view.slots(name) - {MASTER_SLOT})]
        ids = {slot: transactional_id(services.cluster, name, slot) for slot in names}
        slots = [WriterSlot(services.upstream, ids[slot]) for slot in names]
        formers = {ids[slot]: stamp_of(entry).producer_id for slot, entry in opened.items()}
        await open_slots(slots)
        await fence_slot(services.upstream, slots[0], services.changelog.fenced(name), formers)
        for first in range(1, len(slots), _SLOTS_AT_ONCE):
            some, fenced = slots[first : first + _SLOTS_AT_ONCE], services.changelog.fenced()
            await asyncio.gather(*[fence_slot(services.upstream, slot, fenced, formers) for slot in some])
        return slots[0].stamp

    async def _snapshots(self, names: Iterable[str]) -> dict[str, list[bytes]]:
        """The keys of some topics in the snapshot topic. Each of its partitions is read once."""
        changelog = self._services.changelog
        found: dict[str, dict[bytes, None]] = {name: {} for name in names}
        where: dict[TopicPartition, list[str]] = {}
        for name in found:
            serving = self._view.serving(name)
            if serving is not None and serving.value.HasField("ids_from"):
                where.setdefault(changelog.snapshots_of(name), []).append(name)
        for partition in where:
            await self._scan(partition, found)
        return {name: list(keys) for name, keys in found.items()}

    async def _scan(self, partition: TopicPartition, found: dict[str, dict[bytes, None]]) -> None:
        topic, index, logs = partition.topic, partition.partition, self._logs
        start, end = (await logs.starts(topic, [index]))[index], (await logs.ends(topic, [index]))[index]
        async for records in logs.read(partition, start, end, _SCAN_BYTES):
            for batch in read_batches(records):
                for _, record in batch.records:
                    keys = found.get(record.key.partition(b"/")[0].decode(errors="replace"))
                    if keys is None:
                        continue
                    if record.value is None:
                        keys.pop(record.key, None)
                    else:
                        keys[record.key] = None
            await asyncio.sleep(0)
