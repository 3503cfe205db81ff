"""Fetch, versions 4 to 11. Routed to leaders; fetch sessions (KIP-227) end at the node, a client's rack (KIP-392) is
not passed on.

- All partitions with one leader: the request goes on whole, made sessionless in place; the answer comes back as it is.
- A shadow (`sidecar.shadow`) is read from its source's log: asked for by the one name, answered by the other; what is
  after the name in the answer is not touched. Several names of one log are asked for side by side, as a broker takes
  each partition once.
- Readers at the end of a log that others read, too, wait together (`shared_fetch.py`, `sidecar.fanout`).
- Several leaders, a shadow, or a rack to hide: a long poll each (`split_fetch.py`).
- What Kafka's ACLs do not allow to READ is refused with 29 TOPIC_AUTHORIZATION_FAILED, the rest is read (`rights.py`).
- Under the policy `exclusive_reader` a partition that another reader has claimed is refused with 29
  (`sidecar.resources.readers`).

Sessions are declined (the answer's session id is 0): a session of one broker means nothing for a node with several
brokers behind it. With no rack upstream never names a preferred read replica, which would be a broker the client cannot
reach.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sidecar.cluster.view import NO_LEADER
from sidecar.fanout.crowd import Crowd
from sidecar.fanout.tails import Tails
from sidecar.gateway import passing
from sidecar.gateway.passed_fetch import PassedFetch
from sidecar.gateway.shared_fetch import SharedFetch, may_share, wanted
from sidecar.gateway.split_fetch import SplitFetch
from sidecar.network.request import Exchange
from sidecar.protocol import fetch
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.primitives import I32
from sidecar.security.acls import Operation
from sidecar.shadow.views import Views

if TYPE_CHECKING:
    from sidecar.cluster.resolver import NameResolver
    from sidecar.cluster.upstream import KafkaUpstream
    from sidecar.fanout.question import Question
    from sidecar.gateway.client import Client
    from sidecar.gateway.rights import Rights
    from sidecar.gateway.shared_fetch import Wanted
    from sidecar.network.request import Request
    from sidecar.network.tasks import Tasks
    from sidecar.protocol.calls.tails import Fetched
    from sidecar.protocol.fetch import FetchPart, FetchRequest
    from sidecar.protocol.primitives import Octets
    from sidecar.resources.readers import ReaderClaims
    from sidecar.shadow.readers import Readers
    from sidecar.shadow.views import Read

_FETCH_SESSION_ID_NOT_FOUND: Final = 70


class FetchApi:
    """Handles Fetch requests of all clients of a node."""

    def __init__(
        self, upstream: KafkaUpstream, resolver: NameResolver, claims: ReaderClaims, tasks: Tasks, readers: Readers
    ) -> None:
        self._upstream = upstream
        self._view = upstream.view
        self._views = Views(resolver, upstream.view)
        self._claims = claims
        self._tasks = tasks
        self._readers = readers
        self.crowd = Crowd()
        self.tails = Tails(upstream, tasks)

    def handle(self, client: Client, request: Request) -> None:
        """One request; the frame may be borrowed."""
        fields = fetch.walk(request.frame.buffer, request.body, request.frame.end, request.version)
        if fields.session_id != 0 or fields.session_epoch > fetch.INITIAL_EPOCH:
            _answer(client, request, error=_FETCH_SESSION_ID_NOT_FOUND)
            return
        if not fields.parts:
            _answer(client, request)
            return
        if client.rights is not None and _refuses_follower(client.rights, request):
            _refuse_all(client, request, fields)
            return
        self._take(client, request, fields)

    def _take(self, client: Client, request: Request, fields: FetchRequest, *, learned: bool = False) -> bool:
        """Let the request wait with others, or pass it on whole, or split it; whether it holds the connection.

        `learned`: it was asked already where the logs end.
        """
        parts, claims = fields.parts, self._claims
        if client.rights is not None and client.rights.refused(Operation.READ, parts):
            return self._split(client, request, fields)
        if claims.guards and claims.refuses([(part.topic, part.partition) for part in parts], client):
            return self._split(client, request, fields)
        reads = None
        if self._views.names_shadows(parts):
            reads = self._views.reads(parts, client.principal)
            if reads is None:
                return self._split(client, request, fields)
        logs = [(part.topic, part.partition) for part in parts] if reads is None else [each.source for each in reads]
        ends = None
        shares = may_share(fields, request.version)
        together = shares and self.crowd.gathers(client.connection.id, logs)
        if together and len(set(logs)) == len(logs):  # a poll takes each partition once: each repeat would cost another
            ends = self.tails.ends
            asked = wanted(request.frame.buffer, parts, [log for log, _ in logs], fields.isolation)
            if self._share(client, request, fields, asked):
                return False
            unknown = [] if learned else [each.question for each in asked if not ends.is_known(each.question)]
            if unknown:
                client.connection.hold()
                request.own()
                self._tasks.start(self._learn(client, request, unknown))
                return True
        leader = self._view.only_leader(logs)
        if leader == NO_LEADER or (reads is None and fields.has_rack):
            return self._split(client, request, fields)
        if shares:
            client.fetching.alone_at = asyncio.get_running_loop().time()
        names = None if reads is None else {each.log: each.part.topic for each in reads}
        exchange = PassedFetch(client, request, self._upstream, self._readers, fields, names, ends)
        client.connection.expect(exchange)
        try:
            connection = client.links.to(leader)
        except DisconnectedError:
            exchange.refuse()
            return False
        if reads is None:
            fetch.decline_session(request.frame.buffer, fields)
            passing.send(connection, client, request, exchange)
        else:
            connection.send_parts([_renamed(client, request, fields, reads)], exchange)
        return False

    def _split(self, client: Client, request: Request, fields: FetchRequest) -> bool:
        """Begin a poll for each leader; whether the connection is held until they are known."""
        if request.own():
            fields = fetch.walk(request.frame.buffer, request.body, request.frame.end, request.version)
        exchange = SplitFetch(client, self._upstream, self._views, self._claims, self._readers, request, fields)
        client.connection.expect(exchange)
        missing = self._views.missing(fields.parts, client.principal)
        if not missing:
            exchange.begin(asked=True)
            return False
        client.connection.hold()
        self._tasks.start(self._find_leaders(client, exchange, missing))
        return True

    def _share(self, client: Client, request: Request, fields: FetchRequest, asked: list[Wanted]) -> bool:
        tails = self.tails
        found: dict[Question, Fetched] = {}
        for each in asked:
            if tails.ends.is_reached(each.question):
                continue
            fetched = tails.answer(each.question, min(each.most_bytes, fields.max_bytes))
            if fetched is not None:
                found[each.question] = fetched
            elif not tails.may_wait(each.question):
                return False
        if not found and not all(tails.has_room(each.question) for each in asked):
            return False
        exchange = SharedFetch(client, request, self._upstream, tails, self._readers, fields, asked)
        client.connection.expect(exchange)
        if found:
            exchange.arrived(found)
        else:
            exchange.begin(fields.max_wait_ms / 1000)
        return True

    async def _learn(self, client: Client, request: Request, unknown: list[Question]) -> None:
        """Ask where logs end, then take the request up."""
        held = False
        try:
            await self.tails.ends.learn(unknown)
            if not client.connection.closed:
                fields = fetch.walk(request.frame.buffer, request.body, request.frame.end, request.version)
                held = self._take(client, request, fields, learned=True)
        finally:
            for question in unknown:
                self._forget_unread(*question.position.of)
            if not held:
                client.connection.release()

    def client_closed(self, client: Client) -> None:
        """A client has gone: it reads nothing any more."""
        for exchange in list(client.fetching.shared):
            exchange.leave()
        for log, partition in self.crowd.leaves(client.connection.id):
            self.tails.forget(log, partition)

    def _forget_unread(self, log: bytes, partition: int) -> None:
        """All callers may have gone meanwhile."""
        if not self.crowd.reads(log, partition):
            self.tails.ends.forget(log, partition)

    async def _find_leaders(self, client: Client, exchange: SplitFetch, topics: set[bytes]) -> None:
        found = await self._upstream.find_leaders(topics)
        try:
            if not client.connection.closed:
                exchange.begin(asked=found)
        finally:
            client.connection.release()


def _answer(client: Client, request: Request, error: int = 0) -> None:
    exchange = Exchange(client.connection, request)
    client.connection.expect(exchange)
    exchange.answer(fetch.encode_answer(request.correlation_id, request.version, [], error=error))


def _refuses_follower(rights: Rights, request: Request) -> bool:
    """Whether a client reads as a follower does, beyond the high watermark: no broker replicates through a node."""
    replica_id: int = I32.unpack_from(request.frame.buffer, request.body)[0]
    return replica_id >= 0 and rights.enforced


def _refuse_all(client: Client, request: Request, fields: FetchRequest) -> None:
    exchange = Exchange(client.connection, request)
    client.connection.expect(exchange)
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    exchange.note_error(code)
    elements: list[tuple[bytes, Octets]] = [
        (part.topic, fetch.error_element(request.version, part.partition, code)) for part in fields.parts
    ]
    exchange.answer(fetch.encode_answer(request.correlation_id, request.version, elements))


def _renamed(client: Client, request: Request, fields: FetchRequest, reads: list[Read[FetchPart]]) -> bytes:
    """The request by the names of the logs."""
    assert client.identity is not None
    limits = (fields.max_wait_ms, fields.min_bytes, fields.max_bytes, fields.isolation)
    buffer = request.frame.buffer
    elements: list[tuple[bytes, Octets]] = [(read.log, buffer[read.part.start : read.part.end]) for read in reads]
    return fetch.encode_request(
        request.correlation_id, client.identity.name.encode(), request.version, limits, elements
    )
