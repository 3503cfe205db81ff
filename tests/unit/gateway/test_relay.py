"""Logins that brokers check: how many at one time, and what else they ask of brokers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway import relay
from sidecar.gateway.relay import RelayedLogins, lacking
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.calls.security import Authenticated, DescribeTokenOwners, SaslAuthenticate, TokenOwners
from sidecar.protocol.metadata import Broker
from sidecar.security.errors import LoginError
from tests.unit.network.peers import Peer, broker, on_uvloop
from tests.unit.network.test_upstream import until
from tests.unit.network.test_upstream_login import Doorkeeper


@on_uvloop
async def test_strangers_make_no_more_connections_to_brokers_than_there_are_places() -> None:
    came: list[Peer] = []

    async def silent(peer: Peer) -> None:
        came.append(peer)
        await asyncio.Event().wait()

    async with broker(silent) as address:
        upstream = KafkaUpstream([address], connect_timeout=5, request_timeout=5)
        logins = RelayedLogins(upstream, ("PLAIN",), "sub", at_once=8)
        begun = [asyncio.create_task(logins.begin("PLAIN", "10.0.0.1")) for _ in range(4)]
        await until(lambda: len(came) == 2, "two connections")
        await asyncio.sleep(0.05)
        assert len(came) == 2
        other = asyncio.create_task(logins.begin("PLAIN", "10.0.0.2"))
        await until(lambda: len(came) == 3, "a client at another address, which does not wait for these")
        came.pop()
        begun[0].cancel()  # its client is gone
        await until(lambda: len(came) == 3, "the next one")
        begun[3].cancel()  # it waits for a place, and takes none with it
        came[1].close()  # the broker hangs up on the second, which asks again in the place that this leaves
        await until(lambda: len(came) == 4, "another try")
        for task in (*begun, other):
            task.cancel()
        for task in (*begun, other):
            with pytest.raises((asyncio.CancelledError, DisconnectedError)):
                await task
        await upstream.close()


@on_uvloop
async def test_brokers_without_a_mechanism_are_named_and_silent_ones_are_not() -> None:
    keeper = Doorkeeper()
    keeper.may_answer.set()
    async with broker(keeper) as (host, port):
        upstream = KafkaUpstream([(host, port)], connect_timeout=5, request_timeout=5)
        upstream.view.brokers = {1: Broker(1, host, port), 2: Broker(2, host, 1)}
        assert await lacking(upstream, "PLAIN") == ([], 1)
        keeper.offers = 33
        ((problem, remedy),), offers = await lacking(upstream, "SCRAM-SHA-256")
        await upstream.close()
    assert problem.startswith(f"broker 1 at {host}:{port} offers PLAIN, and not SCRAM-SHA-256")
    assert "sasl.enabled.mechanisms" in remedy
    assert offers == 0


class Brokers:
    """Count the questions for the owners of tokens, and answer them when they are told to."""

    def __init__(self) -> None:
        self.owners: dict[str, str] = {}
        self.asked: list[int] = []
        self.answers = asyncio.Event()
        self.answers.set()

    async def call(self, broker: int, request: Any) -> TokenOwners:
        assert isinstance(request, DescribeTokenOwners)
        self.asked.append(broker)
        await self.answers.wait()
        return TokenOwners(0, dict(self.owners))


async def test_many_logins_with_tokens_whose_owner_is_unknown_share_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers: Any = Brokers()
    owners = relay._TokenOwners(brokers)
    monkeypatch.setattr(relay, "_ASK_S", 0.2)
    brokers.owners = {"first": "User:alice"}
    assert await owners.of(1, "first") == "alice"
    assert await owners.of(1, "first") == "alice"
    assert brokers.asked == [1]
    found = await asyncio.gather(*(owners.of(1, f"unnamed-{number}") for number in range(200)))
    assert (set(found), brokers.asked) == ({None}, [1, 1])
    assert await asyncio.gather(owners.of(2, "unnamed"), owners.of(2, "other")) == [None, None]
    assert brokers.asked == [1, 1, 2]


async def test_a_token_that_was_made_behind_a_question_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers: Any = Brokers()
    owners = relay._TokenOwners(brokers)
    monkeypatch.setattr(relay, "_ASK_S", 0.05)
    brokers.answers.clear()
    gone = asyncio.create_task(owners.of(1, "unnamed"))
    await until(lambda: brokers.asked == [1], "a question")
    gone.cancel()
    later = asyncio.create_task(owners.of(1, "late"))
    await until(lambda: brokers.asked == [1, 1], "another one, although the first has no answer yet")
    brokers.owners = {"late": "User:bob"}
    brokers.answers.set()
    assert await later == "bob"
    with pytest.raises(asyncio.CancelledError):
        await gone
    brokers.answers.clear()
    last = asyncio.create_task(owners.of(1, "unnamed"))
    await until(lambda: len(brokers.asked) == 3, "a question")
    owners.close()
    with pytest.raises(asyncio.CancelledError):
        await last


async def test_a_token_that_a_broker_refuses_costs_no_question() -> None:
    asked: list[str] = []

    class Refusing:
        async def ask(self, request: object) -> Authenticated:
            assert isinstance(request, SaslAuthenticate)
            return Authenticated(58, "no", b"", 0)

    async def owner_of(token: str) -> str | None:
        asked.append(token)
        return None

    link: Any = Refusing()
    for number in range(100):
        login = relay._Relayed(link, "SCRAM-SHA-256", "sub", owner_of)
        with pytest.raises(LoginError):
            await login.receive(b"n,,n=unknown-%d,r=nonce,tokenauth=true" % number)
    assert asked == []
