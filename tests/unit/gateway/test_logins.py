"""Logins at a node's gateway: what may come when, sessions that end, and those that are renewed."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.gateway import logins
from sidecar.gateway.handler import Apis, Gateway
from sidecar.gateway.logins import ClientListener, Logins
from sidecar.network.admission import Admission, ConnectionLimits, Refusal
from sidecar.network.places import Places
from sidecar.network.request import Exchange
from sidecar.protocol.api import ApiKey
from sidecar.protocol.api_versions import VersionRange
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.messages import security
from sidecar.security.logins import Offer
from sidecar.security.servers import Identity, refusal
from tests.unit.network.peers import LOOPBACK, Peer, answer, request
from tests.wait import wait_for_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from sidecar.gateway.client import Client
    from sidecar.network.request import Request


class Password:
    """A mechanism of two messages: `hello`, then a name, let in unless it is `nobody`."""

    def __init__(self, lifetime_s: float | None) -> None:
        self._lifetime_s = lifetime_s
        self.accepted: Identity | None = None

    async def receive(self, message: bytes) -> bytes:
        if message == b"hello":
            return b"who"
        if message == b"away":
            raise DisconnectedError("no broker", sent=False)
        if message == b"nobody":
            raise refusal("PLAIN", "nobody knows nobody")
        until = None if self._lifetime_s is None else time.time() + self._lifetime_s
        self.accepted = Identity(message.decode(), until)
        return b""


class Known:
    """An `Authenticator`, and the hooks of logins and of the gateway."""

    under_way = waiting = 0

    def __init__(self) -> None:
        self.lifetime_s: float | None = None
        self.ended = 0
        self.said: list[tuple[str, ...]] = []
        self.rejected: list[str] = []
        self.details: list[str] = []

    async def begin(self, mechanism: str, host: str) -> Offer:
        assert host == LOOPBACK
        offers = ("PLAIN", "SCRAM-SHA-256")
        return Offer(offers, Password(self.lifetime_s) if mechanism in offers else None, self._end)

    def _end(self) -> None:
        self.ended += 1

    async def close(self) -> None:
        pass

    def login_done(self, mechanism: str) -> None:
        self.said.append((mechanism,))

    def login_refused(self, peer: str, mechanism: str, reason: str) -> None:
        self.said.append((mechanism, reason))

    def client_rejected(self, peer: str, client_id: str, reason: str, detail: str) -> None:
        self.rejected.append(reason)
        self.details.append(detail)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


class Talk:
    """A client's side."""

    def __init__(self, peer: Peer, gateway: Gateway) -> None:
        self.peer = peer
        self.gateway = gateway
        self._number = 0

    @property
    def principal(self) -> str:
        [client] = self.gateway.clients.values()
        return client.principal

    async def _ask(self, message: Any, version: int, values: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        self.peer.writer.write(message.encode_request(version, self._number, b"c", values))
        async with asyncio.timeout(5):
            size = await self.peer.reader.readexactly(4)
            frame = size + await self.peer.reader.readexactly(int.from_bytes(size, "big"))
        return message.decode_answer(frame, 0, len(frame), version)

    async def handshake(self, mechanism: str = "PLAIN") -> dict[str, Any]:
        return await self._ask(security.SASL_HANDSHAKE, 1, {"mechanism": mechanism})

    async def say(self, message: bytes, version: int = 2) -> dict[str, Any]:
        return await self._ask(security.SASL_AUTHENTICATE, version, {"auth_bytes": message})

    async def log_in(self, name: bytes = b"alice") -> dict[str, Any]:
        assert (await self.handshake())["error_code"] == 0
        assert (await self.say(b"hello"))["auth_bytes"] == b"who"
        return await self.say(name)

    async def is_served(self) -> bool:
        """Whether an ordinary request is answered, and the connection not closed."""
        self.peer.writer.write(request(77, key=3, version=1))
        try:
            return await self.peer.answers(1) == [77]
        except (asyncio.IncompleteReadError, ConnectionError):
            return False


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Known:
    monkeypatch.setattr(logins, "FAILURE_S", 0.0)
    monkeypatch.setattr(logins, "LEAST_S", 0.0)
    return Known()


async def _served(client: Client, exchange: Exchange, request: Request) -> None:
    exchange.answer(answer(request.correlation_id))


@asynccontextmanager
async def gateway_of(
    known: Known, admission: Admission | None = None, login_s: float = logins.LOGIN_S
) -> AsyncIterator[Callable[[], AbstractAsyncContextManager[Talk]]]:
    upstream: Any = None
    hooks: Any = known
    listener = ClientListener("OUTSIDE", logins=Logins(known, hooks, login_s))
    gateway = Gateway(upstream, 1, "boot", 1024 * 1024, hooks, [listener], admission)
    gateway.serve(Apis({}, {3: _served, 18: _served}), [VersionRange(3, 0, 1), VersionRange(18, 0, 3)])
    server = await asyncio.get_running_loop().create_server(gateway.new_connection, LOOPBACK, 0)
    port = server.sockets[0].getsockname()[1]

    @asynccontextmanager
    async def connect() -> AsyncIterator[Talk]:
        peer = Peer(*await asyncio.open_connection(LOOPBACK, port))
        try:
            yield Talk(peer, gateway)
        finally:
            peer.close()

    try:
        yield connect
    finally:
        await gateway.close()
        server.close()
        await asyncio.sleep(0.01)


async def test_a_client_is_served_once_it_has_logged_in(known: Known) -> None:
    async with gateway_of(known) as connect, connect() as talk:
        talk.peer.writer.write(request(5, key=18))
        assert await talk.peer.answers(1) == [5]
        assert talk.principal == "User:ANONYMOUS"
        found = await talk.log_in()
        assert (found["error_code"], found["error_message"], found["session_lifetime_ms"]) == (0, None, 0)
        assert talk.principal == "User:alice"
        assert await talk.is_served()
    assert known.said == [("PLAIN",)]
    assert known.ended == 1


@pytest.mark.parametrize("after", ["nothing", "handshake", "half"])
async def test_other_requests_before_the_end_of_a_login_close_the_connection(known: Known, after: str) -> None:
    async with gateway_of(known) as connect, connect() as talk:
        if after != "nothing":
            await talk.handshake()
        if after == "half":
            await talk.say(b"hello")
        assert not await talk.is_served()
    assert known.rejected == ["not_logged_in"]
    assert known.ended == (after != "nothing")


async def test_a_refused_login_is_answered_and_closed(known: Known) -> None:
    async with gateway_of(known) as connect, connect() as talk:
        refused = await talk.log_in(b"nobody")
        assert refused["error_code"] == 58
        assert "nobody" not in refused["error_message"]
        [kept] = talk.gateway.refusals.newest()
        assert (kept.client_id, kept.topic, kept.code, kept.reason) == ("c", "", 58, refused["error_message"])
        assert await talk.peer.ended()
    assert known.said == [("PLAIN", "nobody knows nobody")]


async def test_a_mechanism_that_is_not_offered_is_answered_with_those_that_are(known: Known) -> None:
    async with gateway_of(known) as connect, connect() as talk:
        found = await talk.handshake("GSSAPI")
        assert (found["error_code"], found["mechanisms"]) == (33, ["PLAIN", "SCRAM-SHA-256"])
        assert [(kept.client_id, kept.code) for kept in talk.gateway.refusals.newest()] == [("c", 33)]
        assert await talk.peer.ended()


async def test_the_first_handshake_is_told_as_librdkafka_wants_it_and_refused(known: Known) -> None:
    assert VersionRange(ApiKey.SASL_HANDSHAKE, 0, 1) in logins.with_logins([])
    async with gateway_of(known) as connect, connect() as talk:
        talk.peer.writer.write(request(5, key=ApiKey.SASL_HANDSHAKE, version=0))
        assert await talk.peer.ended()
    assert known.rejected == ["unsupported_version"]
    assert known.details == ["SaslHandshake v0: 1 to 1 are served"]


async def test_messages_without_a_handshake_are_refused(known: Known) -> None:
    async with gateway_of(known) as connect:
        async with connect() as talk:
            assert (await talk.say(b"hello"))["error_code"] == 34
            assert await talk.peer.ended()
        async with connect() as talk:
            await talk.log_in()
            assert (await talk.say(b"hello"))["error_code"] == 34
            assert await talk.is_served()


async def test_where_nobody_can_be_asked_the_connection_ends_without_an_answer(known: Known) -> None:
    """Clients take an answer for good, and come again after a connection that is closed."""
    async with gateway_of(known) as connect, connect() as talk:
        await talk.handshake()
        with pytest.raises(asyncio.IncompleteReadError):
            await talk.say(b"away")
    assert known.said == []


async def test_frames_are_small_before_a_login_smaller_before_it_has_a_place_and_large_behind_it(known: Known) -> None:
    def announced(size: int) -> bytes:
        return size.to_bytes(4, "big") + b"\x00\x24\x00\x02" + bytes(20)

    async with gateway_of(known) as connect:
        async with connect() as talk:
            talk.peer.writer.write(announced(logins.STRANGERS_BYTES + 1))
            assert await talk.peer.ended()
        async with connect() as talk:
            await talk.handshake()
            talk.peer.writer.write(announced(logins.FRAME_BYTES + 1))
            assert await talk.peer.ended()
        async with connect() as talk:
            await talk.log_in(b"a" * (logins.FRAME_BYTES - 100))
            talk.peer.writer.write(request(9, key=3, version=1, body=bytes(logins.FRAME_BYTES + 1)))
            assert await talk.peer.answers(1) == [9]
    assert known.rejected == ["too_large"] * 2


async def test_who_sends_its_whole_login_at_once_is_let_in_and_served(
    known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker takes it so: it reads on when it has answered, and what is allowed by then counts."""
    taken = asyncio.Event()
    begin = known.begin

    async def slowly(mechanism: str, host: str) -> Offer:
        await taken.wait()
        return await begin(mechanism, host)

    monkeypatch.setattr(known, "begin", slowly)
    name = b"a" * (2 * logins.STRANGERS_BYTES)
    large = request(9, key=3, version=1, body=bytes(logins.FRAME_BYTES + 1))
    messages = [
        security.SASL_HANDSHAKE.encode_request(1, 1, b"c", {"mechanism": "PLAIN"}),
        security.SASL_AUTHENTICATE.encode_request(2, 2, b"c", {"auth_bytes": b"hello"}),
        security.SASL_AUTHENTICATE.encode_request(2, 3, b"c", {"auth_bytes": name}),
        large,
    ]
    async with gateway_of(known) as connect, connect() as talk:
        talk.peer.writer.write(b"".join(messages))
        await asyncio.sleep(0.1)
        [client] = talk.gateway.clients.values()
        assert client.connection.held_bytes <= 2 * logins.STRANGERS_BYTES, "a stranger's"
        taken.set()
        assert await talk.peer.answers(4) == [1, 2, 3, 9]
        assert client.principal == f"User:{name.decode()}"
    assert known.rejected == []


async def test_what_is_too_large_behind_a_login_too_ends_the_connection(known: Known) -> None:
    handshake = security.SASL_HANDSHAKE.encode_request(1, 1, b"c", {"mechanism": "PLAIN"})
    async with gateway_of(known) as connect, connect() as talk:
        talk.peer.writer.write(handshake + (logins.FRAME_BYTES + 1).to_bytes(4, "big") + b"\x00\x24\x00\x02")
        assert await talk.peer.answers(1) == [1]
        assert await talk.peer.ended()
    assert known.rejected == ["too_large"]


async def test_who_takes_too_long_is_closed(known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop's clock is put on, so that it does not matter how long a busy machine takes for a login."""
    loop, put_on = asyncio.get_running_loop(), [0.0]
    monkeypatch.setattr(loop, "time", lambda now=loop.time: now() + sum(put_on))
    async with gateway_of(known) as connect, connect() as slow, connect() as talk:
        await slow.handshake()
        await talk.log_in()
        put_on.append(logins.LOGIN_S)
        assert await slow.peer.ended()
        assert await talk.is_served()
    assert known.rejected == ["login_timeout"]


async def test_who_begins_another_login_and_never_ends_it_is_closed(known: Known) -> None:
    """It would keep a place among all logins, and a connection to a broker."""
    async with gateway_of(known, login_s=0.1) as connect:
        async with connect() as talk:
            await talk.log_in()
            await talk.handshake()
            assert await talk.peer.ended()
        async with connect() as talk:
            await talk.log_in()
            await talk.log_in()
            await asyncio.sleep(0.2)
            assert await talk.is_served()
    assert known.rejected == ["login_timeout"]
    assert known.ended == 4


async def test_a_session_ends_unless_it_is_renewed(known: Known) -> None:
    known.lifetime_s = 0.5
    async with gateway_of(known) as connect, connect() as talk:
        assert 0 < (await talk.log_in())["session_lifetime_ms"] <= 500
        assert await talk.is_served()
        await asyncio.sleep(0.55)
        known.lifetime_s = 60
        assert (await talk.log_in())["session_lifetime_ms"] > 500  # also a moment too late, as at brokers
        assert await talk.is_served()
    known.lifetime_s = 0.1
    async with gateway_of(known) as connect, connect() as talk:
        await talk.log_in()
        await asyncio.sleep(0.15)
        assert not await talk.is_served()
    assert known.rejected == ["session_ended"]


async def test_a_renewal_keeps_principal_and_mechanism(known: Known) -> None:
    async with gateway_of(known) as connect:
        async with connect() as talk:
            await talk.log_in()
            refused = await talk.log_in(b"bob")
            assert refused["error_code"] == 58
            assert "User:alice to User:bob" in refused["error_message"]
            assert await talk.peer.ended()
        async with connect() as talk:
            await talk.log_in()
            assert (await talk.handshake("SCRAM-SHA-256"))["error_code"] == 33
            assert await talk.peer.ended()


async def test_a_renewal_comes_a_second_after_the_last_login_at_the_earliest(
    known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logins, "LEAST_S", 60.0)
    async with gateway_of(known) as connect, connect() as talk:
        await talk.log_in()
        assert (await talk.handshake())["error_code"] == 34
        assert await talk.is_served()


async def test_a_principal_has_no_more_connections_than_it_may_and_others_are_let_in(known: Known) -> None:
    """Without an answer: a client takes a refused login for a wrong password, and does not come again."""
    refused: list[Refusal] = []
    limits = ConnectionLimits(connections=10, per_address=10, per_principal=1, rate=0, files=20, address_files=20)
    admission = Admission(limits, lambda reason, _host: refused.append(reason))
    async with gateway_of(known, admission) as connect:
        async with connect() as first, connect() as second, connect() as other:
            await first.log_in()
            with pytest.raises(asyncio.IncompleteReadError):
                await second.log_in()
            await other.log_in(b"bob")
            assert await first.is_served()
            await first.log_in()  # again, on the same connection
            assert refused == [Refusal.PRINCIPAL]
        await wait_for_async(lambda: _is(lambda: not admission.connections), "all are gone")
        async with connect() as talk:
            await talk.log_in()
            assert await talk.is_served()


async def test_a_client_that_goes_during_its_login_leaves_no_place_taken(
    known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    checking, checked = asyncio.Event(), asyncio.Event()
    receive = Password.receive

    async def slowly(self: Password, message: bytes) -> bytes:
        if message == b"alice" and not checked.is_set():
            checking.set()
            await checked.wait()
        return await receive(self, message)

    monkeypatch.setattr(Password, "receive", slowly)
    limits = ConnectionLimits(connections=10, per_address=10, per_principal=1, rate=0, files=20, address_files=20)
    admission = Admission(limits)
    async with gateway_of(known, admission, login_s=600) as connect:
        async with connect() as talk:
            asking = asyncio.create_task(talk.log_in())
            await checking.wait()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await asking
        await wait_for_async(lambda: _is(lambda: not admission.connections), "it is gone", timeout=10)
        assert known.ended == 1, "a broker that does not answer keeps its place"
        checked.set()
        async with connect() as talk:
            await talk.log_in()
            assert await talk.is_served()


async def test_a_client_that_goes_while_it_waits_for_its_turn_gives_it_up(known: Known) -> None:
    """Else those of a crowd that has gone would each cost a connection to a broker, and time of those that wait."""
    places = Places(1)

    async def begin(mechanism: str, host: str) -> Offer:
        await places.take(host)
        return Offer(("PLAIN",), Password(None), lambda: places.give_back(host))

    known.begin = begin
    async with gateway_of(known) as connect, connect() as first:
        assert (await first.handshake())["error_code"] == 0
        async with connect() as gone, connect() as waits:
            asking = [asyncio.create_task(each.handshake()) for each in (gone, waits)]
            await wait_for_async(lambda: _is(lambda: places.waiting == 2), "both to wait")
            gone.peer.writer.close()
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await asking[0]
            await wait_for_async(lambda: _is(lambda: places.waiting == 1), "the first to be forgotten")
            assert (await first.say(b"hello"), await first.say(b"alice"))[1]["error_code"] == 0
            assert (await asking[1])["error_code"] == 0
    await wait_for_async(lambda: _is(lambda: places.free == 1), "the place back")


async def test_a_connection_too_many_of_an_address_is_closed_and_says_why_to_the_log(known: Known) -> None:
    refused: list[tuple[Refusal, str]] = []
    limits = ConnectionLimits(connections=10, per_address=1, per_principal=0, rate=0, files=20, address_files=20)
    admission = Admission(limits, lambda reason, host: refused.append((reason, host)))
    async with gateway_of(known, admission) as connect:
        async with connect() as first, connect() as second:
            await first.log_in()
            assert await second.peer.ended()
            assert await first.is_served()
        assert refused == [(Refusal.ADDRESS, LOOPBACK)]
        await wait_for_async(lambda: _is(lambda: not admission.connections), "it is gone")
        async with connect() as talk:
            await talk.log_in()


async def _is(condition: Callable[[], bool]) -> bool:
    return condition()
