"""What a walk finds in a Fetch request, and in an answer to one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sidecar.protocol.leaders import Found
    from sidecar.protocol.topic_ids import Ids


class FetchPart(NamedTuple):
    """One partition of a request; `start` to `end` is its whole element in the buffer."""

    topic: bytes
    partition: int
    start: int
    end: int


class FetchRequest(NamedTuple):
    """A walked request. `session`: where the session id stands in the buffer, -1 for nowhere. `replica_id` is negative
    for a consumer. `ids`: those of its topics, None where it has their names.
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
    `leader`: what the broker says of a new one (KIP-951).
    """

    topic: bytes
    partition: int
    error: int
    start: int
    end: int
    record_bytes: int
    leader: Found | None = None


class FetchAnswer(NamedTuple):
    """A walked answer. `has_addresses`: it says where brokers are."""

    throttle_ms: int
    error: int
    parts: list[FetchedPart]
    has_addresses: bool = False
