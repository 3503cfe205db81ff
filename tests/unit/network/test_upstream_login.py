"""A connection to a broker that asks for a login: what waits for it, what comes before it, and how it fails."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sidecar.network.upstream import UpstreamConnection
from sidecar.protocol.messages.security import SASL_AUTHENTICATE, SASL_HANDSHAKE
from sidecar.protocol.primitives import I32
from sidecar.security.broker_access import BrokerAccess
from sidecar.security.credentials import PasswordCredentials
from tests.unit.network.peers import Asked, Owner, Peer, answer_frame, broker, frame_of, on_uvloop
from tests.unit.network.test_upstream import ask, until

if TYPE_CHECKING:
    from collections.abc import Callable

ACCESS = BrokerAccess(credentials=PasswordCredentials("PLAIN", "alice", "secret"))


@dataclass
class Doorkeeper:
    """A broker that wants a login first, and again from time to time; other requests it answers with their ids.

    `told`: what it was sent, logins as "login". It answers nothing before `may_answer` is set.
    """

    lifetime_ms: int = 0
    error: int = 0
    told: list[int | str] = field(default_factory=list)
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, peer: Peer) -> None:
        while True:
            size = I32.unpack(await peer.reader.readexactly(4))[0]
            frame = await peer.reader.readexactly(size)
            key = int.from_bytes(frame[:2], "big")
            if key == SASL_HANDSHAKE.key:
                self.told.append("handshake")
                await self.may_answer.wait()
                values = {"error_code": 0, "mechanisms": ["PLAIN"]}
                peer.writer.write(SASL_HANDSHAKE.encode_answer(1, I32.unpack_from(frame, 4)[0], values))
            elif key == SASL_AUTHENTICATE.key:
                self.told.append("login")
                values = {
                    "error_code": self.error,
                    "error_message": "who are you",
                    "auth_bytes": b"",
                    "session_lifetime_ms": self.lifetime_ms,
                }
                peer.writer.write(SASL_AUTHENTICATE.encode_answer(2, I32.unpack_from(frame, 4)[0], values))
            else:
                asked = I32.unpack_from(frame)[0]
                self.told.append(asked)
                await self.may_answer.wait()
                peer.writer.write(answer_frame(asked, b"!"))


def answered(*asked: Asked) -> Callable[[], bool]:
    return lambda: all(each.got == b"!" for each in asked)


@on_uvloop
async def test_requests_wait_for_the_login_and_keep_their_order() -> None:
    keeper, owner = Doorkeeper(), Owner()
    async with broker(keeper) as address:
        connection = UpstreamConnection(owner, address, 5.0, ACCESS)
        connection.open()
        first = ask(connection, 1)
        await until(lambda: keeper.told == ["handshake"], "the handshake")
        second = ask(connection, 2)
        assert not connection.connected
        assert owner.opened == 0
        keeper.may_answer.set()
        await until(answered(first, second), "answers")
        assert keeper.told == ["handshake", "login", 1, 2]
        assert owner.opened == 1


@on_uvloop
async def test_what_waited_for_a_login_that_is_refused_was_not_sent() -> None:
    keeper, owner = Doorkeeper(error=58), Owner()
    keeper.may_answer.set()
    async with broker(keeper) as address:
        connection = UpstreamConnection(owner, address, 5.0, ACCESS)
        connection.open()
        asked = ask(connection, 1)
        await until(lambda: asked.over, "the end")
        assert asked.lost is not None
        assert not asked.lost.sent
        assert connection.failure is not None
        assert "cannot log in at" in connection.failure
        assert "who are you" in connection.failure
        assert keeper.told == ["handshake", "login"]


@on_uvloop
async def test_a_broker_that_never_answers_a_login_is_given_up() -> None:
    async with broker(Doorkeeper()) as address:
        connection = UpstreamConnection(Owner(), address, 0.1, ACCESS)
        connection.open()
        asked = ask(connection, 1)
        await until(lambda: asked.over, "the end")
        assert connection.failure is not None
        assert "timed out" in connection.failure


@on_uvloop
async def test_a_login_is_renewed_behind_what_is_under_way_and_before_what_comes() -> None:
    keeper = Doorkeeper(lifetime_ms=1_200)  # renewed after a second at the soonest
    keeper.may_answer.set()
    async with broker(keeper) as address:
        connection = UpstreamConnection(Owner(), address, 5.0, ACCESS)
        connection.open()
        await until(lambda: connection.connected, "the login")
        keeper.may_answer.clear()
        before = ask(connection, 1)
        await until(lambda: keeper.told.count(1) == 1, "the request before")
        await until(lambda: not connection.connected, "the renewal")
        during = ask(connection, 2)
        keeper.may_answer.set()
        await until(answered(before, during), "answers")
        assert keeper.told == ["handshake", "login", 1, "handshake", "login", 2]


@on_uvloop
async def test_records_without_acknowledgement_are_sent_behind_the_login_of_a_client_that_is_gone() -> None:
    keeper = Doorkeeper()
    async with broker(keeper) as address:
        connection = UpstreamConnection(Owner(), address, 5.0, ACCESS)
        connection.open()
        await until(lambda: keeper.told == ["handshake"], "the handshake")
        connection.send_parts([frame_of(I32.pack(1))], None)
        connection.finish()
        keeper.may_answer.set()
        await until(lambda: keeper.told == ["handshake", "login", 1], "the records")
