"""Requests that a coordinator answers: finds it, forwards the request, and splits one that names many groups or ids.

A lost coordinator is forgotten. It is also forgotten when a client sends FindCoordinator (see `metadata`), as clients
do after NOT_COORDINATOR. Failures on the way become 15 COORDINATOR_NOT_AVAILABLE, after which every client looks the
coordinator up again; messages to clients never name brokers.

Many consumer groups share a few connections to each coordinator (`GroupLinks`). Normally each client has its own broker
connections, because a broker answers the requests of a connection one after the other, and a JoinGroup waits for other
members. With thousands of groups that would be thousands of connections, each with a heartbeat every three seconds. So
once a node has `CROWD` connections for its clients, further clients use connections that all clients share.

A request has a shared connection for itself until it is answered (`sidecar.cluster.pools`), because a coordinator may
answer any of them late. A JoinGroup waits for other members, a SyncGroup for the leader's. All other requests for one
partition of __consumer_offsets, heartbeats included, wait until earlier writes to it are replicated: up to
offsets.commit.timeout.ms (5 seconds) if a replica hangs. Heartbeats of other groups behind them would be late, and
their members would be expelled.

Each request is forwarded unchanged, with its group's member id and generation, after all of it was read
(`asking.read_all`): a broker would close the connection for a malformed one. Large requests are not sent on shared
connections. Neither are those of a client that a broker has throttled: the broker stops reading its connection. A
shared connection with a throttled answer is closed.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from sidecar.cluster.resolver import NameResolver
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway import asking
from sidecar.gateway.client import AnswerWaiter, Client
from sidecar.network.framing import Frame
from sidecar.network.request import Exchange, Request
from sidecar.network.upstream import UpstreamConnection
from sidecar.protocol.caller import CoordinatorKind, DisconnectedError, UpstreamError
from sidecar.protocol.errors import STALE_COORDINATOR, ErrorCode, KafkaError
from sidecar.protocol.messages.by_key import MESSAGES
from sidecar.protocol.metadata import NO_OPERATIONS
from sidecar.protocol.primitives import I32
from sidecar.protocol.schema import Message, Values
from sidecar.resources.readers import ReaderClaims

_LOOKUPS_AT_ONCE: Final = 64
CROWD: Final = 500
"""The number of broker connections for clients from which on clients share some."""
LARGEST: Final = 4096
"""The largest request on a shared connection, in bytes: one per client may wait."""


class SharedLinks(NamedTuple):
    """The requests of an API may go on shared connections. `since`: the first version whose answers begin with the
    throttle time. `waits`: they wait for other members, for as long as the members' clients allow.
    """

    since: int
    waits: bool = False


class GroupLinks:
    """The connections for group requests of all clients of a node."""

    def __init__(self, upstream: KafkaUpstream, shared: Mapping[int, SharedLinks]) -> None:
        self._upstream = upstream
        self._shared = shared

    async def ask(self, client: Client, broker_id: int, request: Request) -> Frame:
        """The coordinator's answer. Raises `DisconnectedError`."""
        links, shared = client.links, self._shared.get(request.key)
        if (
            shared is None
            or links.user is not None
            or not links.are_many
            or links.stands(broker_id)
            or request.version < shared.since
            or links.throttled
            or not (shared.waits or request.frame.size <= LARGEST)
        ):
            return await client.ask(broker_id, request)
        pool, waits = self._upstream.pool(broker_id), shared.waits
        connection = await pool.take(links.opened, client.connection.answers, at_once=waits)
        if waits:
            if client.connection.closed:
                pool.give_back(connection)
                raise DisconnectedError("its client is gone", sent=False)
            links.borrowed = connection
        try:
            limit = None if waits else self._upstream.request_timeout
            answer = await self._ask(connection, client, request, limit)
            if _throttle_ms(request, answer):
                links.throttled = True
                connection.close("a broker does not read it for now")
        finally:
            links.borrowed = None
            pool.give_back(connection)
        return answer

    async def _ask(
        self, connection: UpstreamConnection, client: Client, request: Request, limit: float | None
    ) -> Frame:
        waiter = AnswerWaiter(request.correlation_id)
        client.send(connection, request, waiter)
        try:
            async with asyncio.timeout(limit):
                return await waiter.future
        except TimeoutError:
            connection.close(f"no answer within {limit:g} s")
            raise DisconnectedError(f"the coordinator did not answer within {limit:g} s", sent=True) from None


def _throttle_ms(request: Request, answer: Frame) -> int:
    """The throttle time, after length and correlation id, and an empty tag section in flexible versions."""
    flexible = MESSAGES[request.key].form(request.version).flexible
    found: int = I32.unpack_from(answer.buffer, answer.start + (9 if flexible else 8))[0]
    return found


class Coordinators:
    """The coordinators of groups and transactional ids upstream, for the requests of all clients."""

    def __init__(self, upstream: KafkaUpstream, shared: Mapping[int, SharedLinks]) -> None:
        """`shared`: the APIs whose requests may go on shared connections, by key."""
        self._upstream = upstream
        self._groups = GroupLinks(upstream, shared)

    async def find(self, key: str, kind: CoordinatorKind) -> int:
        """Returns the broker id. Raises `KafkaError` with the code for the client."""
        try:
            return await self._upstream.coordinator(key, kind)
        except UpstreamError:
            raise _unreachable() from None

    async def ask(self, client: Client, key: str, kind: CoordinatorKind, request: Request) -> Frame:
        """Forward a request unchanged, and return the answer. Raises `KafkaError` with the code for the client, and
        `MalformedFrameError`.
        """
        await asking.read_all(request)
        broker_id = await self.find(key, kind)
        try:
            if kind is CoordinatorKind.GROUP:
                return await self._groups.ask(client, broker_id, request)
            return await client.ask(broker_id, request)
        except DisconnectedError:
            self.lost(client, key, kind)
            raise _unreachable() from None

    def lost(self, client: Client, key: str, kind: CoordinatorKind) -> None:
        """Forget a coordinator that did not answer, so that it is looked up next time."""
        if not client.connection.closed:  # else the client disconnected, which closed the connection
            self._upstream.forget_coordinator(key, kind)

    def forget(self, key: str, kind: CoordinatorKind) -> None:
        """Forget a coordinator that answered NOT_COORDINATOR."""
        self._upstream.forget_coordinator(key, kind)

    async def by_broker(
        self, keys: list[str], kind: CoordinatorKind
    ) -> tuple[dict[int, list[str]], dict[str, KafkaError]]:
        """The keys by their coordinator's broker id, and the errors of keys without a coordinator."""
        found: dict[int, list[str]] = {}
        failed: dict[str, KafkaError] = {}
        for start in range(0, len(keys), _LOOKUPS_AT_ONCE):
            some = keys[start : start + _LOOKUPS_AT_ONCE]
            answers = await asyncio.gather(*(self.find(key, kind) for key in some), return_exceptions=True)
            for key, answer in zip(some, answers, strict=True):
                if isinstance(answer, KafkaError):
                    failed[key] = answer
                elif isinstance(answer, BaseException):
                    raise answer
                else:
                    found.setdefault(answer, []).append(key)
        return found, failed


def _unreachable() -> KafkaError:
    return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator cannot be reached")


@dataclass(frozen=True, slots=True)
class Keyed:
    """An API that names many keys, each with its own coordinator.

    `keys` is the list in the request, `results` the list in the answer, whose records name their key in `key`.
    `unknown`: the other fields of a record that only reports an error. `may_name`: why a client may not name a key.
    `named_by`: the key field of the request's elements, if they are records; of two with the same key the last counts.
    `topics_of`: the topics of a record; if an allow list hides one of them from the client, the whole record is
    replaced by an error with the message `said`.
    """

    keys: str
    results: str
    key: str
    unknown: Values = field(default_factory=dict[str, Any])
    may_name: Callable[[ReaderClaims, Client, str], KafkaError | None] = lambda _claims, _client, _key: None
    named_by: str = ""
    topics_of: Callable[[Values], Iterable[str]] = lambda _result: ()
    said: str = ""

    def refusal(self, key: str, error: KafkaError) -> Values:
        """A record that only reports an error."""
        return {self.key: key, "error_code": error.code, "error_message": error.message or None} | self.unknown


def descriptions(
    keys: str = "group_ids", topics_of: Callable[[Values], Iterable[str]] = lambda _group: (), said: str = ""
) -> Keyed:
    """An API that describes groups."""
    unknown = {"authorized_operations": NO_OPERATIONS}
    return Keyed(keys, "groups", "group_id", unknown, topics_of=topics_of, said=said)


@dataclass(frozen=True, slots=True)
class KeyedApi:
    """Handles a `Keyed` API: asks each coordinator once, and answers in the order of the request."""

    _coordinators: Coordinators
    _resolver: NameResolver
    _claims: ReaderClaims
    _message: Message
    _kind: CoordinatorKind
    _form: Keyed

    async def handle(self, client: Client, exchange: Exchange, request: Request) -> None:
        """Handle one request; a key named twice is requested and answered once."""
        form = self._form
        fields = await asking.fields(self._message, request)
        named: dict[str, Any] = {each[form.named_by] if form.named_by else each: each for each in fields[form.keys]}
        keys = list(named)
        refused = {key: error for key in keys if (error := form.may_name(self._claims, client, key)) is not None}
        brokers, failed = await self._coordinators.by_broker([key for key in keys if key not in refused], self._kind)
        answers = await asyncio.gather(
            *(
                self._ask(client, broker_id, request, fields | {form.keys: [named[key] for key in some]}, some)
                for broker_id, some in brokers.items()
            )
        )
        results: dict[str, Values] = {result[form.key]: result for answer in answers for result in answer[form.results]}
        for key, result in results.items() if self._resolver.has_guards else ():
            if any(self._resolver.hides(each.encode(), client.principal) for each in form.topics_of(result)):
                results[key] = form.refusal(key, KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, form.said))
        errors = failed | refused
        listed = [
            results[key] if key in results else form.refusal(key, errors.get(key) or _unreachable()) for key in keys
        ]
        for result in listed:
            if result["error_code"]:
                exchange.note_error(result["error_code"])
        throttle_ms = max((answer.get("throttle_time_ms", 0) for answer in answers), default=0)
        values: Values = {form.results: listed, "throttle_time_ms": throttle_ms}
        await asking.answer(exchange, self._message, values)

    async def _ask(self, client: Client, broker_id: int, request: Request, fields: Values, keys: list[str]) -> Values:
        """One coordinator's answer about its keys; empty if it is lost."""
        form, kind = self._form, self._kind
        try:
            answer = await asking.one(client, broker_id, request, self._message, fields)
        except DisconnectedError:
            for key in keys:
                self._coordinators.lost(client, key, kind)
            return {form.results: []}
        for result in answer[form.results]:
            if result["error_code"] in STALE_COORDINATOR:
                self._coordinators.forget(result[form.key], kind)
        return answer
