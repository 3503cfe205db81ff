"""Clients' connections to a real broker by delegation tokens that the node has made: the broker sees the user."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
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
from tests.kafka.security.secured import NODE, PASSWORD, TOKEN_MS, Secured
from tests.kafka.security.test_listener import allow
from tests.nodes import StartError
from tests.wait import wait_for_async

Unique = Callable[[str], str]


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


async def owners(secured: Secured) -> dict[str, str]:
    """By token."""
    upstream = upstream_of(secured)
    try:
        return dict((await upstream.call(None, DescribeTokenOwners())).owners)
    finally:
        await upstream.close()


async def test_the_broker_decides_under_the_users_own_name_also_past_a_tokens_life(
    secured: Secured, unique: Unique, node_process: StartNode
) -> None:
    of_others = (await owners(secured)).keys()
    node = node_process(**settings(secured))
    topic = unique("hers")
    secured.topics(topic)
    allow(secured, ResourceType.TOPIC, topic, AclOperation.WRITE, AclOperation.DESCRIBE)
    try:
        assert await asyncio.to_thread(written, node.bootstrap, "alice", topic) is None
        refused = await asyncio.to_thread(written, node.bootstrap, "bob", topic)
        assert refused == ErrorCode.TOPIC_AUTHORIZATION_FAILED  # the node itself would let bob write
        made = {owner for token, owner in (await owners(secured)).items() if token not in of_others}
        assert {"User:alice", "User:bob"} <= made
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
        until = loop.time() + 2.2 * TOKEN_MS / 1000
        while loop.time() < until:
            producer.produce(topic, b"on", on_delivery=lambda error, _: failed.append(error) if error else None)
            await asyncio.to_thread(producer.flush, 10)
            await asyncio.sleep(0.2)
        assert failed == []
    finally:
        node.stop()
        secured.forget_acls()
    assert (await owners(secured)).keys() <= of_others
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


async def test_brokers_without_the_mechanism_of_token_logins_end_the_start(
    secured: Secured, node_process: StartNode
) -> None:
    """By SASL_SSL, where they have SCRAM-SHA-256 alone."""
    secured.scram_user(NODE, "SCRAM-SHA-256")
    login = {
        "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "KAFKA_SASL_MECHANISM": "SCRAM-SHA-256",
        "KAFKA_SSL_CA": str(secured.authority.ca),
        "KAFKA_DELEGATION_TOKENS": "SCRAM-SHA-512",
        "kafka": f"{HOST}:{secured.ports['SASL_SSL']}",
    }
    with pytest.raises(StartError) as ended:
        await asyncio.to_thread(partial(node_process, **settings(secured, **login)))
    problem = str(ended.value)
    assert "and not SCRAM-SHA-512" in problem
    assert "sasl.enabled.mechanisms" in problem
    given = replace(
        load(),
        bootstrap_servers=(Address(HOST, secured.ports["SASL_SSL"]),),
        kafka_security_protocol="SASL_SSL",
        kafka_ssl_ca=secured.authority.ca,
        kafka_sasl_mechanism="SCRAM-SHA-256",
        kafka_sasl_username=NODE,
        kafka_sasl_password=PASSWORD,
    )
    for mechanism, level in (("SCRAM-SHA-512", Level.FAIL), ("SCRAM-SHA-256", Level.OK)):
        checked = await check_kafka(replace(given, kafka_delegation_tokens=mechanism), [])
        (found,) = [each for each in checked if each.name == "tokens"]
        assert found.level is level
        assert mechanism in found.detail


def test_brokers_without_tokens_end_the_start(lenient: Secured, node_process: StartNode) -> None:
    with pytest.raises(StartError) as ended:
        node_process(**settings(lenient))
    assert "delegation.token.secret.key" in str(ended.value)
