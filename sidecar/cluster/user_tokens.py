"""Delegation tokens that the node creates at brokers for its clients' principals (KIP-48, KIP-373), and logins with
them.

A token is created when its principal first needs one, once for all concurrent callers, and replaced after half of its
lifetime. Tokens are kept only in memory and are short-lived: tokens of a killed node expire by themselves. The node is
one of a token's renewers, so that it may describe and expire it. The module never falls back to the node's own login.
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
"""The maximum lifetime of a token; brokers may have a shorter `delegation.token.expiry.time.ms`."""
MOST: Final = 4096
"""The number of tokens kept for logins. Beyond it the least recently used one is put away, see `_put_away`."""
REFUSED_S: Final = 1.0
"""How long a refusal of brokers to create a token for a principal is remembered (seconds). So thousands of its
connections cause one request a second. Once the permission is granted, a client that reconnects within a second (Java's
`reconnect.backoff.max.ms`) needs at most one more attempt.
"""
END_S: Final = 2.0
"""How long a node's shutdown waits for brokers (seconds): half of it for tokens that are being created, half until all
tokens are expired.
"""
_AT_ONCE: Final = 16
_KNOWN_S: Final = 10.0
_LOOK_S: Final = 0.05
"""A broker knows a token some tenths of a second after its creation. It is asked every `_LOOK_S` for `_KNOWN_S`."""
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
    """The lifetime in seconds from `begun`, by the loop's clock."""
    known_at: set[int] = field(default_factory=set[int])

    @property
    def age(self) -> float:
        """The share of its lifetime that has passed: 1 if it has expired."""
        return (asyncio.get_running_loop().time() - self.begun) / self.life if self.life > 0 else 1.0


class UserTokens:
    """The tokens of a node's clients, by principal."""

    def __init__(self, asks: Upstream, kind: Hash) -> None:
        """`kind`: the SCRAM hash with which brokers accept tokens."""
        self._asks = asks
        self.kind = kind
        self._tokens: dict[str, _Token] = {}
        """By principal, in the order of use: the most recently used token is the last."""
        self._past: deque[_Token] = deque()
        """Tokens that were replaced, or that a broker refused: no new login uses them; brokers may keep them until they
        expire.
        """
        self._making = Shared[_Token](UpstreamError, KafkaError, TokenError)
        self._refused: dict[str, tuple[float, TokenError]] = {}
        """Principals for which brokers refused a token: until when none is requested again, and why; by time."""
        self._looking = Shared[None](UpstreamError, KafkaError, TokenError)
        """Questions whether a broker knows a token, shared by all connections that wait for the answer."""
        self._closed = False
        self._ending: set[asyncio.Task[Any]] = set()
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._me: tuple[str, str] | None = None

    def login(self, principal: str, broker_id: int) -> UserLogin:
        """Return the login for one connection to a broker."""
        return UserLogin(self, principal, broker_id)

    async def check(self) -> None:
        """Check that brokers create tokens, and store the principal that the node has at brokers.

        Raises `TokenError`, `UpstreamError`, `KafkaError`.
        """
        made = await self._ask(CreateDelegationToken(None, (), LIFE_MS), "itself")
        self._me = made.requester
        await self._end(made.hmac)

    async def of(self, principal: str) -> _Token:
        """Return the principal's token; create one if there is none with half of its lifetime left. While brokers
        cannot create a new one, return the old one until an eighth of its lifetime is left.

        Raises `TokenError` if brokers refuse to create one, `UpstreamError` and `KafkaError` if they cannot now.
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
        """Raise `TokenError` if brokers refused within the last `REFUSED_S`."""
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
        """Use the token for no new login. A login that began with it may still be under way. So the token is expired
        when the node stops, or expires by itself, or is expired when `MOST` others were put away after it. With 16
        token creations at a time that takes seconds.

        Authenticated connections continue: a broker looks a token up only for the first message of a login
        (`ScramSaslServer.evaluateResponse`). The next login, also a re-authentication, gets a new token.
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
        """Return once a broker knows this token.

        Raises `TokenError` if it does not know it within `_KNOWN_S`, `UpstreamError` and `KafkaError` if it cannot
        answer.
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
        """Put away a token that a broker does not accept: the next login creates a new one."""
        if self._tokens.get(principal) is token:
            self._put_away(self._tokens.pop(principal))

    async def _end(self, hmac: bytes) -> None:
        try:
            await self._asks.call(None, ExpireDelegationToken(hmac), timeout=END_S, channel=_CHANNEL)
        except (UpstreamError, KafkaError):
            return  # it expires by itself

    async def close(self) -> None:
        """Expire all tokens, as far as brokers do it within `END_S`."""
        self._closed = True
        making = [*self._making.tasks.values()]
        if making:  # a broker may have created it already: only its answer has the HMAC to expire it
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
    """Why brokers refuse the principal, if they have given a reason."""

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
        """Do nothing: `UserTokens` keeps the tokens for further logins."""
