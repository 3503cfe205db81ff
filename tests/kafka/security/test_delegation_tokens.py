"""Delegation tokens (KIP-48): made at a broker by Kafka's own tool, used through a node by Kafka's own client."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway.relay import RelayedLogins
from sidecar.local.ports import HOST
from sidecar.local.tools import Tools, find_tools
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.messages.cluster import METADATA
from sidecar.protocol.messages.security import CREATE_DELEGATION_TOKEN, EXPIRE_DELEGATION_TOKEN
from sidecar.security.broker_access import BrokerAccess
from sidecar.security.credentials import PasswordCredentials
from sidecar.security.errors import LoginError
from sidecar.security.mechanisms import ScramClient, ScramSecret
from sidecar.security.scram import Hash
from tests.conftest import StartNode
from tests.kafka.security.secured import NODE, PASSWORD, Secured, Wire
from tests.kafka.security.test_listener import allow
from tests.nodes import NodeProcess
from tests.wait import wait_for_async

Unique = Callable[[str], str]
_SECURITY = "org.apache.kafka.common.security"
_TOOL = "org.apache.kafka.tools.DelegationTokenCommand"


class DelegationToken(NamedTuple):
    """What a client logs in with."""

    id: str
    hmac: str


@pytest.fixture(scope="module")
def tools() -> Tools:
    return find_tools()


@pytest.fixture
def node(secured: Secured, node_process: StartNode) -> Iterator[NodeProcess]:
    running = node_process(
        kafka=f"{HOST}:{secured.ports['SASL_PLAINTEXT']}",
        SECURITY_PROTOCOL="SASL_PLAINTEXT",
        KAFKA_SECURITY_PROTOCOL="SASL_PLAINTEXT",
        KAFKA_SASL_MECHANISM="PLAIN",
        KAFKA_SASL_USERNAME=NODE,
        KAFKA_SASL_PASSWORD=PASSWORD,
    )
    yield running
    secured.forget_acls()


def properties(directory: Path, mechanism: str, name: str, secret: str, *, token: bool = False) -> str:
    """A file of settings for Kafka's tools."""
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    more = ' tokenauth="true"' if token else ""
    file = directory / f"{mechanism}-{name}.properties"
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={_SECURITY}.{module} required username="{name}" password="{secret}"{more};\n'
    )
    return str(file)


def at_broker(secured: Secured, tools: Tools, directory: Path, *arguments: str, bootstrap: str = "") -> str:
    """What Kafka's tool for tokens says to alice."""
    server = bootstrap or f"{HOST}:{secured.ports['SASL_PLAINTEXT']}"
    config = properties(directory, "PLAIN", "alice", PASSWORD)
    done = tools.run(_TOOL, "--bootstrap-server", server, "--command-config", config, *arguments, check=False)
    return done.stdout + done.stderr


async def made_by_kafkas_tool(secured: Secured, tools: Tools, directory: Path) -> DelegationToken:
    asked = ("--create", "--max-life-time-period", "-1")
    said = await asyncio.to_thread(at_broker, secured, tools, directory, *asked)
    found = re.search(r"^(\S{22})\s+(\S{40,})\s+User:alice", said, re.MULTILINE)
    assert found is not None, said
    return DelegationToken(found[1], found[2])


async def made(secured: Secured) -> DelegationToken:
    """A token of alice's that the broker takes."""
    async with by_alice(secured) as alice:
        asked = {"renewers": [], "max_lifetime_ms": -1}
        answer = await alice.ask_table(CREATE_DELEGATION_TOKEN, 2, asked)
    assert answer["error_code"] == 0
    return await known(secured, DelegationToken(answer["token_id"], base64.b64encode(answer["hmac"]).decode()))


async def prolong(secured: Secured, token: DelegationToken, ms: int) -> None:
    """Have it expire in so many milliseconds, -1: now."""
    async with by_alice(secured) as alice:
        asked = {"hmac": base64.b64decode(token.hmac), "expiry_time_period_ms": ms}
        assert (await alice.ask_table(EXPIRE_DELEGATION_TOKEN, 1, asked))["error_code"] == 0


async def known(secured: Secured, token: DelegationToken) -> DelegationToken:
    """The broker knows a new one a second or two after it was made."""

    async def is_known() -> bool:
        async with secured.wire("SASL_PLAINTEXT") as connected:
            return await refusal(connected, token) is None

    await wait_for_async(is_known, "the token at the broker", 20)
    await prolong(secured, token, 600_000)
    return token


@asynccontextmanager
async def by_alice(secured: Secured) -> AsyncIterator[Wire]:
    async with secured.wire("SASL_PLAINTEXT") as connected:
        await connected.login(PasswordCredentials("PLAIN", "alice", PASSWORD))
        yield connected


@asynccontextmanager
async def wire(node: NodeProcess) -> AsyncIterator[Wire]:
    host, port = node.bootstrap.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Wire(reader, writer)
    finally:
        writer.transport.abort()


async def refusal(connected: Wire, token: DelegationToken) -> LoginError | None:
    """Why a login with a token is refused; None where it is not."""
    try:
        await connected.login(PasswordCredentials("SCRAM-SHA-256", token.id, token.hmac, token_auth=True))
    except LoginError as error:
        return error
    return None


@pytest.mark.slow  # starts four programs of Kafka's
async def test_kafkas_client_writes_and_reads_by_a_token_with_its_owners_rights(
    secured: Secured, tools: Tools, tmp_path: Path, unique: Unique, node: NodeProcess
) -> None:
    topic, other = unique("tokens"), unique("not-hers")
    secured.topics(topic, other)
    allow(secured, ResourceType.TOPIC, topic, AclOperation.READ, AclOperation.WRITE)
    allow(secured, ResourceType.GROUP, topic, AclOperation.READ)
    token = await known(secured, await made_by_kafkas_tool(secured, tools, tmp_path))

    async def knows_her_rights() -> bool:
        asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        async with wire(node) as connected:
            assert await refusal(connected, token) is None
            return (await connected.ask_table(METADATA, 5, asked))["topics"][0]["error_code"] == 0

    await wait_for_async(knows_her_rights, "the rules at the node", 20)
    config = properties(tmp_path, "SCRAM-SHA-256", token.id, token.hmac, token=True)
    producer, consumer = (f"org.apache.kafka.tools.{each}" for each in ("ConsoleProducer", "consumer.ConsoleConsumer"))
    server = ("--bootstrap-server", node.bootstrap)
    lines = "".join(f"{number}\n" for number in range(20))
    run = partial(asyncio.to_thread, tools.run)
    await run(producer, *server, "--producer.config", config, "--topic", topic, stdin=lines)
    reading = ("--topic", topic, "--group", topic, "--from-beginning", "--max-messages", "20", "--timeout-ms", "30000")
    read = await run(consumer, *server, "--consumer.config", config, *reading)
    assert read.stdout.split() == [str(number) for number in range(20)]
    quickly = ("--producer-property", "max.block.ms=3000")
    refused = await run(
        producer, *server, "--producer.config", config, *quickly, "--topic", other, stdin="1\n", check=False
    )
    assert f"Not authorized to access topics: [{other}]" in refused.stderr
    assert token.hmac not in node.log


async def test_a_token_lasts_until_it_expires_and_its_session_no_longer(secured: Secured, node: NodeProcess) -> None:
    token = await made(secured)
    async with wire(node) as connected:
        session = await connected.login(PasswordCredentials("SCRAM-SHA-512", token.id, token.hmac, token_auth=True))
        assert session.lifetime_s is not None
        asked = {"topics": None, "allow_auto_topic_creation": False}
        assert (await connected.ask_table(METADATA, 5, asked))["brokers"]
    await prolong(secured, token, -1)

    async def is_refused() -> bool:
        async with wire(node) as connected:
            error = await refusal(connected, token)
        return error is not None and error.code == ErrorCode.SASL_AUTHENTICATION_FAILED

    await wait_for_async(is_refused, "the end of the token", 20)


async def test_a_wrong_token_is_refused(secured: Secured, node: NodeProcess) -> None:
    """Another secret, an id that is nobody's, a user's name and password passed off as one, a token as a user."""
    token = await made(secured)
    secured.scram_user("alice", "SCRAM-SHA-256")
    wrong = (token._replace(hmac="wrong"), token._replace(id="nobody"), DelegationToken("alice", PASSWORD))
    for shown in (token, *wrong):
        async with wire(node) as connected:
            error = await refusal(connected, shown)
        assert (error is None) == (shown is token)
        assert error is None or error.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    async with wire(node) as connected:
        with pytest.raises(LoginError):
            await connected.login(PasswordCredentials("SCRAM-SHA-256", token.id, token.hmac))


def test_tokens_are_made_at_brokers_and_a_node_says_so(
    secured: Secured, tools: Tools, tmp_path: Path, node: NodeProcess
) -> None:
    """At a broker they would be the node's own."""
    said = at_broker(secured, tools, tmp_path, "--create", "--max-life-time-period", "-1", bootstrap=node.bootstrap)
    assert "CREATE_DELEGATION_TOKEN" in said
    assert "UnsupportedVersionException" in said


async def test_a_node_that_may_not_see_whose_a_token_is_lets_nobody_in_by_it(secured: Secured) -> None:
    """It would not know whose rights hold. The node is bob's here, who may DESCRIBE no tokens but his own."""
    token = await made(secured)
    bob = BrokerAccess(credentials=PasswordCredentials("PLAIN", "bob", PASSWORD))
    address = (HOST, secured.ports["SASL_PLAINTEXT"])
    upstream = KafkaUpstream([address], connect_timeout=5, request_timeout=5, access=bob)
    mechanism = Hash.SCRAM_SHA_256.mechanism
    offer = await RelayedLogins(upstream, (mechanism,), "sub").begin(mechanism, HOST)
    client = ScramClient(Hash.SCRAM_SHA_256, ScramSecret(token.id, token.hmac), token_auth=True)
    assert offer.exchange is not None
    proof = client.receive(await offer.exchange.receive(client.start()))
    assert proof is not None
    with pytest.raises(LoginError) as refused:
        await offer.exchange.receive(proof)
    assert "may the node DESCRIBE it" in refused.value.reason
    assert offer.exchange.accepted is None
    offer.close()
    await upstream.close()
