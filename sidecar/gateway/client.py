"""One client connection: its identity, and its own connections upstream.

Each client has its own upstream connections, one per broker and lane that it needs: a broker answers one request per
connection at a time, so a parked Fetch or JoinGroup on a shared connection would delay other clients.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Final, NamedTuple, Protocol

from metadata.ownership import AccessMode
from sidecar.cluster.pools import Counted
from sidecar.cluster.resolver import ANONYMOUS
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.cluster.user_tokens import UserLogin
from sidecar.exclusive.producing import ProducingState
from sidecar.gateway.gaps import OrdinaryBatches
from sidecar.gateway.refusals import Refusals
from sidecar.gateway.rights import Rights
from sidecar.network.aside import Allowance
from sidecar.network.backoff import ReconnectBackoff
from sidecar.network.client import ClientConnection
from sidecar.network.framing import Frame
from sidecar.network.handling import Pause
from sidecar.network.request import Exchange, Request
from sidecar.network.upstream import Reply, UpstreamConnection, UpstreamLostError
from sidecar.policy.identity import ClientIdentity
from sidecar.protocol.api_versions import ClientSoftware
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.primitives import I16
from sidecar.protocol.session import Caller, Session
from sidecar.resources.readers import Reader
from sidecar.security.logins import Offer
from sidecar.shadow.views import Read

MAIN: Final = 0
"""The lane of a client's ordinary requests to one broker."""

MOST_FETCHED: Final = 2**31 - 1
"""The limit of a Fetch, in bytes, without a quota."""
_LAST_S: Final = 10.0
"""How long a broker connection stays open, in seconds, if it was opened after its client had disconnected."""
_HEAD: Final = Struct(">ihhi")


@dataclass(slots=True, eq=False)
class ClientLinks:
    """A client's connections upstream, by broker and lane. Implements `sidecar.network.upstream.Owner`."""

    _client: ClientConnection
    _upstream: KafkaUpstream
    opened: LinkHooks
    _connections: dict[tuple[int, int], UpstreamConnection] = field(
        default_factory=dict[tuple[int, int], UpstreamConnection]
    )
    _keys: dict[UpstreamConnection, tuple[int, int]] = field(default_factory=dict[UpstreamConnection, tuple[int, int]])
    _logins: dict[UpstreamConnection, UserLogin] = field(default_factory=dict[UpstreamConnection, UserLogin])
    _full: set[UpstreamConnection] = field(default_factory=set[UpstreamConnection])
    _backoff: dict[int, ReconnectBackoff] = field(default_factory=dict[int, ReconnectBackoff])
    _unconfirmed: dict[UpstreamConnection, set[bytes]] = field(default_factory=dict[UpstreamConnection, set[bytes]])
    _paused: bool = False
    recent: int | None = None
    """The broker that answered the last request that any of several brokers could answer (see `asking`)."""
    borrowed: UpstreamConnection | None = None
    """The shared connection on which a request of this client waits; closed if the client disconnects."""
    throttled: bool = False
    """Whether a broker throttled the client on a shared connection."""

    @property
    def are_many(self) -> bool:
        """Whether this node's clients have so many broker connections that they should share some."""
        return self.opened.are_many

    @property
    def user(self) -> str | None:
        """The principal as which the client's own connections log in at brokers; None: the node's."""
        if self._upstream.users is None:
            return None
        client: Client = self._client.state
        is_nobody = client.principal == ANONYMOUS and client.login is None  # a client that logs in may have this name
        return None if is_nobody else client.principal

    def stands(self, broker_id: int) -> bool:
        """Whether there is a connection to a broker for ordinary requests."""
        return (broker_id, MAIN) in self._connections

    def to(self, broker_id: int, lane: int = MAIN, *, as_node: bool = False) -> UpstreamConnection:
        """Returns the connection to a broker, opened if necessary. `as_node`: log in as the node, to read a shadow's
        source, which the client's principal may not be allowed to read. Raises `DisconnectedError` if the node may not
        open a connection now (open files, a recent failure).
        """
        if as_node and self._upstream.users is not None:
            lane = ~lane
        connection = self._connections.get((broker_id, lane))
        if connection is not None:
            return connection
        if not self.opened.may_open():
            raise DisconnectedError("too many files are open for another connection to a broker", sent=False)
        address = self._upstream.address(broker_id)
        own = self._backoff.get(broker_id)
        if not self._upstream.may_connect(broker_id) or (own is not None and _now() < own.not_before):
            raise DisconnectedError(f"broker {broker_id} failed a moment ago", sent=False)
        user = None if lane < MAIN else self.user
        users = self._upstream.users
        login = None if user is None or users is None else users.login(user, broker_id)
        connection = self._upstream.open(self, address, self._client.answers, login, self._client.memory)
        if login is not None:
            self._logins[connection] = login
        self._connections[broker_id, lane] = connection
        self._keys[connection] = (broker_id, lane)
        self.opened.upstream_opened()
        if self._paused:
            connection.pause()
        if self._client.closed:  # its last request shall arrive; `close` is not called again
            asyncio.get_running_loop().call_later(_LAST_S, connection.close, "its client is gone")
        return connection

    def divides(self, reads: Iterable[Read[Any]]) -> bool:
        """Whether some of these reads need the principal's connection and others (shadows) the node's."""
        return self._upstream.users is not None and len({read.is_renamed for read in reads}) > 1

    def drop(self, broker_id: int, lane: int) -> None:
        """Close the connection of a lane: its parked request is obsolete."""
        for each in (lane, ~lane):
            connection = self._connections.get((broker_id, each))
            if connection is not None:
                connection.close("not wanted any more")

    def rest(self, broker_id: int) -> None:
        """Close the idle connections for ordinary requests to a broker: the client now shares the node's polls."""
        for lane in (MAIN, ~MAIN):
            connection = self._connections.get((broker_id, lane))
            if connection is not None and not connection.unanswered and not self._unconfirmed.get(connection):
                connection.close("its client reads together with others")

    def unconfirmed(self, connection: UpstreamConnection, topics: Iterable[bytes]) -> None:
        """Note that records of these topics were sent with acks=0: a broker can report an error only by closing."""
        self._unconfirmed.setdefault(connection, set()).update(topics)

    def close(self) -> None:
        """Close all connections because the client has disconnected; records that it sent with acks=0 still arrive."""
        for connection in list(self._connections.values()):
            if self._unconfirmed.get(connection):
                connection.finish()
            else:
                connection.close("its client is gone")
        if self.borrowed is not None:
            self.borrowed.close("its client is gone")

    def client_full(self, full: bool) -> None:
        """Pause or resume reading of answers while the client's socket is full."""
        self._paused = full
        for connection in self._connections.values():
            if full:
                connection.pause()
            else:
                connection.resume()

    # Owner --------------------------------------------------------------------------------------------------------

    def upstream_opened(self, connection: UpstreamConnection) -> None:
        key = self._keys.get(connection)
        if key is not None:
            self._upstream.connect_succeeded(key[0])
            self._backoff.pop(key[0], None)

    def upstream_full(self, connection: UpstreamConnection, full: bool) -> None:
        if full:
            self._full.add(connection)
            self._client.pause(Pause.UPSTREAM_FULL)
        else:
            self._full.discard(connection)
            if not self._full:
                self._client.resume(Pause.UPSTREAM_FULL)

    def upstream_closed(self, connection: UpstreamConnection) -> None:
        self._full.discard(connection)
        if not self._full:  # later, after waiting requests have been notified of the loss
            asyncio.get_running_loop().call_soon(self._client.resume, Pause.UPSTREAM_FULL)
        key = self._keys.pop(connection, None)
        if key is None:
            return
        self.opened.upstream_closed()
        if self._connections.get(key) is connection:
            del self._connections[key]
        login = self._logins.pop(connection, None)
        if connection.failure is not None and (connection.stood or (login is not None and login.began)):
            # The broker closes on requests that it cannot read: only this client backs off, not the others.
            self._backoff.setdefault(key[0], ReconnectBackoff()).failed(_now())
        elif connection.failure is not None:
            self._upstream.connect_failed(key[0], connection.failure)
        topics = self._unconfirmed.pop(connection, None)
        if topics and connection.lost:
            # A broker refuses records with acks=0 by closing. The client is disconnected too, or it would not notice.
            self._upstream.refresh_soon(topics)
            self._client.close()
        if login is not None and login.problem is not None:
            self._client.reject("delegation_token", login.problem)


def _now() -> float:
    return asyncio.get_running_loop().time()


class LinkHooks(Counted, Protocol):
    """Called before and after each upstream connection of a client is opened, and after it is closed."""

    @property
    def are_many(self) -> bool: ...


class ClientLogin:
    """The login of one connection. `expires_at`: Unix time in seconds at which its session ends; None: never."""

    __slots__ = ("asking", "began", "done", "expires_at", "mechanism", "offer", "timer")

    def __init__(self, timer: asyncio.TimerHandle) -> None:
        self.timer = timer
        self.done = False
        self.mechanism = ""
        self.offer: Offer | None = None
        self.expires_at: float | None = None
        self.began = 0.0
        self.asking: asyncio.Task[Any] | None = None
        """The task that requests an exchange, and may wait for its turn."""

    @property
    def stands(self) -> bool:
        """Whether the login is complete, is not being renewed, and has not expired."""
        return self.done and self.offer is None and (self.expires_at is None or time.time() < self.expires_at)

    def end(self) -> None:
        """Clean up after the connection has closed."""
        self.timer.cancel()
        if self.asking is not None:
            self.asking.cancel()
        self.end_exchange()

    def end_exchange(self) -> None:
        """End the current exchange, if any."""
        if self.offer is not None:
            self.offer.close()
            self.offer = None


@dataclass(slots=True, eq=False)
class Client:
    """The state of one client connection on this node."""

    connection: ClientConnection
    links: ClientLinks
    session: Session
    listener: str = ""
    """The name of the client's listener: answers give the nodes' addresses for it (KIP-103)."""
    refusals: Refusals | None = None
    principal: str = ANONYMOUS
    login: ClientLogin | None = None
    """None if clients do not log in at this listener."""
    rights: Rights | None = None
    """Its rights by Kafka's ACLs; None if they are not enforced."""
    software: ClientSoftware = field(default_factory=ClientSoftware)
    identity: ClientIdentity | None = None
    identity_error: KafkaError | None = None
    bound_sessions: set[str] = field(default_factory=set[str])
    """The sessions `pid:N` that Own and Watch requests named on this connection."""
    most_fetched: int = MOST_FETCHED
    """The most bytes that one of its Fetches may bring from a poll of the node, by its quota."""
    _allowance: Allowance | None = None
    uses_own_apis: bool = False
    governed: ProducingState = field(default_factory=ProducingState)
    ordinary: OrdinaryBatches = field(default_factory=OrdinaryBatches)

    def send(self, connection: UpstreamConnection, request: Request, reply: Reply | None) -> None:
        """Forward a request unchanged, except for its client id: upstream sees it without settings, so that quotas
        match. The frame may be borrowed.
        """
        assert request.is_read, "what the node has not read may ask for more than the client may have"
        identity = self.identity
        if identity is None or not identity.has_settings:
            connection.send_frame(request.frame, reply)
            return
        name = identity.name.encode()
        request.own()
        rest = request.frame.view(request.body, request.frame.end)  # with the tags of a flexible header, unchanged
        head = _HEAD.pack(8 + 2 + len(name) + len(rest), request.key, request.version, request.correlation_id)
        connection.send_parts([head + I16.pack(len(name)) + name, rest], reply)

    async def ask(self, broker_id: int, request: Request) -> Frame:
        """Forward an owned request (`asking.read_all`) to one broker, and return its answer. Raises
        `DisconnectedError`.
        """
        waiter = AnswerWaiter(request.correlation_id)
        self.send(self.links.to(broker_id), request, waiter)
        return await waiter.future

    def note_refusal(self, topic: bytes, code: int, reason: str | None) -> None:
        """Store a refusal for display (`Refusals`). `topic`: b"" if the refusal concerns none."""
        if self.refusals is not None:
            client_id = b"" if self.identity is None else self.identity.raw
            self.refusals.note(client_id, self.connection.host, topic, code, reason)

    @property
    def is_known(self) -> bool:
        """Whether the client has logged in, if it has to: before that its principal stands for nobody."""
        return self.login is None or self.login.done

    @property
    def has_claims(self) -> bool:
        """Whether the client wrote to governed topics or used the sidecar's own APIs: it may lose claims on closing."""
        return self.uses_own_apis or bool(self.governed.claimants)

    # For the room `exclusive` (its protocol `Producing`)

    @property
    def carries_ordinary(self) -> bool:
        return self.ordinary.were_sent

    @property
    def connection_id(self) -> int:
        return self.connection.id

    @property
    def caller(self) -> Caller:
        """The client's principal, and its client.id without settings."""
        return Caller(self.principal, "" if self.identity is None else self.identity.shown)

    @property
    def allowance(self) -> Allowance:
        """Limits how many bytes of this client's batches threads decompress; created at first use."""
        if self._allowance is None:
            self._allowance = Allowance()
        return self._allowance

    @property
    def address(self) -> str:
        """The client's address and software, for display."""
        software = " ".join(filter(None, self.software))
        return f"{self.connection.peer} ({software})" if software else self.connection.peer

    def is_alive(self) -> bool:
        return not self.connection.closed

    def sever(self) -> None:
        """Close the connection: its client loses the claims that it held by it (`sidecar.resources`)."""
        self.connection.close()

    @property
    def reader(self) -> Reader:
        """What decides on its right to read and to commit."""
        identity = self.identity
        name = identity.name if identity is not None and identity.is_named else ""
        return Reader(self.session, name, self.bound_sessions, self.principal)

    @property
    def producer(self) -> tuple[str, bool, AccessMode | None, int | None]:
        """The displayed name, whether it is a real name, and the mode and generation that the client.id requests."""
        identity = self.identity
        if identity is None:
            return "", False, None, None
        return identity.shown, identity.is_named, identity.mode, identity.generation


class AnswerWaiter:
    """Waits for the answer to a request that a coroutine sent on a client's upstream connection. Implements `Reply`."""

    __slots__ = ("correlation_id", "future")

    def __init__(self, correlation_id: int) -> None:
        self.correlation_id = correlation_id
        self.future: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()

    def answer_received(self, frame: Frame) -> None:
        if not self.future.done():
            self.future.set_result(frame.own())

    def answer_lost(self, error: UpstreamLostError) -> None:
        if not self.future.done():
            self.future.set_exception(DisconnectedError(str(error), sent=error.sent))


HotApi = Callable[[Client, Request], None]
"""Handles a request within the call. It has to own a request that it keeps longer (`Request.own`)."""

ColdApi = Callable[[Client, Exchange, Request], Awaitable[None]]
"""Handles an owned request and answers the exchange."""


class Apis(NamedTuple):
    """The handlers of requests by API key."""

    hot: dict[int, HotApi]
    cold: dict[int, ColdApi]
