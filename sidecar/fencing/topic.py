"""Fence a whole topic: every slot on every partition there is, and again where the topic grew meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sidecar.changelog import Retry
from sidecar.fencing.retire import retire_producer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from sidecar.fencing.slot import Partitions, WriterSlot
    from sidecar.protocol.caller import TopicLayout, Upstream
    from sidecar.protocol.ids import ProducerId


@dataclass(frozen=True, slots=True)
class FencedTopic:
    """What is fenced: exactly these partitions of exactly this topic. Others are shown to no client."""

    topic_id: UUID
    partitions: tuple[int, ...]


async def fence_topic(
    upstream: Upstream,
    slots: Sequence[WriterSlot],
    topic: str,
    *,
    also: Partitions,
    former: Mapping[str, ProducerId] | None = None,
    deadline: float = 30.0,
) -> FencedTopic:
    """Fence open slots, the first of them before the others, on all partitions of `topic` and on `also`.

    `former` names the producer id that each transactional id last had as far as anybody remembers: one that changed is
    fenced too. A slot whose epochs are used up gets a new producer id on the way, so read `stamp` afterwards. Errors
    as `WriterSlot.fence`, and `UnknownTopicError`.
    """
    retry = Retry(f"fence of {topic}", deadline)
    done: TopicLayout | None = None
    while True:
        layout = await upstream.layout(topic, refresh=True)
        if done is not None and layout.topic_id == done.topic_id:
            fresh = layout.leaders.keys() - done.leaders.keys()
        else:
            fresh = set(layout.leaders)
        if done is not None and not fresh:
            return FencedTopic(done.topic_id, tuple(sorted(done.leaders)))
        partitions = {**also, topic: sorted(fresh)}
        first, *rest = slots
        await _fence_slot(upstream, first, partitions, (former or {}).get(first.transactional_id))
        await asyncio.gather(
            *[_fence_slot(upstream, slot, partitions, (former or {}).get(slot.transactional_id)) for slot in rest]
        )
        if done is not None:
            await retry.pause(f"{topic} changed while it was fenced")
        done = layout


async def _fence_slot(upstream: Upstream, slot: WriterSlot, partitions: Partitions, former: ProducerId | None) -> None:
    before = slot.stamp.producer_id
    if slot.rotation_due:
        await slot.rotate(partitions)
    if former is not None and former not in (before, slot.stamp.producer_id):
        await retire_producer(upstream, former, partitions)
    await slot.fence(partitions)
