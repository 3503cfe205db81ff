"""A broker with a listener for each security protocol and Kafka's own authorizer, and bare connections to it."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import asyncio
import contextlib
import itertools
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from sidecar.local import Kafka, KafkaConfig
from sidecar.local.kafka_config import SCRAM_MODULE, authorized, default_version, pem_stores
from sidecar.local.ports import HOST, free_ports
from sidecar.protocol.caller import decode_frame, encode_frame
from sidecar.security.exchange import Connection, login
from tests.certificates import Authority

if TYPE_CHECKING:
    from sidecar.protocol.caller import AnswerT, Request
    from sidecar.protocol.schema import Message, Values
    from sidecar.security.credentials import Credentials
    from sidecar.security.exchange import Session

REAUTHENTICATION_MS = 60_000
"""On SASL_PLAINTEXT."""
SHORT_REAUTHENTICATION_MS = 2_000
"""On SASL_SSL."""
LENIENT_SESSION_MS = 4_000
"""On SASL_SSL of the lenient broker: long enough for a login on a busy machine, short enough to wait for its end."""
PASSWORD = "alice's secret"
NODE = "sidecar"
"""As whom nodes log in, and the common name of their certificate."""
SCRAM = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
TOKEN_MS = 8_000
"""The life of a delegation token that nobody prolongs."""
SHARED: dict[str, Any] = {
    "delegation_token_secret_key": "the brokers' secret",
    "delegation_token_expiry_time_ms": str(TOKEN_MS),
    "delegation_token_expiry_check_interval_ms": "1000",
    "auto_create_topics_enable": "false",
}
"""Of the broker that the tests of this directory share."""
_LISTENERS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_SECURITY = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class Secured:
    """Clients on PLAINTEXT are super users, and so is `NODE`; PLAIN knows it, alice and bob with `PASSWORD`."""

    kafka: Kafka
    ports: dict[str, int]
    authority: Authority
    admin: AdminClient

    def topics(self, *names: str) -> None:
        for made in self.admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
            made.result(30)

    def scram_user(self, name: str, mechanism: str, password: str = PASSWORD) -> None:
        info = ScramCredentialInfo(SCRAM[mechanism], 4096)
        made = self.admin.alter_user_scram_credentials([UserScramCredentialUpsertion(name, info, password.encode())])
        for each in made.values():
            each.result(30)

    def forget_acls(self) -> None:
        whoever: Any = None  # any name; the stubs know no such filter
        everything = AclBindingFilter(
            ResourceType.ANY,
            whoever,
            ResourcePatternType.ANY,
            whoever,
            whoever,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        for deleted in self.admin.delete_acls([everything]).values():
            deleted.result(30)

    def wire(self, listener: str, context: ssl.SSLContext | None = None) -> AbstractAsyncContextManager[Wire]:
        return wire(self.ports[listener], context)


@asynccontextmanager
async def wire(port: int, context: ssl.SSLContext | None = None) -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_connection(HOST, port, ssl=context)
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


class Wire:
    """One connection, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ids = itertools.count(1)

    async def send(self, frame: bytes) -> bytes:
        async with asyncio.timeout(30):
            self._writer.write(frame)
            size = await self._reader.readexactly(4)
            return size + await self._reader.readexactly(int.from_bytes(size, "big"))

    async def login(self, credentials: Credentials) -> Session:
        return await login(Connection(self.send, self._ids, "node"), credentials)

    async def ask(self, request: Request[AnswerT]) -> AnswerT:
        correlation_id = next(self._ids)
        frame = await self.send(encode_frame(request, correlation_id, "node"))
        return decode_frame(request, correlation_id, frame, 4, len(frame))

    async def ask_table(self, message: Message, version: int, values: Values) -> dict[str, Any]:
        frame = await self.send(message.encode_request(version, next(self._ids), b"node", values))
        return message.decode_answer(frame, 0, len(frame), version)


@contextmanager
def secured_kafka(
    directory: Path,
    *,
    plain_mechanisms: str = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    tls_mechanisms: str = "SCRAM-SHA-256",
    tls_session_ms: int | str = SHORT_REAUTHENTICATION_MS,
    version: str | None = None,
    **overrides: str,
) -> Iterator[Secured]:
    """A broker that is stopped in the end; `allow_everyone="true"` is a property with dots in place of underscores.
    `plain_…`: of the listener SASL_PLAINTEXT, `tls_…`: of SASL_SSL. `version`: of Kafka, None for the default.
    """
    authority = Authority(directory, "authority")
    certificate, key = authority.issue("broker", file="broker")
    pair = directory / "broker-both.pem"
    pair.write_bytes(key.read_bytes() + certificate.read_bytes())
    controller, *rest = free_ports(1 + len(_LISTENERS))
    ports: dict[str, int] = dict(zip(_LISTENERS, rest, strict=True))
    listeners = ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())
    users = " ".join(f'user_{name}="{PASSWORD}"' for name in (NODE, "alice", "bob"))
    modules = {
        "plain": f"{_SECURITY}.plain.PlainLoginModule required {users};",
        "scram-sha-256": f"{SCRAM_MODULE};",
        "scram-sha-512": f"{SCRAM_MODULE};",
        "oauthbearer": f'{_SECURITY}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="b";',
    }
    properties = {
        "listeners": f"{listeners},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": ",".join(f"{name}:{name}" for name in _LISTENERS) + ",CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        **authorized(("User:ANONYMOUS", f"User:{NODE}", f"User:CN={NODE}")),
        **pem_stores(pair, authority.ca),
        "listener.name.ssl.ssl.client.auth": "required",
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": plain_mechanisms,
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": tls_mechanisms,
        "listener.name.sasl_plaintext.connections.max.reauth.ms": str(REAUTHENTICATION_MS),
        "listener.name.sasl_ssl.connections.max.reauth.ms": str(tls_session_ms),
        "connection.failed.authentication.delay.ms": "0",
        **{
            f"listener.name.{listener}.{name}.sasl.jaas.config": module
            for listener in ("sasl_plaintext", "sasl_ssl")
            for name, module in modules.items()
        },
        **{name.replace("_", "."): value for name, value in overrides.items()},
    }
    config = KafkaConfig(version=version or default_version(), ports=(ports["PLAINTEXT"],), overrides=properties)
    kafka = Kafka(directory / "kafka", config)
    kafka.start()
    try:
        yield Secured(kafka, ports, authority, AdminClient({"bootstrap.servers": f"{HOST}:{ports['PLAINTEXT']}"}))
    finally:
        kafka.stop(grace=0)
