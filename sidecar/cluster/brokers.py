"""The node's own connections to brokers: one per broker and channel, opened when first needed. This module also chooses
the broker for a request, and has the addresses and the reconnect backoff that clients' connections share. Only
`ask_any` tries again, at other brokers.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final

from sidecar.cluster.hedging import PATIENCE_S, Hedged
from sidecar.cluster.pools import Pool
from sidecar.cluster.user_tokens import UserLogin, UserTokens
from sidecar.cluster.view import ClusterView
from sidecar.network.backoff import ReconnectBackoff
from sidecar.network.framing import Frame
from sidecar.network.memory import RequestMemory
from sidecar.network.slices import in_slices
from sidecar.network.unread import AnswerMemory
from sidecar.network.upstream import Owner, UpstreamConnection, UpstreamLostError
from sidecar.protocol.api import api_name
from sidecar.protocol.caller import (
    SHARED_CHANNEL,
    AnswerT,
    BadAnswerError,
    CallTimeoutError,
    Channel,
    DisconnectedError,
    Request,
    SecondT,
    encode_frame,
    frame_steps,
)
from sidecar.security.broker_access import PLAIN_TCP, BrokerAccess

CLIENT_ID: Final = "sidecar"
_SILENT_S: Final = 5.0
_BOOTSTRAP: Final = -1000
"""Connection keys of bootstrap addresses count down from here; broker ids are never negative."""


@dataclass(slots=True, eq=False)
class _Waiter:
    """A `Reply` that sets the whole answer as a future's result. `asked_at` is the loop's time in seconds."""

    correlation_id: int
    connection: UpstreamConnection
    future: asyncio.Future[Frame]
    asked_at: float

    def answer_received(self, frame: Frame) -> None:
        if not self.future.done():
            self.future.set_result(frame.own())

    def answer_lost(self, error: UpstreamLostError) -> None:
        if not self.future.done():
            self.future.set_exception(DisconnectedError(str(error), sent=error.sent))


@dataclass(eq=False)
class Brokers:
    """Connections to the brokers of one cluster. Timeouts in seconds; `access`: TLS and login of new connections, or
    neither; `view`: the newest metadata of the cluster.
    """

    bootstrap: list[tuple[str, int]]
    _: KW_ONLY
    connect_timeout: float
    request_timeout: float
    access: BrokerAccess = PLAIN_TCP

    def __post_init__(self) -> None:
        self.users: UserTokens | None = None
        """Set before the first client connects, if connections for clients log in at brokers as the client's principal.
        """
        self.view = ClusterView()
        self.on_connection_error: Callable[[int, str], None] = lambda broker, reason: None
        self._seeds = [_BOOTSTRAP - index for index in range(len(self.bootstrap))]
        self._hedged = Hedged()
        self._random = random.Random()
        self._connections: dict[tuple[int, Channel], UpstreamConnection] = {}
        self._pools: dict[int, Pool] = {}
        self._backoff: dict[int, ReconnectBackoff] = {}
        self._silent: dict[int, float] = {}
        self._correlation = 0

    # Addresses and backoff ----------------------------------------------------------------------------------------

    def address(self, broker_id: int) -> tuple[str, int]:
        """Return host and port of a broker. Raises `DisconnectedError` if it is not known."""
        if broker_id <= _BOOTSTRAP:
            return self.bootstrap[_BOOTSTRAP - broker_id]
        broker = self.view.brokers.get(broker_id)
        if broker is None:
            raise DisconnectedError(f"broker {broker_id} is not known", sent=False)
        return broker.host, broker.port

    def open(
        self,
        owner: Owner,
        address: tuple[str, int],
        answers: AnswerMemory | None = None,
        login: UserLogin | None = None,
        requests: RequestMemory | None = None,
    ) -> UpstreamConnection:
        """Return a new connection, which starts to connect. `answers`, `requests`: the memory for large answers to a
        client and for its requests. `login`: the login to use, None for the node's own.
        """
        access = self.access if login is None else BrokerAccess(self.access.tls, login)
        connection = UpstreamConnection(
            owner, address, self.connect_timeout, access, requests=requests, answers=answers
        )
        connection.open()
        return connection

    def open_without_login(self, owner: Owner, address: tuple[str, int]) -> UpstreamConnection:
        """Return a new connection with the same TLS as all others, on which the caller logs in."""
        access = BrokerAccess(self.access.tls)
        connection = UpstreamConnection(owner, address, self.connect_timeout, access)
        connection.open()
        return connection

    def may_connect(self, broker_id: int) -> bool:
        """Return False during the backoff after a failed connect (exponential, with jitter, at most 2 s)."""
        backoff = self._backoff.get(broker_id)
        return backoff is None or asyncio.get_running_loop().time() >= backoff.not_before

    def connect_failed(self, broker_id: int, reason: str) -> None:
        """Note a failed attempt to connect; the next one has to wait longer."""
        backoff = self._backoff.setdefault(broker_id, ReconnectBackoff(self._random))
        now = asyncio.get_running_loop().time()
        if now >= backoff.not_before:
            backoff.failed(now)
        backoff.reason = reason
        self.on_connection_error(broker_id, reason)

    def forget_connection(self, key: tuple[int, Channel], connection: UpstreamConnection) -> None:
        """Remove one of the node's own connections, which has closed."""
        if self._connections.get(key) is connection:
            del self._connections[key]

    def connect_succeeded(self, broker_id: int) -> None:
        self._backoff.pop(broker_id, None)

    def live_broker(self, asked: Collection[int] = ()) -> int:
        """Return a broker that is likely to answer soon; one that is in `asked` only if there is no other.

        In this order: a broker without an overdue answer to which this node is connected, a broker or bootstrap address
        that is not in backoff, any.
        """
        brokers = [broker for broker in self.view.brokers if broker not in asked]
        self._random.shuffle(brokers)
        seeds = [seed for seed in self._seeds if seed not in asked]
        self._random.shuffle(seeds)
        prompt = [broker for broker in brokers if not self._is_overdue(broker)]
        choices = (
            (broker for broker in prompt if self._is_connected(broker)),
            (broker for broker in (*prompt, *seeds) if self.may_connect(broker)),
            (*brokers, *seeds, *self._seeds),
        )
        return next(broker for choice in choices for broker in choice)

    def _is_connected(self, broker_id: int) -> bool:
        found = self._connections.get((broker_id, SHARED_CHANNEL))
        return found is not None and found.connected

    def _is_overdue(self, broker_id: int) -> bool:
        """Whether an answer is so late that other brokers should be asked instead."""
        if self._silent.get(broker_id, 0.0) > asyncio.get_running_loop().time():
            return True
        found = self._connections.get((broker_id, SHARED_CHANNEL))
        reply = found.oldest_unanswered if found is not None else None
        return isinstance(reply, _Waiter) and asyncio.get_running_loop().time() - reply.asked_at > PATIENCE_S

    def fell_silent(self, broker_id: int) -> None:
        """Prefer other brokers for 5 s: this one did not answer a question that any broker can answer."""
        self._silent[broker_id] = asyncio.get_running_loop().time() + _SILENT_S

    async def ask_any(self, request: Request[AnswerT]) -> AnswerT:
        """Return the first answer of any broker; only for requests that change nothing and that all answer alike."""
        return (await self.ask_some(request))[1]

    async def ask_some(self, request: Request[AnswerT]) -> tuple[int, AnswerT]:
        """As `ask_any`, with the broker that answered; negative for a bootstrap address."""
        limit = 1 + len(self.view.brokers) + len(self._seeds)

        def choose(asked: Collection[int]) -> int | None:
            return self.live_broker(asked) if len(asked) < limit else None

        async def ask(broker: int) -> tuple[int, AnswerT]:
            return broker, await self.call(broker, request)

        return await self._hedged.first_answer(ask, choose)

    def controller(self) -> int:
        """Return the broker for changes: upstream's controller if it is usable, else any."""
        controller = self.view.controller
        usable = controller in self.view.brokers and self.may_connect(controller) and not self._is_overdue(controller)
        return controller if usable else self.live_broker()

    # Calls --------------------------------------------------------------------------------------------------------

    def connection(self, broker_id: int, channel: Channel) -> UpstreamConnection:
        """Return the node's own connection to a broker for a channel; open it if needed. Raises `DisconnectedError`."""
        key = broker_id, channel
        found = self._connections.get(key)
        address = self.address(broker_id)
        if found is not None and not found.closed and found.address == address:
            return found
        if not self.may_connect(broker_id):
            reason = self._backoff[broker_id].reason
            raise DisconnectedError(f"{_name(broker_id)} failed a moment ago: {reason}", sent=False)
        if found is not None:
            found.close("the broker moved")
        connection = self._connections[key] = self.open(_ConnectionReporter(self, key), address)
        return connection

    def pool(self, broker_id: int) -> Pool:
        """Return the pool of connections to a broker that clients share."""
        found = self._pools.get(broker_id)
        if found is None:
            found = self._pools[broker_id] = Pool(self, broker_id)
        return found

    def _send(self, connection: UpstreamConnection, request: Request[Any]) -> _Waiter:
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        loop = asyncio.get_running_loop()
        waiter = _Waiter(self._correlation, connection, loop.create_future(), loop.time())
        connection.send_parts([encode_frame(request, self._correlation, CLIENT_ID)], waiter)
        return waiter

    async def _answer(self, waiter: _Waiter, request: Request[AnswerT], timeout: float | None) -> AnswerT:
        limit, connection = self.request_timeout if timeout is None else timeout, waiter.connection
        try:
            async with asyncio.timeout(limit):
                frame = await waiter.future
        except TimeoutError:
            connection.close(f"no answer within {limit:g} s")
            host, port = connection.address
            raise CallTimeoutError(
                f"{host}:{port} did not answer {api_name(request.api_key)} within {limit:g} s"
            ) from None
        try:
            steps = frame_steps(request, waiter.correlation_id, frame.buffer, frame.start + 4, frame.end)
            return await in_slices(steps)
        except BadAnswerError:
            connection.close("an answer that makes no sense")
            raise

    async def call(
        self,
        broker_id: int | None,
        request: Request[AnswerT],
        *,
        timeout: float | None = None,
        channel: Channel = SHARED_CHANNEL,
    ) -> AnswerT:
        """See `Upstream.call`."""
        connection = self.connection(self.live_broker() if broker_id is None else broker_id, channel)
        return await self._answer(self._send(connection, request), request, timeout)

    async def call_pair(
        self,
        broker_id: int,
        first: Request[AnswerT],
        second: Request[SecondT],
        *,
        timeout: float | None = None,
        channel: Channel = SHARED_CHANNEL,
    ) -> tuple[AnswerT, SecondT]:
        """See `Upstream.call_pair`: both are sent in one write, as an outbox is flushed once per loop turn."""
        connection = self.connection(broker_id, channel)
        sent_first = self._send(connection, first)
        sent_second = self._send(connection, second)
        try:
            answer = await self._answer(sent_first, first, timeout)
        except BaseException:
            sent_second.future.cancel()
            raise
        return answer, await self._answer(sent_second, second, timeout)

    async def close_connections(self) -> None:
        """Close all connections; calls under way fail with `DisconnectedError`."""
        if self.users is not None:
            await self.users.close()
        for connection in list(self._connections.values()):
            connection.close()
        for pool in self._pools.values():
            pool.close()
        if self.access.credentials is not None:
            await self.access.credentials.close()


class _ConnectionReporter:
    """Reports the events of one of the node's own connections to `Brokers`."""

    __slots__ = ("_brokers", "_key")

    def __init__(self, brokers: Brokers, key: tuple[int, Channel]) -> None:
        self._brokers = brokers
        self._key = key

    def upstream_opened(self, connection: UpstreamConnection) -> None:
        self._brokers.connect_succeeded(self._key[0])

    def upstream_full(self, connection: UpstreamConnection, full: bool) -> None:
        """Do nothing: the node's own calls are few and small, so none is held back."""

    def upstream_closed(self, connection: UpstreamConnection) -> None:
        brokers = self._brokers
        if connection.failure is not None:
            brokers.connect_failed(self._key[0], connection.failure)
        brokers.forget_connection(self._key, connection)


def _name(broker_id: int) -> str:
    return f"broker {broker_id}" if broker_id >= 0 else "every bootstrap server"
