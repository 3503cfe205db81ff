"""Which partitions are read by so many connections that these wait together. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

Partition = tuple[bytes, int]
"""A log's topic and the index of the partition."""

LEAST: Final = 4
"""Connections that wait together, by default. Fewer get a record some 80 µs earlier by their own polls, and the broker
bears these few.
"""
_REMEMBERED: Final = 10_000
"""Partitions per connection; what it reads beyond that, it reads alone."""


class Crowd:
    """Counts connections by partition. What a connection has read once counts until it ends."""

    __slots__ = ("_least", "_readers", "_reads")

    def __init__(self, least: int = LEAST) -> None:
        self._least = least
        self._reads: dict[int, set[Partition]] = {}
        self._readers: dict[Partition, int] = {}

    def gathers(self, connection: int, partitions: Iterable[Partition]) -> bool:
        """A connection reads these partitions: whether enough others read every one of them, too."""
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
        """Whether a connection has read other partitions than the `count` that it asks for now."""
        return len(self._reads.get(connection, ())) > count

    def is_shared(self, log: bytes, partition: int) -> bool:
        """Whether enough connections read a partition to wait together."""
        return self._readers.get((log, partition), 0) >= self._least

    def reads(self, log: bytes, partition: int) -> bool:
        """Whether anybody reads a partition."""
        return (log, partition) in self._readers

    def leaves(self, connection: int) -> list[Partition]:
        """A connection has ended. The partitions that nobody reads any more."""
        left: list[Partition] = []
        for partition in self._reads.pop(connection, ()):
            self._readers[partition] -= 1
            if not self._readers[partition]:
                del self._readers[partition]
                left.append(partition)
        return left

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._reads)
