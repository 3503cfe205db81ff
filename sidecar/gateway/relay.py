"""Logins of clients that a broker checks: each on its own broker connection, with unchanged messages.

The node stores only the name in the first message; it becomes the client's principal if the broker accepts the login.
With a delegation token (KIP-48) the client becomes the token's owner, whom the same broker names to the node.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Final

from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway.client import AnswerWaiter
from sidecar.network.places import Places
from sidecar.network.tasks import take_failure
from sidecar.network.upstream import UpstreamConnection
from sidecar.protocol.caller import AnswerT, DisconnectedError, Request, UpstreamError, decode_frame, encode_frame
from sidecar.protocol.calls.security import DescribeTokenOwners, OfferedMechanisms, SaslAuthenticate, SaslHandshake
from sidecar.protocol.errors import KafkaError
from sidecar.security.errors import LoginError
from sidecar.security.logins import Claimed, Offer, claimed_name
from sidecar.security.mechanisms import OAUTHBEARER, PLAIN
from sidecar.security.servers import Identity, refusal

_TRIES: Final = 3
_ASK_S: Final = 1.0
"""Seconds between two requests to a broker for the owners of all tokens."""
_AT_ONCE: Final = 64
"""The limit of concurrent logins, each with a broker connection. Others wait, within a client's time for its login."""
_CLIENT_ID: Final = "sidecar"
_USER: Final = "User:"


class RelayedLogins:
    """An `Authenticator` that asks brokers. `allowed`: the mechanisms that clients may use; `claim` names a token's
    principal. `at_once`: the limit of concurrent logins; of one address, a quarter of it.
    """

    def __init__(self, upstream: KafkaUpstream, allowed: Collection[str], claim: str, at_once: int = _AT_ONCE) -> None:
        self.places = Places(at_once)
        self._upstream = upstream
        self._allowed = allowed
        self._claim = claim
        self._token_owners = _TokenOwners(upstream)

    @property
    def under_way(self) -> int:
        """See `Authenticator`."""
        return self.places.taken

    @property
    def waiting(self) -> int:
        """See `Authenticator`."""
        return self.places.waiting

    async def begin(self, mechanism: str, host: str) -> Offer:
        """See `Authenticator`."""
        asked: list[int] = []
        while True:
            broker = self._upstream.live_broker(asked)
            asked.append(broker)
            await self.places.take(host)
            try:
                link = _Link(self._upstream, broker, partial(self.places.give_back, host))
            except BaseException:
                self.places.give_back(host)
                raise
            try:
                offered = await link.ask(SaslHandshake(mechanism))
            except DisconnectedError:
                if len(asked) == _TRIES:
                    raise
                continue
            except BaseException:
                link.close()
                raise
            mechanisms = tuple(name for name in offered.mechanisms if name in self._allowed)
            if offered.error or mechanism not in mechanisms:
                link.close()
                return Offer(mechanisms, None)
            return Offer(
                mechanisms, _Relayed(link, mechanism, self._claim, partial(self._token_owners.of, broker)), link.close
            )

    async def close(self) -> None:
        """See `Authenticator`. Exchanges end with their clients' connections."""
        self._token_owners.close()


async def mechanisms_of(upstream: KafkaUpstream, broker: int, mechanism: str) -> OfferedMechanisms:
    """A broker's answer to SaslHandshake, on a connection without a login. Raises DisconnectedError, BadAnswerError."""
    link = _Link(upstream, broker, lambda: None)
    try:
        return await link.ask(SaslHandshake(mechanism))
    finally:
        link.close()


async def lacking(upstream: KafkaUpstream, mechanism: str) -> tuple[list[tuple[str, str]], int]:
    """The brokers that do not offer a mechanism for delegation tokens, each as a text with a remedy, and the number of
    brokers that do. A broker that does not answer counts as neither.
    """
    lacks: list[tuple[str, str]] = []
    remedy = (
        "add it to sasl.enabled.mechanisms of that listener, or set SIDECAR_KAFKA_DELEGATION_TOKENS to one that the"
        " broker offers"
    )
    offers = 0
    for broker in sorted(await upstream.brokers()):
        try:
            offered = await mechanisms_of(upstream, broker, mechanism)
        except UpstreamError:
            continue
        if not offered.error:
            offers += 1
            continue
        host, port = upstream.address(broker)
        problem = (
            f"broker {broker} at {host}:{port} offers {', '.join(offered.mechanisms) or 'no login'}, and not"
            f" {mechanism}, by which clients' connections log in with delegation tokens"
        )
        lacks.append((problem, remedy))
    return lacks, offers


class _TokenOwners:
    """The owners of delegation tokens. A token never changes its owner, so a known owner stays valid.

    An answer lists every token that the node may describe. A client with a missing token could cause a request by each
    login, so a broker is asked at most once in `_ASK_S` seconds, for all clients that have come until then. Tokens that
    a broker refuses are never looked up.
    """

    def __init__(self, upstream: KafkaUpstream) -> None:
        self._upstream = upstream
        self._known: Mapping[str, str] = {}
        self._asked_at: dict[int, float] = {}
        self._next: dict[int, asyncio.Task[None]] = {}
        """By broker, the request that has not been sent yet."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def of(self, broker: int, token_id: str) -> str | None:
        """The name of a token's owner; None if the broker names none. Raises UpstreamError."""
        if token_id not in self._known:
            asking = self._next.get(broker)
            if asking is None:
                asking = self._next[broker] = asyncio.get_running_loop().create_task(self._ask(broker))
                self._tasks.add(asking)
                asking.add_done_callback(self._asked)
            await asyncio.shield(asking)
        owner = self._known.get(token_id, "")
        return owner.removeprefix(_USER) if owner.startswith(_USER) else None

    async def _ask(self, broker: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            await asyncio.sleep(self._asked_at.get(broker, -_ASK_S) + _ASK_S - loop.time())
        finally:
            del self._next[broker]  # a client that comes from now on needs a later answer
        self._asked_at[broker] = loop.time()
        answer = await self._upstream.call(broker, DescribeTokenOwners())
        if not answer.error:
            self._known = answer.owners

    def _asked(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        take_failure(task, UpstreamError, KafkaError)

    def close(self) -> None:
        """Stop, because no client waits any more."""
        for task in self._tasks:
            task.cancel()


class _Link:
    """A connection to a broker for one login. Implements `sidecar.network.upstream.Owner`."""

    def __init__(self, upstream: KafkaUpstream, broker: int, ended: Callable[[], None]) -> None:
        """`ended` is called once, when the connection has closed."""
        self._upstream = upstream
        self._ended = ended
        self._broker = broker
        self._ids = count(1)
        self._connection = upstream.open_without_login(self, upstream.address(broker))

    async def ask(self, request: Request[AnswerT]) -> AnswerT:
        """Returns the broker's answer. Raises DisconnectedError, BadAnswerError."""
        waiter = AnswerWaiter(next(self._ids))
        self._connection.send_parts([encode_frame(request, waiter.correlation_id, _CLIENT_ID)], waiter)
        try:
            async with asyncio.timeout(self._upstream.request_timeout):
                frame = await waiter.future
        except TimeoutError:
            self.close()
            raise DisconnectedError("the broker does not answer a login", sent=True) from None
        return decode_frame(request, waiter.correlation_id, frame.buffer, frame.start + 4, frame.end)

    def close(self) -> None:
        """Close the connection after the login."""
        self._connection.close("the login is over")

    def upstream_opened(self, connection: UpstreamConnection) -> None:
        self._upstream.connect_succeeded(self._broker)

    def upstream_full(self, connection: UpstreamConnection, full: bool) -> None:
        """Ignored: one message at a time never fills a connection."""

    def upstream_closed(self, connection: UpstreamConnection) -> None:
        self._ended()
        if connection.failure is not None and not connection.stood:
            self._upstream.connect_failed(self._broker, connection.failure)


@dataclass(slots=True, eq=False)
class _Relayed:
    """One exchange. Implements `sidecar.security.servers.ServerMechanism`. `_owner_of` returns
    the owner's name for a delegation token's id, None if unknown.
    """

    _link: _Link
    _mechanism: str
    _claim: str
    _owner_of: Callable[[str], Awaitable[str | None]]
    _claimed: Claimed | None = None
    accepted: Identity | None = None

    async def receive(self, message: bytes) -> bytes:
        """See `ServerMechanism`."""
        if self.accepted is not None:
            raise refusal(self._mechanism, "a message behind the end")
        first = self._claimed is None
        if self._claimed is None:
            self._claimed = claimed_name(self._mechanism, message, self._claim)
        answer = await self._link.ask(SaslAuthenticate(message))
        if answer.error:
            raise LoginError(answer.message or "Authentication failed", answer.error, reason="the broker refuses it")
        if self._is_complete(answer.data, first=first):
            until = time.time() + answer.lifetime_ms / 1000 if answer.lifetime_ms > 0 else None
            name = self._claimed.name
            if self._claimed.is_token:
                owner = await self._owner_of(name)
                if owner is None:
                    raise refusal(self._mechanism, "brokers do not name the token's owner: may the node DESCRIBE it?")
                name = owner
            self.accepted = Identity(name, until)
        return answer.data

    def _is_complete(self, data: bytes, *, first: bool) -> bool:
        """Whether this answer without an error accepts the login."""
        if self._mechanism == PLAIN:
            return True
        if self._mechanism == OAUTHBEARER:
            return first and not data  # anything else is an error for the client to acknowledge (RFC 7628, 3.2.3)
        return not first and data.startswith(b"v=")
