"""The batches of many lanes in one request to their leader: for those that cannot go on in their client's own request.

Such a request holds at most one batch per partition, as Kafka requires (Produce v3, KIP-98); the partition's next batch
goes into the next request. Opens no connection and decides no time: its link does (`forwarder`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias

from sidecar.forwarder.outcome import Outcome
from sidecar.protocol import produce_upstream
from sidecar.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.forwarder.lane import Append, Lane
    from sidecar.network.framing import Frame
    from sidecar.network.upstream import UpstreamLostError
    from sidecar.protocol.primitives import Octets

Batches: TypeAlias = "dict[tuple[bytes, int], tuple[Lane, Append]]"
"""By topic and partition."""


def take(waiting: deque[tuple[Lane, Append]], request_bytes: int) -> tuple[Batches, deque[tuple[Lane, Append]]]:
    """The batches of the next request, the first of each partition, in the order in which they came; and the rest."""
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


def encode(correlation: int, batches: Batches) -> tuple[list[Octets], int]:
    """A request with these batches, and how long its leader may take, in milliseconds."""
    if len(batches) == 1:
        ((lane, append),) = batches.values()
        timeout_ms = append.upstream_timeout_ms
        return produce_upstream.encode_single(correlation, timeout_ms, lane.table_head, append.batch), timeout_ms
    records: list[tuple[bytes, int, Octets]] = [
        (topic, partition, append.batch) for (topic, partition), (_, append) in batches.items()
    ]
    timeout_ms = max(append.upstream_timeout_ms for _, append in batches.values())
    return produce_upstream.encode_batches(correlation, timeout_ms, records), timeout_ms


class GatheredReply:
    """Waits for the answer to such a request. Implements `sidecar.forwarder.forwarder.UnderWay`."""

    __slots__ = ("_answered", "_batches", "correlation_id", "sent_at")

    def __init__(
        self, answered: Callable[[GatheredReply], None], correlation_id: int, batches: Batches, sent_at: float
    ) -> None:
        """`answered`: called before the lanes hear their outcomes."""
        self._answered = answered
        self._batches = batches
        self.correlation_id = correlation_id
        self.sent_at = sent_at

    @property
    def partitions(self) -> list[tuple[bytes, int]]:
        return list(self._batches)

    def answer_received(self, frame: Frame) -> None:
        results, _ = produce_upstream.decode_answer(
            frame.buffer, frame.start, frame.end, produce_upstream.SINGLE_VERSION
        )
        self._answered(self)
        for result in results:
            found = self._batches.pop((result.topic, result.partition), None)
            if found is not None:
                lane, append = found
                lane.settled(append, Outcome.of(result))
        self._settle_rest(Outcome(ErrorCode.UNKNOWN_SERVER_ERROR))

    def answer_lost(self, error: UpstreamLostError) -> None:
        self._answered(self)
        self._settle_rest(Outcome.lost(sent=error.sent))

    def _settle_rest(self, outcome: Outcome) -> None:
        batches, self._batches = self._batches, {}
        for lane, append in batches.values():
            lane.settled(append, outcome)
