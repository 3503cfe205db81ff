"""Kafka as far as a fence sees it, on one page: a coordinator of one transactional id, and leaders that know producers.

`faults` are the answers that come instead, by kind of request: codes, or errors to raise. Markers of a partition in
`unmarked` are lost once for each time it is there, as a coordinator loses those of partitions that it does not know.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, cast
from uuid import UUID

from sidecar.protocol.caller import TopicLayout, Upstream
from sidecar.protocol.calls.admin import DescribeConfigs
from sidecar.protocol.calls.transactions import (
    NO_STAMP,
    ActiveProducer,
    AddPartitionsToTxn,
    DescribeProducers,
    EndTxn,
    InitializedProducer,
    InitProducerId,
    PartitionProducers,
    WriteTxnMarkers,
)
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp, TopicPartition

COORDINATOR = 9


class PaperCluster:
    """Answers at once; `calls` are (broker, request), in order."""

    def __init__(self, leaders: Mapping[str, Mapping[int, int]]) -> None:
        self.leaders = {topic: dict(found) for topic, found in leaders.items()}
        self.ids: dict[str, UUID] = {topic: UUID(int=number) for number, topic in enumerate(leaders, 1)}
        self.stamp = Stamp(ProducerId(70), ProducerEpoch(-1))
        self.known: dict[TopicPartition, dict[ProducerId, ActiveProducer]] = defaultdict(dict)
        self.faults: dict[type, list[int | Exception]] = defaultdict(list)
        self.unmarked: list[TopicPartition] = []
        self.calls: list[tuple[int | None, Any]] = []
        self.forgotten = 0
        self.refreshed = 0
        self.before: Callable[[Any], None] = lambda _: None
        self.configs: dict[Any, Any] = {}
        self.answered: Stamp | None = None
        """What InitProducerId returns instead, once a rival was there."""
        self._added: Mapping[str, Any] = {}
        self._is_open = False

    @property
    def upstream(self) -> Upstream:
        return cast(Upstream, self)

    def asked(self, kind: type) -> list[Any]:
        """The requests of one kind."""
        return [request for _, request in self.calls if isinstance(request, kind)]

    def know(self, partition: TopicPartition, stamp: Stamp, coordinator_epoch: int = 0) -> None:
        self.known[partition][stamp.producer_id] = ActiveProducer(stamp, -1, 0, coordinator_epoch, -1)

    def stamps(self, producer_id: int = 70) -> dict[TopicPartition, int]:
        """The epoch of a producer id in each partition that knows it."""
        mine = ProducerId(producer_id)
        return {partition: found[mine].stamp.epoch for partition, found in self.known.items() if mine in found}

    # As `Upstream` --------------------------------------------------------------------------------------------------

    async def coordinator(self, key: str, kind: Any) -> int:
        return COORDINATOR

    def forget_coordinator(self, key: str, kind: Any) -> None:
        self.forgotten += 1

    async def brokers(self) -> list[int]:
        return sorted({leader for found in self.leaders.values() for leader in found.values()})

    async def layout(self, topic: str, *, refresh: bool = False) -> TopicLayout:
        self.refreshed += refresh
        return TopicLayout(self.ids[topic], dict(self.leaders[topic]))

    async def whole_layout(self, topic: str) -> TopicLayout:
        return await self.layout(topic)

    async def call_pair(self, broker: int, first: Any, second: Any, **_: Any) -> tuple[Any, Any]:
        return await self.call(broker, first), await self.call(broker, second)

    async def call(self, broker: int | None, request: Any, **_: Any) -> Any:
        self.before(request)
        self.calls.append((broker, request))
        fault = self.faults[type(request)].pop(0) if self.faults[type(request)] else 0
        if isinstance(fault, Exception):
            raise fault
        match request:
            case InitProducerId(current=current):
                return self._opened(current, fault)
            case AddPartitionsToTxn(partitions=partitions):
                if not fault:
                    self._added, self._is_open = partitions, True
                return dict.fromkeys(_all(partitions), fault)
            case EndTxn(stamp=stamp):
                if not fault and self._is_open:
                    self._mark(stamp)
                return fault
            case DescribeProducers(partitions=partitions):
                return {
                    partition: PartitionProducers(fault, None, tuple(self.known[partition].values()))
                    for partition in _all(partitions)
                }
            case WriteTxnMarkers(markers=(marker,)):
                for partition in _all(marker.partitions):
                    self._reach(partition, marker.stamp, marker.coordinator_epoch)
                return {marker.stamp.producer_id: dict.fromkeys(_all(marker.partitions), fault)}
            case DescribeConfigs(resources=resources):
                return {resource: self.configs[resource] for resource in resources if resource in self.configs}
            case _:
                raise AssertionError(request)

    def _opened(self, current: Stamp, fault: int) -> InitializedProducer:
        if fault:
            return InitializedProducer(fault, NO_STAMP)
        assert current in (NO_STAMP, self.stamp)
        self.stamp = self.answered or Stamp(self.stamp.producer_id, ProducerEpoch(self.stamp.epoch + 1))
        return InitializedProducer(0, self.stamp)

    def _mark(self, stamp: Stamp) -> None:
        self._is_open = False
        for partition in _all(self._added):
            self._reach(partition, stamp, 0)

    def _reach(self, partition: TopicPartition, stamp: Stamp, coordinator_epoch: int) -> None:
        if partition in self.unmarked:
            self.unmarked.remove(partition)
        else:
            self.know(partition, stamp, coordinator_epoch)


def _all(partitions: Mapping[str, Any]) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for topic, indexes in partitions.items() for index in indexes]
