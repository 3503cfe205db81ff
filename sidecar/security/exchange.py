"""A login on a connection to a broker: SaslHandshake, then SaslAuthenticate as often as the mechanism requires.

The first login of a connection and every one that renews it (KIP-368) are the same. The owner of the connection
provides `send`, sends no other requests during a login (brokers answer 34 to them), and renews in time.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from sidecar.protocol.caller import AnswerT, Request, decode_frame, encode_frame
from sidecar.protocol.calls.security import SaslAuthenticate, SaslHandshake
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.primitives import Octets
from sidecar.security.credentials import Credentials
from sidecar.security.errors import LoginError, SaslError
from sidecar.security.mechanisms import Mechanism

RENEW_FROM: Final = 0.85
RENEW_SPREAD: Final = 0.10
"""A session is renewed after 85 to 95 % of its life, spread so that not all connections do it at once, as Kafka's
`SaslClientAuthenticator` does.
"""
RENEW_LEAST_S: Final = 1.0
"""Earlier than this after a login, a broker refuses the next one on the connection with 34
(`KafkaChannel.maybeBeginServerReauthentication`).
"""
_ROUNDS: Final = 8
"""No mechanism needs more than three."""


class Session(NamedTuple):
    """The session of a login: how long the broker keeps it, and when to log in again, in seconds; None: for ever."""

    lifetime_s: float | None
    renew_after_s: float | None


class Connection(NamedTuple):
    """A connection as a login needs it. `send` takes a whole request frame and returns the whole frame of its answer,
    length prefixes included; `correlation_ids` are the connection's own.
    """

    send: Callable[[bytes], Awaitable[Octets]]
    correlation_ids: Iterator[int]
    client_id: str


async def login(
    connection: Connection, credentials: Credentials, spread: Callable[[], float] = random.random
) -> Session:
    """Log in, or renew a session; `spread` returns 0 to 1.

    Raises LoginError if the broker refuses or is the wrong one, TokenError if there are no credentials,
    BadAnswerError, and what `send` raises.
    """
    mechanism = await credentials.mechanism()
    offered = await _ask(connection, SaslHandshake(mechanism.name))
    if offered.error == ErrorCode.ILLEGAL_SASL_STATE:
        credentials.refused("there is no login at this port")
        raise LoginError("there is no login at this port", offered.error)
    if offered.error:
        known = ", ".join(offered.mechanisms) or "none"
        reason = _printable(f"the broker refuses {mechanism.name}; it offers {known}")
        credentials.refused(reason)
        raise LoginError(reason, offered.error)
    message: bytes | None = mechanism.start()
    lifetime_ms = 0
    for _ in range(_ROUNDS):
        answer = await _ask(connection, SaslAuthenticate(message))
        if answer.error:
            credentials.refused(_printable(answer.message))
            raise LoginError(_printable(answer.message), answer.error)
        lifetime_ms = answer.lifetime_ms
        message = await _next(mechanism, answer.data)
        if message is None:
            break
    if message is not None or not mechanism.complete:
        raise LoginError(f"the broker ends {mechanism.name} before it is complete", ErrorCode.ILLEGAL_SASL_STATE)
    if lifetime_ms <= 0:
        return Session(None, None)
    lifetime = lifetime_ms / 1_000
    return Session(lifetime, max(RENEW_LEAST_S, lifetime * (RENEW_FROM + RENEW_SPREAD * spread())))


def log_in(
    round_trip: Callable[[bytes], bytes], correlation_ids: Iterator[int], client_id: str, credentials: Credentials
) -> Session:
    """As `login`, on a connection that blocks; Spark jobs use these. `round_trip` sends a whole request frame and
    returns the whole frame of its answer. Raises what `login` raises.

    It runs in a thread of its own: the caller's may run an event loop already, as in a notebook.
    """

    async def send(request: bytes) -> bytes:
        return round_trip(request)

    with ThreadPoolExecutor(1) as thread:
        connection = Connection(send, correlation_ids, client_id)
        return thread.submit(lambda: asyncio.run(login(connection, credentials))).result()


async def _ask(connection: Connection, request: Request[AnswerT]) -> AnswerT:
    correlation_id = next(connection.correlation_ids)
    frame = await connection.send(encode_frame(request, correlation_id, connection.client_id))
    return decode_frame(request, correlation_id, frame, 4, len(frame))


async def _next(mechanism: Mechanism, challenge: bytes) -> bytes | None:
    try:
        if mechanism.is_slow:
            return await asyncio.to_thread(mechanism.receive, challenge)
        return mechanism.receive(challenge)
    except SaslError as error:
        raise LoginError(f"{mechanism.name}: {error}") from None


def _printable(message: str | None) -> str:
    """Return a broker's message with only printable characters, for logs."""
    return "".join(each if each.isprintable() else "?" for each in (message or "the broker refuses the login")[:300])
