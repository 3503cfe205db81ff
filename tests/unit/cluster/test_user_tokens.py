"""Tokens for clients' principals, with brokers that say what a test wants."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from sidecar.cluster import user_tokens
from sidecar.cluster.user_tokens import UserTokens
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.calls.security import CreateDelegationToken, DescribeTokenOwners, MadeToken, TokenOwners
from sidecar.protocol.errors import KafkaError
from sidecar.security.errors import TokenError
from sidecar.security.scram import Hash


class Brokers:
    """Make tokens; `error`: what they say instead, `life_ms`: how long one lives."""

    def __init__(self) -> None:
        self.error = 0
        self.life_ms = 3_600_000
        self.made: list[CreateDelegationToken] = []
        self.ended: list[bytes] = []
        self.away = False
        self.looks = 0
        self.unknown = 0
        """How often they do not know a token yet, when they are asked for it."""
        self.looked = asyncio.Event()
        self.making = asyncio.Event()
        """Set when they were asked for a token while they are `slow`; they answer once they are not."""
        self.slow: asyncio.Event | None = None

    async def call(self, broker_id: int | None, request: Any, **_: Any) -> Any:
        await asyncio.sleep(0)
        if self.away:
            raise DisconnectedError("away", sent=False)
        if isinstance(request, CreateDelegationToken):
            self.made.append(request)
            number = len(self.made)
            if self.slow is not None:
                self.making.set()
                await self.slow.wait()
            return MadeToken(self.error, ("User", "node"), f"id-{number}", b"secret-%d" % number, self.life_ms)
        if isinstance(request, DescribeTokenOwners):
            self.looks += 1
            self.looked.set()
            if self.looks <= self.unknown:
                return TokenOwners(self.error, {})
            return TokenOwners(self.error, {f"id-{number}": "User:alice" for number in range(1, 1 + len(self.made))})
        self.ended.append(request.hmac)
        return 0


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
def tokens(brokers: Brokers) -> UserTokens:
    return UserTokens(cast(Any, brokers), Hash.SCRAM_SHA_256)


async def test_one_is_made_for_all_that_ask_and_the_node_may_end_it(brokers: Brokers, tokens: UserTokens) -> None:
    await tokens.check()
    first, second = await asyncio.gather(tokens.of("User:alice"), tokens.of("User:alice"))
    assert first is second is await tokens.of("User:alice")
    assert [each.owner for each in brokers.made] == [None, ("User", "alice")]
    assert brokers.made[1].renewers == (("User", "node"),)
    await tokens.close()
    assert brokers.ended == [b"secret-1", b"secret-2"]
    assert "secret" not in repr(first)


async def test_one_is_made_anew_when_half_its_life_is_over(brokers: Brokers, tokens: UserTokens) -> None:
    brokers.life_ms = 0
    first = await tokens.of("User:alice")
    assert await tokens.of("User:alice") is not first
    assert len(tokens._tokens) == 1


async def test_the_old_one_serves_while_brokers_can_make_no_other(
    brokers: Brokers, tokens: UserTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await tokens.of("User:alice")
    for age, serves in ((0.6, True), (0.9, False)):
        monkeypatch.setattr(first, "begun", asyncio.get_running_loop().time() - age * first.life)
        brokers.away = True
        if serves:
            assert await tokens.of("User:alice") is first
        else:
            with pytest.raises(DisconnectedError):
                await tokens.of("User:alice")
    brokers.away = False
    assert await tokens.of("User:alice") is not first
    await tokens.close()
    assert brokers.ended.count(first.hmac) == 1


async def test_the_old_one_does_not_serve_who_is_refused_another(
    brokers: Brokers, tokens: UserTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await tokens.of("User:alice")
    monkeypatch.setattr(first, "begun", asyncio.get_running_loop().time() - 0.6 * first.life)
    brokers.error = 65
    with pytest.raises(TokenError):
        await tokens.of("User:alice")


@pytest.mark.parametrize(
    ("code", "advice"),
    [(61, "delegation.token.secret.key"), (64, "has to log in"), (65, "CREATE_TOKENS"), (67, "type User")],
)
async def test_brokers_that_refuse_are_named_with_what_to_do(
    brokers: Brokers, tokens: UserTokens, code: int, advice: str
) -> None:
    await tokens.check()
    brokers.error = code
    login = tokens.login("User:alice", 1)
    with pytest.raises(TokenError, match=advice):
        await login.mechanism()
    assert login.problem is not None
    assert len(tokens._tokens) == 0


async def test_a_refusal_is_remembered_for_a_second_by_principal(
    brokers: Brokers, tokens: UserTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tokens.check()
    brokers.error = 65
    now = asyncio.get_running_loop().time()
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    for user in ("alice", "bob"):
        for _ in range(1_000):
            with pytest.raises(TokenError, match=rf"User:{user} .*CREATE_TOKENS"):
                await tokens.of(f"User:{user}")
    assert [each.owner for each in brokers.made[1:]] == [("User", "alice"), ("User", "bob")]
    brokers.error = 0
    assert await tokens.of("User:carol") is not None
    now += user_tokens.REFUSED_S
    assert await tokens.of("User:alice") is not None
    assert tokens._refused == {}


async def test_brokers_that_cannot_answer_now_are_no_refusal(brokers: Brokers, tokens: UserTokens) -> None:
    await tokens.check()
    brokers.error = 41
    with pytest.raises(KafkaError):
        await tokens.of("User:alice")
    brokers.away = True
    login = tokens.login("User:alice", 1)
    with pytest.raises(TokenError, match="away"):
        await login.mechanism()
    assert login.problem is None


async def test_a_refused_token_is_not_shown_again(brokers: Brokers, tokens: UserTokens) -> None:
    login = tokens.login("User:alice", 1)
    await login.mechanism()
    login.refused("invalid credentials")
    assert login.problem is not None
    assert len(tokens._tokens) == 0
    await tokens.login("User:alice", 1).mechanism()
    assert len(brokers.made) == 3


async def test_their_number_is_bounded(brokers: Brokers, tokens: UserTokens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_tokens, "MOST", 2)
    await tokens.check()
    for user in ("alice", "bob", "carol"):
        await tokens.of(f"User:{user}")
    assert len(tokens._tokens) == 2
    await tokens.close()
    assert len(brokers.ended) == 4


async def test_a_login_under_way_is_not_ended_by_one_user_too_many(
    brokers: Brokers, tokens: UserTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_tokens, "MOST", 2)
    await tokens.check()
    brokers.ended.clear()
    under_way = await tokens.of("User:alice")
    for user in ("bob", "carol", "dave"):
        await tokens.of(f"User:{user}")
    assert (len(tokens._tokens), brokers.ended) == (2, [])
    assert await tokens.of("User:alice") is not under_way
    await asyncio.sleep(0)
    await asyncio.gather(*tokens._ending)
    assert brokers.ended == [under_way.hmac]  # it was put away before two others were
    await tokens.close()


async def test_replaced_and_refused_tokens_end_with_the_node(brokers: Brokers, tokens: UserTokens) -> None:
    await tokens.check()
    login = tokens.login("User:alice", 1)
    await login.mechanism()
    login.refused("another broker does not know it")
    replaced = await tokens.of("User:alice")
    replaced.begun -= replaced.life / 2
    await tokens.of("User:alice")
    await tokens.close()
    assert sorted(brokers.ended) == [b"secret-1", b"secret-2", b"secret-3", b"secret-4"]


async def test_of_replaced_tokens_no_more_are_kept_than_live(
    brokers: Brokers, tokens: UserTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_tokens, "MOST", 2)
    for _ in range(4):
        await tokens.login("User:alice", 1).mechanism()
        tokens.forget("User:alice", await tokens.of("User:alice"))
    await tokens.close()
    assert len(brokers.ended) == 5
    assert len(set(brokers.ended)) == 5
    brokers.life_ms, brokers.ended = 0, []
    others = UserTokens(cast(Any, brokers), Hash.SCRAM_SHA_256)
    for _ in range(4):
        await others.of("User:alice")
    await others.close()
    assert len(brokers.ended) <= 3  # its own, the last one, and one that ended this moment


async def test_a_token_that_is_being_made_when_the_node_stops_is_ended(brokers: Brokers, tokens: UserTokens) -> None:
    await tokens.check()
    brokers.slow = asyncio.Event()
    waiting = asyncio.create_task(tokens.of("User:alice"))
    await brokers.making.wait()
    closing = asyncio.create_task(tokens.close())
    await asyncio.sleep(0)
    brokers.slow.set()
    await closing
    await waiting
    assert brokers.ended == [b"secret-1", b"secret-2"]
    with pytest.raises(TokenError, match="about to end"):
        await tokens.of("User:bob")


async def test_brokers_that_never_answer_do_not_hold_up_the_end(
    brokers: Brokers, tokens: UserTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_tokens, "END_S", 0.02)
    await tokens.check()
    brokers.slow = asyncio.Event()
    waiting = asyncio.create_task(tokens.of("User:alice"))
    await brokers.making.wait()
    async with asyncio.timeout(5):
        await tokens.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_connections_that_wait_for_a_broker_to_know_a_token_ask_it_once(
    brokers: Brokers, tokens: UserTokens
) -> None:
    """Also for those that gave up meanwhile: a connection may have less time than a broker."""
    brokers.unknown = 1
    logins = [tokens.login("User:alice", 1).mechanism() for _ in range(50)]
    hasty = asyncio.create_task(tokens.login("User:alice", 1).mechanism())
    await brokers.looked.wait()
    hasty.cancel()
    await asyncio.gather(*logins)
    assert brokers.looks == 2


async def test_a_broker_that_cannot_say_what_it_knows_is_not_asked_on_and_on(
    brokers: Brokers, tokens: UserTokens
) -> None:
    token = await tokens.of("User:alice")
    brokers.error = 64
    login = tokens.login("User:alice", 1)
    with pytest.raises(TokenError, match="64"):
        await login.mechanism()
    assert brokers.looks == 1
    assert login.problem is None
    assert await tokens.of("User:alice") is token
