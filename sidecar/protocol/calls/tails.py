"""Fetch v11 of many partitions at once, each answered with its unchanged element: for readers that share a poll."""

from collections.abc import Sequence
from struct import Struct
from typing import ClassVar, Final, NamedTuple

from sidecar.protocol import fetch
from sidecar.protocol.api import ApiKey
from sidecar.protocol.caller import Request
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.primitives import I32, Octets, Reader, Writer

VERSION: Final = 11
"""The version of the elements that a poll returns, whatever the version of its request."""
_BY_ID: Final = 13
SHARING: Final = range(10, 19)
"""The versions whose readers may share a poll: 10 lacks the rack and the preferred read replica, nothing else, and what
12 and later add is for followers. In 9 and before a broker refuses batches packed by zstd.
"""
_POSITION: Final = Struct(">iiqqi")
_NO_LOG_START: Final = -1
_ABOUT_IDS: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID})


class Position(NamedTuple):
    """The position of a reader in one partition. `epoch`: the leader epoch that it knows, -1 for none (KIP-320).
    `topic_id`: the topic that it reads, of 16 bytes; empty if it reads by name.
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


class FetchTails(Request[dict[tuple[bytes, int], Fetched]]):
    """Wait up to `max_wait_ms` for a first byte at any of these positions, each of another partition.

    Answered by the element of each partition, by log and index: at most `partition_bytes` each and `max_bytes` in all,
    but for a first batch that is larger.
    """

    api_key: ClassVar[int] = ApiKey.FETCH
    api_version: ClassVar[int] = VERSION

    positions: Sequence[Position]
    isolation: int
    max_wait_ms: int
    max_bytes: int
    partition_bytes: int

    def encode(self, writer: Writer) -> None:
        """See `Request.encode`."""
        limits = (self.max_wait_ms, 1, self.max_bytes, self.isolation)
        parts = [
            (each.topic_id, fetch.flexible_element(element_of(each, self.partition_bytes)))
            if self.flexible
            else (each.log, element_of(each, self.partition_bytes))
            for each in self.positions
        ]
        fetch.write_body(writer, self.api_version, limits, parts)

    def decode(self, reader: Reader) -> dict[tuple[bytes, int], Fetched]:
        """See `Request.decode`."""
        found = fetch.walk_body(reader, self.api_version, {each.topic_id: each.log for each in self.positions})
        buffer = memoryview(reader.buffer)
        fetched: dict[tuple[bytes, int], Fetched] = {}
        for part in found.parts:
            element = fetch.converted(buffer[part.start : part.end], self.api_version, VERSION)
            fetched[part.topic, part.partition] = Fetched(found.error or part.error, part.record_bytes, element)
        return fetched


class FetchTailsById(FetchTails):
    """As `FetchTails`, of topics by their ids: brokers return nothing of a recreated topic."""

    api_version: ClassVar[int] = _BY_ID
    flexible: ClassVar[bool] = True


def position_of(log: bytes, element: Octets, version: int, topic_id: bytes = b"") -> tuple[Position, int] | None:
    """Return the position in a partition's element of a request, and its maximum of bytes; None if the element requests
    more than a poll supports.
    """
    plain = element if version < fetch.FIRST_FLEXIBLE else fetch.plain_element(element)
    if plain is None:
        return None
    partition, epoch, offset, _, most = _POSITION.unpack(plain)
    return Position(log, partition, epoch, offset, topic_id), most


def element_of(position: Position, most_bytes: int) -> bytes:
    """A partition's element in a request of v9 to v11, as `position_of` reads it."""
    return _POSITION.pack(position.partition, position.epoch, position.offset, _NO_LOG_START, most_bytes)


def by_name(fetched: Fetched) -> Fetched:
    """An element for a reader that named the topic by name: an error about the id is one about the name."""
    if fetched.error not in _ABOUT_IDS:
        return fetched
    return error_of(I32.unpack_from(fetched.element)[0], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def error_of(partition: int, error: int) -> Fetched:
    """The element for a partition without an answer."""
    return Fetched(error, 0, fetch.error_element(VERSION, partition, error))
