"""Clients' connections to a real broker by delegation tokens that the node has made: the broker sees the user."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError as ConfluentError
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, ResourceType

from sidecar.cli.checks.finding import Level
from sidecar.cli.checks.kafka import check_kafka
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.cluster.user_tokens import UserTokens
from sidecar.local.ports import HOST
from sidecar.protocol.calls.security import CreateDelegationToken, DescribeTokenOwners, ExpireDelegationToken
from sidecar.protocol.errors import ErrorCode
from sidecar.security.broker_access import BrokerAccess
from sidecar.security.credentials import PasswordCredentials
from sidecar.security.errors import TokenError
from sidecar.security.scram import Hash
from sidecar.settings import Address, load
from tests.conftest import StartNode
from tests.kafka.security.secured import NODE, PASSWORD, Secured, secured_kafka
from tests.kafka.security.test_listener import allow
from tests.nodes import StartError
from tests.wait import wait_for_async

Unique = Callable[[str], str]
_LIFE_MS = 8_000


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    overrides: dict[str, Any] = {
        "delegation_token_secret_key": "the brokers' secret",
        "delegation_token_expiry_time_ms": str(_LIFE_MS),
        "delegation_token_expiry_check_interval_ms": "1000",
    }
    with secured_kafka(tmp_path_factory.mktemp("users"), **overrides) as running:
        yield running


def settings(secured: Secured, **more: str) -> dict[str, Any]:
    """A node that lets everybody do everything itself, so that what is refused the broker refuses."""
    return {
        "kafka": f"{HOST}:{secured.ports['SASL_PLAINTEXT']}",
        "SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "KAFKA_SASL_MECHANISM": "PLAIN",
        "KAFKA_SASL_USERNAME": NODE,
        "KAFKA_SASL_PASSWORD": PASSWORD,
        "KAFKA_DELEGATION_TOKENS": "SCRAM-SHA-256",
        "SUPER_USERS": "User:alice;User:bob",
        **more,
    }


def written(bootstrap: str, user: str, topic: str) -> int | None:
    """The code of the error with which a record came back, None where it was written."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": PASSWORD,
            "message.timeout.ms": 20_000,
        }
    )
    told: list[ConfluentError | None] = []
    producer.produce(topic, b"record", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(30) == 0
    return None if told[0] is None else told[0].code()


def upstream_of(secured: Secured, user: str = NODE) -> KafkaUpstream:
    access = BrokerAccess(credentials=PasswordCredentials("PLAIN", user, PASSWORD))
    return KafkaUpstream(
        [(HOST, secured.ports["SASL_PLAINTEXT"])], connect_timeout=10, request_timeout=10, access=access
    )


async def owners(secured: Secured) -> list[str]:
    upstream = upstream_of(secured)
    try:
        return sorted((await upstream.call(None, DescribeTokenOwners())).owners.values())
    finally:
        await upstream.close()


async def test_the_broker_decides_under_the_users_own_name_also_past_a_tokens_life(
    secured: Secured, unique: Unique, node_process: StartNode
) -> None:
    node = node_process(**settings(secured))
    topic = unique("hers")
    secured.topics(topic)
    allow(secured, ResourceType.TOPIC, topic, AclOperation.WRITE, AclOperation.DESCRIBE)
    try:
        assert await asyncio.to_thread(written, node.bootstrap, "alice", topic) is None
        refused = await asyncio.to_thread(written, node.bootstrap, "bob", topic)
        assert refused == ErrorCode.TOPIC_AUTHORIZATION_FAILED  # the node itself would let bob write
        assert {"User:alice", "User:bob"} <= set(await owners(secured))
        producer = Producer(
            {
                "bootstrap.servers": node.bootstrap,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "alice",
                "sasl.password": PASSWORD,
            }
        )
        failed: list[Any] = []
        loop = asyncio.get_running_loop()
        until = loop.time() + 2.2 * _LIFE_MS / 1000
        while loop.time() < until:
            producer.produce(topic, b"on", on_delivery=lambda error, _: failed.append(error) if error else None)
            await asyncio.to_thread(producer.flush, 10)
            await asyncio.sleep(0.2)
        assert failed == []
    finally:
        node.stop()
        secured.forget_acls()
    assert "User:alice" not in await owners(secured)
    assert "hmac" not in node.log


async def test_a_withdrawn_token_is_forgotten_and_one_is_made_once(secured: Secured) -> None:
    upstream = upstream_of(secured)
    tokens = UserTokens(upstream, Hash.SCRAM_SHA_512)
    first, same = await asyncio.gather(tokens.of("User:alice"), tokens.of("User:alice"))
    assert first is same
    await tokens.known("User:alice", first, upstream.live_broker())
    assert await upstream.call(None, ExpireDelegationToken(first.hmac)) == 0

    async def is_gone() -> bool:
        return first.secret.username not in (await upstream.call(None, DescribeTokenOwners())).owners

    await wait_for_async(is_gone, "the end of the token", 20)
    login = tokens.login("User:alice", upstream.live_broker())
    await login.mechanism()
    login.refused("gone")
    assert len(tokens._tokens) == 0
    assert (await tokens.of("User:alice")).secret.username != first.secret.username
    await tokens.close()
    await upstream.close()


async def test_a_principal_without_the_right_gets_no_token(secured: Secured) -> None:
    """The node is bob's here, who may not CREATE_TOKENS for alice."""
    upstream = upstream_of(secured, "bob")
    tokens = UserTokens(upstream, Hash.SCRAM_SHA_256)
    await tokens.check()
    with pytest.raises(TokenError, match=r"User:alice \(65 .*needs CREATE_TOKENS"):
        await tokens.of("User:alice")
    await tokens.close()
    await upstream.close()


async def test_a_connection_by_token_may_ask_for_none(secured: Secured) -> None:
    """Why the four APIs are not served by nodes: over a user's connection a broker refuses them (64)."""
    upstream = upstream_of(secured)
    tokens = UserTokens(upstream, Hash.SCRAM_SHA_256)
    access = BrokerAccess(credentials=tokens.login("User:alice", upstream.live_broker()))
    hers = KafkaUpstream(
        [(HOST, secured.ports["SASL_PLAINTEXT"])], connect_timeout=10, request_timeout=10, access=access
    )
    made = await hers.call(None, CreateDelegationToken(None, (), -1))
    described = await hers.call(None, DescribeTokenOwners())
    assert (made.error, described.error) == (64, 64)
    await hers.close()
    await tokens.close()
    await upstream.close()


@pytest.mark.slow  # a Kafka of its own, for what a node says as it starts
def test_brokers_without_the_mechanism_of_token_logins_end_the_start(tmp_path: Path, node_process: StartNode) -> None:
    secret, mechanisms = "the brokers' secret", "PLAIN,SCRAM-SHA-512"
    with secured_kafka(tmp_path, plain_mechanisms=mechanisms, delegation_token_secret_key=secret) as without:
        with pytest.raises(StartError) as ended:
            node_process(**settings(without))
        problem = str(ended.value)
        assert "and not SCRAM-SHA-256" in problem
        assert "sasl.enabled.mechanisms" in problem
        given = replace(
            load(),
            bootstrap_servers=(Address(HOST, without.ports["SASL_PLAINTEXT"]),),
            kafka_security_protocol="SASL_PLAINTEXT",
            kafka_sasl_mechanism="PLAIN",
            kafka_sasl_username=NODE,
            kafka_sasl_password=PASSWORD,
        )
        for mechanism, level in (("SCRAM-SHA-256", Level.FAIL), ("SCRAM-SHA-512", Level.OK)):
            checked = asyncio.run(check_kafka(replace(given, kafka_delegation_tokens=mechanism), []))
            (found,) = [each for each in checked if each.name == "tokens"]
            assert found.level is level
            assert mechanism in found.detail


@pytest.mark.slow
def test_brokers_without_tokens_end_the_start(tmp_path: Path, node_process: StartNode) -> None:
    with secured_kafka(tmp_path) as without, pytest.raises(StartError) as ended:
        node_process(**settings(without))
    assert "delegation.token.secret.key" in str(ended.value)
