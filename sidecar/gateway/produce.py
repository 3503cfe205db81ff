"""Produce, versions 3 to 9. Routed to the partitions' leaders; governed partitions go to the room `exclusive`.

- All partitions ordinary and with one leader: the frame goes on as it is, its answer comes back as it is.
- Otherwise the request is split by leader, records uncopied, and the answers are merged in the order of the request.
- acks=0 has no answer; a refusal closes the connection, as a broker does.
- Topics of the sidecar's own are refused (29). A transactional batch for a governed topic is refused (48) by
`exclusive`.

A broker that is lost after the request was sent gives 7 (the outcome is unknown, the client retries), before that 6.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from sidecar.cluster.resolver import TopicKind
from sidecar.cluster.view import NO_LEADER
from sidecar.gateway import passing
from sidecar.network.client import Exchange, RejectError
from sidecar.protocol import produce
from sidecar.protocol.caller import DisconnectedError, UpstreamError
from sidecar.protocol.errors import STALE_ROUTE, ErrorCode, KafkaError
from sidecar.protocol.metadata import MetadataRequest
from sidecar.protocol.primitives import Octets
from sidecar.protocol.produce import ProducePart, ProduceRequest, ProduceResult

if TYPE_CHECKING:
    from sidecar.cluster.resolver import NameResolver
    from sidecar.cluster.upstream import KafkaUpstream
    from sidecar.gateway.client import Client
    from sidecar.network.client import RequestHead
    from sidecar.network.framing import Frame
    from sidecar.network.tasks import Tasks
    from sidecar.network.upstream import UpstreamLostError


class GovernedTopics(Protocol):
    """The room that appends to governed topics."""

    def append(
        self,
        client: Client,
        part: ProducePart,
        batch: memoryview,
        timeout_ms: int,
        done: Callable[[ProduceResult], None],
    ) -> None:
        """Append one batch (owned by the callee from now on) and call `done` once, perhaps within this call."""
        ...


class ProduceApi:
    """Handles Produce requests of all clients of a node."""

    def __init__(self, upstream: KafkaUpstream, resolver: NameResolver, governed: GovernedTopics, tasks: Tasks) -> None:
        self._upstream = upstream
        self._view = upstream.view
        self._resolver = resolver
        self._governed = governed
        self._tasks = tasks

    def handle(self, client: Client, frame: Frame, head: RequestHead) -> None:
        """One request; the frame may be borrowed."""
        request = produce.walk(frame.buffer, head.body, frame.end, head.version)
        if client.identity_error is not None:
            self._refuse_all(client, frame, head, request, client.identity_error)
            return
        leader = self._single_leader(request)
        if leader != NO_LEADER:
            self._pass(client, frame, head, request, leader)
            return
        owned = frame.own()
        if owned is not frame:
            head.body -= frame.start
            request = _moved(request, -frame.start)
        missing = self._view.missing(
            (part.topic, part.partition)
            for part in request.parts
            if self._resolver.kind(part.topic) is TopicKind.ORDINARY
        )
        if missing:
            client.connection.hold()
            self._tasks.start(self._find_leaders(client, owned, head, request, missing))
        else:
            self._split(client, owned, head, request)

    def _single_leader(self, request: ProduceRequest) -> int:
        """The one broker that leads all partitions, if all are ordinary and there is one."""
        leader_of, kind = self._view.leader, self._resolver.kind
        found = NO_LEADER
        for part in request.parts:
            if kind(part.topic) is not TopicKind.ORDINARY:
                return NO_LEADER
            leader = leader_of(part.topic, part.partition)
            if leader == NO_LEADER or (found not in (NO_LEADER, leader)):
                return NO_LEADER
            found = leader
        return found

    def _pass(self, client: Client, frame: Frame, head: RequestHead, request: ProduceRequest, leader: int) -> None:
        exchange = None
        if request.acks != 0:
            exchange = _PassedProduce(client, head, frame.size, self._upstream, request)
            client.connection.expect(exchange)
        try:
            connection = client.links.to(leader)
        except DisconnectedError:
            if exchange is None:
                client.connection.close()
            else:
                exchange.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        passing.send(connection, client, frame, head, exchange)

    async def _find_leaders(
        self, client: Client, frame: Frame, head: RequestHead, request: ProduceRequest, topics: set[bytes]
    ) -> None:
        names = tuple(sorted(topic.decode(errors="replace") for topic in topics))
        with suppress(UpstreamError, KafkaError):  # the partitions without a leader are answered so
            await self._upstream.metadata(MetadataRequest(names, allow_auto_topic_creation=False))
        if not client.connection.closed:
            self._split(client, frame, head, request)
            client.connection.release()

    def _split(self, client: Client, frame: Frame, head: RequestHead, request: ProduceRequest) -> None:
        if len(request.parts) == 1 and request.acks != 0:
            part = request.parts[0]
            if self._resolver.kind(part.topic) is TopicKind.GOVERNED:
                single = _SingleProduce(client, head, frame.size)
                client.connection.expect(single)
                batch = frame.view(part.start, part.end)
                self._governed.append(client, part, batch, request.timeout_ms, single.settle)
                return
        merge = _MergedProduce(client, head, frame.size, request)
        if request.acks != 0:
            client.connection.expect(merge)
        by_leader: dict[int, list[ProducePart]] = {}
        for part in request.parts:
            kind = self._resolver.kind(part.topic)
            if kind is TopicKind.ORDINARY:
                leader = self._view.leader(part.topic, part.partition)
                if leader == NO_LEADER:
                    merge.settle(_refusal(part, self._view.why_no_leader(part.topic, part.partition)))
                else:
                    by_leader.setdefault(leader, []).append(part)
            elif kind is TopicKind.INTERNAL:
                merge.settle(
                    _refusal(
                        part, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topics of the sidecar are written by it alone"
                    )
                )
            else:
                batch = frame.view(part.start, part.end)
                self._governed.append(client, part, batch, request.timeout_ms, merge.settle)
        for leader, parts in by_leader.items():
            self._send_part(client, frame, head, request, merge, leader, parts)

    def _send_part(
        self,
        client: Client,
        frame: Frame,
        head: RequestHead,
        request: ProduceRequest,
        merge: _MergedProduce,
        leader: int,
        parts: list[ProducePart],
    ) -> None:
        identity = client.identity
        assert identity is not None
        records: list[tuple[bytes, int, Octets]] = [
            (part.topic, part.partition, frame.view(part.start, part.end)) for part in parts
        ]
        message = produce.encode_request(
            head.correlation_id,
            identity.name.encode(),
            head.version,
            request.acks,
            request.timeout_ms,
            records,
            request.transactional_id,
        )
        reply = _PartReply(merge, self._upstream, parts, head)
        try:
            connection = client.links.to(leader)
        except DisconnectedError:
            reply.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        connection.send_parts(message, reply if request.acks != 0 else None)

    def _refuse_all(
        self, client: Client, frame: Frame, head: RequestHead, request: ProduceRequest, error: KafkaError
    ) -> None:
        merge = _MergedProduce(client, head, frame.size, request)
        if request.acks != 0:
            client.connection.expect(merge)
        for part in request.parts:
            merge.settle(_refusal(part, error.code, error.message))


def _refusal(part: ProducePart, code: int, message: str | None = None) -> ProduceResult:
    return ProduceResult(part.topic, part.partition, code, message=message)


def _moved(request: ProduceRequest, by: int) -> ProduceRequest:
    """The same request in a copy of its frame."""
    parts = [ProducePart(part.topic, part.partition, part.start + by, part.end + by) for part in request.parts]
    return request._replace(parts=parts)


def _note_errors(upstream: KafkaUpstream, results: list[ProduceResult]) -> None:
    stale = {result.topic for result in results if result.error in STALE_ROUTE}
    if stale:
        upstream.refresh_soon(stale)


class _PassedProduce(Exchange):
    """A request that went on whole."""

    __slots__ = ("_parts", "_upstream")

    def __init__(
        self, client: Client, head: RequestHead, size: int, upstream: KafkaUpstream, request: ProduceRequest
    ) -> None:
        super().__init__(client.connection, head.key, head.version, head.correlation_id, head.client_id, size)
        self._upstream = upstream
        self._parts = [(part.topic, part.partition) for part in request.parts]

    def answer_received(self, frame: Frame) -> None:
        if produce.has_error(frame.buffer, frame.start, frame.end, self.version):
            results, _ = produce.decode_answer(frame.buffer, frame.start, frame.end, self.version)
            _note_errors(self._upstream, results)
        self.answer_frame(frame)

    def answer_lost(self, error: UpstreamLostError) -> None:
        self.refuse(ErrorCode.REQUEST_TIMED_OUT if error.sent else ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def refuse(self, code: ErrorCode) -> None:
        """Answer every partition with an error and look for the leaders anew."""
        if self.connection.closed:
            return
        self._upstream.refresh_soon({topic for topic, _ in self._parts})
        results = [ProduceResult(topic, partition, code) for topic, partition in self._parts]
        self.answer([produce.encode_answer(self.correlation_id, self.version, results)])


class _SingleProduce(Exchange):
    """A request with one governed partition."""

    __slots__ = ()

    def __init__(self, client: Client, head: RequestHead, size: int) -> None:
        super().__init__(client.connection, head.key, head.version, head.correlation_id, head.client_id, size)

    def settle(self, result: ProduceResult) -> None:
        """The outcome."""
        if not self.connection.closed:
            self.answer([produce.encode_answer(self.correlation_id, self.version, [result])])


class _MergedProduce(Exchange):
    """A request whose partitions are answered one by one; it is answered when all are. With acks=0 a refusal closes."""

    __slots__ = ("_acks", "_order", "_results", "throttle_ms")

    def __init__(self, client: Client, head: RequestHead, size: int, request: ProduceRequest) -> None:
        super().__init__(client.connection, head.key, head.version, head.correlation_id, head.client_id, size)
        self._acks = request.acks
        self._order = [(part.topic, part.partition) for part in request.parts]
        if len(set(self._order)) != len(self._order):
            raise RejectError("malformed", "a Produce request that names a partition twice")
        self._results: dict[tuple[bytes, int], ProduceResult] = {}
        self.throttle_ms = 0

    def settle(self, result: ProduceResult) -> None:
        """The outcome for one partition."""
        self._results[result.topic, result.partition] = result
        if self._acks == 0:
            if result.error:
                self.connection.close()
            return
        if len(self._results) == len(self._order) and not self.connection.closed:
            results = [self._results[key] for key in self._order]
            self.answer([produce.encode_answer(self.correlation_id, self.version, results, self.throttle_ms)])


class _PartReply:
    """The answer of one leader to its part of a split request. Implements `sidecar.network.upstream.Reply`."""

    __slots__ = ("_merge", "_parts", "_upstream", "_version", "correlation_id")

    def __init__(
        self, merge: _MergedProduce, upstream: KafkaUpstream, parts: list[ProducePart], head: RequestHead
    ) -> None:
        self._merge = merge
        self._upstream = upstream
        self._parts = parts
        self._version = head.version
        self.correlation_id = head.correlation_id

    def answer_received(self, frame: Frame) -> None:
        results, throttle_ms = produce.decode_answer(frame.buffer, frame.start, frame.end, self._version)
        self._merge.throttle_ms = max(self._merge.throttle_ms, throttle_ms)
        _note_errors(self._upstream, results)
        answered = {(result.topic, result.partition) for result in results}
        for result in results:
            self._merge.settle(result)
        for part in self._parts:
            if (part.topic, part.partition) not in answered:
                self._merge.settle(_refusal(part, ErrorCode.UNKNOWN_SERVER_ERROR))

    def answer_lost(self, error: UpstreamLostError) -> None:
        self.refuse(ErrorCode.REQUEST_TIMED_OUT if error.sent else ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def refuse(self, code: ErrorCode) -> None:
        self._upstream.refresh_soon({part.topic for part in self._parts})
        for part in self._parts:
            self._merge.settle(_refusal(part, code))
