"""What a takeover needs, and its result: a node's right to write under one epoch of a slot, for a session."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from metadata.ownership import Generation, Ownership
from sidecar.changelog import MASTER_SLOT
from sidecar.dedup.names import FORGOTTEN, WriterNames
from sidecar.exclusive.identity import producer_name
from sidecar.exclusive.records import mode_of
from sidecar.exclusive.succession import NOTHING
from sidecar.exclusive.tails import Tail, TailReader
from sidecar.fencing import Witness
from sidecar.forwarder.sequences import EPOCH_RECORDS
from sidecar.protocol.caller import Lane
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp, TopicPartition
from sidecar.v1 import state_pb2 as state

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from uuid import UUID

    from metadata import MetadataStore
    from sidecar.changelog import Changelog, Entry, Opened, Position, SlotName, StampedJournal, View
    from sidecar.exclusive.domain import Domain
    from sidecar.exclusive.tails import Look
    from sidecar.fencing import WriterSlot
    from sidecar.forwarder.sequences import RefusedSequences
    from sidecar.protocol.caller import Upstream

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
    epoch_records: int = EPOCH_RECORDS
    """Records of an idempotent session in one partition after which its slot epoch is replaced."""


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
    begins: Mapping[int, int] = field(default_factory=dict[int, int])
    """Offsets in front of everything that is written under this epoch."""


class AtWork(Protocol):
    """A slot epoch as far as its node's memory knows it."""

    tenure: Tenure

    def wrote(self) -> Collection[int]:
        """The partitions where something of this epoch is known to be in the log."""
        ...

    def touched(self) -> Collection[int]:
        """The partitions where something was ever sent under this epoch."""
        ...

    def acknowledged(self, partition: int) -> int:
        """The last stamped sequence that is known to be in the log, `NOTHING` without one."""
        ...


def has_forgotten(look: Look, topic: str, writer: Stamp, wrote: Iterable[int]) -> bool:
    """Whether the leader of a partition that a writer wrote does not know that: its sequences cannot go on there."""
    for index in wrote:
        active = look.remembered[TopicPartition(topic, index)].of(writer.producer_id)
        if active is None or (active.stamp.epoch == writer.epoch and active.last_sequence < 0):
            return True
    return False


def acknowledged_tails(look: Look, epoch: AtWork) -> dict[int, Tail]:
    """Where the writer of an epoch stood at a look that was taken before: of what the leaders remembered that alone
    which they have acknowledged since, as only that is committed. The session may write under the next epoch by the
    time of the look: then the end is not in front of that one's batches, and tells nothing of a partition that this
    one never touched.
    """
    # Model: KeepTail.
    topic, writer, touched = epoch.tenure.domain.topic, epoch.tenure.stamp, epoch.touched()
    found: dict[int, Tail] = {}
    for index, end in look.ends.items():
        claim, acknowledged = look.claim(topic, index, writer), epoch.acknowledged(index)
        if claim is None:
            if index not in touched and not look.knows_newer(topic, index, writer):
                found[index] = Tail(NOTHING, end)
        elif acknowledged >= claim.last_sequence:  # stamped sequences do not wrap: `sequences.EPOCH_RECORDS`
            found[index] = Tail(claim.last_sequence, end)
    return found


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
    slots = {MASTER_SLOT, *view.opened_now(domain.topic)}  # of a topic that was gone the master slot's alone is kept
    owners = [view.ownership(domain.topic, slot) for slot in slots if domain.overlaps(slot)]
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


class NothingDoneError(KafkaError):
    """Another node serves the topic, or nobody may take it at this moment: nothing was begun, so it may be asked for
    again, here or there.
    """


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
