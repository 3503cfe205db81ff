"""librdkafka and aiokafka log in at the listener's side, behind a listener that knows four requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiokafka
import pytest
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportPrivateImportUsage]

from sidecar.protocol.messages.cluster import API_VERSIONS, METADATA
from sidecar.protocol.messages.security import SASL_AUTHENTICATE, SASL_HANDSHAKE
from sidecar.protocol.primitives import Reader
from sidecar.security.errors import LoginError
from sidecar.security.mechanisms import OAUTHBEARER, PLAIN
from sidecar.security.scram import Hash
from sidecar.security.servers import (
    Identity,
    OauthBearerServer,
    PlainServer,
    RefusedTokenError,
    ScramServer,
    ServerMechanism,
    check_password,
)
from sidecar.security.users import Users, read_users, user_line

HOST = "127.0.0.1"
PASSWORD = "a secret, with = and ,"
NAME = "us,er=1"
USERS: Users = read_users(f"[users]\n{user_line(NAME, PASSWORD)}", "users.toml")
VERSIONS = {API_VERSIONS: (0, 3), METADATA: (0, 7), SASL_HANDSHAKE: (0, 1), SASL_AUTHENTICATE: (0, 2)}
BY_KEY = {message.key: message for message in VERSIONS}


async def owner_of(token: str) -> Identity:
    if token != "a.good.token":
        raise RefusedTokenError("another one")
    return Identity(NAME)


SERVERS: dict[str, Callable[[], ServerMechanism]] = {
    PLAIN: lambda: PlainServer(check_password(lambda: USERS)),
    OAUTHBEARER: lambda: OauthBearerServer(owner_of),
    Hash.SCRAM_SHA_256.mechanism: lambda: ScramServer(Hash.SCRAM_SHA_256, USERS.credential),
    Hash.SCRAM_SHA_512.mechanism: lambda: ScramServer(Hash.SCRAM_SHA_512, USERS.credential),
}


class Session:
    """What one connection is answered; Metadata only once it is logged in."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._server: ServerMechanism | None = None

    async def answer(self, key: int, values: dict[str, Any]) -> dict[str, Any]:
        if key == API_VERSIONS.key:
            served = [
                {"api_key": message.key, "min_version": first, "max_version": last}
                for message, (first, last) in VERSIONS.items()
            ]
            return {"error_code": 0, "api_keys": served}
        if key == SASL_HANDSHAKE.key:
            self._server = SERVERS[values["mechanism"]]()
            return {"error_code": 0, "mechanisms": [*SERVERS]}
        assert self._server is not None
        if key == SASL_AUTHENTICATE.key:
            try:
                return {"error_code": 0, "auth_bytes": await self._server.receive(bytes(values["auth_bytes"]))}
            except LoginError as error:
                return {"error_code": error.code, "error_message": error.message, "auth_bytes": b""}
        assert self._server.accepted == Identity(NAME)
        broker = {"node_id": 1, "host": HOST, "port": self._port}
        return {"brokers": [broker], "cluster_id": "fake", "controller_id": 1, "topics": []}


async def serve(session: Session, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer until the client goes."""
    try:
        while True:
            size = await reader.readexactly(4)
            frame = size + await reader.readexactly(int.from_bytes(size, "big"))
            head = Reader(frame, 4)
            key, version, correlation_id = head.i16(), head.i16(), head.i32()
            head.skip(max(0, head.i16()))
            message = BY_KEY[key]
            values = message.decode_request(frame, head.position, len(frame), version)
            writer.write(message.encode_answer(version, correlation_id, await session.answer(key, values)))
    except (asyncio.IncompleteReadError, OSError):
        pass
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


@asynccontextmanager
async def listener() -> AsyncIterator[str]:
    port = 0
    serving: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.create_task(serve(Session(port), reader, writer)))

    server = await asyncio.start_server(accept, HOST, 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield f"{HOST}:{port}"
    for task in serving:
        task.cancel()
    await asyncio.gather(*serving, return_exceptions=True)


async def librdkafka(address: str, mechanism: str, secret: str) -> bool:
    config: dict[str, Any] = {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "log_level": 0,
    }
    if mechanism == OAUTHBEARER:
        config["oauth_cb"] = lambda _: (secret, time.time() + 60)
    else:
        config |= {"sasl.username": NAME, "sasl.password": secret}

    def lists() -> bool:
        try:
            return AdminClient(config).list_topics(timeout=2 if secret == WRONG else 20).cluster_id == "fake"
        except KafkaException:
            return False

    return await asyncio.to_thread(lists)


class Provider(AbstractTokenProvider):
    def __init__(self, secret: str) -> None:
        self._secret = secret

    async def token(self) -> str:
        return self._secret


async def aiokafka_client(address: str, mechanism: str, secret: str) -> bool:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username=NAME,
        sasl_plain_password=secret,
        sasl_oauth_token_provider=Provider(secret),
        enable_idempotence=False,
    )
    try:
        await producer.start()
    except KafkaError:
        return False
    finally:
        await producer.stop()
    return True


Client = Callable[[str, str, str], Awaitable[bool]]
WRONG = "wrong"
CASES: list[tuple[Client, str]] = [(client, name) for client in (librdkafka, aiokafka_client) for name in SERVERS]


async def logs_in(client: Client, mechanism: str, secret: str) -> bool:
    async with listener() as address:
        return await client(address, mechanism, secret)


@pytest.mark.parametrize(("client", "mechanism"), CASES, ids=[f"{each.__name__}-{name}" for each, name in CASES])
async def test_a_client_logs_in_with_its_secret_and_no_other(client: Client, mechanism: str) -> None:
    assert await logs_in(client, mechanism, "a.good.token" if mechanism == OAUTHBEARER else PASSWORD)
    assert not await logs_in(client, mechanism, WRONG)
