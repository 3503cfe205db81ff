"""What a cluster of nodes knows of its topics, read from the internal topics: writers, policies, takeovers, last ids.

It is read after the ends of the logs were pinned: the changelog then knows the epoch of every batch before those ends.
It is read directly from Kafka, because nodes hide these topics from clients; last ids are read from Redis too. Writes
nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from zlib import crc32

from google.protobuf.message import DecodeError

from metadata import MetadataError, MetadataStore
from sidecar.changelog import Entry, Key, Kind, TopicNames, View, partition_of, read_batches, unpack_offsets
from sidecar.changelog.records import LoggedBatch, UnreadableBatchError
from sidecar.changelog.topics import SNAPSHOT_PARTITIONS
from sidecar.dedup.snapshots import Collector, Saved, of_value
from sidecar.jobs.epochs import Former, Opening, PolicyChange, ungoverned, writers
from sidecar.jobs.session import Say
from sidecar.pipeline.audit.facts import Facts, Mark, Takeover
from sidecar.pipeline.errors import PipelineError, UnknownTopicError
from sidecar.pipeline.kafka import Kafka
from sidecar.protocol.ids import ProducerId
from sidecar.settings import Settings
from sidecar.v1 import control_pb2 as control
from sidecar.v1 import state_pb2 as state


def batches_of(kafka: Kafka, topic: str, partition: int) -> Iterator[LoggedBatch]:
    """All batches in a partition of an internal topic. Raises `PipelineError` for a batch that no node wrote."""
    start, end = kafka.starts(topic).get(partition, 0), kafka.ends(topic).get(partition, 0)
    try:
        for records in kafka.read(topic, partition, start, end):
            yield from read_batches(bytes(records))
    except UnreadableBatchError as error:
        raise PipelineError(f"{topic}-{partition}: {error}. No node wrote that: is it the right cluster?") from None


def marks_of(kafka: Kafka, snapshots: str, topic: str, topic_id: bytes, settings: Settings, say: Say) -> Iterator[Mark]:
    """The last ids of a topic from the newest snapshot of each partition, in the topic `snapshots` or in Redis."""
    collector = Collector(topic, topic_id)
    count = min(len(kafka.partitions(snapshots)), SNAPSHOT_PARTITIONS)
    for batch in batches_of(kafka, snapshots, crc32(topic.encode()) % count):
        for _, record in batch.records:
            collector.add(record)
    partitions = kafka.partitions(topic)
    copies = _copies(settings, topic, topic_id, partitions, say)
    for partition in partitions:
        both = [each for each in (collector.newest(partition), copies.get(partition)) if each is not None]
        saved = max(both, key=lambda each: each.covered, default=None)
        for mark in saved.marks if saved is not None else ():
            name = mark.name.decode(errors="replace")
            yield Mark(partition, name, mark.id, mark.offset, saved.covered if saved is not None else 0)


def _copies(settings: Settings, topic: str, topic_id: bytes, partitions: Sequence[int], say: Say) -> dict[int, Saved]:
    """Redis' copies of the snapshots; none if Redis is unreachable: the snapshot topic has them too."""

    async def ask() -> dict[int, bytes]:
        async with MetadataStore(
            settings.redis_url, settings.cluster, command_timeout_ms=settings.redis_timeout_ms
        ) as store:
            return await store.snapshots(topic, topic_id, partitions)

    try:
        values = asyncio.run(ask())
    except MetadataError as error:
        say(f"Redis has no word in this ({error}): the last ids are those of the snapshot topic alone")
        return {}
    found = {partition: of_value(value, topic_id) for partition, value in values.items()}
    return {partition: kept[0] for partition, kept in found.items() if kept is not None}


_OPENS: Final = frozenset({state.Event.CLAIMED, state.Event.FAILOVER})
_CHANGES: Final = frozenset({*_OPENS, state.Event.DEPOSED, state.Event.RELEASED})


@dataclass
class Knowledge:
    """What one cluster of nodes knows. `opened` and `offsets` are all records of the changelog that compaction has
    left, in order; `view` is the state that results from them.
    """

    kafka: Kafka
    names: TopicNames
    view: View = field(default_factory=View)
    opened: list[Entry[Any]] = field(default_factory=list)
    events: list[state.Event] = field(default_factory=list)
    is_there: bool = True

    def source_of(self, topic: str) -> str:
        """The topic whose log a name shows: a shadow's source, else the topic itself."""
        shadow = self.view.shadow(topic)
        return topic if shadow is None else shadow.value.source

    @property
    def governed(self) -> list[str]:
        """The topics that nodes have served, and the sources of shadows."""
        return sorted(
            {key.topic for kind in (Kind.SERVING, Kind.SLOT) for key in _keys(self.view, kind)} - {"__claims"}
        )


def learn(kafka: Kafka, cluster: str) -> Knowledge:
    """Read the changelog and the events to their ends. Raises `PipelineError` for records that cannot be read."""
    found = Knowledge(kafka, TopicNames.of(cluster))
    try:
        for batch in batches_of(kafka, found.names.ownership, 0):
            _take(found, batch)
        seen: set[bytes] = set()
        for partition in kafka.partitions(found.names.events):
            for batch in batches_of(kafka, found.names.events, partition):
                found.events += _events(batch, seen)
    except UnknownTopicError:
        found.is_there = False
    return found


def _take(found: Knowledge, batch: LoggedBatch) -> None:
    if batch.writer is not None:
        found.view.note_writer(batch.writer)
    for offset, record in batch.records:
        change = found.view.apply(offset, batch.timestamp_ms, batch.writer, record)
        if change is not None and change.after is not None:
            found.opened.append(change.after)


def _events(batch: LoggedBatch, seen: set[bytes]) -> Iterator[state.Event]:
    for _, record in batch.records:
        event = state.Event()
        try:
            event.ParseFromString(record.value or b"")
        except DecodeError:  # written by a newer node
            continue
        if event.id not in seen:
            seen.add(event.id)
            yield event


def _keys(view: View, kind: Kind) -> Iterator[Key]:
    yield from (entry.key for entry in view.entries(kind))


# Of one topic -------------------------------------------------------------------------------------------------------


def facts_of(known: Knowledge, topic: str, settings: Settings, say: Say) -> Facts:
    """The facts about a topic (not the name of a shadow). Raises `UnknownTopicError` if Kafka does not know it."""
    if not known.is_there:
        return Facts()
    topic_id = known.kafka.topic_id(topic)
    entries = [entry for entry in known.opened if entry.key.topic == topic and _is_of(entry, topic_id)]
    events = [event for event in known.events if event.topic == topic]
    openings = [*_opened_by(entries), *_openings_in(events)]
    changes = [
        PolicyChange(event.at_ms, event.topic, event.detail == "deleted")
        for event in known.events
        if event.kind == state.Event.POLICY
    ]
    without = (
        [] if settings.deduplication else ungoverned(topic, changes, [each.key.topic for each in known.view.policies()])
    )
    slots, newest = _slots(known.view, topic)
    return Facts(
        writers=tuple(writers(openings, _formers(entries), slots, newest)),
        marks=tuple(marks_of(known.kafka, known.names.snapshots, topic, topic_id, settings, say)),
        governed=_governed(entries),
        ungoverned=tuple(without),
        takeovers=tuple(_takeover(event) for event in events if event.kind in _CHANGES),
    )


def _is_of(entry: Entry[Any], topic_id: bytes) -> bool:
    """Whether the entry is of this topic, not of an earlier one with its name."""
    return getattr(entry.value, "topic_id", topic_id) == topic_id


def _opened_by(entries: list[Entry[Any]]) -> Iterator[Opening]:
    for entry in entries:
        value = entry.value
        if isinstance(value, state.Serving | state.Slot) and entry.key.slot is not None:
            is_owned = isinstance(value, state.Serving) and bool(value.session)
            yield Opening(
                value.producer_id, value.producer_epoch, entry.key.slot, value.session, value.name,
                value.generation if is_owned and isinstance(value, state.Serving) else None,
                value.since_ms, entry.offset,
            )  # fmt: skip


def _openings_in(events: list[state.Event]) -> Iterator[Opening]:
    for event in events:
        if event.kind in _OPENS and event.producer_id >= 0 and event.session:
            is_shared = event.mode == control.SHARED
            slot = f"p{event.partition}" if event.HasField("partition") else "0"
            yield Opening(
                event.producer_id, event.producer_epoch, f"1{event.producer_id}" if is_shared else slot,
                event.session, event.client_id if event.HasField("client_id") else event.name,
                None if is_shared else event.generation, event.at_ms,
            )  # fmt: skip


def _formers(entries: list[Entry[Any]]) -> Iterator[Former]:
    for entry in entries:
        if isinstance(entry.value, state.Serving | state.Slot):
            for former in entry.value.former:
                yield Former(former.producer_id, former.last_epoch, None if former.forgotten else former.name)


def _slots(view: View, topic: str) -> tuple[dict[str, list[int]], dict[int, int]]:
    """The producer ids of each slot, the newest last, and the highest epoch of each id."""
    slots: dict[str, list[int]] = {}
    newest: dict[int, int] = {}
    for slot, entry in view.opened(topic).items():
        slots[slot] = [*entry.value.retired_producer_ids, entry.value.producer_id]
        for producer_id in slots[slot]:
            newest[producer_id] = max(entry.value.producer_epoch, view.epoch(ProducerId(producer_id)) or 0)
    return slots, newest


def _governed(entries: list[Entry[Any]]) -> dict[int, int]:
    """The lowest known offset of each partition from which on it was governed."""
    found: dict[int, int] = {}
    for entry in entries:
        value, starts = entry.value, dict[int, int]()
        if isinstance(value, state.Tail) and entry.key.partition is not None:
            starts = {entry.key.partition: value.offset}
        elif isinstance(value, state.Ownership):
            starts = unpack_offsets(value.start)
        elif isinstance(value, state.Serving):
            starts = unpack_offsets(value.ids_from)
        only = partition_of(entry.key.slot) if entry.key.slot is not None else None
        for partition, offset in starts.items():
            if only in (None, partition):
                found[partition] = min(offset, found.get(partition, offset))
    return found


def _takeover(event: state.Event) -> Takeover:
    return Takeover(
        event=event.id.hex(),
        at_ms=event.at_ms,
        kind=state.Event.Kind.Name(event.kind).lower(),
        partition=event.partition if event.HasField("partition") else None,
        generation=event.generation,
        session=event.session,
        name=event.name,
        mode=control.AccessMode.Name(event.mode).lower(),
        client=event.client,
        node=event.node,
        producer_id=event.producer_id,
        producer_epoch=event.producer_epoch,
        detail=event.detail,
    )
