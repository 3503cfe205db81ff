"""One client connection: its name as the client gives it, and its own connections upstream.

Upstream connections belong to one client, one per broker and lane it needs: a broker answers one request per
connection at a time, so a parked Fetch or JoinGroup on a shared one would stall others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Final, Protocol

from metadata.ownership import AccessMode
from sidecar.cluster.pools import Counted
from sidecar.cluster.resolver import ANONYMOUS
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.cluster.user_tokens import UserLogin
from sidecar.exclusive.identity import ClientIdentity
from sidecar.exclusive.producing import ProducingState
from sidecar.gateway.gaps import OrdinaryBatches
from sidecar.gateway.refusals import Refusals
from sidecar.gateway.rights import Rights
from sidecar.gateway.share_sessions import Sessions, ShareSession
from sidecar.network.aside import Allowance
from sidecar.network.backoff import ReconnectBackoff
from sidecar.network.client import ClientConnection
from sidecar.network.framing import Frame
from sidecar.network.handling import Pause
from sidecar.network.request import Request
from sidecar.network.upstream import Reply, UpstreamConnection, UpstreamLostError
from sidecar.protocol.api_versions import ClientSoftware
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.primitives import I16
from sidecar.protocol.session import Caller, Session
from sidecar.security.logins import Offer
from sidecar.shadow.views import Read

MAIN: Final = 0
"""The lane of a client's ordinary requests to one broker."""

_LAST_S: Final = 10.0
"""How long a connection to a broker stays that was opened for a request whose client has gone meanwhile."""
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
    """The broker that answered the last question which several could have answered (see `asking`)."""
    borrowed: UpstreamConnection | None = None
    """One of all clients' on which its request waits, that nobody wants answered once it is gone."""
    throttled: bool = False
    """Whether a broker kept it waiting by a quota, on a connection that it shared with others."""

    @property
    def are_many(self) -> bool:
        """Whether the clients of this node have so many that they are to share what they can."""
        return self.opened.are_many

    @property
    def user(self) -> str | None:
        """As whom its own connections log in at brokers: its principal. None: as the node."""
        if self._upstream.users is None:
            return None
        client: Client = self._client.state
        is_nobody = client.principal == ANONYMOUS and client.login is None  # one that logs in may have that name
        return None if is_nobody else client.principal

    def stands(self, broker_id: int) -> bool:
        """Whether there is a connection to a broker for ordinary requests."""
        return (broker_id, MAIN) in self._connections

    def to(self, broker_id: int, lane: int = MAIN, *, as_node: bool = False) -> UpstreamConnection:
        """The connection to a broker, opened if need be. `as_node`: for a shadow's source, which its principal need not
        be allowed to read. Raises `DisconnectedError` while the broker is left alone.
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
        if user is None or self._upstream.users is None:
            connection = self._upstream.open(self, address, self._client.answers)
        else:
            login = self._upstream.users.login(user, broker_id)
            connection = self._upstream.open(self, address, self._client.answers, login)
            self._logins[connection] = login
        connection.count(self._client.memory)
        self._connections[broker_id, lane] = connection
        self._keys[connection] = (broker_id, lane)
        self.opened.upstream_opened()
        if self._paused:
            connection.pause()
        if self._client.closed:  # what it asked for last shall arrive, but nobody calls `close` any more
            asyncio.get_running_loop().call_later(_LAST_S, connection.close, "its client is gone")
        return connection

    def divides(self, reads: Iterable[Read[Any]]) -> bool:
        """Whether some of these go by the principal's connection, others (shadows) by one of the node's."""
        return self._upstream.users is not None and len({read.is_renamed for read in reads}) > 1

    def drop(self, broker_id: int, lane: int) -> None:
        """Close one connection: what is parked on it is not wanted any more."""
        for each in (lane, ~lane):
            connection = self._connections.get((broker_id, each))
            if connection is not None:
                connection.close("not wanted any more")

    def rest(self, broker_id: int) -> None:
        """Close the connections for ordinary requests on which nothing is under way: its client reads elsewhere now."""
        for lane in (MAIN, ~MAIN):
            connection = self._connections.get((broker_id, lane))
            if connection is not None and not connection.unanswered and not self._unconfirmed.get(connection):
                connection.close("its client reads together with others")

    def unconfirmed(self, connection: UpstreamConnection, topics: Iterable[bytes]) -> None:
        """Records of these topics went out with acks=0: only closing the connection can show an error."""
        self._unconfirmed.setdefault(connection, set()).update(topics)

    def close(self) -> None:
        """The client is gone: no answer is wanted any more, but records that it sent with acks=0 shall arrive."""
        for connection in list(self._connections.values()):
            if self._unconfirmed.get(connection):
                connection.finish()
            else:
                connection.close("its client is gone")
        if self.borrowed is not None:
            self.borrowed.close("its client is gone")

    def client_full(self, full: bool) -> None:
        """Stop or go on reading answers, as the client's socket takes them."""
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
        if not self._full:  # later, when those that wait for answers know that they are lost
            asyncio.get_running_loop().call_soon(self._client.resume, Pause.UPSTREAM_FULL)
        key = self._keys.pop(connection, None)
        if key is None:
            return
        self.opened.upstream_closed()
        if self._connections.get(key) is connection:
            del self._connections[key]
        login = self._logins.pop(connection, None)
        if connection.failure is not None and (connection.stood or (login is not None and login.began)):
            # A broker hangs up on what it cannot read: that is between it and this client, nobody else waits for it.
            self._backoff.setdefault(key[0], ReconnectBackoff()).failed(_now())
        elif connection.failure is not None:
            self._upstream.connect_failed(key[0], connection.failure)
        topics = self._unconfirmed.pop(connection, None)
        if topics and connection.lost:
            # A broker refuses records with acks=0 by closing: pass that on, or the client would write into the void.
            self._upstream.refresh_soon(topics)
            self._client.close()
        if login is not None and login.problem is not None:
            self._client.reject("delegation_token", login.problem)


def _now() -> float:
    return asyncio.get_running_loop().time()


class LinkHooks(Counted, Protocol):
    """Called for every upstream connection of a client, and asked before."""

    @property
    def are_many(self) -> bool: ...


class ClientLogin:
    """The login of one connection. `expires_at`: Unix time in seconds at which its session ends, None for never."""

    __slots__ = ("asking", "began", "done", "expires_at", "mechanism", "offer", "timer")

    def __init__(self, timer: asyncio.TimerHandle) -> None:
        self.timer = timer
        self.done = False
        self.mechanism = ""
        self.offer: Offer | None = None
        self.expires_at: float | None = None
        self.began = 0.0
        self.asking: asyncio.Task[Any] | None = None
        """Asks for an exchange, and waits for its turn."""

    @property
    def stands(self) -> bool:
        """Whether it is done, not being renewed, and its session goes on."""
        return self.done and self.offer is None and (self.expires_at is None or time.time() < self.expires_at)

    def end(self) -> None:
        """The connection is gone."""
        self.timer.cancel()
        if self.asking is not None:
            self.asking.cancel()
        self.end_exchange()

    def end_exchange(self) -> None:
        """No message of the exchange under way is expected any more."""
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
    """The name of the one that it came through: answers name nodes by it (KIP-103)."""
    refusals: Refusals | None = None
    principal: str = ANONYMOUS
    login: ClientLogin | None = None
    """None where clients do not log in."""
    rights: Rights | None = None
    """What it may do by Kafka's ACLs; None where they are not enforced."""
    software: ClientSoftware = field(default_factory=ClientSoftware)
    identity: ClientIdentity | None = None
    identity_error: KafkaError | None = None
    bound_sessions: set[str] = field(default_factory=set[str])
    """The sessions `pid:N` that Own and Watch asked for on this connection."""
    _allowance: Allowance | None = None
    uses_own_apis: bool = False
    governed: ProducingState = field(default_factory=ProducingState)
    ordinary: OrdinaryBatches = field(default_factory=OrdinaryBatches)
    share_sessions: Sessions = field(default_factory=dict[tuple[str, str], ShareSession])

    def send(self, connection: UpstreamConnection, request: Request, reply: Reply | None) -> None:
        """Pass a whole request on as it is, but for its client id: upstream sees the bare name, so that quotas still
        match. The frame may be borrowed.
        """
        identity = self.identity
        if identity is None or not identity.has_settings:
            connection.send_frame(request.frame, reply)
            return
        name = identity.name.encode()
        request.own()
        rest = request.frame.view(request.body, request.frame.end)  # with the tags of a flexible header, as they came
        head = _HEAD.pack(8 + 2 + len(name) + len(rest), request.key, request.version, request.correlation_id)
        connection.send_parts([head + I16.pack(len(name)) + name, rest], reply)

    async def ask(self, broker_id: int, request: Request) -> Frame:
        """Pass an owned request on to one broker, and return its answer. Raises `DisconnectedError`."""
        waiter = AnswerWaiter(request.correlation_id)
        self.send(self.links.to(broker_id), request, waiter)
        return await waiter.future

    def note_refusal(self, topic: bytes, code: int, reason: str | None) -> None:
        """Remember for people what it was refused of a topic; b"" where that is of none."""
        if self.refusals is not None:
            client_id = b"" if self.identity is None else self.identity.raw
            self.refusals.note(client_id, self.connection.host, topic, code, reason)

    @property
    def has_claims(self) -> bool:
        """Whether it wrote to governed topics or claimed something: the end of its connection may cost it that."""
        return self.uses_own_apis or bool(self.governed.claimants)

    # What the room `exclusive` needs to know (its protocol `Producing`)

    @property
    def carries_ordinary(self) -> bool:
        return self.ordinary.were_sent

    @property
    def connection_id(self) -> int:
        return self.connection.id

    @property
    def caller(self) -> Caller:
        """Its principal, and what it calls itself without settings."""
        return Caller(self.principal, "" if self.identity is None else self.identity.shown)

    @property
    def allowance(self) -> Allowance:
        """What a thread opens of its batches; few have any that large."""
        if self._allowance is None:
            self._allowance = Allowance()
        return self._allowance

    @property
    def address(self) -> str:
        """Where the client is and what it runs, for people."""
        software = " ".join(filter(None, self.software))
        return f"{self.connection.peer} ({software})" if software else self.connection.peer

    def is_alive(self) -> bool:
        return not self.connection.closed

    def sever(self) -> None:
        """Close the connection: its holder loses what it owned by it (`sidecar.resources`)."""
        self.connection.close()

    @property
    def reader_name(self) -> str:
        """What the room `resources` knows it by: the name in its client.id, "" where that is none."""
        identity = self.identity
        return identity.name if identity is not None and identity.is_named else ""

    @property
    def producer(self) -> tuple[str, bool, AccessMode | None, int | None]:
        """Name as it is shown, whether it is one, and the mode and generation that the client.id asks for."""
        identity = self.identity
        if identity is None:
            return "", False, None, None
        return identity.shown, identity.is_named, identity.mode, identity.generation


class AnswerWaiter:
    """Waits for one answer to a request that a coroutine sent through a client's link. Implements `Reply`."""

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
