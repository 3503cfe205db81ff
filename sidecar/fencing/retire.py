"""Fence a producer id that its slot no longer has, because Kafka gave the slot a new one by itself (expiry, lost
state).

No coordinator can open an epoch of the old id any more, so its marker is written straight to the leaders
(WriteTxnMarkers, KIP-98), at the highest possible epoch. This is correct only for an id that no coordinator uses: a
marker above a coordinator's epoch would block the coordinator.
"""

from __future__ import annotations

import asyncio
from typing import Final

from sidecar.changelog import Opened
from sidecar.fencing.slot import Partitions
from sidecar.fencing.witness import FencingRefusedError, Witness
from sidecar.network.backoff import Retry
from sidecar.protocol.caller import Channel, Upstream, UpstreamError
from sidecar.protocol.calls.transactions import Marker, PartitionProducers, WriteTxnMarkers
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import MAX_PRODUCER_EPOCH, ProducerEpoch, ProducerId, Stamp, TopicPartition

_CHANNEL: Final = Channel("fencing-retire")
_FIRST_COORDINATOR_EPOCH: Final = 0
_RETIRED_KEPT: Final = 16


async def retire_producer(
    upstream: Upstream, producer_id: ProducerId, partitions: Partitions, *, deadline: float = 30.0, call: float = 10.0
) -> None:
    """Make every partition refuse all epochs that `producer_id` ever had, and see each leader confirm it.

    Needs CLUSTER_ACTION or ALTER on the cluster. Raises `FencingRefusedError` (31 CLUSTER_AUTHORIZATION_FAILED without
    it), `RetryTimeoutError`.
    """
    writer = Stamp(producer_id, ProducerEpoch(MAX_PRODUCER_EPOCH))
    witness = Witness(upstream, _CHANNEL, call)
    retry = Retry(f"fence of the former producer id {producer_id}", deadline)
    indexes = {topic: tuple(sorted(found)) for topic, found in partitions.items() if found}

    async def write(leader: int, marker: Marker) -> None:
        answer = await upstream.call(leader, WriteTxnMarkers((marker,)), timeout=call, channel=_CHANNEL)
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
    """A partition that saw a coordinator epoch refuses markers of an older one, so each gets its own."""
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
    """Renew the fence of the newest producer ids that the slot had before. Raises as `retire_producer`."""
    for former in opened.retired_producer_ids[-_RETIRED_KEPT:] if opened is not None else ():
        await retire_producer(upstream, ProducerId(former), partitions)
