"""Fetch v11 of many partitions at once, each answered by its element as it is: for readers that share a poll."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from sidecar.protocol import fetch
from sidecar.protocol import fetch_flexible as flexible
from sidecar.protocol.caller import FixedRequest
from sidecar.protocol.primitives import Octets, Reader, Writer

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION: Final = 11
"""Of what a poll brings, whatever version it asks in."""
_BY_ID: Final = 13
SHARING: Final = range(10, 19)
"""The versions whose readers may share a poll: 10 lacks the rack and the preferred read replica, nothing else, and what
12 and later add is for followers. In 9 and before a broker refuses batches packed by zstd.
"""
_POSITION: Final = Struct(">iiqqi")
_NO_LOG_START: Final = -1


class Position(NamedTuple):
    """Where a reader of one partition stands. `epoch`: the leader epoch that it knows, -1 for none (KIP-320).
    `topic_id`: the topic that it reads, of 16 bytes; empty where it reads whatever topic has the name.
    """

    log: bytes
    partition: int
    epoch: int
    offset: int
    topic_id: bytes = b""

    @property
    def of(self) -> tuple[bytes, int]:
        """Log and partition."""
        return self.log, self.partition


class Fetched(NamedTuple):
    """A partition's element of the answer: error code, size of its records, the bytes."""

    error: int
    record_bytes: int
    element: Octets


@dataclass(frozen=True, slots=True)
class FetchTails(FixedRequest):
    """Wait up to `max_wait_ms` for a first byte at any of these positions, each of another partition.

    Answered by what each partition has, by log and index: at most `partition_bytes` each and `max_bytes` in all, but
    for a first batch that is larger.
    """

    api_key: ClassVar[int] = 1
    api_version: ClassVar[int] = VERSION

    positions: Sequence[Position]
    isolation: int
    max_wait_ms: int
    max_bytes: int
    partition_bytes: int

    @property
    def _limits(self) -> tuple[int, int, int, int]:
        return self.max_wait_ms, 1, self.max_bytes, self.isolation

    def encode(self, writer: Writer) -> None:
        """See `Request.encode`."""
        parts = [(position.log, element_of(position, self.partition_bytes)) for position in self.positions]
        fetch.write_body(writer.out, VERSION, self._limits, parts)

    def decode(self, reader: Reader) -> dict[tuple[bytes, int], Fetched]:
        """See `Request.decode`."""
        found = fetch.walk_body(reader, VERSION)
        buffer = memoryview(reader.buffer)
        return {
            (part.topic, part.partition): Fetched(
                found.error or part.error, part.record_bytes, buffer[part.start : part.end]
            )
            for part in found.parts
        }


@dataclass(frozen=True, slots=True)
class FetchTailsById(FetchTails):
    """As `FetchTails`, of topics by their ids: of one that was created anew no broker gives anything."""

    api_version: ClassVar[int] = _BY_ID
    flexible: ClassVar[bool] = True

    def encode(self, writer: Writer) -> None:
        """See `Request.encode`."""
        parts = [
            (position.topic_id, flexible.flexible_element(element_of(position, self.partition_bytes)))
            for position in self.positions
        ]
        flexible.write_body(writer.out, _BY_ID, self._limits, parts)

    def decode(self, reader: Reader) -> dict[tuple[bytes, int], Fetched]:
        """See `Request.decode`."""
        found = fetch.walk_body(reader, _BY_ID, {position.topic_id: position.log for position in self.positions})
        buffer = memoryview(reader.buffer)
        return {
            (part.topic, part.partition): Fetched(
                found.error or part.error, part.record_bytes, flexible.as_v11(buffer[part.start : part.end])
            )
            for part in found.parts
        }


def position_of(log: bytes, element: Octets, version: int, topic_id: bytes = b"") -> tuple[Position, int] | None:
    """What a partition's element in a request asks for, and how many bytes it takes; None where it asks for more than a
    poll does.
    """
    plain = element if version < flexible.FIRST else flexible.plain_element(element)
    if plain is None:
        return None
    partition, epoch, offset, _, most = _POSITION.unpack(plain)
    return Position(log, partition, epoch, offset, topic_id), most


def element_of(position: Position, most_bytes: int) -> bytes:
    """A partition's element in a request of v9 to v11, as `position_of` reads it."""
    return _POSITION.pack(position.partition, position.epoch, position.offset, _NO_LOG_START, most_bytes)


def error_of(partition: int, error: int) -> Fetched:
    """What stands for an answer that did not come."""
    return Fetched(error, 0, fetch.error_element(VERSION, partition, error))
