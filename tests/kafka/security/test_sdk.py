"""The SDK at nodes with TLS and logins: each class, each mechanism, sessions that end, and what is refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.abc import AbstractTokenProvider

from sidecar.client import ExclusiveProducer, Leadership, ShadowReader, SidecarError
from sidecar.client.sync import ExclusiveProducer as BlockingProducer
from sidecar.local.ports import HOST, free_ports
from sidecar.security.tls import TlsFiles, client_context, server_context
from tests.kafka.security.front import NAME, SECRET, TOKEN, front
from tests.rest import Rest

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from sidecar.local import Valkey
    from tests.conftest import OwnValkey, StartNode
    from tests.kafka.security.secured import Secured
    from tests.nodes import NodeProcess

    Unique = Callable[[str], str]


class Provider(AbstractTokenProvider):
    async def token(self) -> str:
        return TOKEN


def password(mechanism: str, secret: str = SECRET) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": NAME,
        "sasl_plain_password": secret,
    }


LOGINS: dict[str, dict[str, Any]] = {
    "PLAIN": password("PLAIN"),
    "SCRAM-SHA-256": password("SCRAM-SHA-256"),
    "SCRAM-SHA-512": password("SCRAM-SHA-512"),
    "OAUTHBEARER": {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": Provider()},
}


@pytest.fixture
def valkey(own_valkey: OwnValkey) -> Valkey:
    return own_valkey()


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


@pytest.fixture
def node(secured: Secured, valkey: Valkey, node_process: StartNode, port: int) -> NodeProcess:
    kafka = f"{HOST}:{secured.ports['PLAINTEXT']}"
    return node_process(kafka=kafka, redis=valkey.url, ADVERTISE=f"{HOST}:{port}")


@pytest.fixture(scope="module")
def listening(secured: Secured) -> ssl.SSLContext:
    return server_context(TlsFiles(*secured.authority.issue("front", file="front")))


@pytest.fixture
def trust(secured: Secured) -> ssl.SSLContext:
    return client_context(TlsFiles(ca=secured.authority.ca))


def port_of(node: NodeProcess) -> int:
    return int(node.bootstrap.rpartition(":")[2])


@pytest.mark.parametrize("login", LOGINS.values(), ids=LOGINS)
async def test_each_class_logs_in(
    secured: Secured,
    node: NodeProcess,
    port: int,
    listening: ssl.SSLContext,
    trust: ssl.SSLContext,
    unique: Unique,
    login: dict[str, Any],
) -> None:
    topic, shadow, at = unique("orders"), unique("audit"), f"{HOST}:{port}"
    secured.topics(topic)
    status, told = await asyncio.to_thread(
        Rest(node.admin_url).call, "POST", f"/v1/topics/{topic}/shadows", {"name": shadow}
    )
    assert status == 201, told
    given: dict[str, Any] = {"security_protocol": "SASL_SSL", "ssl_context": trust, **login}
    async with front(port_of(node), port, listening) as door:
        async with ExclusiveProducer(at, topic, "billing", **given) as producer:
            assert (await producer.send(b"paid")).generation == 1
        async with Leadership(at, unique("scheduler"), **given) as leadership:
            assert leadership.is_leader
        async with ShadowReader(at, shadow, unique("group"), **given) as reader:
            assert (await anext(aiter(reader))).value == b"paid"
        await asyncio.to_thread(block, at, topic, given)
        assert door.logins


def block(at: str, topic: str, given: dict[str, Any]) -> None:
    with BlockingProducer(at, topic, "billing", **given) as producer:
        assert producer.send(b"sent").generation == 2


async def test_a_producer_goes_on_while_sessions_end(
    secured: Secured, node: NodeProcess, port: int, listening: ssl.SSLContext, trust: ssl.SSLContext, unique: Unique
) -> None:
    topic = unique("orders")
    secured.topics(topic)
    given = {**password("SCRAM-SHA-256"), "ssl_context": trust}
    async with (
        front(port_of(node), port, listening, lifetime_s=2.0) as door,
        ExclusiveProducer(f"{HOST}:{port}", topic, "billing", **given) as producer,
    ):
        offsets: list[int] = []
        async with asyncio.timeout(60):
            while door.renewals < 6:
                offsets.append((await producer.send(b"paid")).offset)
                await asyncio.sleep(0.05)
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
        assert producer.generation == 1


async def test_what_is_refused_is_said_at_once_and_without_the_password(
    node: NodeProcess, port: int, listening: ssl.SSLContext, trust: ssl.SSLContext, unique: Unique
) -> None:
    at = f"{HOST}:{port}"
    async with front(port_of(node), port, listening):
        for mechanism in ("PLAIN", "SCRAM-SHA-512"):
            with pytest.raises(SidecarError, match="Authentication failed") as error:
                async with Leadership(at, "x", **password(mechanism, "not the one"), ssl_context=trust):
                    pass
            assert (error.value.code, error.value.retryable) == (58, False)
            assert "not the one" not in str(error.value)
        with pytest.raises(SidecarError, match="its certificate is not trusted") as error:
            async with Leadership(at, "x", **password("PLAIN")):
                pass
        assert not error.value.retryable
