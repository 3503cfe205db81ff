"""Fetch, versions 4 to 18. Routed to leaders. The node declines fetch sessions (KIP-227) and does not forward a
client's rack (KIP-392).

- All partitions have one leader: the request is forwarded whole, without a session; the answer is forwarded unchanged.
- A shadow (`sidecar.shadow`) is read from its source's log: the request names the source, the client's answer names the
  shadow, and the bytes after the name are not changed. Several names of one log are requested in parallel polls,
  because a broker accepts each partition once per request.
- Readers at the end of a log that several connections read wait together for a poll of the node (`sidecar.fanout`).
  Only if no client can see a difference: version 10 or later, min_bytes ≤ 1, every partition read by several
  connections (`shared_fetch_min_readers`), at its end or from records that arrived in the last seconds.
- Several leaders, several names of a log, a refusal, or a rack to hide: the request gets polls of its own
  (`leader_poll`).
- Partitions that Kafka's ACLs do not allow the client to READ are refused with 29 TOPIC_AUTHORIZATION_FAILED; the
  others are read (`rights.py`).
- Reading of shadows can be limited (`quotas.py`).
- With the policy `exclusive_reader` a partition claimed by another reader is refused with the same error
  (`resources.readers`).
- Topics by id (from version 13 on) are treated as topics by name; an unknown id is answered with 100 UNKNOWN_TOPIC_ID.
  The node's requests to leaders use ids too: they return nothing of a topic that was created again. A shadow is
  requested by the id of its source.
- A new leader that a broker names (version 16) is stored, and the client gets a node instead (`leader_hints`).

Sessions are declined (the answer's session id is 0) because a node reads from several brokers. Without a rack no broker
names a preferred read replica; clients could not reach it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Generator, Mapping
from typing import Final

from sidecar.cluster.nodes import NodeDirectory
from sidecar.cluster.resolver import NameResolver
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.cluster.view import NO_LEADER
from sidecar.fanout.crowd import LEAST
from sidecar.fanout.question import Asked, questions_of
from sidecar.fanout.repeat import Lines, Repeat
from sidecar.fanout.tails import Tails
from sidecar.gateway import asking
from sidecar.gateway.client import Client
from sidecar.gateway.leader_hints import LeaderHints
from sidecar.gateway.leader_poll import Fetching, SplitFetch
from sidecar.gateway.plan import Fact, Missing, Routes, Rule, Verdict, facts_to_read, only_verdict, plan, reads_of
from sidecar.gateway.quotas import Audiences
from sidecar.gateway.shadow_rules import ShadowRule
from sidecar.gateway.shared_fetch import SharedFetch, StandingFetch
from sidecar.gateway.source_check import send_read
from sidecar.gateway.whole_fetch import FetchExchange, Node, WholeFetch, renamed
from sidecar.network.request import Exchange, Request
from sidecar.network.slices import in_slices
from sidecar.network.tasks import Tasks
from sidecar.network.turn import TURN
from sidecar.protocol import fetch, usual_fetch
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.calls import tails as calls
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.fetch_parts import FetchPart, FetchRequest
from sidecar.protocol.limits import PORTION
from sidecar.protocol.primitives import at_once
from sidecar.protocol.topic_ids import unknown_ids
from sidecar.resources.readers import ReaderClaims
from sidecar.security.acls import Operation
from sidecar.shadow.cursor_room import Readers
from sidecar.shadow.views import Read, log_of, topic_id_of

_FETCH_SESSION_ID_NOT_FOUND: Final = 70
_RULE: Final = Rule.of(ShadowRule.READ, reads=True)
_NAMED: Final = {Fact.NAME: True}
"""Names are looked up before a request is planned."""
_FULL: Final = fetch.INITIAL_EPOCH, fetch.FINAL_EPOCH
"""The epochs of a full Fetch, whatever session it names: a broker closes that one (`FetchManager.newContext`)."""


class FetchApi:
    """Handles Fetch requests of all clients of a node."""

    def __init__(
        self,
        upstream: KafkaUpstream,
        nodes: NodeDirectory,
        resolver: NameResolver,
        claims: ReaderClaims,
        tasks: Tasks,
        readers: Readers,
        *,
        longest_wait_s: float,
        least_readers: int = LEAST,
        audiences: Audiences | None = None,
    ) -> None:
        """`longest_wait_s`, `least_readers`: see `Tails`. `audiences`: limits the reading of shadows."""
        self._upstream = upstream
        self._view = upstream.view
        self._claims = claims
        self._tasks = tasks
        self._resolver = resolver
        self.audiences = audiences
        self.tails = Tails(upstream, tasks, longest_wait_s, least_readers)
        self._node = Node(upstream, readers, LeaderHints(upstream.view, nodes, resolver.kinds), self.tails)
        self._lines = Lines()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fetching: defaultdict[int, Fetching] = defaultdict(Fetching)
        """By the id of the client's connection."""

    def handle(self, client: Client, request: Request) -> None:
        """Handle one request; the frame may be borrowed."""
        client.connection.repeating = None
        fields = self._walk(request)
        TURN.elements += len(fields.parts)
        in_session = fields.session_epoch not in _FULL
        if in_session or not fields.parts:
            _answer(client, request, _FETCH_SESSION_ID_NOT_FOUND if in_session else 0)
            return
        if fields.replica_id >= 0:  # leaders would count its offsets as replicated, and acknowledge records
            exchange = FetchExchange(client, request, fields, self._node)
            client.connection.expect(exchange)
            exchange.note_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            client.note_refusal(b"", ErrorCode.TOPIC_AUTHORIZATION_FAILED, "brokers alone read as followers do")
            exchange.refuse_all(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            return
        if unknown := unknown_ids(fields.ids):
            self._hold(client, request, self._upstream.find_ids(unknown))
            return
        self._take(client, request, fields)

    def _walk(self, request: Request) -> FetchRequest:
        """Parse the request. If topics are named by id, the ids of shadows' sources are added."""
        frame = request.frame
        fields = usual_fetch.walk(frame.buffer, request.body, frame.end, request.version, self._view.names)
        request.is_read = True
        if fields.ids is not None and self._resolver.has_shadows:
            for topic in tuple(fields.ids):
                if (source := self._resolver.source(topic)) is not None:
                    fields.ids.setdefault(source.topic, source.topic_id.bytes)
        return fields

    def _take(self, client: Client, request: Request, fields: FetchRequest, *, learned: bool = False) -> bool:
        """Let the request share a poll, forward it whole, or split it. Returns whether it still holds the connection.

        `learned`: the ends of the logs were looked up already.
        """
        parts = fields.parts
        by_id, reads = fields.ids is not None, None
        facts = facts_to_read(self._view, self._resolver, self._claims, client, parts, _NAMED, by_id)
        verdicts = plan(parts, _RULE, facts)
        only = verdicts[0] if len(parts) == 1 else only_verdict(verdicts)
        leader = only if isinstance(only, int) else NO_LEADER
        if leader == NO_LEADER and any(not isinstance(verdict, int) for verdict in verdicts):
            reads = reads_of(parts, verdicts)
            if reads is None or not all(self._has_place(client, part.topic) for part in parts):
                return self._split(client, request, fields, verdicts)
        logs = [(part.topic, part.partition) for part in parts] if reads is None else [each.source for each in reads]
        if reads is not None:
            leader = self._view.only_leader(logs)
        ends = None
        shares = request.version in calls.SHARING and fields.min_bytes <= 1 and fields.max_wait_ms > 0
        together = shares and self.tails.crowd.gathers(client.connection.id, logs)
        if together and len(set(logs)) == len(logs):  # each repetition of a partition would need one more poll
            ends = self.tails.ends
            is_held = self._wait_together(client, request, fields, reads, logs, learned=learned)
            if is_held is not None:
                return is_held
        if leader == NO_LEADER or (fields.has_rack if reads is None else client.links.divides(reads)):
            return self._split(client, request, fields, verdicts)
        if shares:
            self._fetching[client.connection.id].alone_at = self._loop_time()
        names = None if reads is None else {each.log: each.part.topic for each in reads}
        exchange = WholeFetch(client, request, fields, self._node, names, ends)
        client.connection.expect(exchange)
        try:
            connection = client.links.to(leader, as_node=reads is not None)
        except DisconnectedError:
            exchange.give_up()
            return False
        if reads is None:
            fetch.decline_session(request.frame.buffer, fields)
            client.send(connection, request, exchange)
        else:
            message, by_id = renamed(client, request, fields, reads), fields.ids is not None
            send_read(self._upstream, connection, message, exchange, reads, by_id=by_id)
        return False

    def _wait_together(
        self,
        client: Client,
        request: Request,
        fields: FetchRequest,
        reads: list[Read[FetchPart]] | None,
        logs: list[tuple[bytes, int]],
        *,
        learned: bool,
    ) -> bool | None:
        """Let a request share a poll (False), or hold it to learn the ends of its logs (True). None if it cannot share
        one.
        """
        both, buffer = zip(fields.parts, logs, strict=True), request.frame.buffer
        asked = questions_of(buffer, both, fields.isolation, request.version, self._ids(fields, reads))
        if asked and self._share(client, request, fields, asked):
            return False
        unknown = [question for question, _ in asked if not self.tails.ends.is_known(question)]
        if learned or not unknown:
            return None
        self._hold(client, request, self.tails.learn(unknown), learned=True)
        return True

    def _ids(self, fields: FetchRequest, reads: list[Read[FetchPart]] | None) -> Callable[[bytes], bytes]:
        """Returns what finds the topic id of a log that a request reads. If the request names topics by name, it is the
        present one: so readers by name and by id share polls, and no poll reads a later topic of that name.
        """
        if fields.ids is not None:
            return fields.ids.__getitem__
        sources = {each.log: each.topic_id for each in reads or () if each.is_renamed}
        return lambda log: sources.get(log) or topic_id_of(log, self._resolver, self._view)

    def _loop_time(self) -> float:
        if self._loop is None:  # looking the loop up is a system call (getpid)
            self._loop = asyncio.get_running_loop()
        return self._loop.time()

    def _plan(
        self, client: Client, fields: FetchRequest, parts: list[FetchPart], asked: Mapping[Fact, bool]
    ) -> list[Verdict]:
        """The verdicts on these partitions of a request. `asked`: see `Facts`."""
        by_id = fields.ids is not None
        facts = facts_to_read(self._view, self._resolver, self._claims, client, parts, asked, by_id)
        return plan(parts, _RULE, facts)

    def _stands(self, client: Client, repeat: Repeat) -> bool:
        """Whether a request that repeats its connection's last one, except for the offset, may still share a poll,
        because nothing relevant has changed.
        """
        part, ids, login = repeat.part, repeat.fields.ids, client.login
        if self._claims.guards or (login is not None and not login.stands):
            return False
        if ids is not None and any(self._view.names.get(topic_id) != topic for topic, topic_id in ids.items()):
            return False  # the ids include those of shadows' sources
        if client.rights is not None and client.rights.refuses(Operation.READ, part.topic):
            return False
        if log_of(part.topic, client.principal, self._resolver, self._view) != repeat.log:
            return False
        topic_id = repeat.asked.question.position.topic_id
        if ids is None and topic_id_of(part.topic, self._resolver, self._view) != topic_id:
            return False
        if self.audiences is not None and not self._has_place(client, part.topic):
            return False
        return self.tails.crowd.is_shared(repeat.log, part.partition)

    def _split(self, client: Client, request: Request, fields: FetchRequest, verdicts: list[Verdict]) -> bool:
        """Start a poll of each leader. Returns whether the connection is held until the leaders are known."""
        if request.own():
            fields = self._walk(request)
        # If a partition is named twice, the last element counts, as on a broker (`FetchRequest.fetchData`).
        parts = list({part[:2]: part for part in fields.parts}.values())
        if len(parts) != len(fields.parts):
            fields, verdicts = fields._replace(parts=parts), self._plan(client, fields, parts, _NAMED)
        exchange = SplitFetch(client, request, fields, self._node, self._fetching[client.connection.id])
        client.connection.expect(exchange)
        missing = {verdict for verdict in verdicts if isinstance(verdict, Missing)}
        if not missing:
            at_once(self._begin(client, exchange, parts, verdicts))
            return False
        client.connection.hold()
        self._tasks.start(self._find_leaders(client, exchange, fields, missing))
        return True

    async def _find_leaders(
        self, client: Client, exchange: SplitFetch, fields: FetchRequest, missing: set[Missing]
    ) -> None:
        try:
            asked = {**_NAMED, **await asking.look_up(self._upstream, missing)}
            verdicts = self._plan(client, fields, fields.parts, asked)
            await in_slices(self._begin(client, exchange, fields.parts, verdicts))
        finally:
            client.connection.release()

    def _begin(
        self, client: Client, exchange: SplitFetch, parts: list[FetchPart], verdicts: list[Verdict]
    ) -> Generator[None, None, None]:
        """Refuse partitions, and poll the leaders of the others."""
        routes: Routes[FetchPart] = Routes()
        for first in range(0, len(parts), PORTION):
            routes.add(parts[first : first + PORTION], verdicts[first : first + PORTION])
            yield
        for code, refused in routes.refused.items():
            for part in refused:
                exchange.refuse(part, code)
        by_leader: dict[int, list[Read[FetchPart]]] = {}
        for leader, reads in routes.by_leader.items():
            for read in reads.values():
                if read.is_renamed and not self._has_place(client, read.part.topic):
                    exchange.refuse(read.part, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                else:
                    by_leader.setdefault(leader, []).append(read)
        if not client.connection.closed:
            exchange.begin(by_leader)

    def _has_place(self, client: Client, name: bytes) -> bool:
        bounds, own = self.audiences, client.connection  # a closed connection would never give its place back
        return bounds is None or not self._resolver.is_shadow(name) or (not own.closed and bounds.admits(name, own.id))

    def _share(self, client: Client, request: Request, fields: FetchRequest, asked: list[Asked]) -> bool:
        if fields.max_bytes > client.most_fetched:
            fields = fields._replace(max_bytes=client.most_fetched)
        found = self.tails.offer(asked, fields.max_bytes)
        if found is None:
            return False
        fetching = self._fetching[client.connection.id]
        repeat = Repeat.of(request, fields, asked[0], self._lines) if len(asked) == 1 else None
        if repeat is None:
            exchange = SharedFetch(client, request, fields, self._node, fetching, asked)
        else:
            exchange = StandingFetch(client, request, self._node, fetching, repeat, self._stands)
            client.connection.repeating = exchange
        client.connection.expect(exchange)
        if found:
            exchange.give(found)
        else:
            exchange.begin(fields.max_wait_ms / 1000)
        return True

    def _hold(
        self, client: Client, request: Request, asks: Coroutine[None, None, object], *, learned: bool = False
    ) -> None:
        """Ask Kafka for what is unknown (topics of ids, ends of logs), then handle the request."""
        client.connection.hold()
        request.own()
        self._tasks.start(self._take_held(client, request, asks, learned=learned))

    async def _take_held(
        self, client: Client, request: Request, asks: Coroutine[None, None, object], *, learned: bool
    ) -> None:
        held = False
        try:
            await asks
            if not client.connection.closed:
                held = self._take(client, request, self._walk(request), learned=learned)
        finally:
            if not held:
                client.connection.release()

    def client_closed(self, client: Client) -> None:
        """Forget a client that has disconnected."""
        fetching = self._fetching.pop(client.connection.id, None)
        for exchange in list(fetching.shared if fetching is not None else ()):
            exchange.leave()
        self.tails.connection_closed(client.connection.id)
        if self.audiences is not None:
            self.audiences.client_closed(client)


def _answer(client: Client, request: Request, error: int) -> None:
    exchange = Exchange(client.connection, request)
    client.connection.expect(exchange)
    exchange.answer(fetch.encode_answer(request.correlation_id, request.version, [], error=error))
