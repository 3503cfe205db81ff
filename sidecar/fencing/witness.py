"""What the partitions themselves know: DescribeProducers at each leader (KIP-664).

The coordinator's answer is not enough: if its metadata lags, it treats a partition that it does not know as deleted and
reports its marker as written.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from sidecar.protocol.caller import Channel, DisconnectedError, FencedError, Upstream
from sidecar.protocol.calls.transactions import DescribeProducers, PartitionProducers
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import Stamp, TopicPartition

_REFUSED: Final = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})
_PARTITIONS_PER_CALL: Final = 1_000


class FencingRefusedError(KafkaError):
    """Kafka refuses a fence for a reason that a retry does not change: an authorization or a setting."""


class Witness:
    """Reads from leaders which producers they know. Never retries; for a second try `refresh` looks up the leaders."""

    def __init__(self, upstream: Upstream, channel: Channel, timeout: float) -> None:
        self._upstream = upstream
        self._channel = channel
        self._timeout = timeout

    async def producers(
        self,
        indexes: Mapping[str, tuple[int, ...]],
        *,
        refresh: bool = False,
        leaders: Mapping[str, Mapping[int, int]] | None = None,
    ) -> dict[TopicPartition, PartitionProducers]:
        """Returns all producers that each partition's leader knows, committed or not. `leaders`: the brokers to query.

        A broker that is no longer the leader answers from what it has replicated (KIP-664).

        Raises `FencingRefusedError` (29 TOPIC_AUTHORIZATION_FAILED, 31 CLUSTER_AUTHORIZATION_FAILED), `KafkaError` for
        transient codes (the leader moved), `UpstreamError`.
        """
        answers = await asyncio.gather(
            *[self._ask(leader, asked) for leader, asked in await self._by_leader(indexes, refresh, leaders)]
        )
        found: dict[TopicPartition, PartitionProducers] = {}
        for answer in answers:
            for partition, producers in answer.items():
                if producers.error in _REFUSED:
                    raise FencingRefusedError(producers.error, f"DescribeProducers of {partition} needs READ")
                if producers.error:
                    raise KafkaError(producers.error, f"DescribeProducers of {partition}")
                found[partition] = producers
        return found

    async def without_fence(
        self, writer: Stamp, indexes: Mapping[str, tuple[int, ...]], *, refresh: bool = False
    ) -> dict[str, tuple[int, ...]]:
        """Returns the partitions that do not know `writer`'s epoch. Raises `FencedError` if one knows a higher one."""
        answers = await self.producers(indexes, refresh=refresh)
        missing: dict[str, tuple[int, ...]] = {}
        for topic, asked in indexes.items():
            for index in asked:
                partition = TopicPartition(topic, index)
                answer = answers.get(partition)
                known = answer.of(writer.producer_id) if answer else None
                if known is not None and known.stamp.epoch > writer.epoch:
                    raise FencedError(ErrorCode.INVALID_PRODUCER_EPOCH, writer, f"{partition} knows {known.stamp}")
                if known is None or known.stamp.epoch < writer.epoch:
                    missing[topic] = (*missing.get(topic, ()), index)
        return missing

    async def by_leader(
        self,
        indexes: Mapping[str, tuple[int, ...]],
        *,
        refresh: bool = False,
        leaders: Mapping[str, Mapping[int, int]] | None = None,
    ) -> dict[int, dict[str, tuple[int, ...]]]:
        """Groups partitions by their leader. Raises `DisconnectedError` if one has no leader."""
        grouped: dict[int, dict[str, tuple[int, ...]]] = {}
        for topic, asked in indexes.items():
            known = leaders[topic] if leaders else (await self._upstream.layout(topic, refresh=refresh)).leaders
            for index in asked:
                leader = known.get(index, -1)
                if leader < 0:
                    raise DisconnectedError(f"{TopicPartition(topic, index)} has no leader", sent=False)
                of_leader = grouped.setdefault(leader, {})
                of_leader[topic] = (*of_leader.get(topic, ()), index)
        return grouped

    async def _by_leader(
        self,
        indexes: Mapping[str, tuple[int, ...]],
        refresh: bool,
        leaders: Mapping[str, Mapping[int, int]] | None,
    ) -> list[tuple[int, dict[str, tuple[int, ...]]]]:
        """As `by_leader`, split into calls of a bounded size, as an answer lists every producer of every partition."""
        calls: list[tuple[int, dict[str, tuple[int, ...]]]] = []
        for leader, topics in (await self.by_leader(indexes, refresh=refresh, leaders=leaders)).items():
            for topic, asked in topics.items():
                for start in range(0, len(asked), _PARTITIONS_PER_CALL):
                    part = asked[start : start + _PARTITIONS_PER_CALL]
                    last = calls[-1] if calls and calls[-1][0] == leader else None
                    if last and sum(map(len, last[1].values())) + len(part) <= _PARTITIONS_PER_CALL:
                        last[1][topic] = (*last[1].get(topic, ()), *part)
                    else:
                        calls.append((leader, {topic: part}))
        return calls

    async def _ask(self, leader: int, asked: dict[str, tuple[int, ...]]) -> dict[TopicPartition, PartitionProducers]:
        return await self._upstream.call(leader, DescribeProducers(asked), timeout=self._timeout, channel=self._channel)
