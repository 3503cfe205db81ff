"""Delegation tokens that the node has brokers make for its clients' principals (KIP-48, KIP-373), and logins by them.

A token is made when its principal first needs one, once for all that ask meanwhile, and anew when half of its life is
over. It is kept in memory alone, and its life is short: what a node leaves behind that is killed ends by itself. The
node is among a token's renewers, so that it may see and end it. Never falls back to the node's own login.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from sidecar.cluster.hedging import Shared
from sidecar.protocol.caller import Channel, Upstream, UpstreamError
from sidecar.protocol.calls.security import CreateDelegationToken, DescribeTokenOwners, ExpireDelegationToken, MadeToken
from sidecar.protocol.errors import ErrorCode, KafkaError, error_name
from sidecar.security.errors import TokenError
from sidecar.security.mechanisms import Mechanism, ScramClient, ScramSecret
from sidecar.security.scram import Hash

LIFE_MS: Final = 3_600_000
"""How long a token lives at most; brokers may have a shorter `delegation.token.expiry.time.ms`."""
MOST: Final = 4096
"""Tokens that are kept to log in with. Beyond them the one that was needed longest ago is put away, see `_put_away`."""
REFUSED_S: Final = 1.0
"""For how long it is remembered that brokers make none for a principal. So thousands of its connections ask once a
second, and where the right is given, a client that tries again within a second (Java's `reconnect.backoff.max.ms`)
waits for one more try at most.
"""
END_S: Final = 2.0
"""For how long the end of a node waits for brokers: half of it for tokens that they are making, half until they have
ended all.
"""
_AT_ONCE: Final = 16
_KNOWN_S: Final = 10.0
_LOOK_S: Final = 0.05
"""A broker knows a token some tenths of a second after it was made: how often it is asked, and for how long."""
_CHANNEL: Final = Channel("tokens")
_ADVICE: Final[dict[int, str]] = {
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "set delegation.token.secret.key at the brokers",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "this node has to log in at brokers, and not by a token",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "this node's principal needs CREATE_TOKENS on that user",
    ErrorCode.INVALID_PRINCIPAL_TYPE: "tokens are for principals of type User",
}


@dataclass(eq=False, slots=True)
class _Token:
    secret: ScramSecret = field(repr=False)
    hmac: bytes = field(repr=False)
    begun: float
    life: float
    """From `begun`, by the loop's clock, in seconds."""
    known_at: set[int] = field(default_factory=set[int])

    @property
    def age(self) -> float:
        """How much of its life is over: 1 for all of it."""
        return (asyncio.get_running_loop().time() - self.begun) / self.life if self.life > 0 else 1.0


class UserTokens:
    """The tokens of a node's clients, by principal."""

    def __init__(self, asks: Upstream, kind: Hash) -> None:
        """`kind`: by which of SCRAM's hashes brokers take tokens."""
        self._asks = asks
        self.kind = kind
        self._tokens: dict[str, _Token] = {}
        """The one that was needed last is the last one."""
        self._past: deque[_Token] = deque()
        """Those that were replaced, or that a broker refused: no login shows them any more, and brokers may have them
        until they end.
        """
        self._making = Shared[_Token](UpstreamError, KafkaError, TokenError)
        self._refused: dict[str, tuple[float, TokenError]] = {}
        """Principals for which brokers made none: until when that is not asked again, and why. In order of time."""
        self._looking = Shared[None](UpstreamError, KafkaError, TokenError)
        """Whether a broker knows a token: asked once for all connections that wait for it."""
        self._closed = False
        self._ending: set[asyncio.Task[Any]] = set()
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._me: tuple[str, str] | None = None

    def login(self, principal: str, broker_id: int) -> UserLogin:
        """For one connection to a broker."""
        return UserLogin(self, principal, broker_id)

    async def check(self) -> None:
        """Whether brokers make tokens, and as whom the node asks.

        Raises `TokenError`, `UpstreamError`, `KafkaError`.
        """
        made = await self._ask(CreateDelegationToken(None, (), LIFE_MS), "itself")
        self._me = made.requester
        await self._end(made.hmac)

    async def of(self, principal: str) -> _Token:
        """The principal's token, made where there is none with half of its life left. The old one serves while brokers
        cannot make another, until an eighth of its life is left.

        Raises `TokenError` where brokers refuse to make one, `UpstreamError` and `KafkaError` where they cannot now.
        """
        token = self._tokens.pop(principal, None)
        if token is not None:
            self._tokens[principal] = token
            if token.age < 1 / 2:
                return token
        if principal not in self._making.tasks:
            self._check_refusal(principal)
        try:
            return await self._making.answer(principal, lambda: self._make(principal))
        except (UpstreamError, KafkaError):
            if token is None or self._tokens.get(principal) is not token or token.age > 7 / 8:
                raise
            return token

    def _check_refusal(self, principal: str) -> None:
        """Raises `TokenError` where brokers refused a moment ago."""
        refused, now = self._refused, asyncio.get_running_loop().time()
        while refused and next(iter(refused.values()))[0] <= now:
            del refused[next(iter(refused))]
        if (found := refused.get(principal)) is not None:
            raise TokenError(str(found[1]))

    async def _make(self, principal: str) -> _Token:
        kind, _, name = principal.partition(":")
        loop = asyncio.get_running_loop()
        try:
            async with self._places:
                if self._closed:
                    raise TokenError("this node is about to end")
                if self._me is None:
                    await self.check()
                assert self._me is not None
                begun = loop.time()
                made = await self._ask(CreateDelegationToken((kind, name), (self._me,), LIFE_MS), principal)
        except TokenError as error:
            self._refused[principal] = loop.time() + REFUSED_S, error
            raise
        token = _Token(ScramSecret(made.id, made.password), made.hmac, begun, made.life_ms / 1000)
        if (before := self._tokens.pop(principal, None)) is not None:
            self._put_away(before)
        self._tokens[principal] = token
        if len(self._tokens) > MOST:
            self._put_away(self._tokens.pop(next(iter(self._tokens))))
        return token

    def _put_away(self, token: _Token) -> None:
        """No new login shows it. A login that began with it may still be under way, so it is ended with the node, or
        ends by itself, or when `MOST` others were put away after it: at 16 at a time that takes seconds.

        Sessions that began with a token go on: a broker looks it up for the first message of a login alone
        (`ScramSaslServer.evaluateResponse`), and the next login, also of such a session, has another one made.
        """
        past, now = self._past, asyncio.get_running_loop().time()
        past.append(token)
        while past and past[0].begun + past[0].life <= now:
            past.popleft()
        if len(past) > MOST:
            self._end_soon(past.popleft())

    def _end_soon(self, token: _Token) -> None:
        ending = asyncio.get_running_loop().create_task(self._end(token.hmac))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _ask(self, request: CreateDelegationToken, whose: str) -> MadeToken:
        made = await self._asks.call(None, request, channel=_CHANNEL)
        if (advice := _ADVICE.get(made.error)) is not None:
            raise TokenError(
                f"brokers make no delegation token for {whose} ({made.error} {error_name(made.error)}): {advice}"
            )
        if made.error:
            raise KafkaError(made.error, f"no delegation token for {whose}")
        return made

    async def known(self, principal: str, token: _Token, broker_id: int) -> None:
        """Returns when a broker takes this token.

        Raises `TokenError` where it does not come to know it, `UpstreamError` and `KafkaError` where it cannot say.
        """
        if broker_id in token.known_at:
            return
        await self._looking.answer((token, broker_id), lambda: self._look(principal, token, broker_id))

    async def _look(self, principal: str, token: _Token, broker_id: int) -> None:
        kind, _, name = principal.partition(":")
        until = asyncio.get_running_loop().time() + _KNOWN_S
        while asyncio.get_running_loop().time() < until:
            found = await self._asks.call(broker_id, DescribeTokenOwners((kind, name)), channel=_CHANNEL)
            if found.error:
                raise KafkaError(found.error, f"broker {broker_id} does not say whether it knows the token")
            if token.secret.username in found.owners:
                token.known_at.add(broker_id)
                return
            await asyncio.sleep(_LOOK_S)
        self.forget(principal, token)
        raise TokenError(f"broker {broker_id} does not know the delegation token of {principal}")

    def forget(self, principal: str, token: _Token) -> None:
        """A broker does not take it: the next login has another one made."""
        if self._tokens.get(principal) is token:
            self._put_away(self._tokens.pop(principal))

    async def _end(self, hmac: bytes) -> None:
        try:
            await self._asks.call(None, ExpireDelegationToken(hmac), timeout=END_S, channel=_CHANNEL)
        except (UpstreamError, KafkaError):
            return  # it ends by itself

    async def close(self) -> None:
        """End all tokens, as far as brokers do that within `END_S`."""
        self._closed = True
        making = [*self._making.tasks.values()]
        if making:  # a broker may have made it already: only its answer says how to end it
            await asyncio.wait(making, timeout=END_S / 2)
        looking = [*self._looking.tasks.values()]
        for task in (*making, *looking):
            task.cancel()
        tokens = [*self._tokens.values(), *self._past]
        self._tokens = {}
        self._past.clear()
        ends = [asyncio.get_running_loop().create_task(self._end(token.hmac)) for token in tokens]
        if waiting := [*making, *looking, *ends, *self._ending]:
            _, left = await asyncio.wait(waiting, timeout=END_S / 2)
            for task in left:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)


@dataclass(slots=True, eq=False)
class UserLogin:
    """Logs one connection in as a principal. Implements `sidecar.security.credentials.Credentials`."""

    _tokens: UserTokens
    _principal: str
    _broker_id: int
    _token: _Token | None = None
    began: bool = False
    problem: str | None = None
    """Why brokers do not let the principal in, where they have said so."""

    async def mechanism(self) -> Mechanism:
        """See `Credentials`."""
        self.began = True
        try:
            token = self._token = await self._tokens.of(self._principal)
            await self._tokens.known(self._principal, token, self._broker_id)
        except TokenError as error:
            self.problem = str(error)
            raise
        except (UpstreamError, KafkaError) as error:
            raise TokenError(f"no delegation token for {self._principal} now: {error}") from None
        return ScramClient(self._tokens.kind, token.secret, token_auth=True)

    def refused(self, reason: str) -> None:
        """See `Credentials`."""
        self.problem = f"brokers refuse the delegation token of {self._principal}: {reason}"
        if self._token is not None:
            self._tokens.forget(self._principal, self._token)

    async def close(self) -> None:
        """See `Credentials`: the tokens are the node's."""
