"""The exchanges of Produce: how one request's answer comes about, whole, from one governed partition, or from parts.

A batch that is lost on the way is noted (`gaps`), and so is one whose broker no longer leads the partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sidecar.gateway.gaps import signature
from sidecar.network.client import Exchange
from sidecar.protocol import produce
from sidecar.protocol.errors import STALE_ROUTE, ErrorCode
from sidecar.protocol.produce import ProducePart, ProduceRequest, ProduceResult

if TYPE_CHECKING:
    from sidecar.cluster.upstream import KafkaUpstream
    from sidecar.gateway.client import Client
    from sidecar.network.client import RequestHead
    from sidecar.network.framing import Frame
    from sidecar.network.upstream import UpstreamLostError
    from sidecar.protocol.primitives import Octets

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


class Sent:
    """The parts of a request that went to one broker, and what must happen when they come to nothing."""

    __slots__ = ("_client", "_parts", "_upstream")

    def __init__(self, client: Client, upstream: KafkaUpstream, buffer: Octets, parts: list[ProducePart]) -> None:
        self._client = client
        self._upstream = upstream
        self._parts = [(part.topic, part.partition, signature(buffer, part.start, part.end)) for part in parts]

    def lost(self) -> None:
        """None of them was answered."""
        self._upstream.refresh_soon({topic for topic, _, _ in self._parts})
        for topic, partition, kept in self._parts:
            self._client.gaps.lost(topic, partition, kept)

    def answered(self, results: list[ProduceResult]) -> None:
        """Look for the new leader where a broker disclaims a partition."""
        stale = {(result.topic, result.partition) for result in results if result.error in STALE_ROUTE}
        if not stale:
            return
        self._upstream.refresh_soon({topic for topic, _ in stale})
        for topic, partition, kept in self._parts:
            if (topic, partition) in stale:
                self._client.gaps.lost(topic, partition, kept)

    def refusals(self, code: int) -> list[ProduceResult]:
        """The same error for each."""
        return [ProduceResult(topic, partition, code) for topic, partition, _ in self._parts]


class PassedProduce(Exchange):
    """A request that went on whole."""

    __slots__ = ("_sent",)

    def __init__(
        self, client: Client, frame: Frame, head: RequestHead, upstream: KafkaUpstream, request: ProduceRequest
    ) -> None:
        super().__init__(client.connection, head.key, head.version, head.correlation_id, head.client_id, frame.size)
        self._sent = Sent(client, upstream, frame.buffer, request.parts)

    def answer_received(self, frame: Frame) -> None:
        if produce.has_error(frame.buffer, frame.start, frame.end, self.version):
            results = produce.decode_answer(frame.buffer, frame.start, frame.end, self.version)[0]
            self._sent.answered(results)
            for result in results:
                if result.error:
                    self.note_error(result.error)
        self.answer_frame(frame)

    def answer_lost(self, error: UpstreamLostError) -> None:
        self.refuse(lost_code(error))

    def refuse(self, code: ErrorCode) -> None:
        """Answer every partition with an error."""
        if not self.connection.closed:
            self._sent.lost()
            self.note_error(code)
            self.answer([produce.encode_answer(self.correlation_id, self.version, self._sent.refusals(code))])


class SingleProduce(Exchange):
    """A request with one governed partition."""

    __slots__ = ()

    def __init__(self, client: Client, head: RequestHead, size: int) -> None:
        super().__init__(client.connection, head.key, head.version, head.correlation_id, head.client_id, size)

    def settle(self, result: ProduceResult) -> None:
        """The outcome."""
        if result.error in _BAD_INPUT:
            _report(self, result)
        if result.error:
            self.note_error(result.error)
        if not self.connection.closed:
            self.answer([produce.encode_answer(self.correlation_id, self.version, [result])])


class MergedProduce(Exchange):
    """A request whose partitions are answered one by one; it is answered when all are. With acks=0 a refusal closes."""

    __slots__ = ("_acks", "_order", "_results", "throttle_ms")

    def __init__(self, client: Client, head: RequestHead, size: int, request: ProduceRequest) -> None:
        super().__init__(client.connection, head.key, head.version, head.correlation_id, head.client_id, size)
        self._acks = request.acks
        self._order = [(part.topic, part.partition) for part in request.parts]
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
        if len(self._results) == len(self._order) and not self.connection.closed:
            results = [self._results[key] for key in self._order]
            self.answer([produce.encode_answer(self.correlation_id, self.version, results, self.throttle_ms)])

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

    __slots__ = ("_merge", "_parts", "_sent", "correlation_id")

    def __init__(
        self, client: Client, upstream: KafkaUpstream, frame: Frame, merge: MergedProduce, parts: list[ProducePart]
    ) -> None:
        self._merge = merge
        self._parts = parts
        self._sent = Sent(client, upstream, frame.buffer, parts)
        self.correlation_id = merge.correlation_id

    def answer_received(self, frame: Frame) -> None:
        results, throttle_ms = produce.decode_answer(frame.buffer, frame.start, frame.end, self._merge.version)
        self._merge.throttle_ms = max(self._merge.throttle_ms, throttle_ms)
        self._sent.answered(results)
        answered = {(result.topic, result.partition) for result in results}
        for result in results:
            self._merge.settle(result)
        for part in self._parts:
            if (part.topic, part.partition) not in answered:
                self._merge.settle(refusal(part, ErrorCode.UNKNOWN_SERVER_ERROR))

    def answer_lost(self, error: UpstreamLostError) -> None:
        self.refuse(lost_code(error))

    def refuse(self, code: ErrorCode) -> None:
        """Answer these partitions with an error."""
        if not self._merge.connection.closed:
            self._sent.lost()
            for result in self._sent.refusals(code):
                self._merge.settle(result)


def lost_code(error: UpstreamLostError) -> ErrorCode:
    """What a client is told of a lost answer: whether it may have been appended is unknown, or it surely was not."""
    return ErrorCode.REQUEST_TIMED_OUT if error.sent else ErrorCode.NOT_LEADER_OR_FOLLOWER
