"""ShareFetch (1-2), ShareAcknowledge (1-2): share consumers read and acknowledge records (KIP-932).

A request is split by leader, each broker has its own session (`share_sessions`), and the answers are merged. Requests
of one session are carried out one after the other, whichever connections they come on. A single leader gets the
client's own limits. Several leaders are asked in rounds: first without a wait, then with a short one
(`_ROUND_S`), until one has records or the client's wait is over, because records must not wait for another broker. Each
broker gets a part of the client's record limit, so that the client gets no more than its limit.

A partition is refused with 29 TOPIC_AUTHORIZATION_FAILED if the client may not read the topic, if another reader has
claimed it, or if it is a shadow's (the records are its source's, which has its own states). That is checked again
before records are sent to the client, because the request may have waited. If a broker no longer leads a partition, the
answer names the node that does (`gateway.leader_hints`), never a broker.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from sidecar.cluster.nodes import NodeDirectory
from sidecar.cluster.resolver import NameResolver
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway import asking, share_sessions
from sidecar.gateway.client import Client
from sidecar.gateway.leader_hints import LeaderHints
from sidecar.gateway.plan import Fact, Routes, Rule, facts_to_read, plan
from sidecar.gateway.share_sessions import (
    FINAL,
    INITIAL,
    Acks,
    BrokerSession,
    Gathered,
    Part,
    ShareSession,
    ShareSessions,
)
from sidecar.network.request import Exchange, Request
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.errors import STALE_ROUTE, ErrorCode, KafkaError
from sidecar.protocol.messages.shares import SHARE_ACKNOWLEDGE, SHARE_FETCH
from sidecar.protocol.schema import Message, Values
from sidecar.protocol.topic_ids import stand_in
from sidecar.resources.readers import ReaderClaims
from sidecar.security.acls import Operation

_ROUND_S: Final = 0.1
"""The wait of a round with several brokers, in seconds."""
_LONGEST_S: Final = 5.0
"""The longest wait, in seconds. A client that waits longer repeats its request, so that lost rights show sooner."""
_RESTARTED: Final = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})


_NOT_ACKNOWLEDGED: Final = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
_RESTARTS: Final = 3
"""The limit of reopened sessions within one request."""
_LOOKED_UP: Final = dict.fromkeys(Fact, True)


class _Named(NamedTuple):
    """A partition of a session, `of`, by its topic's name."""

    topic: bytes
    partition: int
    of: Part


@dataclass(slots=True, eq=False)
class _Call:
    """One request of a client, and its share session. Brokers get its requests for `session.opener`."""

    client: Client
    request: Request
    fields: Values
    session: ShareSession
    gathered: Gathered
    rule: Rule
    restarts: int = 0

    def check(self) -> None:
        """Raises `KafkaError` if the session ended while the request waited for its turn."""
        if self.session.is_over:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)


class ShareApi:
    """Handles both APIs for all clients of a node."""

    def __init__(
        self, upstream: KafkaUpstream, nodes: NodeDirectory, resolver: NameResolver, claims: ReaderClaims
    ) -> None:
        self.sessions = ShareSessions(nodes.me.id)
        self._upstream = upstream
        self._view = upstream.view
        self._hints = LeaderHints(upstream.view, nodes, resolver.kinds)
        self._resolver = resolver
        self._claims = claims

    def client_closed(self, client: Client) -> None:
        """End the sessions that a client opened. Brokers notice by its connections to them, which close too."""
        self.sessions.connection_closed(client.connection.id)

    async def handle_fetch(self, rule: Rule, client: Client, exchange: Exchange, request: Request) -> None:
        """ShareFetch."""
        await self._handle(client, exchange, request, SHARE_FETCH, partial(self._fetch, rule))

    async def handle_acknowledge(self, rule: Rule, client: Client, exchange: Exchange, request: Request) -> None:
        """ShareAcknowledge."""
        await self._handle(client, exchange, request, SHARE_ACKNOWLEDGE, partial(self._acknowledge, rule))

    async def _handle(
        self,
        client: Client,
        exchange: Exchange,
        request: Request,
        message: Message,
        answer: Callable[[Client, Request, Values, Gathered], Awaitable[Values]],
    ) -> None:
        fields, gathered = await asking.fields(message, request), Gathered()
        try:
            if client.rights is not None and not client.rights.group(Operation.READ, fields["group_id"] or ""):
                client.note_refusal(b"", ErrorCode.GROUP_AUTHORIZATION_FAILED, "Kafka's ACLs do not allow it")
                raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            values = await answer(client, request, fields, gathered)
        except KafkaError as error:
            gathered = Gathered(error=error.code, message=error.message or None)
            values = gathered.fetched()
        for code in {each["error_code"] for each in (values, *gathered.parts.values()) if each["error_code"]}:
            exchange.note_error(code)
        self._hints.share(client.listener, values)
        await asking.answer(exchange, message, values)

    # Fetch --------------------------------------------------------------------------------------------------------

    async def _fetch(self, rule: Rule, client: Client, request: Request, fields: Values, gathered: Gathered) -> Values:
        acks, former, epoch = share_sessions.acks_in(fields), None, fields["share_session_epoch"]
        if epoch == INITIAL:
            session, former = self.sessions.open(client, fields)
        else:
            session = self.sessions.known(client, fields)
        call = _Call(client, request, fields, session, gathered, rule)
        if epoch == FINAL:
            await self._close(call, acks)
            return gathered.fetched()
        if epoch != INITIAL:
            self.sessions.update(session, fields)
        async with session.turn:
            if former is not None:
                await self._end_former(_Call(client, request, fields, former, Gathered(), rule))
            call.check()
            await self._poll(call, await self._allowed(call, acks))
        self._withhold(call)
        return gathered.fetched()

    async def _poll(self, call: _Call, acks: Acks) -> None:
        loop, fields, session = asyncio.get_running_loop(), call.fields, call.session
        wait_s = min(max(0, fields["max_wait_ms"]) / 1000, _LONGEST_S)
        deadline, is_first = loop.time() + wait_s, True
        while True:
            by_broker, refused = await self._places(call, session.parts, look=is_first)
            for code, parts in refused.items():
                call.gathered.refuse(parts, code)
            theirs, nowhere = session.acks_by_broker(acks, self._leader)
            call.gathered.not_acknowledged(nowhere, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            acks = {}
            if left := [each for each in session.brokers.keys() - by_broker.keys() if self._has_moved(session, each)]:
                await self._end(call, left, theirs)
            began, restarts = loop.time(), call.restarts
            wait_s = max(0.0, deadline - began)
            if len(by_broker) > 1:
                wait_s = 0.0 if is_first else min(wait_s, _ROUND_S)
            await self._ask_all(call, by_broker, theirs, wait_s)
            is_first = False
            if call.gathered.has_records or not by_broker or call.gathered.error:
                return
            if call.session.is_over or call.client.connection.closed:
                return
            now = loop.time()
            if now >= deadline:
                return
            if now - began < wait_s / 2 and call.restarts == restarts:
                return  # brokers do not wait for records with such limits: the rounds would have no pause

    async def _ask_all(
        self, call: _Call, by_broker: dict[int, list[Part]], acks: dict[int, Acks], wait_s: float
    ) -> None:
        """One round: request each broker's part of the records, or only send it its acknowledgements."""
        fields, session, count = call.fields, call.session, len(by_broker)
        limits = {"max_wait_ms": round(wait_s * 1000), "max_bytes": fields["max_bytes"] // max(1, count)}
        if count > 1:
            limits["min_bytes"] = min(fields["min_bytes"], 1)
        records = share_sessions.split(fields["max_records"], max(1, count), session.turns)
        session.turns += 1
        asked: list[Awaitable[None]] = []
        for (broker, parts), most in zip(by_broker.items(), records, strict=False):
            theirs = acks.get(broker, {})
            if most or not fields["max_records"]:
                asked.append(self._ask(call, broker, parts, theirs, limits | {"max_records": most}))
            elif theirs:
                asked.append(self._tell(call, broker, theirs))
        others = session.brokers.keys() & acks.keys() - by_broker.keys()
        asked += [self._tell(call, broker, acks[broker]) for broker in others]
        await asyncio.gather(*asked)

    async def _ask(self, call: _Call, broker: int, parts: list[Part], acks: Acks, limits: Values) -> None:
        with_broker = call.session.brokers.setdefault(broker, BrokerSession())
        epoch = with_broker.epoch
        topics, forgotten = with_broker.ask(parts, acks)
        mine = {"topics": topics, "forgotten_topics_data": forgotten, "share_session_epoch": epoch}
        values = call.fields | limits | mine | {"member_id": call.session.member}
        try:
            answer = await asking.one(call.session.opener, broker, call.request, SHARE_FETCH, values)
        except DisconnectedError:
            self._lost(call, broker, acks)
            call.gathered.refuse(parts, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            call.gathered.has_records = True
            self._refresh(parts)
            return
        if answer["error_code"]:
            self._failed(call, broker, acks, answer)
            return
        self._hints.learn_shared(answer)
        call.gathered.take(answer)
        self._refresh(
            (topic["topic_id"], found["partition_index"])
            for topic in answer["responses"]
            for found in topic["partitions"]
            if found["error_code"] in STALE_ROUTE
        )

    # Acknowledge --------------------------------------------------------------------------------------------------

    async def _acknowledge(
        self, rule: Rule, client: Client, request: Request, fields: Values, gathered: Gathered
    ) -> Values:
        if fields["share_session_epoch"] == INITIAL:
            share_sessions.key_of(client, fields)
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        call = _Call(client, request, fields, self.sessions.known(client, fields), gathered, rule)
        acks = share_sessions.acks_in(fields)
        if fields["share_session_epoch"] == FINAL:
            await self._close(call, acks)
            return gathered.acknowledged()
        async with call.session.turn:
            call.check()
            theirs, nowhere = call.session.acks_by_broker(await self._allowed(call, acks), self._leader)
            gathered.not_acknowledged(nowhere, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            await asyncio.gather(*(self._tell(call, broker, some) for broker, some in theirs.items()))
        return gathered.acknowledged()

    async def _allowed(self, call: _Call, acks: Acks) -> Acks:
        """The acknowledgements that the client may send; others are refused."""
        _, refused = await self._places(call, acks)
        for code in _NOT_ACKNOWLEDGED:
            call.gathered.not_acknowledged(refused.get(code, ()), code)
        return {part: batches for part, batches in acks.items() if part not in call.gathered.acked}

    async def _close(self, call: _Call, acks: Acks) -> None:
        """Close the client's session, and its sessions with all brokers."""
        self.sessions.close(call.session)
        async with call.session.turn:
            theirs, nowhere = call.session.acks_by_broker(await self._allowed(call, acks), self._leader)
            call.gathered.not_acknowledged(nowhere, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            await self._end(call, call.session.brokers, theirs)

    async def _end_former(self, call: _Call) -> None:
        """Close the sessions with all brokers of a session that another one replaced."""
        async with call.session.turn:
            await self._end(call, call.session.brokers, {})

    async def _end(self, call: _Call, brokers: Iterable[int], acks: dict[int, Acks]) -> None:
        """Close the sessions with some brokers."""
        some, session = [*brokers], call.session
        for broker in some:
            session.brokers[broker].epoch = FINAL
        await asyncio.gather(*(self._tell(call, broker, acks.get(broker, {})) for broker in some))
        for broker in some:
            session.brokers.pop(broker, None)

    async def _tell(self, call: _Call, broker: int, acks: Acks) -> None:
        """Send ShareAcknowledge to one broker."""
        with_broker = call.session.brokers[broker]
        epoch = with_broker.epoch
        topics, _ = with_broker.ask(with_broker.parts, acks)
        values: Values = {
            "group_id": call.fields["group_id"],
            "member_id": call.session.member,
            "share_session_epoch": epoch,
            "is_renew_ack": call.fields.get("is_renew_ack", False),
            "topics": topics,
        }
        try:
            answer = await asking.one(call.session.opener, broker, call.request, SHARE_ACKNOWLEDGE, values)
        except DisconnectedError:
            self._lost(call, broker, acks)
            self._refresh(acks)
            return
        if answer["error_code"]:
            self._failed(call, broker, acks, answer)
        else:
            self._hints.learn_shared(answer)
            call.gathered.take_acknowledged(answer)

    def _lost(self, call: _Call, broker: int, acks: Acks) -> None:
        call.session.brokers.pop(broker, None)
        call.gathered.not_acknowledged(acks, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _failed(self, call: _Call, broker: int, acks: Acks, answer: Values) -> None:
        """A broker refused a request as a whole. If it no longer has the session, the next request opens a new one."""
        code: int = answer["error_code"]
        call.session.brokers.pop(broker, None)
        call.gathered.not_acknowledged(acks, code)
        call.restarts += 1
        if code not in _RESTARTED or call.restarts > _RESTARTS:
            call.gathered.error, call.gathered.message = code, answer["error_message"]

    # Places -------------------------------------------------------------------------------------------------------

    async def _places(
        self, call: _Call, parts: Iterable[Part], *, look: bool = True
    ) -> tuple[dict[int, list[Part]], dict[int, list[Part]]]:
        """The partitions by leader, and refused ones by error code. `look`: look up unknown names and leaders."""
        parts = [*parts]
        asked = {} if look else _LOOKED_UP
        while missing := (routes := self._plan(call, parts, asked)).missing:
            asked |= await asking.look_up(self._upstream, missing)
        by_broker = {broker: [each.part.of for each in reads.values()] for broker, reads in routes.by_leader.items()}
        return by_broker, {code: [part.of for part in refused] for code, refused in routes.refused.items()}

    def _plan(self, call: _Call, parts: Iterable[Part], asked: Mapping[Fact, bool]) -> Routes[_Named]:
        """The verdicts on these partitions. `asked`: see `Facts`."""
        names = self._view.names
        named = [_Named(names.get(part[0]) or stand_in(part[0]), part[1], part) for part in parts]
        facts = facts_to_read(self._view, self._resolver, self._claims, call.client, named, asked, True)
        routes: Routes[_Named] = Routes()
        routes.add(named, plan(named, call.rule, facts))
        return routes

    def _leader(self, part: Part) -> int:
        return self._view.leader(self._view.names.get(part[0], b""), part[1])

    def _has_moved(self, session: ShareSession, broker: int) -> bool:
        """Whether a broker no longer leads the partitions of its session. If the client only forgot them all, it keeps
        their acquired records, and may acknowledge them.
        """
        return any(self._leader(part) != broker for part in session.brokers[broker].parts)

    def _withhold(self, call: _Call) -> None:
        """Remove records that the client may no longer read."""
        parts = [part for part, found in call.gathered.parts.items() if found.get("records")]
        refused = self._plan(call, parts, _LOOKED_UP).refused
        for code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_ID):
            gone = [part.of for part in refused.get(code, ())]
            call.gathered.refuse(gone, ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def _refresh(self, parts: Iterable[Part]) -> None:
        names = {name for topic_id, _ in parts if (name := self._view.names.get(topic_id))}
        if names:
            self._upstream.refresh_soon(names)
