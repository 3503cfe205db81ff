"""Fence a whole topic (KIP-98): every slot on every partition there is, and again where the topic grew meanwhile."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from sidecar.fencing.retire import retire_producer
from sidecar.fencing.slot import Partitions, WriterSlot
from sidecar.network.backoff import Retry
from sidecar.protocol.caller import TopicLayout, Upstream
from sidecar.protocol.ids import ProducerId

_AT_ONCE: Final = 64


@dataclass(frozen=True, slots=True)
class FencedTopic:
    """What is fenced: exactly these partitions of exactly this topic. Others are shown to no client."""

    topic_id: UUID
    partitions: tuple[int, ...]


async def open_slots(slots: Sequence[WriterSlot]) -> None:
    """Take slots, the first of them before the others. Errors as `WriterSlot.open`."""
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
    deadline: float = 30.0,
) -> FencedTopic:
    """Fence open slots, the first of them before the others, on all partitions of `topic` and on `also`.

    `only` names the one partition that a transactional id may write, where that is not all of them. `former` names the
    producer id that each one last had as far as anybody remembers: one that changed is fenced too. A slot whose epochs
    are used up gets a new producer id on the way, so read `stamp` afterwards. Errors as `WriterSlot.fence`, and
    `UnknownTopicError`.
    """
    # Model: OpenAndFence.
    retry = Retry(f"fence of {topic}", deadline)
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
    """Those of some partitions that a slot may write."""
    one = only.get(slot.transactional_id)
    return sorted(index for index in partitions if one in (None, index))


async def fence_slot(
    upstream: Upstream, slot: WriterSlot, partitions: Partitions, formers: Mapping[str, ProducerId]
) -> None:
    """Fence one open slot on some partitions; `formers` and the rest as in `fence_topic`."""
    # Model: FenceSlot, TakeOver.
    before, former = slot.stamp.producer_id, formers.get(slot.transactional_id)
    if slot.rotation_due:
        await slot.rotate(partitions)
    if former is not None and former not in (before, slot.stamp.producer_id):
        await retire_producer(upstream, former, partitions)
    await slot.fence(partitions)
