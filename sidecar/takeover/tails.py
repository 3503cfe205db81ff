"""Finds where a slot's writer stopped in each partition: the last stamped sequence of one (producer id, epoch).

It is found in two parts, so that no batch is missed. *Before* the next epoch is opened, the node asks for the end of
each partition, then for the producer state of its leader (DescribeProducers, KIP-664; a marker of a higher epoch
deletes that state). Both are stored as `Tail` records in the changelog, so that they outlive a node that dies after the
fence. *After* the fence, the node reads the log from that end up to the marker that fences this writer. The order of
the first two matters: a batch that is appended between them is seen twice, never missed.

Only committed batches count. A leader's producer state may be ahead of its high watermark, and a clean election then
drops those batches: such a state is a *claim*. A claim is valid if the marker was appended in the same leader epoch,
which the marker's own batch header states. The broker was asked for its leader epoch before its producer state, and
leader epochs never fall: so one leader appended the marker after everything that it had claimed. A marker below the
high watermark then proves that all batches before it are committed. If the leader epoch differs, the log is read up to
the marker from the *hint*, an offset before which everything is known and committed.

Tails are facts about the log: they need no stamp, the newest one wins, and reading can continue from any of them. A
tail with a new claim keeps the former hint.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from sidecar.changelog import Clock, Entry, Key, Kind, Opened, Position, Record, SlotName, View
from sidecar.cluster.logs import LogMovedError, LogReader
from sidecar.fencing.witness import Witness
from sidecar.forwarder.sequences import place_behind
from sidecar.protocol.batch import BatchHeader, batch_sizes, leader_epoch, read_header
from sidecar.protocol.caller import Channel, Upstream
from sidecar.protocol.calls.transactions import ActiveProducer, PartitionProducers
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp, StampedSequence, TopicPartition
from sidecar.takeover.slots import SlotScope, stamp_of
from sidecar.takeover.succession import NOTHING, UNKNOWN
from sidecar.v1 import state_pb2 as state

_READERS: Final = 16
_WITNESS_CHANNEL: Final = Channel("takeover")
_WITNESS_TIMEOUT: Final = 10.0


@dataclass(frozen=True, slots=True)
class Claim:
    """What a leader remembered in a leader epoch: the last stamped sequence, committed or not. `offset` was its high
    watermark just before: batches that the leader did not have then are at or after it.
    """

    last_sequence: StampedSequence
    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Tail:
    """The last stamped sequence before `offset`, `NOTHING` without one. Everything before `offset` is committed."""

    last_sequence: StampedSequence
    offset: int
    claim: Claim | None = None

    def claimed(self, claim: Claim) -> Tail:
        """The tail with this claim, unless it has one of a later leader epoch."""
        if self.claim is not None and self.claim.leader_epoch > claim.leader_epoch:
            return self
        return replace(self, claim=claim)


@dataclass(frozen=True, slots=True)
class Look:
    """A snapshot of some partitions: their ends and leader epochs, and what the same brokers remembered of producers
    just after.
    """

    ends: Mapping[int, int]
    leader_epochs: Mapping[int, int]
    remembered: Mapping[TopicPartition, PartitionProducers]

    def of(self, topic: str, index: int, producer_id: ProducerId) -> ActiveProducer | None:
        """What the leader remembered of a producer id."""
        return self.remembered[TopicPartition(topic, index)].of(producer_id)

    def claim(self, topic: str, index: int, writer: Stamp) -> Claim | None:
        """What the leader remembered of a writer's batches; None if nothing."""
        active = self.of(topic, index, writer.producer_id)
        if active is None or active.stamp.epoch != writer.epoch or active.last_sequence < 0:
            return None
        return Claim(StampedSequence(active.last_sequence), self.ends[index], self.leader_epochs[index])

    def knows_newer(self, topic: str, index: int, writer: Stamp) -> bool:
        """Whether the leader knew a later epoch of a writer's producer id."""
        active = self.of(topic, index, writer.producer_id)
        return active is not None and active.stamp.epoch > writer.epoch


@dataclass(frozen=True, slots=True)
class _Stretch:
    """What was read from an offset to a marker: the last batch that matched, the marker's leader epoch, and whether the
    log still had everything from that offset.
    """

    last: BatchHeader | None
    leader_epoch: int
    is_whole: bool


class TailReader:
    """Reads tails of the slots of one topic. The logs are those of the topic with this id, not of a later one."""

    def __init__(self, upstream: Upstream, topic: str, topic_id: UUID) -> None:
        self._upstream = upstream
        self._logs = LogReader(upstream, topic_id=topic_id)
        self._witness = Witness(upstream, _WITNESS_CHANNEL, _WITNESS_TIMEOUT)
        self._topic = topic

    async def ends(self, partitions: Iterable[int]) -> dict[int, int]:
        """The end (high watermark) of each partition."""
        return await self._logs.ends(self._topic, partitions)

    async def look(self, partitions: Iterable[int]) -> Look:
        """Ask the same brokers first for ends, then for producers. A batch that is appended in between is seen twice,
        never missed, and the leader epoch is not later than what is remembered.
        """
        # Model: LookEnds, LookProducers.
        indexes = tuple(sorted(partitions))
        leaders = (await self._upstream.layout(self._topic)).leaders
        listed = await self._logs.listed(self._topic, indexes, leaders=leaders)
        remembered = await self._witness.producers({self._topic: indexes}, leaders={self._topic: leaders})
        return Look(
            {index: each.offset for index, each in listed.items()},
            {index: each.leader_epoch for index, each in listed.items()},
            remembered,
        )

    # Before the fence -----------------------------------------------------------------------------------------------

    def before(
        self, view: View, slot: SlotName, writer: Stamp, look: Look, partitions: Iterable[int], since: Mapping[int, int]
    ) -> dict[int, Tail]:
        """The tails of a slot's writer by that look and the changelog.

        `since`: offsets before everything that the writer wrote. Logs are read from there if nothing better is known.
        """
        tails: dict[int, Tail] = {}
        for index in partitions:
            tail, behind = self._recorded(view, slot, writer, index), since.get(index, 0)
            if tail is None:
                tail = Tail(NOTHING, self._in_front(view, slot, writer, index, behind))
            elif tail.last_sequence == NOTHING and tail.claim is None:
                tail = Tail(NOTHING, max(tail.offset, behind))
            claim = look.claim(self._topic, index, writer)
            # Without a claim, the leader has a higher epoch or only a marker: it may have forgotten the batches.
            tails[index] = tail if claim is None else tail.claimed(claim)
        return tails

    def _in_front(self, view: View, slot: SlotName, writer: Stamp, partition: int, since: int) -> int:
        """An offset before everything that a writer wrote: that of an earlier epoch's tail, which is before the fence
        of this one.
        """
        entry = view.tail(self._topic, slot, partition)
        if entry is None or entry.value.producer_id != writer.producer_id or entry.value.producer_epoch > writer.epoch:
            return since
        return max(since, entry.value.offset)

    def _recorded(self, view: View, slot: SlotName, writer: Stamp, partition: int) -> Tail | None:
        entry = view.tail(self._topic, slot, partition)
        if entry is None or (entry.value.producer_id, entry.value.producer_epoch) != (writer.producer_id, writer.epoch):
            return None
        value, claim = entry.value, None
        if value.HasField("claim"):
            claim = Claim(StampedSequence(value.claim.last_sequence), value.claim.offset, value.claim.leader_epoch)
        return Tail(StampedSequence(value.last_sequence), value.offset, claim)

    def records(
        self, view: View, slot: SlotName, topic_id: UUID, writer: Stamp, tails: Mapping[int, Tail], now_ms: int
    ) -> list[Record]:
        """The records of those tails that the changelog does not have yet. `now_ms`: by the brokers' clock."""
        fresh: list[Record] = []
        for index, tail in tails.items():
            recorded = self._recorded(view, slot, writer, index)
            if recorded == tail:
                continue
            value = state.Tail(
                topic_id=topic_id.bytes,
                producer_id=writer.producer_id,
                producer_epoch=writer.epoch,
                last_sequence=tail.last_sequence,
                offset=tail.offset,
                at_ms=now_ms,
            )
            if (claim := tail.claim) is not None:
                value.claim.last_sequence, value.claim.offset = claim.last_sequence, claim.offset
                value.claim.leader_epoch = claim.leader_epoch
            fresh.append(Record(Key(Kind.TAIL, self._topic, slot, index), value))
        return fresh

    # After the fence -----------------------------------------------------------------------------------------------

    async def behind(
        self, writer: Stamp, tails: Mapping[int, Tail], fence: Stamp, ends: Mapping[int, int]
    ) -> dict[int, StampedSequence]:
        """The last stamped sequence of `writer` per partition, up to the marker that fences it: the one at `fence`, or
        an earlier one of its own producer id. `NOTHING` without any, `UNKNOWN` if retention removed that information.

        `ends`: the partitions' ends after the fence; the marker is before them. If a log ends before a recorded offset,
        it lost batches (an unclean election, a restored disk). A claim at such an offset is ignored; for such a hint
        the result is `UNKNOWN`. Raises as `LogReader.read`.
        """
        # Model: ReadTails.
        gate = asyncio.Semaphore(_READERS)

        def fences(header: BatchHeader) -> bool:
            return _stamp_of(header) == fence or _ends(writer, _stamp_of(header))

        def is_of(header: BatchHeader) -> bool:
            return not header.is_control and _stamp_of(header) == writer

        async def one(index: int, tail: Tail) -> tuple[int, StampedSequence]:
            async with gate:
                if tail.offset >= ends[index]:
                    return index, UNKNOWN
                claim = tail.claim
                if claim is not None and claim.offset < ends[index]:
                    found = await self._read(index, claim.offset, ends[index], is_of, fences)
                    if found.last is not None:
                        return index, StampedSequence(found.last.last_sequence)
                    if found.leader_epoch == claim.leader_epoch:
                        return index, claim.last_sequence if found.is_whole else UNKNOWN
                found = await self._read(index, tail.offset, ends[index], is_of, fences)
            if found.last is not None:
                return index, StampedSequence(found.last.last_sequence)
            return index, tail.last_sequence if found.is_whole else UNKNOWN

        return dict(await asyncio.gather(*[one(index, tail) for index, tail in tails.items()]))

    async def own(
        self, producer_id: ProducerId, look: Look, fence: Stamp, ends: Mapping[int, int], *, others_write: bool
    ) -> dict[int, Position] | None:
        """A client's next sequences after what it wrote under its own producer id, without a slot, before the
        marker at `fence`. None if a leader changed since the look, so that its answer may be wrong: then look again, as
        no marker makes the next leader forget this producer id.

        A partition whose leader knew nothing of the client is read only if more than a marker was appended since. With
        `others_write` it is not read: only batches that were under way as the policy was set could be found there.
        """
        gate = asyncio.Semaphore(_READERS)

        def fences(header: BatchHeader) -> bool:
            return _stamp_of(header) == fence

        def is_own(header: BatchHeader) -> bool:
            return not header.is_control and header.producer_id == producer_id

        async def one(index: int, active: ActiveProducer | None) -> tuple[int, Position | None, bool]:
            async with gate:
                found = await self._read(index, look.ends[index], ends[index], is_own, fences)
            last, is_sure = found.last, found.is_whole
            if last is not None:
                return index, Position(last.producer_epoch, place_behind(last.last_sequence + 1)), True
            if active is None:
                return index, None, is_sure
            position = Position(active.stamp.epoch, place_behind(active.last_sequence + 1))
            return index, position, is_sure and found.leader_epoch == look.leader_epochs[index]

        asked: list[tuple[int, ActiveProducer | None]] = []
        for index in look.ends:
            active = look.of(self._topic, index, producer_id)
            if active is not None and active.last_sequence < 0:
                active = None
            if active is not None or (not others_write and ends[index] > look.ends[index] + 1):
                asked.append((index, active))
        found = await asyncio.gather(*[one(index, active) for index, active in asked])
        if not all(is_sure for _, _, is_sure in found):
            return None
        return {index: position for index, position, _ in found if position is not None}

    async def _read(
        self,
        index: int,
        offset: int,
        end: int,
        matches: Callable[[BatchHeader], bool],
        stops: Callable[[BatchHeader], bool],
    ) -> _Stretch:
        """Read a log from an offset to the batch for which `stops` is true, which is before `end`."""
        partition, is_whole = TopicPartition(self._topic, index), True
        last: BatchHeader | None = None
        while offset < end:
            try:
                async with aclosing(self._logs.read(partition, offset, end)) as read:
                    async for records in read:
                        for start, size in batch_sizes(records, 0, len(records)):
                            header = read_header(records, start, start + size)
                            if stops(header):
                                return _Stretch(last, leader_epoch(records, start), is_whole)
                            if matches(header):
                                last = header
                break
            except LogMovedError as error:
                offset, is_whole = error.start, False
        message = f"{partition}: the fence's marker is not between {offset} and {end}, where it was"
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, message)


def trusted_ends(
    view: View, clock: Clock, former: SlotScope, entry: Entry[Opened], look: Look, trusted_ms: float
) -> dict[int, int]:
    """The ends of the partitions whose leader remembers no batch of a slot and cannot have forgotten one.

    Reading starts there instead of at the beginning of the slot's epoch: others may have written much since, and
    retention may have deleted it. A leader that knows a higher epoch has forgotten this one. If a leader knows a batch
    of the slot, that batch may be before the end. `trusted_ms`: how far back leaders surely remember every producer.
    Empty while the brokers' time is not known.
    """
    oldest = clock.now_ms() - trusted_ms if clock.is_confirmed else math.inf
    writer = stamp_of(entry)
    ends: dict[int, int] = {}
    for index, end in look.ends.items():
        active = look.of(former.topic, index, writer.producer_id)
        if active is not None and (active.stamp.epoch > writer.epoch or active.last_sequence >= 0):
            continue
        tail = view.tail(former.topic, former.slot, index)
        if max(entry.at_ms, min(tail.at_ms, tail.value.at_ms) if tail is not None else 0) > oldest:
            ends[index] = end
    return ends


def has_forgotten(look: Look, topic: str, writer: Stamp, wrote: Iterable[int]) -> bool:
    """Whether a leader has forgotten a writer that wrote to its partition: the sequences cannot continue there."""
    for index in wrote:
        active = look.of(topic, index, writer.producer_id)
        if active is None or (active.stamp.epoch == writer.epoch and active.last_sequence < 0):
            return True
    return False


def _stamp_of(header: BatchHeader) -> Stamp:
    return Stamp(ProducerId(header.producer_id), ProducerEpoch(header.producer_epoch))


def _ends(writer: Stamp, found: Stamp) -> bool:
    """Whether no batch of a writer can follow a batch or marker under `found`."""
    return found.producer_id == writer.producer_id and found.epoch > writer.epoch
