"""Batches for ordinary partitions: finds their leaders, and sends them on the client's own connections, as a whole
request, or as the part of one that belongs to one leader.

A batch that is lost, or whose broker no longer leads the partition, is noted (`gaps`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sidecar.cluster.resolver import TopicKind
from sidecar.cluster.view import NO_LEADER
from sidecar.gateway import passing
from sidecar.gateway.gaps import signature
from sidecar.network.request import Exchange
from sidecar.protocol import produce, produce_upstream
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.errors import STALE_ROUTE, ErrorCode
from sidecar.protocol.produce import ProducePart, ProduceRequest, ProduceResult
from sidecar.protocol.produce_answers import FIRST_WITH_LEADERS
from sidecar.protocol.topic_ids import names_of

if TYPE_CHECKING:
    from sidecar.cluster.resolver import Kinds
    from sidecar.cluster.upstream import KafkaUpstream
    from sidecar.gateway.client import Client
    from sidecar.gateway.gaps import Buffer
    from sidecar.gateway.leader_hints import LeaderHints
    from sidecar.network.framing import Frame
    from sidecar.network.request import Connection, Request
    from sidecar.network.upstream import UpstreamLostError
    from sidecar.protocol.primitives import Octets
    from sidecar.protocol.topic_ids import Ids


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
        client.ordinary.lost(part.topic, part.partition, found)


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

    __slots__ = ("_client", "_hints", "_ids", "_kept", "_parts", "_upstream")

    def __init__(
        self, client: Client, request: Request, upstream: KafkaUpstream, hints: LeaderHints, fields: ProduceRequest
    ) -> None:
        Exchange.__init__(self, client.connection, request)  # `super` costs more
        self._client = client
        self._upstream = upstream
        self._hints = hints
        self._ids = fields.ids
        self._parts = fields.parts
        self._kept = signatures(request.frame.buffer, fields.parts)

    def answer_received(self, frame: Frame) -> None:
        if not produce.all_appended(frame.buffer, frame.start, frame.end, self.version, len(self._parts)):
            found: produce_upstream.Leaders = {}
            results, throttle_ms = produce_upstream.decode_answer(
                frame.buffer, frame.start, frame.end, self.version, names_of(self._ids), found
            )
            self._hints.learn(found, self._ids)
            note_errors(self._client, self._upstream, self._parts, self._kept, results)
            if self.version >= FIRST_WITH_LEADERS:  # it may say where brokers are
                self._give(results, throttle_ms)
                return
        self.answer_frame(frame)

    def _give(self, results: list[ProduceResult], throttle_ms: int = 0) -> None:
        if not self.connection.closed:
            self.answer([self._hints.produced(self, self._client.listener, results, throttle_ms, self._ids)])

    def answer_lost(self, error: UpstreamLostError) -> None:
        self.refuse(lost_code(error))

    def refuse(self, code: ErrorCode) -> None:
        """Answer every partition with an error."""
        if not self.connection.closed:
            note_lost(self._client, self._upstream, self._parts, self._kept)
            self._give([refusal(part, code) for part in self._parts])


class Merge(Protocol):
    """The exchange of a request that is answered when all of its partitions are."""

    connection: Connection
    correlation_id: int
    version: int
    throttle_ms: int
    ids: Ids | None

    def settle(self, result: ProduceResult) -> None:
        """The outcome for one partition."""
        ...


class PartReply:
    """The answer of one leader to its part of a split request. Implements `sidecar.network.upstream.Reply`."""

    __slots__ = ("_client", "_hints", "_kept", "_merge", "_parts", "_upstream", "correlation_id")

    def __init__(
        self,
        client: Client,
        upstream: KafkaUpstream,
        hints: LeaderHints,
        frame: Frame,
        merge: Merge,
        parts: list[ProducePart],
    ) -> None:
        self._client = client
        self._upstream = upstream
        self._hints = hints
        self._merge = merge
        self._parts = parts
        self._kept = signatures(frame.buffer, parts)
        self.correlation_id = merge.correlation_id

    def answer_received(self, frame: Frame) -> None:
        found: produce_upstream.Leaders = {}
        results, throttle_ms = produce_upstream.decode_answer(
            frame.buffer, frame.start, frame.end, self._merge.version, names_of(self._merge.ids), found
        )
        self._hints.learn(found, self._merge.ids)
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
    """What a client gets for a lost answer: whether it may have been appended is unknown, or it surely was not."""
    return ErrorCode.REQUEST_TIMED_OUT if error.sent else ErrorCode.NOT_LEADER_OR_FOLLOWER


class OrdinaryProduce:
    """Sends ordinary batches for all clients of a node."""

    def __init__(self, upstream: KafkaUpstream, kinds: Kinds, hints: LeaderHints) -> None:
        self._upstream = upstream
        self._hints = hints
        self._view = upstream.view
        self._kinds = kinds

    def single_leader(self, fields: ProduceRequest) -> int:
        """The one broker that leads all partitions, if all are ordinary, bring a batch, and there is one."""
        leader_of, kinds = self._view.leader, self._kinds
        found = NO_LEADER
        for part in fields.parts:
            if kinds[part.topic] is not TopicKind.ORDINARY or part.start == part.end:
                return NO_LEADER
            leader = leader_of(part.topic, part.partition)
            if leader == NO_LEADER or (found not in (NO_LEADER, leader)):
                return NO_LEADER
            found = leader
        return found

    def missing(self, fields: ProduceRequest) -> set[bytes]:
        """The ordinary topics of a request whose leaders have to be asked for."""
        kinds = self._kinds
        ordinary = ((part.topic, part.partition) for part in fields.parts if kinds[part.topic] is TopicKind.ORDINARY)
        return self._view.missing(ordinary)

    def why_no_leader(self, part: ProducePart, *, asked: bool) -> ErrorCode:
        """The answer for a partition without a leader. `asked` False: Kafka could not be asked for it."""
        return self._view.why_no_leader(part.topic, part.partition) if asked else ErrorCode.LEADER_NOT_AVAILABLE

    def pass_whole(self, client: Client, request: Request, fields: ProduceRequest, leader: int) -> None:
        """Send a request on as it is, whose partitions all have one leader."""
        exchange = None
        if fields.acks != 0:
            exchange = PassedProduce(client, request, self._upstream, self._hints, fields)
            client.connection.expect(exchange)
        try:
            connection = client.links.to(leader)
        except DisconnectedError:
            if exchange is None:
                client.connection.close()
            else:
                exchange.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        client.ordinary.were_sent = True
        if exchange is None:
            client.links.unconfirmed(connection, [part.topic for part in fields.parts])
        passing.send(connection, client, request, exchange)

    def send(
        self,
        client: Client,
        request: Request,
        fields: ProduceRequest,
        merge: Merge,
        leader: int,
        parts: list[ProducePart],
    ) -> None:
        """Send one leader its part of a request."""
        identity = client.identity
        assert identity is not None
        records: list[tuple[bytes, int, Octets]] = [
            (part.topic, part.partition, request.frame.view(part.start, part.end)) for part in parts
        ]
        message = produce_upstream.encode_request(
            request.correlation_id,
            identity.name.encode(),
            request.version,
            fields.acks,
            fields.timeout_ms,
            records,
            fields.transactional_id,
            fields.ids,
        )
        client.ordinary.were_sent = True
        reply = PartReply(client, self._upstream, self._hints, request.frame, merge, parts)
        try:
            connection = client.links.to(leader)
        except DisconnectedError:
            reply.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if fields.acks == 0:
            client.links.unconfirmed(connection, [part.topic for part in parts])
        connection.send_parts(message, reply if fields.acks != 0 else None)


def behind_lost(client: Client, frame: Frame, fields: ProduceRequest) -> set[tuple[bytes, int]]:
    """The partitions whose batch comes after a lost one."""
    return {
        (part.topic, part.partition)
        for part in fields.parts
        if not client.ordinary.admits(part.topic, part.partition, signature(frame.buffer, part.start, part.end))
    }
