"""What the HTTP side needs of a node about the logs of topics; the ways to fail are those of `sidecar.node.port`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sidecar.cluster.last_records import CutBytes, LastRecord  # noqa: F401 - as the log is read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecar.shadow.cursors import Cursor


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """The log of one partition: its leader's broker id, its first offset, the next one after its last (high watermark),
    and its size on the leader in bytes, None where the broker does not say.
    """

    partition: int
    leader: int
    start: int
    end: int
    bytes: int | None


@dataclass(frozen=True, slots=True)
class ShownRecord:
    """A record, and the generation of the ownership under which it was written: None where that is not the one that
    stands now, or not known to this node.
    """

    record: LastRecord
    generation: int | None


class LogPort(Protocol):
    """Logs of topics as the HTTP side sees them; a shadow's is its source's. All methods may raise `UnavailableError`,
    and NotFoundError without such a topic, ConflictError for a shadow whose log cannot be read.
    """

    async def partitions(self, name: str) -> Sequence[PartitionLog]:
        """Where the log of each partition begins and ends, by partition. A round trip to each leader."""
        ...

    async def groups(self, name: str) -> Sequence[Cursor]:
        """What groups have committed for the topic, by group, a few seconds old at most."""
        ...

    async def records(self, name: str, partition: int | None, most: int) -> Sequence[ShownRecord]:
        """The last records of a partition, or (None) the newest of the first 16 partitions that have any, the newest
        first: `most` of them at most, cut. One call at a time reads, others wait for it.

        Raises InvalidError without such a partition, ConflictError for a batch that cannot be opened.
        """
        ...
