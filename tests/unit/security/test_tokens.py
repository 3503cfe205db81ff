"""Tokens: when they are replaced, what is read in an endpoint's answer, and who may provide them."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from unittest.mock import AsyncMock

import pytest

from sidecar.cluster.upstream import KafkaUpstream
from sidecar.security.broker_access import BrokerAccess
from sidecar.security.credentials import TokenCredentials
from sidecar.security.errors import TokenError
from sidecar.security.tokens import (
    PROVIDERS,
    RETRY_S,
    ClientCredentials,
    NoSuchProviderError,
    Token,
    TokenProvider,
    Tokens,
    load_provider,
    read_token,
)
from sidecar.security.web import WebAnswer, WebError

URL = "https://idp.example/token"
NOW = 1_700_000_000.0


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Provider:
    """Gives t1, t2, …; fails with `failure` where there is one; waits for `gate` where there is one."""

    lifetime_s: float | None = 100.0
    failure: Exception | None = None
    gate: asyncio.Event | None = None
    asked: int = 0
    closed: bool = False

    async def token(self) -> Token:
        self.asked += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return Token(f"t{self.asked}", self.lifetime_s)

    async def close(self) -> None:
        self.closed = True


async def test_a_token_is_kept_until_it_has_lived_four_fifths_of_its_life() -> None:
    clock, provider = Clock(), Provider()
    tokens = Tokens(provider, clock)
    assert (await tokens.get()).value == "t1"
    clock.now += 79
    assert (await tokens.get()).value == "t1"
    clock.now += 2
    assert (await tokens.get()).value == "t2"


async def test_a_token_of_unknown_life_is_used_once() -> None:
    tokens = Tokens(Provider(lifetime_s=None), Clock())
    assert [(await tokens.get()).value for _ in range(3)] == ["t1", "t2", "t3"]


async def test_while_the_provider_is_away_a_token_serves_until_its_end() -> None:
    clock, provider = Clock(), Provider()
    tokens = Tokens(provider, clock)
    await tokens.get()
    provider.failure = TokenError("away")
    clock.now += 85
    for _ in range(5):
        assert (await tokens.get()).value == "t1"
    assert provider.asked == 2
    clock.now += RETRY_S
    assert (await tokens.get()).value == "t1"
    assert provider.asked == 3
    clock.now += 6
    with pytest.raises(TokenError, match="away"):
        await tokens.get()


async def test_all_that_ask_at_once_are_one_question() -> None:
    provider = Provider(gate=asyncio.Event())
    tokens = Tokens(provider, Clock())
    asking = [asyncio.create_task(tokens.get()) for _ in range(10)]
    await asyncio.sleep(0)
    asking.pop().cancel()
    assert provider.gate is not None
    provider.gate.set()
    assert {token.value for token in await asyncio.gather(*asking)} == {"t1"}
    assert provider.asked == 1


async def test_the_error_of_a_provider_may_hold_a_secret_and_is_not_shown() -> None:
    tokens = Tokens(Provider(failure=RuntimeError("secret")), Clock())
    with pytest.raises(TokenError, match=r"^the token provider failed with RuntimeError$"):
        await tokens.get()


async def test_what_is_no_token_is_an_error_that_callers_know() -> None:
    provider = Provider()
    provider.token = AsyncMock(return_value="t1")
    with pytest.raises(TokenError, match=r"^the token provider gave a str in place of a token$"):
        await Tokens(provider).get()


async def test_closing_ends_what_is_under_way() -> None:
    provider = Provider(gate=asyncio.Event())
    tokens = Tokens(provider, Clock())
    asking = asyncio.create_task(tokens.get())
    await asyncio.sleep(0)
    await tokens.close()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert provider.closed


def test_a_token_is_never_shown() -> None:
    assert "secret" not in repr(Token("secret", 1.0))


# Client credentials ---------------------------------------------------------------------------------------------------


@dataclass
class Web:
    answer: WebAnswer | WebError
    closed: bool = False
    asked: list[tuple[str, Mapping[str, str] | None, Mapping[str, str] | None]] = field(default_factory=list)

    async def __call__(
        self, url: str, *, form: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> WebAnswer:
        self.asked.append((url, form, headers))
        if isinstance(self.answer, WebError):
            raise self.answer
        return self.answer

    async def close(self) -> None:
        self.closed = True


def answer(status: int = 200, **values: object) -> WebAnswer:
    return WebAnswer(status, json.dumps(values).encode())


async def test_client_credentials_are_asked_for_as_rfc_6749_has_it() -> None:
    web = Web(answer(access_token="abc", expires_in=300))
    token = await ClientCredentials(URL, "my id", "a:b+c", "kafka", web).token()
    assert (token.value, token.lifetime_s) == ("abc", 300.0)
    ((url, form, headers),) = web.asked
    assert (url, form) == (URL, {"grant_type": "client_credentials", "scope": "kafka"})
    assert headers is not None
    assert base64.b64decode(headers["Authorization"].removeprefix("Basic ")) == b"my+id:a%3Ab%2Bc"


async def test_without_a_scope_none_is_asked_for() -> None:
    web = Web(answer(access_token="abc"))
    await ClientCredentials(URL, "id", "secret", None, web).token()
    assert web.asked[0][1] == {"grant_type": "client_credentials"}


async def test_closing_a_clusters_connections_closes_those_to_the_token_endpoint() -> None:
    web = Web(answer(access_token="abc"))
    tokens = Tokens(ClientCredentials(URL, "id", "secret", None, web))
    access = BrokerAccess(credentials=TokenCredentials(tokens))
    await KafkaUpstream([("127.0.0.1", 1)], connect_timeout=1.0, request_timeout=1.0, access=access).close()
    assert web.closed


async def test_an_endpoint_that_is_away_is_named() -> None:
    with pytest.raises(TokenError, match="no route"):
        await ClientCredentials(URL, "id", "secret", None, Web(WebError("no route"))).token()


def jwt(**claims: object) -> str:
    return ".".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({}, claims, {})
    )


@pytest.mark.parametrize(
    ("values", "lifetime"),
    [
        ({"access_token": "abc", "expires_in": "60"}, 60.0),
        ({"access_token": jwt(exp=NOW + 30), "expires_in": 60}, 30.0),
        ({"access_token": jwt(exp=NOW + 90), "expires_in": 60}, 60.0),
        ({"access_token": jwt(sub="x")}, None),
        ({"access_token": "a.b.c"}, None),
        ({"access_token": "abc", "expires_in": True}, None),
        ({"access_token": "abc", "expires_in": "soon"}, None),
        ({"access_token": "abc", "expires_in": 1e300}, None),
    ],
)
def test_a_token_lives_as_long_as_both_say(values: dict[str, object], lifetime: float | None) -> None:
    assert read_token(URL, WebAnswer(200, json.dumps(values).encode()), NOW).lifetime_s == lifetime


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (answer(400, error="invalid_client"), "answers 400: invalid_client"),
        (answer(500), "answers 500$"),
        (answer(302, access_token="abc"), "answers 302$"),
        (answer(400, error="a\nb"), "answers 400$"),
        (WebAnswer(200, b"<html>"), "without an access_token"),
        (WebAnswer(200, b"[]"), "without an access_token"),
        (answer(access_token=7), "without an access_token"),
        (answer(access_token=jwt(exp=NOW - 1)), "has ended"),
        (answer(access_token="abc", expires_in=0), "has ended"),
    ],
)
def test_an_answer_without_a_token_says_why(given: WebAnswer, why: str) -> None:
    with pytest.raises(TokenError, match=why):
        read_token(URL, given, NOW)


# Entry points ---------------------------------------------------------------------------------------------------------


def provider_of_a_cloud(options: Mapping[str, str]) -> TokenProvider:
    assert options == {"scope": "kafka"}
    return Provider()


def test_a_provider_is_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = metadata.EntryPoint("cloud", f"{__name__}:provider_of_a_cloud", PROVIDERS)
    asked: list[str] = []

    def entry_points(*, group: str) -> metadata.EntryPoints:
        asked.append(group)
        return metadata.EntryPoints([point])

    monkeypatch.setattr(metadata, "entry_points", entry_points)
    monkeypatch.setattr(metadata.EntryPoint, "load", lambda self: globals()[self.attr])
    assert isinstance(load_provider("cloud", {"scope": "kafka"}), Provider)
    assert asked == [PROVIDERS]
    with pytest.raises(NoSuchProviderError, match="'other'; there are: cloud"):
        load_provider("other", {})
