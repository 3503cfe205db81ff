"""A connection to a broker that asks for a login: what waits for it, what comes before it, and how it fails."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from sidecar.network import upstream
from sidecar.network.upstream import UpstreamConnection
from sidecar.protocol.messages.security import SASL_AUTHENTICATE, SASL_HANDSHAKE
from sidecar.protocol.primitives import I32
from sidecar.security.broker_access import BrokerAccess
from sidecar.security.credentials import PasswordCredentials
from tests.unit.network.peers import Asked, Owner, Peer, answer_frame, broker, frame_of, on_uvloop
from tests.unit.network.test_upstream import ask, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.security.mechanisms import Mechanism

ACCESS = BrokerAccess(credentials=PasswordCredentials("PLAIN", "alice", "secret"))


@dataclass
class Doorkeeper:
    """A broker that wants a login first, and again from time to time; other requests it answers with their ids.

    `offers`: how it answers the mechanism. `told`: what it was sent, logins as "login". It answers nothing before
    `may_answer` is set.
    """

    lifetime_ms: int = 0
    offers: int = 0
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
                values = {"error_code": self.offers, "mechanisms": ["PLAIN"]}
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


class Broken:
    """Credentials that fail as nobody foresees."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def refused(self, reason: str) -> None:
        """See `Credentials`: the next login shows what there is then."""

    async def mechanism(self) -> Mechanism:
        raise self._error

    async def close(self) -> None:
        """There is nothing to close."""


@pytest.mark.parametrize("error", [RuntimeError("a bug"), asyncio.CancelledError()])
def test_whatever_ends_a_login_ends_the_connection(error: BaseException) -> None:
    @on_uvloop
    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        owner = Owner()
        async with broker(Doorkeeper()) as address:
            connection = UpstreamConnection(owner, address, 5.0, BrokerAccess(credentials=Broken(error)))
            connection.open()
            asked = ask(connection, 1)
            await until(lambda: asked.over, "the end")
            assert asked.lost is not None
            assert not asked.lost.sent
            assert owner.closed == 1

    run()


@on_uvloop
async def test_what_waited_for_a_login_at_a_broker_that_hangs_up_was_not_sent() -> None:
    async def hang_up(peer: Peer) -> None:
        await peer.reader.readexactly(4)
        peer.close()

    async with broker(hang_up) as address:
        connection = UpstreamConnection(Owner(), address, 5.0, ACCESS)
        connection.open()
        asked = ask(connection, 1)
        await until(lambda: asked.over, "the end")
        assert asked.lost is not None
        assert not asked.lost.sent


@on_uvloop
async def test_a_socket_with_room_lets_nobody_write_on_who_waits_for_a_renewal() -> None:
    keeper, owner = Doorkeeper(lifetime_ms=1_200), Owner()
    keeper.may_answer.set()
    async with broker(keeper) as address:
        connection = UpstreamConnection(owner, address, 5.0, ACCESS)
        connection.open()
        await until(lambda: connection.connected, "the login")
        keeper.may_answer.clear()
        await until(lambda: not connection.connected, "the renewal")
        connection.pause_writing()
        asked = ask(connection, 1, size=512 * 1024)
        connection.resume_writing()
        assert owner.full[-1]
        keeper.may_answer.set()
        await until(answered(asked), "the answer")
        assert not owner.full[-1]


@on_uvloop
async def test_records_of_a_client_that_is_gone_are_sent_behind_a_renewal_that_it_did_not_read() -> None:
    keeper = Doorkeeper(lifetime_ms=1_200)
    keeper.may_answer.set()
    async with broker(keeper) as address:
        connection = UpstreamConnection(Owner(), address, 5.0, ACCESS)
        connection.open()
        await until(lambda: connection.connected, "the login")
        connection.pause()
        await until(lambda: not connection.connected, "the renewal")
        connection.send_parts([frame_of(I32.pack(1))], None)
        connection.finish()
        await until(lambda: 1 in keeper.told, "the records")


def test_a_renewal_without_an_answer_ends_a_connection_that_nobody_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "_GOODBYE_S", 0.05)

    @on_uvloop
    async def run() -> None:
        keeper, peers = Doorkeeper(lifetime_ms=1_200), list[Peer]()
        keeper.may_answer.set()

        async def talk(peer: Peer) -> None:
            peers.append(peer)
            await keeper(peer)

        async with broker(talk) as address:
            connection = UpstreamConnection(Owner(), address, 5.0, ACCESS)
            connection.open()
            await until(lambda: connection.connected, "the login")
            keeper.may_answer.clear()
            await until(lambda: keeper.told.count("handshake") == 2, "the renewal")
            connection.finish()
            await until(lambda: peers[0].reader.at_eof() or peers[0].reader.exception(), "the end")

    run()
