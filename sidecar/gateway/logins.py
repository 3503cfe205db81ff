"""Clients log in before anything else (SASL), and again before their session ends (KIP-368).

Before its login a client may send only ApiVersions, SaslHandshake and SaslAuthenticate, in small frames, and for a
limited time. A refused login is answered after a delay, as on brokers, and the connection is closed. A listener defines
how its clients' certificates and logins are checked.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from sidecar.cluster.user_tokens import UserTokens
from sidecar.gateway.client import Client, ClientLogin
from sidecar.network.request import Exchange, RejectError, Request
from sidecar.protocol.api import LOGIN_APIS, ApiKey, api_name
from sidecar.protocol.api_versions import VersionRange
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.messages import security
from sidecar.security.errors import LoginError, TokenError
from sidecar.security.listener import ListenerTls
from sidecar.security.logins import Authenticator, Offer

FRAME_BYTES: Final = 64 * 1024
"""The largest frame of a login: tokens may be long."""
STRANGERS_BYTES: Final = 2 * 1024
"""The largest frame before a login has a place (ApiVersions, SaslHandshake): thousands of clients may wait for one."""
LOGIN_S: Final = 10.0
FAILURE_S: Final = 0.1
"""The delay, in seconds, before a refused login is answered: Kafka's `connection.failed.authentication.delay.ms`."""
LEAST_S: Final = 1.0
"""The least time, in seconds, between two logins of a connection. An earlier SaslHandshake gets 34, as from brokers."""
VERSIONS: Final = (VersionRange(ApiKey.SASL_HANDSHAKE, 1, 1), VersionRange(ApiKey.SASL_AUTHENTICATE, 0, 2))
"""SaslHandshake v0 is left out: after it messages have no headers, and clients of Kafka 1.0 or later do not use it."""
ADVERTISED: Final = (VersionRange(ApiKey.SASL_HANDSHAKE, 0, 1), VersionRange(ApiKey.SASL_AUTHENTICATE, 0, 2))
"""From v0, though it is not served: librdkafka before 2.11 does not log in if ApiVersions lacks v0; it uses v1."""


class LoginHooks(Protocol):
    """Called with the outcome of logins; implementations never raise."""

    def login_done(self, mechanism: str) -> None: ...
    def login_refused(self, peer: str, mechanism: str, reason: str) -> None: ...


class Logins:
    """The logins of a listener's clients."""

    def __init__(
        self, authenticator: Authenticator, hooks: LoginHooks, login_s: float = LOGIN_S, users: UserTokens | None = None
    ) -> None:
        """`login_s`: the timeout of a login, in seconds. `users`: if set, brokers must give a token for each client."""
        self._users = users
        self.authenticator = authenticator
        self.admits: Callable[[Client], bool] = lambda _client: True
        """Whether one more client of the principal is admitted."""
        self._login_s = login_s
        self._hooks = hooks

    def connected(self, client: Client) -> None:
        """A client has connected: it has to log in within `login_s`."""
        client.connection.limit_frames(STRANGERS_BYTES)
        timer = asyncio.get_running_loop().call_later(self._login_s, self._timed_out, client)
        client.login = ClientLogin(timer)

    def closed(self, client: Client) -> None:
        """The client's connection has ended."""
        if client.login is not None:
            client.login.end()

    def _timed_out(self, client: Client) -> None:
        client.connection.reject("login_timeout", f"no login within {self._login_s:g} seconds")

    async def handle(self, client: Client, exchange: Exchange, request: Request) -> None:
        """SaslHandshake and SaslAuthenticate. Implements `ColdApi`."""
        login = client.login
        assert login is not None
        frame = request.frame
        if request.key == ApiKey.SASL_HANDSHAKE:
            values = security.SASL_HANDSHAKE.decode_request(frame.buffer, request.body, frame.end, request.version)
            await self._begin(client, login, exchange, values["mechanism"])
        else:
            values = security.SASL_AUTHENTICATE.decode_request(frame.buffer, request.body, frame.end, request.version)
            await self._go_on(client, login, exchange, bytes(values["auth_bytes"]))

    async def _begin(self, client: Client, login: ClientLogin, exchange: Exchange, mechanism: str) -> None:
        now = time.monotonic()
        if login.offer is not None or (login.done and now - login.began < LEAST_S):
            _answer_handshake(exchange, ErrorCode.ILLEGAL_SASL_STATE, ())
            return
        login.began = now
        if login.done:  # as the first login, it needs a place, and a connection to a broker
            login.timer = asyncio.get_running_loop().call_later(self._login_s, self._timed_out, client)
        client.connection.park()  # a client that disconnects while it waits gives up its turn
        login.asking = asyncio.current_task()
        try:
            offer = await self.authenticator.begin(mechanism, client.connection.host)
        finally:
            login.asking = None
        if client.connection.closed:
            offer.close()
            return
        if offer.exchange is None or (login.done and mechanism != login.mechanism):
            offer.close()
            reason = "the mechanism is not offered, or another than before"
            client.note_refusal(b"", ErrorCode.UNSUPPORTED_SASL_MECHANISM, reason)
            await self._refuse(client, mechanism, reason)
            _answer_handshake(exchange, ErrorCode.UNSUPPORTED_SASL_MECHANISM, offer.mechanisms)
            client.connection.close()
            return
        login.offer, login.mechanism = offer, mechanism
        if not login.done:
            client.connection.limit_frames(FRAME_BYTES)
        _answer_handshake(exchange, ErrorCode.NONE, offer.mechanisms)

    async def _go_on(self, client: Client, login: ClientLogin, exchange: Exchange, message: bytes) -> None:
        offer = login.offer
        if offer is None or offer.exchange is None:
            text = "SaslAuthenticate request received without a SaslHandshake before it"
            _answer_login(exchange, ErrorCode.ILLEGAL_SASL_STATE, text)
            if not login.done:
                client.connection.close()
            return
        client.connection.park()  # a client that disconnects in the meantime gives up its place
        try:
            answer = await offer.exchange.receive(message)
            if offer.exchange.accepted is not None and self._users is not None:
                await self._have_token(self._users, offer.exchange.accepted.principal)
            lifetime_ms = 0 if offer.exchange.accepted is None else self._let_in(client, login, offer)
            if login.done and not self.admits(client):
                client.connection.close()  # without an answer: clients take a refusal for a wrong password
                return
        except LoginError as error:
            login.end_exchange()
            client.note_refusal(b"", error.code, error.message)
            await self._refuse(client, login.mechanism, error.reason)
            _answer_login(exchange, error.code, error.message)
            client.connection.close()
            return
        _answer_login(exchange, ErrorCode.NONE, None, answer, lifetime_ms)

    async def _have_token(self, users: UserTokens, principal: str) -> None:
        """Get a token for the principal. Raises LoginError if brokers give none: the node's name is no substitute."""
        try:
            await users.of(principal)
        except TokenError as error:
            raise LoginError(f"Authentication failed: {error}", reason=str(error)) from None

    def _let_in(self, client: Client, login: ClientLogin, offer: Offer) -> int:
        """Complete the login. Returns the session's lifetime in ms; 0: unlimited. Raises LoginError."""
        assert offer.exchange is not None
        identity = offer.exchange.accepted
        assert identity is not None
        if login.done and identity.principal != client.principal:
            before, after = client.principal, identity.principal
            raise LoginError(f"Cannot change principals during re-authentication from {before} to {after}")
        lifetime_ms = 0
        if identity.expires_at is not None:
            lifetime_ms = int((identity.expires_at - time.time()) * 1000)
            if lifetime_ms <= 0:
                raise LoginError("Authentication failed: the session is over", reason="what was shown has expired")
        login.end_exchange()
        login.timer.cancel()
        login.done, login.expires_at = True, identity.expires_at
        client.principal = identity.principal
        client.connection.first_request_valid()  # larger frames are allowed now
        self._hooks.login_done(login.mechanism)
        return lifetime_ms

    async def _refuse(self, client: Client, mechanism: str, reason: str) -> None:
        self._hooks.login_refused(client.connection.peer, mechanism, reason)
        await asyncio.sleep(FAILURE_S)


@dataclass(frozen=True, slots=True)
class ClientListener:
    """One listener. `tls`: how certificates name principals, None without TLS; `logins` None: clients do not log in.

    Answers give nodes' addresses for the listener of this `name` (KIP-103).
    """

    name: str
    tls: ListenerTls | None = None
    logins: Logins | None = None


UNNAMED: Final = ClientListener("")
"""The only listener of a node that publishes one address."""


def check_login(login: ClientLogin, request: Request) -> None:
    """Check that a request is allowed now. Raises RejectError."""
    if request.key in LOGIN_APIS:
        return
    if login.offer is not None or (not login.done and request.key != ApiKey.API_VERSIONS):
        raise RejectError("not_logged_in", f"{api_name(request.key)} before the end of the login")
    if login.expires_at is not None and time.time() >= login.expires_at:
        raise RejectError("session_ended", f"{api_name(request.key)} behind the end of the session")


def with_logins(served: list[VersionRange]) -> list[VersionRange]:
    """The API versions for clients that log in: including the login's."""
    return sorted([*served, *ADVERTISED])


def _answer_handshake(exchange: Exchange, code: int, mechanisms: tuple[str, ...]) -> None:
    if code:
        exchange.note_error(code)
    values = {"error_code": code, "mechanisms": list(mechanisms)}
    exchange.answer([security.SASL_HANDSHAKE.encode_answer(exchange.version, exchange.correlation_id, values)])


def _answer_login(exchange: Exchange, code: int, message: str | None, data: bytes = b"", lifetime_ms: int = 0) -> None:
    if code:
        exchange.note_error(code)
    values = {"error_code": code, "error_message": message, "auth_bytes": data, "session_lifetime_ms": lifetime_ms}
    exchange.answer([security.SASL_AUTHENTICATE.encode_answer(exchange.version, exchange.correlation_id, values)])
