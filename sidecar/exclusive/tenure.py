"""What a takeover needs, and what comes of it: a node's right to write under one epoch of a slot, for a session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from metadata.ownership import Generation, Ownership
from sidecar.changelog import unpack_offsets
from sidecar.dedup.names import FORGOTTEN, WriterNames
from sidecar.exclusive.identity import producer_name
from sidecar.exclusive.succession import mode_of
from sidecar.exclusive.tails import TailReader
from sidecar.fencing import Witness
from sidecar.protocol.caller import Lane
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp, TopicPartition
from sidecar.v1 import state_pb2 as state

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    from metadata import MetadataStore
    from sidecar.changelog import Changelog, Entry, Opened, Position, Record, SlotName, StampedJournal, View
    from sidecar.exclusive.domain import Domain
    from sidecar.fencing import WriterSlot
    from sidecar.forwarder.sequences import RefusedSequences
    from sidecar.protocol.caller import TopicLayout, Upstream

_WITNESS_LANE: Final = Lane("takeover")
_WITNESS_TIMEOUT: Final = 10.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every takeover of this node needs."""

    node_id: int
    boot: str
    cluster: str
    upstream: Upstream
    changelog: Changelog
    store: MetadataStore


@dataclass(frozen=True, slots=True)
class Tenure:
    """The outcome: an epoch that this node alone writes under, for a session."""

    domain: Domain
    topic_id: UUID
    stamp: Stamp
    slot: WriterSlot
    journal: StampedJournal
    session: str
    name: str
    generation: int
    bases: Mapping[int, Position]
    refused: Mapping[int, RefusedSequences]
    partitions: tuple[int, ...]
    ownership: state.Ownership
    """Whose the topic or partition is, as the changelog says; without a generation where it was never owned."""
    position: int
    """Offset in the ownership topic of the record that says so."""
    others: Mapping[SlotName, WriterSlot]
    """The other slots of the topic, fenced with it: nothing of an earlier epoch of theirs gets in."""
    ids_from: Mapping[int, int] | None = None
    """Where each log ended when the topic began to have sequence ids; None where it has none."""


async def tails_now(
    around: Surroundings, tenure: Tenure, layout: TopicLayout, wrote: Collection[int]
) -> list[Record] | None:
    """Where a slot's writer stands in each of its partitions, as far as the changelog does not know it.

    None where the leader of a partition that it `wrote` has forgotten that: its sequences cannot go on there.
    """
    domain, writer = tenure.domain, tenure.slot.stamp
    reader = tail_reader(around, domain.topic)
    view = around.changelog.view
    look = await reader.look(tenure.partitions)
    since: Mapping[int, int]
    if domain.is_shared:  # nothing of its epoch is where it did not write; others do all the time
        since = {index: end for index, end in look.ends.items() if index not in wrote}
    else:
        ownership = view.ownership(domain.topic, domain.slot)
        since = unpack_offsets(ownership.value.start) if ownership is not None else {}
    tails = reader.before(view, domain.slot, writer, look, tenure.partitions, since)
    for index in wrote:
        active = look.remembered[TopicPartition(domain.topic, index)].of(writer.producer_id)
        if active is None or (active.stamp.epoch == writer.epoch and active.last_sequence < 0):
            return None
    return reader.records(view, domain.slot, layout.topic_id, writer, tails)


def tail_reader(around: Surroundings, topic: str) -> TailReader:
    """For the slots of a topic."""
    return TailReader(around.upstream, Witness(around.upstream, _WITNESS_LANE, _WITNESS_TIMEOUT), topic)


def owner_record(resource: str, entry: Entry[state.Ownership], node_id: int) -> Ownership:
    """A changelog record as Redis keeps it."""
    value = entry.value
    return Ownership(
        resource=resource,
        generation=Generation(value.generation),
        position=entry.offset,
        session=None if value.released_ms or not value.session else value.session,
        name=value.name,
        mode=mode_of(value.mode),
        since_ms=value.since_ms,
        node_id=node_id,
        producer_id=entry.writer.producer_id if entry.writer else -1,
        producer_epoch=entry.writer.epoch if entry.writer else -1,
    )


def is_outdated(view: View, domain: Domain, entry: Entry[state.Ownership]) -> bool:
    """Whether the topic as a whole had another owner since a partition's was written down: the scope was changed."""
    whole = None if domain.is_master else view.ownership(domain.topic)
    return whole is not None and whole.offset > entry.offset


def generation_floor(view: View, domain: Domain) -> int:
    """The highest generation that anybody had of what a slot is for, when the scope was another one."""
    owners = [view.ownership(domain.topic, slot) for slot in view.opened(domain.topic) if domain.overlaps(slot)]
    return max((found.value.generation for found in owners if found is not None), default=0)


def generation_of(view: View, domain: Domain) -> int:
    """The generation of a topic or partition, 0 where nobody ever owned it."""
    own = view.ownership(domain.topic, domain.slot)
    return max(own.value.generation if own is not None else 0, generation_floor(view, domain))


def check_generation(view: View, domain: Domain, generations: frozenset[int] | None) -> None:
    """Raises `GenerationError` unless the generation is one of these; None: any."""
    current = generation_of(view, domain)
    if generations is not None and current not in generations:
        raise GenerationError(domain.resource, current)


class GenerationError(Exception):
    """What was to happen under certain generations did not: `current` is another."""

    def __init__(self, resource: str, current: int) -> None:
        super().__init__(f"the generation of {resource} is {current}")
        self.current = current


def writer_names(view: View, topic: str) -> WriterNames:
    """Whose the batches of a topic's slots are, as far as the changelog tells."""
    found = WriterNames()
    for entry in view.opened(topic).values():
        value = entry.value
        for former in value.former:
            name = FORGOTTEN if former.forgotten else producer_name(former.name)
            found.add(former.producer_id, former.last_epoch, name)
        found.add(value.producer_id, value.producer_epoch, producer_name(value.name))
    return found


def stamp_of(opened: Entry[Opened] | None) -> Stamp:
    """The epoch that a record opened; -1 where there is none."""
    if opened is None:
        return Stamp(ProducerId(-1), ProducerEpoch(-1))
    return Stamp(ProducerId(opened.value.producer_id), ProducerEpoch(opened.value.producer_epoch))
