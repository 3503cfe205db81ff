"""A listener with TLS and logins in front of a node that has neither, made of `sidecar.security.servers`."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from sidecar.local.ports import HOST
from sidecar.protocol.messages.cluster import API_VERSIONS
from sidecar.protocol.messages.security import SASL_AUTHENTICATE, SASL_HANDSHAKE
from sidecar.protocol.primitives import Reader
from sidecar.security import scram
from sidecar.security.errors import LoginError
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
from sidecar.security.users import Users

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

NAME = "alice"
SECRET = "the clients secret"
TOKEN = "good"
USERS = Users.of({NAME: {kind: scram.stored_keys(kind, SECRET, b"0123456789abcdef", 4096) for kind in Hash}})


async def _owner_of(token: str) -> Identity:
    if token != TOKEN:
        raise RefusedTokenError("another token")
    return Identity(NAME)


def _server(mechanism: str) -> ServerMechanism:
    if mechanism == "PLAIN":
        return PlainServer(check_password(lambda: USERS))
    if mechanism == "OAUTHBEARER":
        return OauthBearerServer(_owner_of)
    return ScramServer(next(kind for kind in Hash if kind.mechanism == mechanism), USERS.credential)


class Front:
    """What comes before a login, and after the end of a session (`lifetime_s`, 0: for ever), ends the connection, as at
    a broker. `logins` counts those that succeeded, renewals too.
    """

    def __init__(self, node_port: int, lifetime_s: float) -> None:
        self._node_port = node_port
        self._lifetime_s = lifetime_s
        self.logins = 0
        self.renewals = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        node_reader, node_writer = await asyncio.open_connection(HOST, self._node_port)
        back: list[asyncio.Task[None]] = []
        try:
            await self._forward(reader, writer, node_reader, node_writer, back)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            for each in (writer, node_writer):
                each.close()
            for task in back:
                task.cancel()
            await asyncio.gather(*back, return_exceptions=True)

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        node_reader: asyncio.StreamReader,
        node: asyncio.StreamWriter,
        back: list[asyncio.Task[None]],
    ) -> None:
        server: ServerMechanism | None = None
        ends_at: float | None = None
        while True:
            frame = await _frame(reader)
            head = Reader(frame, 4)
            key, version, correlation_id = head.i16(), head.i16(), head.i32()
            head.skip(max(0, head.i16()))
            if key == SASL_HANDSHAKE.key:
                asked = SASL_HANDSHAKE.decode_request(frame, head.position, len(frame), version)
                server = _server(asked["mechanism"])
                answer: dict[str, Any] = {"error_code": 0, "mechanisms": [asked["mechanism"]]}
                writer.write(SASL_HANDSHAKE.encode_answer(version, correlation_id, answer))
            elif key == SASL_AUTHENTICATE.key:
                assert server is not None
                asked = SASL_AUTHENTICATE.decode_request(frame, head.position, len(frame), version)
                try:
                    data = await server.receive(bytes(asked["auth_bytes"]))
                except LoginError as error:
                    answer = {"error_code": error.code, "error_message": error.message, "auth_bytes": b""}
                else:
                    answer = {"error_code": 0, "auth_bytes": data, "session_lifetime_ms": int(self._lifetime_s * 1000)}
                writer.write(SASL_AUTHENTICATE.encode_answer(version, correlation_id, answer))
                if server.accepted is not None:
                    if ends_at is None:
                        back.append(asyncio.create_task(_copy(node_reader, writer)))
                    self.logins += 1
                    self.renewals += ends_at is not None
                    ends_at = time.monotonic() + (self._lifetime_s or 3600)
            elif key == API_VERSIONS.key and ends_at is None:
                node.write(frame)
                answered = await _frame(node_reader)
                values = API_VERSIONS.decode_answer(answered, 0, len(answered), version)
                values["api_keys"] += [
                    {"api_key": message.key, "min_version": 0, "max_version": 1}
                    for message in (SASL_HANDSHAKE, SASL_AUTHENTICATE)
                ]
                writer.write(API_VERSIONS.encode_answer(version, correlation_id, values))
            elif ends_at is not None and time.monotonic() < ends_at:
                node.write(frame)
            else:
                return


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(int.from_bytes(size, "big"))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
    writer.close()


@asynccontextmanager
async def front(
    node_port: int, port: int, context: ssl.SSLContext | None, lifetime_s: float = 0
) -> AsyncIterator[Front]:
    """Listens at `port`, which the node advertises."""
    made = Front(node_port, lifetime_s)
    serving: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.create_task(made.serve(reader, writer)))

    server = await asyncio.start_server(accept, HOST, port, ssl=context)
    try:
        yield made
    finally:
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
