"""Logs of topics on paper, for tests of the HTTP side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sidecar.cluster.logs import CutBytes, LastRecord
from sidecar.node.port import InvalidError, NotFoundError, PartitionLog, ShownRecord
from sidecar.node.view.logs import LogView
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sidecar.shadow.cursors import Cursor


def record(offset: int, value: bytes = b"v", **more: Any) -> ShownRecord:
    """A record of partition 0 that node 7 wrote under its generation 3."""
    stamp = Stamp(ProducerId(7), ProducerEpoch(2))
    headers = (("trace", CutBytes(b"\x00\xff", 2)), ("none", None))
    facts = {"key": CutBytes(b"k", 1), "timestamp_ms": 1_700_000_000_000, "headers": headers, "writer": stamp, **more}
    found = LastRecord(
        partition=0, offset=offset, value=CutBytes(value, len(value)), sequence_id=offset, producer_name=None, **facts
    )
    return ShownRecord(found, 3)


class PaperLogs(LogView):
    """`kept`: records of each topic, the newest first."""

    def __init__(self, topics: Mapping[str, Any], called: Callable[..., None]) -> None:
        self._topics = topics
        self._called = called
        self.kept: list[ShownRecord] = []
        self.of_groups: list[Cursor] = []

    def _partitions_of(self, name: str) -> int:
        if name not in self._topics:
            raise NotFoundError(f"there is no topic {name}")
        return self._topics[name].partitions

    async def partitions(self, name: str) -> Sequence[PartitionLog]:
        self._called("partitions", name)
        return [PartitionLog(each, 1, each, 10 * each, None) for each in range(self._partitions_of(name))]

    async def groups(self, name: str) -> Sequence[Cursor]:
        self._called("groups", name)
        self._partitions_of(name)
        return self.of_groups

    async def records(self, name: str, partition: int | None, most: int) -> Sequence[ShownRecord]:
        self._called("records", name, partition, most)
        if partition is not None and partition >= self._partitions_of(name):
            raise InvalidError(f"{name} has no partition {partition}")
        return self.kept[:most]
