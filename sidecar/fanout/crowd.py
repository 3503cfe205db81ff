"""Decides which partitions have enough readers for these to wait together. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

Partition = tuple[bytes, int]
"""A log's topic and the index of the partition."""

LEAST: Final = 4
"""The default number of connections from which on they wait together. Fewer than that get a record about 80 µs earlier
by polls of their own, and so few polls are no load for the broker.
"""
_REMEMBERED: Final = 10_000
"""Partitions that are remembered per connection; it reads all further ones by itself."""


class Crowd:
    """Counts connections by partition. A connection counts for each partition that it ever read, until it closes."""

    __slots__ = ("_least", "_readers", "_reads")

    def __init__(self, least: int = LEAST) -> None:
        self._least = least
        self._reads: dict[int, set[Partition]] = {}
        self._readers: dict[Partition, int] = {}

    def gathers(self, connection: int, partitions: Iterable[Partition]) -> bool:
        """Notes that a connection reads these partitions. Returns whether each has enough readers to wait together."""
        reads, readers = self._reads.get(connection), self._readers
        if reads is None:
            reads = self._reads[connection] = set()
        together = True
        for partition in partitions:
            if partition not in reads:
                if len(reads) >= _REMEMBERED:
                    return False
                reads.add(partition)
                readers[partition] = readers.get(partition, 0) + 1
            if together and readers[partition] < self._least:
                together = False
        return together

    def reads_more(self, connection: int, count: int) -> bool:
        """Whether a connection has read more partitions than the `count` in its present request."""
        return len(self._reads.get(connection, ())) > count

    def is_shared(self, log: bytes, partition: int) -> bool:
        """Whether enough connections read a partition to wait together."""
        return self._readers.get((log, partition), 0) >= self._least

    def reads(self, log: bytes, partition: int) -> bool:
        """Whether any connection reads a partition."""
        return (log, partition) in self._readers

    def leaves(self, connection: int) -> list[Partition]:
        """Removes a closed connection. Returns the partitions that now have no reader."""
        left: list[Partition] = []
        for partition in self._reads.pop(connection, ()):
            self._readers[partition] -= 1
            if not self._readers[partition]:
                del self._readers[partition]
                left.append(partition)
        return left

    @property
    def connections(self) -> int:
        """The number of connections."""
        return len(self._reads)
