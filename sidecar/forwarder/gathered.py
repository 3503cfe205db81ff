"""The batches of many lanes in one request to their leader: for those that cannot go on in their client's own request.

Such a request holds at most one batch per partition, as Kafka requires (Produce v3, KIP-98); the partition's next batch
goes into the next request. Opens no connection and decides no time: its link does (`forwarder`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from sidecar.forwarder.lane import Lane
from sidecar.forwarder.outcome import Outcome
from sidecar.forwarder.sequences import Append
from sidecar.network.framing import Frame
from sidecar.network.upstream import UpstreamLostError
from sidecar.protocol import produce_upstream
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.primitives import Octets
from sidecar.protocol.topic_ids import Ids, names_of

Batches: TypeAlias = "dict[tuple[bytes, int], tuple[Lane, Append]]"
"""By topic and partition."""


def take(waiting: deque[tuple[Lane, Append]], request_bytes: int) -> tuple[Batches, deque[tuple[Lane, Append]]]:
    """Returns the batches of the next request (the first of each partition, in order of arrival), and the rest."""
    taken: Batches = {}
    later: deque[tuple[Lane, Append]] = deque()
    passed_over: set[tuple[bytes, int]] = set()
    size = 0
    while waiting:
        lane, append = waiting.popleft()
        key = lane.topic, lane.partition
        if key in taken or key in passed_over or (taken and size + append.size > request_bytes):
            later.append((lane, append))
            passed_over.add(key)  # what follows in its partition must not overtake it
            if size >= request_bytes:
                break
        else:
            taken[key] = lane, append
            size += append.size
    later.extend(waiting)
    return taken, later


def ids_of(batches: Batches) -> Ids | None:
    """The ids of the topics of these batches, None where one is not known."""
    found = {lane.topic: lane.topic_id.bytes for lane, _ in batches.values() if lane.topic_id is not None}
    return found if all(lane.topic in found for lane, _ in batches.values()) else None


def encode(correlation: int, batches: Batches, ids: Ids | None) -> tuple[list[Octets], int]:
    """Returns a request with these batches, and its timeout in milliseconds. With `ids` it names the topics by id, so
    that it cannot reach another topic of the same name.
    """
    if len(batches) == 1:
        ((lane, append),) = batches.values()
        timeout_ms = append.upstream_timeout_ms
        if ids is None:
            return produce_upstream.encode_single(correlation, timeout_ms, lane.table_head, append.batch), timeout_ms
        table = produce_upstream.table_head_by_id(ids[lane.topic], lane.partition)
        return produce_upstream.encode_single_by_id(correlation, timeout_ms, table, append.batch), timeout_ms
    records: list[tuple[bytes, int, Octets]] = [
        (topic, partition, append.batch) for (topic, partition), (_, append) in batches.items()
    ]
    timeout_ms = max(append.upstream_timeout_ms for _, append in batches.values())
    if ids is not None:
        own, version = produce_upstream.OWN_CLIENT_ID, produce_upstream.BY_ID_VERSION
        message = produce_upstream.encode_request(correlation, own, version, -1, timeout_ms, records, ids=ids)
        return message, timeout_ms
    return produce_upstream.encode_batches(correlation, timeout_ms, records), timeout_ms


class Link(Protocol):
    """The connection to a leader (`sidecar.forwarder.forwarder.LeaderLink`)."""

    def answered(self, reply: UnderWay) -> None: ...


@dataclass(slots=True, eq=False)
class UnderWay:
    """A request that waits for its answer. Its link is called first, then the lanes of the batches in `sent`.
    `sent_at` is the loop's time in seconds. Implements, with `answer_received`, `sidecar.network.upstream.Reply`.
    """

    link: Link
    correlation_id: int
    sent: Sequence[tuple[Lane, Append]]
    sent_at: float

    def settle(self, outcomes: Mapping[tuple[bytes, int], Outcome], rest: Outcome) -> None:
        """Reports each batch's outcome to its lane: by topic and partition, `rest` for all others."""
        self.link.answered(self)
        sent, self.sent = self.sent, ()
        for lane, append in sent:
            lane.settled(append, outcomes.get((lane.topic, lane.partition), rest))

    def answer_received(self, frame: Frame) -> None:
        raise NotImplementedError

    def answer_lost(self, error: UpstreamLostError) -> None:
        self.settle({}, Outcome.lost(sent=error.sent))


@dataclass(slots=True, eq=False)
class GatheredReply(UnderWay):
    """Waits for the answer to a request with the batches of many lanes."""

    ids: Ids | None

    def answer_received(self, frame: Frame) -> None:
        version = produce_upstream.SINGLE_VERSION if self.ids is None else produce_upstream.BY_ID_VERSION
        results, _ = produce_upstream.decode_answer(frame.buffer, frame.start, frame.end, version, names_of(self.ids))
        outcomes = {(result.topic, result.partition): Outcome.of(result) for result in results}
        self.settle(outcomes, Outcome(ErrorCode.UNKNOWN_SERVER_ERROR))
