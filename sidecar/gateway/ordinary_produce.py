"""Sends batches for ordinary partitions to their leaders on the client's own connections: a whole request, or the part
of a request that belongs to one leader.

`gaps` notes a batch that is lost, whose broker no longer leads the partition, or whose partition has no leader now. A
batch goes to a new leader only when the former leader has answered all earlier batches.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Final, NamedTuple, TypeAlias

from sidecar.cluster.resolver import Kinds, TopicKind
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway.client import Client
from sidecar.gateway.gaps import Buffer, Place, place_of, signature
from sidecar.gateway.leader_hints import LeaderHints
from sidecar.network.framing import SHARED, Frame, Framer
from sidecar.network.request import Exchange, Request
from sidecar.network.turn import TURN
from sidecar.network.upstream import UpstreamConnection, UpstreamLostError
from sidecar.policy.identity import ClientIdentity
from sidecar.protocol import produce, produce_upstream, usual_produce
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.errors import APPEND_IN_DOUBT, NOT_APPENDED, STALE_ROUTE, ErrorCode
from sidecar.protocol.limits import BOUNDS
from sidecar.protocol.primitives import Octets
from sidecar.protocol.produce import FIRST_WITH_LEADERS, ProducePart, ProduceRequest, ProduceResult
from sidecar.protocol.topic_ids import Ids, names_of
from sidecar.security.acls import Operation

AGAIN: Final = STALE_ROUTE | NOT_APPENDED | APPEND_IN_DOUBT
"""Errors after which a client sends a batch again."""
Head: TypeAlias = tuple[int, int, bytes]
"""Version, correlation id and client id of a request."""
_IN_THE_LOG: Final = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
_MOST_EXPECTED: Final = 10_000
"""The most partitions of one client with batches to be sent again, 4 MB. If there are more, the node closes the
client's connection: then the client sends all its batches again."""
MOST_ROUTES: Final = 2_000
"""The most partitions whose routes are kept for one client, 0.6 MB if each is of another topic. A client that writes to
more of them in turn has its requests looked at one by one more often.
"""


def bound_expected(client: Client) -> None:
    """Close the connection of a client that has to send too many batches again."""
    if len(client.ordinary.expected) > _MOST_EXPECTED:
        client.connection.close()


def refusal(part: ProducePart, code: int, message: str | None = None) -> ProduceResult:
    """The answer for a partition that is refused."""
    return ProduceResult(part.topic, part.partition, code, message=message)


class SentBatches:
    """The batches of one request that were sent to one leader. Implements
    `sidecar.network.upstream.Reply`.
    """

    __slots__ = ()
    _client: Client
    _node: OrdinaryProduce
    _kept: Sequence[Buffer]
    """What is kept of each batch until its answer: see `signatures`."""
    leader: int
    parts: list[ProducePart]

    def _read(self, frame: Frame, version: int, ids: Ids | None) -> tuple[list[ProduceResult], int]:
        """Decode the leader's answer. Batches for partitions that it does not lead count as lost."""
        found: produce_upstream.Leaders = {}
        results, throttle_ms = produce_upstream.decode_answer(
            frame.buffer, frame.start, frame.end, version, names_of(ids), found
        )
        self._node.hints.learn(found, ids)
        ordinary = self._client.ordinary
        if not ordinary.expected and not any(result.error for result in results):
            return results, throttle_ms
        codes = {(result.topic, result.partition): result.error for result in results}
        stale: set[bytes] = set()
        for part, kept in zip(self.parts, self._kept, strict=True):
            code = codes.get(part[:2])
            if code in STALE_ROUTE:
                stale.add(part.topic)
                ordinary.lost(part.topic, part.partition, kept)
            elif code in _IN_THE_LOG:
                ordinary.appended(part.topic, part.partition, kept)
        if stale:
            self._node.upstream.refresh_soon(stale)
            bound_expected(self._client)
        return results, throttle_ms

    def _note_lost(self) -> None:
        """The request gets no answer: look the leaders up again, and expect the client to send its batches again."""
        self._node.upstream.refresh_soon({part.topic for part in self.parts})
        for part, kept in zip(self.parts, self._kept, strict=True):
            self._client.ordinary.lost(part.topic, part.partition, kept)
        bound_expected(self._client)

    def answer_lost(self, error: UpstreamLostError) -> None:
        """A request that was sent may have been appended; one that was not sent was not appended."""
        self.refuse(ErrorCode.REQUEST_TIMED_OUT if error.sent else ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def refuse(self, code: ErrorCode) -> None:
        """Answer every partition with an error."""
        raise NotImplementedError


class PassedProduce(SentBatches, Exchange):
    """A request that was forwarded whole."""

    __slots__ = ("_client", "_ids", "_kept", "_node", "leader", "parts")

    def __init__(
        self,
        client: Client,
        head: Head,
        size: int,
        node: OrdinaryProduce,
        leader: int,
        parts: list[ProducePart],
        ids: Ids | None,
        kept: Sequence[Buffer],
    ) -> None:
        """`size`: of the request's frame in bytes. `kept`: see `signatures`."""
        self.connection = client.connection
        self.key = produce.KEY
        self.version, self.correlation_id, self.client_id = head
        self.request_bytes = size
        self.started = TURN.began if TURN.running else perf_counter()
        self.upstream = 0.0
        self.answered = False
        self.weight = self.answer_bytes = 0
        self._client = client
        self._node = node
        self._ids = ids
        self.leader = leader
        self.parts = parts
        self._kept = kept

    def under_way(self) -> Iterator[tuple[ProducePart, int]]:
        """The batches that have no answer yet, each with the broker that it was sent to."""
        return ((part, self.leader) for part in self.parts if not self.answered)

    def answer_received(self, frame: Frame) -> None:
        if not produce.all_appended(frame.buffer, frame.start, frame.end, self.version, len(self.parts)):
            results, throttle_ms = self._read(frame, self.version, self._ids)
            if self.version >= FIRST_WITH_LEADERS:  # the answer may contain addresses of brokers
                self._give(results, throttle_ms)
                return
        elif self._client.ordinary.expected:
            for part, kept in zip(self.parts, self._kept, strict=True):
                self._client.ordinary.appended(part.topic, part.partition, kept)
        self.answer_frame(frame)

    def _give(self, results: list[ProduceResult], throttle_ms: int = 0) -> None:
        if not self.connection.closed:
            self.answer([self._node.hints.produced(self, self._client.listener, results, throttle_ms, self._ids)])

    def refuse(self, code: ErrorCode) -> None:
        if not self.connection.closed:
            self._note_lost()
            self._give([refusal(part, code) for part in self.parts])


class SplitProduce(Exchange):
    """A request whose partitions are answered by several leaders (`replies`) or by the node itself. It is answered when
    all partitions are settled.
    """

    __slots__ = ("client", "fields", "replies", "throttle_ms")
    client: Client
    fields: ProduceRequest
    replies: list[PartReply]
    throttle_ms: int

    def under_way(self) -> Iterator[tuple[ProducePart, int]]:
        """The batches that have no answer yet, each with the broker that it was sent to; none with acks=0."""
        return ((part, reply.leader) for reply in self.replies if not reply.answered for part in reply.parts)

    @abstractmethod
    def settle(self, result: ProduceResult) -> None:
        """Record the outcome of one partition."""

    def refuse(self, frame: Frame, part: ProducePart, code: int, message: str | None = None) -> None:
        """Refuse a batch in `frame` that is not sent to a broker. If the client will send it again, later batches have
        to wait for it.
        """
        if code in AGAIN:
            self.client.ordinary.lost(part.topic, part.partition, signature(frame.buffer, part.start, part.end))
            bound_expected(self.client)
        self.settle(refusal(part, code, message))


class PartReply(SentBatches):
    """The answer of one leader to its part of a split request."""

    __slots__ = ("_client", "_kept", "_merge", "_node", "answered", "correlation_id", "leader", "parts")

    def __init__(
        self, node: OrdinaryProduce, frame: Frame, merge: SplitProduce, leader: int, parts: list[ProducePart]
    ) -> None:
        self._client = merge.client
        self._node = node
        self._merge = merge
        self.leader = leader
        self.answered = False
        self.parts = parts
        self._kept = signatures(frame.buffer, parts)
        self.correlation_id = merge.correlation_id

    def answer_received(self, frame: Frame) -> None:
        self.answered = True
        results, throttle_ms = self._read(frame, self._merge.version, self._merge.fields.ids)
        self._merge.throttle_ms = max(self._merge.throttle_ms, throttle_ms)
        answered = {(result.topic, result.partition) for result in results}
        for result in results:
            self._merge.settle(result)
        for part in self.parts:
            if part[:2] not in answered:
                self._merge.settle(refusal(part, ErrorCode.UNKNOWN_SERVER_ERROR))

    def refuse(self, code: ErrorCode) -> None:
        self.answered = True
        if not self._merge.connection.closed:
            self._note_lost()
            for part in self.parts:
                self._merge.settle(refusal(part, code))


def signatures(buffer: Buffer, parts: list[ProducePart]) -> list[Buffer]:
    """The signature of each batch, which is kept until its answer; nearly always there is one batch."""
    if len(parts) == 1:
        part = parts[0]
        return [signature(buffer, part.start, part.end)]
    return [signature(buffer, part.start, part.end) for part in parts]


class Route(NamedTuple):
    """A broker, and the client's connection to it."""

    leader: int
    connection: UpstreamConnection


class UsualProduce:
    """The requests of one client that are like those that were passed on whole before: of the same client id and
    version, for the same partitions. All that one read of the socket has brought are passed on together, and so are
    their answers. Implements `sidecar.network.handling.Usual` and `sidecar.network.upstream.Sender`.

    Only the form of such a request is looked at. What else decides is the same as before (the first lines of `take`),
    or is looked up for each: whether its topics are ordinary, and whether the client may write to them. In all other
    cases nothing is taken, and each request is handled by itself.
    """

    __slots__ = ("_client", "_identity", "_kept", "_node", "_routes", "_seen", "_to", "_version")

    def __init__(self, client: Client, identity: ClientIdentity, version: int, node: OrdinaryProduce) -> None:
        self._client = client
        self._identity = identity
        self._version = version
        self._node = node
        self._seen = node.view.version
        self._to: dict[int, Route] = {}
        """By broker; each is one object, by which partitions of one broker are recognised."""
        self._routes: usual_produce.Routes = {}
        """Where requests for these partitions went, under version `_seen` of the view."""
        self._kept = 0
        """The number of partitions in `_routes`, at most `MOST_ROUTES`."""

    def is_of(self, identity: ClientIdentity, version: int) -> bool:
        """Whether it takes requests of this client id and version."""
        return identity is self._identity and version == self._version

    def note(self, parts: list[ProducePart], leader: int, connection: UpstreamConnection) -> None:
        """A request for these partitions was passed on; one for more of them than a turn handles is never usual."""
        if len(parts) > min(BOUNDS.turn, MOST_ROUTES):
            return
        if self._seen != self._node.view.version or self._kept + len(parts) > MOST_ROUTES:
            self._seen = self._node.view.version
            self._kept = 0
            self._routes.clear()
        route = self._to.get(leader)
        if route is None or route.connection is not connection:
            route = self._to[leader] = Route(leader, connection)
        for part in parts:
            of_topic = self._routes.setdefault(part.topic, {})
            self._kept += part.partition not in of_topic
            of_topic[part.partition] = route

    def take(self, framer: Framer, most: int) -> int:
        """See `Usual`."""
        client, node, identity, version = self._client, self._node, self._identity, self._version
        connection, ordinary, view, login = client.connection, client.ordinary, node.view, client.login
        if (
            view.version != self._seen
            or view.version != ordinary.sent_under
            or ordinary.expected
            or client.identity is not identity
            or connection.meter is not None
            or client.governed.claimants
            or framer.data is not SHARED
            or (login is not None and not login.stands)
        ):
            return 0
        begin = behind = framer.end - framer.rest
        usual = usual_produce.requests(
            SHARED, begin, framer.end, identity.raw, version, view.names, self._routes,
            framer.frame_limit, most, BOUNDS.turn - TURN.elements, BOUNDS.turn,
        )  # fmt: skip
        kinds, rights, taken, route = node.kinds, client.rights, 0, None
        run: list[PassedProduce] = []
        for start, end, correlation_id, its_route, parts, ids, kept in usual:
            if kinds[parts[0].topic] is not TopicKind.ORDINARY or (len(parts) != 1 and not self._are_ordinary(parts)):
                break
            if rights is not None and rights.refused(Operation.WRITE, parts):
                break
            if its_route is not route:
                if run and not self._send(framer, route, begin, behind, run):
                    return taken
                taken += len(run)
                route, begin, run = its_route, start, []
            head = version, correlation_id, identity.raw
            run.append(PassedProduce(client, head, end - start, node, its_route.leader, parts, ids, kept))
            behind = end
        if run and self._send(framer, route, begin, behind, run):
            taken += len(run)
        return taken

    def _are_ordinary(self, parts: list[ProducePart]) -> bool:
        """Whether all of several partitions are. They count as work of this turn."""
        TURN.elements += len(parts)
        kinds = self._node.kinds
        return all(kinds[part.topic] is TopicKind.ORDINARY for part in parts)

    def _send(self, framer: Framer, route: Route | None, begin: int, behind: int, run: list[PassedProduce]) -> bool:
        """Pass requests on to one broker. Returns False, and does nothing, if they cannot be sent at once."""
        if route is None or not route.connection.send_frames(begin, behind, run, self):
            return False
        framer.rest = framer.end - behind
        self._client.connection.expect_all(run, behind - begin)
        return True

    def take_answers(self, connection: UpstreamConnection, framer: Framer) -> None:
        """See `Sender`."""
        client = self._client.connection
        if client.meter is not None or self._client.ordinary.expected or framer.data is not SHARED:
            return
        start, replies = framer.end - framer.rest, client.replies
        sizes = usual_produce.answers(SHARED, start, framer.end, connection.waiters, replies.exchanges, PassedProduce)
        if sizes:
            framer.rest -= replies.forward_all(start, sizes, connection.answered(len(sizes)))
            client.answers_written()


class OrdinaryProduce:
    """Sends ordinary batches for all clients of a node."""

    def __init__(self, upstream: KafkaUpstream, kinds: Kinds, hints: LeaderHints) -> None:
        self.upstream = upstream
        self.hints = hints
        self.view = upstream.view
        self.kinds = kinds

    def may_pass(self, client: Client, request: Request, fields: ProduceRequest) -> bool:
        """Whether a request can be forwarded whole: each partition has a batch, and no batch overtakes another."""
        if client.ordinary.sent_under != self.view.version and self.overtaking(client, request.frame, fields):
            return False
        for part in fields.parts:  # noqa: SIM110 - `all` costs more
            if part.start == part.end:
                return False
        return True

    def overtaking(self, client: Client, frame: Frame, fields: ProduceRequest) -> list[tuple[ProducePart, Place]]:
        """The batches, with a producer id, for partitions whose former leader has not answered earlier batches yet."""
        ordinary, leader_of = client.ordinary, self.view.leader
        exchanges = (each for each in client.connection.pending if isinstance(each, (PassedProduce, SplitProduce)))
        under_way = [each for exchange in exchanges for each in exchange.under_way()]
        TURN.elements += len(under_way) // 32
        left = {part[:2] for part, leader in under_way if leader != leader_of(*part[:2])}
        if not left:
            ordinary.sent_under = self.view.version
            return []
        found = ((part, place_of(signature(frame.buffer, part.start, part.end))) for part in fields.parts)
        return [(part, place) for part, place in found if place is not None and part[:2] in left]

    def not_now(self, client: Client, frame: Frame, fields: ProduceRequest) -> set[tuple[bytes, int]]:
        """The partitions whose batch follows one that the client has to send again, or one that a former leader has not
        answered. In the latter case the client has to send this batch again before later ones.
        """
        found = behind_lost(client, frame, fields) if client.ordinary.expected else set()
        if client.ordinary.sent_under != self.view.version:
            for part, place in self.overtaking(client, frame, fields):
                client.ordinary.expects(part.topic, part.partition, place)
                found.add(part[:2])
            bound_expected(client)
        return found

    def pass_whole(self, client: Client, request: Request, fields: ProduceRequest, leader: int) -> None:
        """Forward a request unchanged to the leader of all its partitions."""
        exchange = None
        if fields.acks != 0:
            head, frame = (request.version, request.correlation_id, request.client_id), request.frame
            kept = signatures(frame.buffer, fields.parts)
            exchange = PassedProduce(
                client, head, frame.end - frame.start, self, leader, fields.parts, fields.ids, kept
            )
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
            if client.connection.meter is not None:
                client.connection.meter.unanswered(request, 0)
        client.send(connection, request, exchange)
        if exchange is not None and usual_produce.IS_COMPILED:
            self._note_usual(client, exchange, connection)

    def _note_usual(self, client: Client, exchange: PassedProduce, connection: UpstreamConnection) -> None:
        """Have `UsualProduce` take up later requests like this one, if nothing but their form has to be looked at."""
        identity, usual = client.identity, client.connection.usual
        if identity is None or identity.has_settings:
            return
        if not isinstance(usual, UsualProduce) or not usual.is_of(identity, exchange.version):
            usual = client.connection.usual = UsualProduce(client, identity, exchange.version, self)
        usual.note(exchange.parts, exchange.leader, connection)

    def send(self, merge: SplitProduce, request: Request, leader: int, parts: list[ProducePart]) -> None:
        """Send one leader its part of a request."""
        client, fields = merge.client, merge.fields
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
        reply = PartReply(self, request.frame, merge, leader, parts)
        if fields.acks != 0:
            merge.replies.append(reply)
        try:
            connection = client.links.to(leader)
        except DisconnectedError:
            reply.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if fields.acks == 0:
            client.links.unconfirmed(connection, [part.topic for part in parts])
        connection.send_parts(message, reply if fields.acks != 0 else None)


def behind_lost(client: Client, frame: Frame, fields: ProduceRequest) -> set[tuple[bytes, int]]:
    """The partitions whose batch follows a lost one."""
    if fields.ids is not None:
        for part in fields.parts:
            client.ordinary.named(part.topic, part.partition, fields.ids[part.topic])
    return {
        (part.topic, part.partition)
        for part in fields.parts
        if not client.ordinary.admits(part.topic, part.partition, signature(frame.buffer, part.start, part.end))
    }
