"""The exchanges of Produce: build one request's answer, whole, from one governed partition, or from parts.

A lost batch is noted (`gaps`), and so is one whose broker no longer leads the partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sidecar.gateway.gaps import signature
from sidecar.network.client import Exchange
from sidecar.protocol import produce, produce_upstream
from sidecar.protocol.errors import STALE_ROUTE, ErrorCode
from sidecar.protocol.primitives import new_tuple
from sidecar.protocol.produce import ProducePart, ProduceRequest, ProduceResult

if TYPE_CHECKING:
    from sidecar.cluster.upstream import KafkaUpstream
    from sidecar.forwarder.append import Outcome
    from sidecar.gateway.client import Client
    from sidecar.gateway.gaps import Buffer
    from sidecar.network.client import RequestHead
    from sidecar.network.framing import Frame
    from sidecar.network.upstream import UpstreamLostError

_BAD_INPUT: Final[dict[int, str]] = {
    ErrorCode.CORRUPT_MESSAGE: "corrupt_batch",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "old_message_format",
    ErrorCode.INVALID_TXN_STATE: "transactional_batch",
    ErrorCode.INVALID_RECORD: "invalid_record",
}
"""What is refused because of the batch itself, and what the log calls it."""


def refusal(part: ProducePart, code: int, message: str | None = None) -> ProduceResult:
    """A partition's answer that carries nothing but an error."""
    return ProduceResult(part.topic, part.partition, code, message=message)


def signatures(buffer: Buffer, parts: list[ProducePart]) -> list[Buffer]:
    """What to keep of each batch; nearly always there is one."""
    if len(parts) == 1:
        part = parts[0]
        return [signature(buffer, part.start, part.end)]
    return [signature(buffer, part.start, part.end) for part in parts]


def note_lost(client: Client, upstream: KafkaUpstream, parts: list[ProducePart], kept: list[Buffer]) -> None:
    """A request for these partitions has no answer: find their leaders anew, expect their batches again."""
    upstream.refresh_soon({part.topic for part in parts})
    for part, found in zip(parts, kept, strict=True):
        client.gaps.lost(part.topic, part.partition, found)


def note_errors(
    client: Client,
    upstream: KafkaUpstream,
    parts: list[ProducePart],
    kept: list[Buffer],
    results: list[ProduceResult],
) -> None:
    """A broker disclaims some of these partitions: as if their batches were lost."""
    stale = {(result.topic, result.partition) for result in results if result.error in STALE_ROUTE}
    if stale:
        both = [(part, found) for part, found in zip(parts, kept, strict=True) if part[:2] in stale]
        note_lost(client, upstream, [part for part, _ in both], [found for _, found in both])


class PassedProduce(Exchange):
    """A request that went on whole."""

    __slots__ = ("_client", "_kept", "_parts", "_upstream")

    def __init__(
        self, client: Client, frame: Frame, head: RequestHead, upstream: KafkaUpstream, request: ProduceRequest
    ) -> None:
        super().__init__(client.connection, head.key, head.version, head.correlation_id, head.client_id, frame.size)
        self._client = client
        self._upstream = upstream
        self._parts = request.parts
        self._kept = signatures(frame.buffer, request.parts)

    def answer_received(self, frame: Frame) -> None:
        if not produce_upstream.all_appended(frame.buffer, frame.start, frame.end, self.version, len(self._parts)):
            results, _ = produce_upstream.decode_answer(frame.buffer, frame.start, frame.end, self.version)
            note_errors(self._client, self._upstream, self._parts, self._kept, results)
        self.answer_frame(frame)

    def answer_lost(self, error: UpstreamLostError) -> None:
        self.refuse(lost_code(error))

    def refuse(self, code: ErrorCode) -> None:
        """Answer every partition with an error."""
        if not self.connection.closed:
            note_lost(self._client, self._upstream, self._parts, self._kept)
            results = [refusal(part, code) for part in self._parts]
            self.answer([produce.encode_answer(self.correlation_id, self.version, results)])


class MergedProduce(Exchange):
    """A request whose partitions are answered one by one; it is answered when all are. With acks=0 a refusal closes."""

    __slots__ = ("_acks", "_parts", "_results", "throttle_ms")

    def __init__(self, client: Client, head: RequestHead, size: int, request: ProduceRequest) -> None:
        super().__init__(client.connection, head.key, head.version, head.correlation_id, head.client_id, size)
        self._acks = request.acks
        self._parts = request.parts
        self._results: dict[tuple[bytes, int], ProduceResult] = {}
        self.throttle_ms = 0

    def settle(self, result: ProduceResult) -> None:
        """The outcome for one partition."""
        self._results[result.topic, result.partition] = result
        if result.error:
            self.note_error(result.error)
        if self._acks == 0:
            if result.error:
                self.connection.close()
            return
        if len(self._results) == len(self._parts) and not self.connection.closed:
            results = [self._results[part.topic, part.partition] for part in self._parts]
            self.answer([produce.encode_answer(self.correlation_id, self.version, results, self.throttle_ms)])

    def settle_outcome(self, part: ProducePart, outcome: Outcome) -> None:
        """What became of a batch for a governed topic."""
        self.settle_checked(new_tuple(ProduceResult, (part.topic, part.partition, *outcome, ())))

    def settle_checked(self, result: ProduceResult) -> None:
        """The outcome for a partition whose batch was looked at: told where it is bad."""
        if result.error in _BAD_INPUT:
            _report(self, result)
        self.settle(result)


def _report(exchange: Exchange, result: ProduceResult) -> None:
    where = f"{result.topic.decode(errors='replace')}-{result.partition}"
    exchange.connection.report(_BAD_INPUT[result.error], f"{where}: {result.message or 'refused by Kafka'}")


class PartReply:
    """The answer of one leader to its part of a split request. Implements `sidecar.network.upstream.Reply`."""

    __slots__ = ("_client", "_kept", "_merge", "_parts", "_upstream", "correlation_id")

    def __init__(
        self, client: Client, upstream: KafkaUpstream, frame: Frame, merge: MergedProduce, parts: list[ProducePart]
    ) -> None:
        self._client = client
        self._upstream = upstream
        self._merge = merge
        self._parts = parts
        self._kept = signatures(frame.buffer, parts)
        self.correlation_id = merge.correlation_id

    def answer_received(self, frame: Frame) -> None:
        results, throttle_ms = produce_upstream.decode_answer(frame.buffer, frame.start, frame.end, self._merge.version)
        self._merge.throttle_ms = max(self._merge.throttle_ms, throttle_ms)
        note_errors(self._client, self._upstream, self._parts, self._kept, results)
        answered = {(result.topic, result.partition) for result in results}
        for result in results:
            self._merge.settle(result)
        for part in self._parts:
            if part[:2] not in answered:
                self._merge.settle(refusal(part, ErrorCode.UNKNOWN_SERVER_ERROR))

    def answer_lost(self, error: UpstreamLostError) -> None:
        self.refuse(lost_code(error))

    def refuse(self, code: ErrorCode) -> None:
        """Answer these partitions with an error."""
        if not self._merge.connection.closed:
            note_lost(self._client, self._upstream, self._parts, self._kept)
            for part in self._parts:
                self._merge.settle(refusal(part, code))


def lost_code(error: UpstreamLostError) -> ErrorCode:
    """What a client is told of a lost answer: whether it may have been appended is unknown, or it surely was not."""
    return ErrorCode.REQUEST_TIMED_OUT if error.sent else ErrorCode.NOT_LEADER_OR_FOLLOWER
