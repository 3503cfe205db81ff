"""Fences a whole topic (KIP-98): every slot on every partition, and again if the topic got partitions meanwhile. Also
fences a producer id that its slot no longer has, because Kafka gave the slot a new one by itself (expiry, lost state).

No coordinator can open an epoch of such an id any more, so its marker is written directly to the leaders
(WriteTxnMarkers, KIP-98), at the highest possible epoch. This is correct only for an id that no coordinator uses: a
marker above a coordinator's epoch would block the coordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from sidecar.changelog import Opened
from sidecar.fencing.slot import Partitions, WriterSlot
from sidecar.fencing.witness import FencingRefusedError, Witness
from sidecar.network.backoff import Retry
from sidecar.protocol.caller import Channel, TopicLayout, Upstream, UpstreamError
from sidecar.protocol.calls.transactions import Marker, PartitionProducers, WriteTxnMarkers
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import MAX_PRODUCER_EPOCH, ProducerEpoch, ProducerId, Stamp, TopicPartition

_AT_ONCE: Final = 64
_DEADLINE_S: Final = 30.0
_CALL_S: Final = 10.0
_CHANNEL: Final = Channel("fencing-retire")
_FIRST_COORDINATOR_EPOCH: Final = 0
RETIRED_KEPT: Final = 16
"""The number of former producer ids of a slot whose fences are renewed."""


@dataclass(frozen=True, slots=True)
class FencedTopic:
    """The fenced partitions of the topic with this id. Clients are shown no other partitions."""

    topic_id: UUID
    partitions: tuple[int, ...]


async def open_slots(slots: Sequence[WriterSlot]) -> None:
    """Opens slots, the first before the others. Errors as `WriterSlot.open`."""
    # Model: OpenSlots.
    first, *rest = slots
    await first.open()
    for begin in range(0, len(rest), _AT_ONCE):
        await asyncio.gather(*[slot.open() for slot in rest[begin : begin + _AT_ONCE]])


async def fence_topic(
    upstream: Upstream,
    slots: Sequence[WriterSlot],
    topic: str,
    *,
    also: Partitions,
    former: Mapping[str, ProducerId] | None = None,
    only: Mapping[str, int] | None = None,
) -> FencedTopic:
    """Fences open slots, the first before the others, on all partitions of `topic` and on `also`.

    `only`: by transactional id, the one partition that it may write to, unless it may write to all. `former`: by
    transactional id, its last known producer id; if that has changed, the former one is fenced too. A slot whose epochs
    are used up gets a new producer id, so read `stamp` afterwards. Errors as `WriterSlot.fence`, and
    `UnknownTopicError`.
    """
    # Model: OpenAndFence.
    retry = Retry(f"fence of {topic}", _DEADLINE_S)
    done: TopicLayout | None = None
    while True:
        layout = await upstream.whole_layout(topic)
        if done is not None and layout.topic_id == done.topic_id:
            fresh = layout.leaders.keys() - done.leaders.keys()
        else:
            fresh = set(layout.leaders)
        if done is not None and not fresh:
            return FencedTopic(done.topic_id, tuple(sorted(done.leaders)))
        first, *rest = [(slot, {**also, topic: _mine(slot, fresh, only or {})}) for slot in slots]
        await fence_slot(upstream, *first, former or {})
        for begin in range(0, len(rest), _AT_ONCE):
            some = rest[begin : begin + _AT_ONCE]
            await asyncio.gather(*[fence_slot(upstream, *each, former or {}) for each in some])
        if done is not None:
            await retry.pause(f"{topic} changed while it was fenced")
        done = layout


def _mine(slot: WriterSlot, partitions: Collection[int], only: Mapping[str, int]) -> list[int]:
    """Returns those of `partitions` that a slot may write to."""
    one = only.get(slot.transactional_id)
    return sorted(index for index in partitions if one in (None, index))


async def fence_slot(
    upstream: Upstream, slot: WriterSlot, partitions: Partitions, formers: Mapping[str, ProducerId]
) -> None:
    """Fences one open slot on `partitions`. `formers`: as `former` of `fence_topic`."""
    # Model: FenceSlot, TakeOver.
    before, former = slot.stamp.producer_id, formers.get(slot.transactional_id)
    if slot.rotation_due:
        await slot.rotate(partitions)
    if former is not None and former not in (before, slot.stamp.producer_id):
        await retire_producer(upstream, former, partitions)
    await slot.fence(partitions)


async def retire_producer(upstream: Upstream, producer_id: ProducerId, partitions: Partitions) -> None:
    """Makes every partition refuse all epochs that `producer_id` ever had; returns when each leader has confirmed it.

    Needs CLUSTER_ACTION or ALTER on the cluster. Raises `FencingRefusedError` (31 CLUSTER_AUTHORIZATION_FAILED without
    it), `RetryTimeoutError`.
    """
    writer = Stamp(producer_id, ProducerEpoch(MAX_PRODUCER_EPOCH))
    witness = Witness(upstream, _CHANNEL, _CALL_S)
    retry = Retry(f"fence of the former producer id {producer_id}", _DEADLINE_S)
    indexes = {topic: tuple(sorted(found)) for topic, found in partitions.items() if found}

    async def write(leader: int, marker: Marker) -> None:
        answer = await upstream.call(leader, WriteTxnMarkers((marker,)), timeout=_CALL_S, channel=_CHANNEL)
        _judge(answer.get(producer_id, {}), producer_id)

    refresh = False
    while indexes:
        reason: object = "markers not confirmed"
        try:
            known = await witness.producers(indexes, refresh=refresh)
            grouped = await witness.by_leader(indexes)
            await asyncio.gather(
                *[
                    write(leader, marker)
                    for leader, topics in grouped.items()
                    for marker in _markers(writer, topics, known)
                ]
            )
            indexes = await witness.without_fence(writer, indexes)
        except FencingRefusedError:
            raise
        except (UpstreamError, KafkaError) as error:
            reason = error
        if indexes:
            refresh = True
            await retry.pause(reason)


def _markers(
    writer: Stamp, topics: dict[str, tuple[int, ...]], known: dict[TopicPartition, PartitionProducers]
) -> list[Marker]:
    """Returns markers with the coordinator epoch that each partition knows: it refuses markers of an older one."""
    by_epoch: dict[int, dict[str, tuple[int, ...]]] = {}
    for topic, asked in topics.items():
        for index in asked:
            producer = known[TopicPartition(topic, index)].of(writer.producer_id)
            epoch = max(_FIRST_COORDINATOR_EPOCH, producer.coordinator_epoch if producer else 0)
            of_epoch = by_epoch.setdefault(epoch, {})
            of_epoch[topic] = (*of_epoch.get(topic, ()), index)
    return [Marker(writer, asked, epoch) for epoch, asked in by_epoch.items()]


def _judge(errors: dict[TopicPartition, int], producer_id: ProducerId) -> None:
    for partition, code in errors.items():
        if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            what = f"{partition} still accepts the former producer id {producer_id}: to fence it"
            raise FencingRefusedError(code, f"{what}, the node needs CLUSTER_ACTION or ALTER on the cluster")
        if code:
            raise KafkaError(code, f"WriteTxnMarkers to {partition}")


async def retire_formers(upstream: Upstream, opened: Opened | None, partitions: Partitions) -> None:
    """Renews the fence of the last 16 producer ids that the slot had before. Raises as `retire_producer`."""
    for former in opened.retired_producer_ids[-RETIRED_KEPT:] if opened is not None else ():
        await retire_producer(upstream, ProducerId(former), partitions)
