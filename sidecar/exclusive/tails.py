"""Where a slot's writer stopped in each partition: the last stamped sequence of one (producer id, epoch).

Found in two parts, so that nothing falls between them. *Before* the next epoch is opened: the end of each partition,
then what its leader remembers (a marker of a higher epoch makes it forget), kept as `Tail` records in the changelog:
a node that dies after the fence leaves them to the next. *Behind* the fence: the log from that end on, up to the new
epoch's marker, for what landed meanwhile. The order of the first two matters: a batch that lands between them is seen
twice, never missed.

Tails are facts about the log: they need no stamp, the newest wins, and reading on from any of them is right.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sidecar.changelog import Record, tail_key
from sidecar.cluster.logs import LogReader
from sidecar.exclusive.succession import NOTHING
from sidecar.forwarder.sequences import MODULUS
from sidecar.protocol.batch import batch_sizes, read_header
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp, TopicPartition
from sidecar.v1 import state_pb2 as state

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from sidecar.changelog import SlotName, View
    from sidecar.fencing import Witness
    from sidecar.protocol.caller import Upstream
    from sidecar.protocol.calls import PartitionProducers

_FETCH_BYTES: Final = 1024 * 1024
_READERS: Final = 16


@dataclass(frozen=True, slots=True)
class Tail:
    """The last stamped sequence in front of `offset`, `NOTHING` where there is none."""

    last_sequence: int
    offset: int


def _ends(writer: Stamp, found: Stamp) -> bool:
    """Whether nothing of a writer can lie behind a batch or marker under `found`."""
    return found.producer_id == writer.producer_id and found.epoch > writer.epoch


def later(first: int, second: int) -> int:
    """The later of two stamped sequences (modulo 2^31), either of which may be `NOTHING`."""
    if NOTHING in (first, second):
        return max(first, second)
    return first if (first - second) % MODULUS < MODULUS // 2 else second


@dataclass(frozen=True, slots=True)
class Look:
    """One moment of some partitions: where they ended, and what their leaders remembered a moment later."""

    ends: Mapping[int, int]
    remembered: Mapping[TopicPartition, PartitionProducers]


class TailReader:
    """Reads tails of the slots of one topic."""

    def __init__(self, upstream: Upstream, witness: Witness, topic: str) -> None:
        self._logs = LogReader(upstream)
        self._witness = witness
        self._topic = topic

    async def ends(self, partitions: Iterable[int]) -> dict[int, int]:
        """The end (high watermark) of each partition."""
        return await self._logs.ends(self._topic, partitions)

    async def starts(self, partitions: Iterable[int]) -> dict[int, int]:
        """The first offset that retention left in each partition."""
        return await self._logs.starts(self._topic, partitions)

    async def look(self, partitions: Iterable[int]) -> Look:
        """In this order: a batch that lands between the two is seen twice, never missed."""
        indexes = tuple(sorted(partitions))
        ends = await self.ends(indexes)
        return Look(ends, await self._witness.producers({self._topic: indexes}))

    def before(
        self, view: View, slot: SlotName, writer: Stamp, look: Look, partitions: Iterable[int], since: Mapping[int, int]
    ) -> dict[int, Tail]:
        """What is known of a slot's writer by that look.

        `since` are offsets in front of everything that the writer's session wrote: read from there where nothing
        better is known.
        """
        tails: dict[int, Tail] = {}
        for index in partitions:
            recorded = self._recorded(view, slot, writer, index)
            active = look.remembered[TopicPartition(self._topic, index)].of(writer.producer_id)
            if active is not None and active.stamp.epoch == writer.epoch and active.last_sequence >= 0:
                last = later(active.last_sequence, recorded.last_sequence if recorded else NOTHING)
                tails[index] = Tail(last, look.ends[index])
            elif recorded is not None:
                tails[index] = recorded
            else:
                # A higher epoch is here already, or the leader knows of a marker only: it may have forgotten the rest.
                tails[index] = Tail(NOTHING, self._in_front(view, slot, writer, index, since.get(index, 0)))
        return tails

    def _in_front(self, view: View, slot: SlotName, writer: Stamp, partition: int, since: int) -> int:
        """An offset in front of everything of a writer: the tail of an earlier epoch, which is older than its fence."""
        entry = view.tail(self._topic, slot, partition)
        if entry is None or entry.value.producer_id != writer.producer_id or entry.value.producer_epoch > writer.epoch:
            return since
        return max(since, entry.value.offset)

    def _recorded(self, view: View, slot: SlotName, writer: Stamp, partition: int) -> Tail | None:
        entry = view.tail(self._topic, slot, partition)
        if entry is None or (entry.value.producer_id, entry.value.producer_epoch) != (writer.producer_id, writer.epoch):
            return None
        return Tail(entry.value.last_sequence, entry.value.offset)

    def records(
        self, view: View, slot: SlotName, topic_id: UUID, writer: Stamp, tails: Mapping[int, Tail]
    ) -> list[Record]:
        """What the changelog does not know yet of these tails."""
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
                at_ms=int(time.time() * 1000),
            )
            fresh.append(Record(tail_key(self._topic, slot, index), value))
        return fresh

    async def behind(
        self, writer: Stamp, tails: Mapping[int, Tail], fence: Stamp, ends: Mapping[int, int]
    ) -> dict[int, int]:
        """The last stamped sequence of `writer` per partition, up to the fence at `fence` or an earlier one of its own
        producer id; `NOTHING` where none.

        `ends` are the ends of the partitions seen after the fence: the marker is in front of them.
        """
        gate = asyncio.Semaphore(_READERS)

        async def one(index: int, tail: Tail) -> tuple[int, int]:
            if ends[index] <= tail.offset + 1:
                return index, tail.last_sequence  # nothing but the marker
            async with gate:
                return index, await self._read_on(index, writer, tail, fence, ends[index])

        return dict(await asyncio.gather(*[one(index, tail) for index, tail in tails.items()]))

    async def _read_on(self, index: int, writer: Stamp, tail: Tail, fence: Stamp, end: int) -> int:
        last, offset = tail.last_sequence, tail.offset
        while offset < end:
            records = await self._logs.fetch(TopicPartition(self._topic, index), offset, _FETCH_BYTES)
            batches = batch_sizes(records, 0, len(records))
            if not batches:
                break
            for start, size in batches:
                header = read_header(records, start, start + size)
                offset = header.base_offset + header.last_offset_delta + 1
                stamp = Stamp(ProducerId(header.producer_id), ProducerEpoch(header.producer_epoch))
                if (header.is_control and stamp == fence) or _ends(writer, stamp):
                    return last
                if not header.is_control and stamp == writer:
                    last = later(last, header.last_sequence)
        return last
