"""What the scenarios write and what they expect to read, in one form for all Python workers. Pure data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

Headers = tuple[tuple[str, bytes | None], ...]

DEFAULT_REPLICATION = -1
"""The replication factor that leaves the choice to the cluster, on the wire too."""

RECORDS_PER_CODEC = 200
"""Enough of them, and alike enough, that a codec that works stores a small part of their bytes."""


@dataclass(frozen=True, slots=True)
class Written:
    """A record to be written. `partition` None leaves the choice to the client; `timestamp` is in ms, None for the
    client's clock.
    """

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp: int | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """A record as a consumer delivered it. `timestamp` in ms."""

    partition: int
    offset: int
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp: int | None = None

    def content(self) -> Written:
        """The record without its place, to compare with what was written; the timestamp is kept."""
        return Written(self.value, self.key, self.headers, self.timestamp)


def numbered(count: int, *, partition: int | None = None, start: int = 0, size: int = 0) -> list[Written]:
    """`count` records with the values `0`, `1`, … as text, padded to `size` bytes with dots."""
    return [
        Written(str(number).encode().ljust(size, b"."), partition=partition) for number in range(start, start + count)
    ]


def compressible() -> list[Written]:
    """Records for the codecs: repetitive, about 1 KB each."""
    return [
        Written(f"{number:06}".encode() * 170, key=str(number).encode(), partition=0)
        for number in range(RECORDS_PER_CODEC)
    ]


def curious(*, null_header: bool = True) -> list[Written]:
    """Headers (repeated names, empty and null values, not ASCII), null keys, null and empty values."""
    headers: Headers = (("a", b"1"), ("a", b"2"), ("empty", b""), ("größe", bytes(range(256))))
    return [
        Written(b"v", b"k", (*headers, ("null", None)) if null_header else headers, partition=0),
        Written(b"no key", None, partition=0),
        Written(None, b"tombstone", (("why", b"deleted"),), partition=0),
        Written(b"", b"", partition=0),
    ]


def dated() -> list[Written]:
    """One record a day, the first on 1 January 2024, UTC."""
    return [
        Written(f"day {day}".encode(), timestamp=1_704_067_200_000 + day * 86_400_000, partition=0) for day in range(5)
    ]


def plain(records: Iterable[Written]) -> list[Written]:
    """The records as `Seen.content` shows them: without the partition asked for."""
    return [replace(record, partition=None) for record in records]


def undated(records: Iterable[Written]) -> list[Written]:
    """The records without timestamps, for scenarios that leave the clock to the client."""
    return [replace(record, timestamp=None, partition=None) for record in records]


def values(records: Iterable[Seen]) -> list[bytes | None]:
    """Their values in the order given."""
    return [record.value for record in records]


def in_partition_order(records: Iterable[Seen]) -> list[Seen]:
    """By partition, then offset: the order in which they are stored."""
    return sorted(records, key=lambda record: (record.partition, record.offset))
