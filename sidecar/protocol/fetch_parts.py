"""The results of a walk through a Fetch request, a Fetch answer, or a partition's element of one."""

from struct import Struct
from typing import Final, NamedTuple

from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.leaders import Found
from sidecar.protocol.primitives import Octets
from sidecar.protocol.topic_ids import Ids

NOT_LOOKED_FOR: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_ID}
)
"""Errors that a broker answers before it reads a log (`KafkaApis.handleFetchRequest`). Their list of aborted
transactions is empty; with other errors it is null (`FetchResponse.partitionResponse`).
"""


_WATERMARKS: Final = Struct(">qqq")
_WATERMARKS_AT: Final = 6
"""Their position in an answer's element of version 5 or later: after the partition and its error."""


class FetchPart(NamedTuple):
    """One partition of a request; `start` to `end` is its whole element in the buffer."""

    topic: bytes
    partition: int
    start: int
    end: int


class FetchRequest(NamedTuple):
    """A walked request. `session`: position of the session id in the buffer, -1 for none. `replica_id` is negative for
    a consumer. `ids`: the ids of its topics, None if it has their names.
    """

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: int
    session_id: int
    session_epoch: int
    session: int
    replica_id: int
    has_rack: bool
    parts: list[FetchPart]
    ids: Ids | None = None


class FetchedPart(NamedTuple):
    """One partition of an answer; `start` to `end` is its whole element, `record_bytes` the size of its record set.
    `leader`: the new leader, if the broker names one (KIP-951).
    """

    topic: bytes
    partition: int
    error: int
    start: int
    end: int
    record_bytes: int
    leader: Found | None = None


class FetchAnswer(NamedTuple):
    """A walked answer. `has_addresses`: whether it has addresses of brokers."""

    throttle_ms: int
    error: int
    parts: list[FetchedPart]
    has_addresses: bool = False


class Watermarks(NamedTuple):
    """The offsets of a log in an element: up to which each isolation level may read, and where the log begins."""

    high_watermark: int
    last_stable_offset: int
    log_start: int

    def end(self, isolation: int) -> int:
        """The offset at which a reader of this isolation level has to wait."""
        return self.last_stable_offset if isolation else self.high_watermark


def caught_up(element: Octets, later: Octets) -> Octets:
    """Return an answer's element with the watermarks of a later element of the same log that are higher; unchanged if
    none is higher. Both are of version 5 or later.
    """
    said = _WATERMARKS.unpack_from(element, _WATERMARKS_AT)
    known = tuple(map(max, said, _WATERMARKS.unpack_from(later, _WATERMARKS_AT)))
    if known == said:
        return element
    view, behind = memoryview(element), _WATERMARKS_AT + _WATERMARKS.size
    return b"".join((view[:_WATERMARKS_AT], _WATERMARKS.pack(*known), view[behind:]))
