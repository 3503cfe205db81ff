"""Quotas by principal: when a client is over, what its answers say, and that it is not read for so long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from sidecar.gateway.client import Client
from sidecar.gateway.metering import ConnectionMeter, Metering
from sidecar.gateway.quotas import MOST_S, QuotaLimits, Quotas
from sidecar.gateway.throttling import with_throttle
from sidecar.network.client import ClientConnection
from sidecar.network.framing import Frame
from sidecar.network.handling import Pause
from sidecar.network.request import Exchange, Request
from sidecar.protocol import fetch, produce
from sidecar.protocol.leaders import Leader
from sidecar.protocol.primitives import I32
from sidecar.protocol.produce import ProduceResult
from tests.unit.network.peers import Peer, Recorder, frame_of, listening, on_uvloop, request
from tests.wait import wait_until

PRODUCE, FETCH, METADATA = 0, 1, 3
LEADER = Leader(2, 5, "node.example", 9092)


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Metered:
    limits: QuotaLimits
    clock: Clock = field(default_factory=Clock)
    told: list[tuple[int, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.quotas = Quotas(self.limits, lambda key, seconds: self.told.append((key, seconds)), self.clock)

    def charge(self, key: int, request_bytes: int = 0, answer_bytes: int = 0, who: str = "User:alice") -> float:
        return self.quotas.charge(who, key, request_bytes, answer_bytes)


def test_who_stays_below_a_quota_never_waits() -> None:
    metered = Metered(QuotaLimits(producer=1_000))
    for _ in range(20):
        assert metered.charge(PRODUCE, 500) == 0
        metered.clock.now += 0.5
    assert metered.told == []


def test_who_is_over_waits_until_the_average_is_right_again() -> None:
    metered = Metered(QuotaLimits(producer=1_000))
    assert metered.charge(PRODUCE, 3_000) == pytest.approx(2.0)
    metered.clock.now += 2.0
    assert metered.charge(PRODUCE, 100) == pytest.approx(0.1)
    assert [key for key, _ in metered.told] == [PRODUCE, PRODUCE]


def test_nobody_waits_longer_than_a_window() -> None:
    metered = Metered(QuotaLimits(producer=1))
    assert metered.charge(PRODUCE, 10**9) == MOST_S


def test_what_was_used_beyond_a_quota_is_paid_back_in_full() -> None:
    """However much came at once: a client that always waits as it is told gets its quota, not a request per window."""
    metered = Metered(QuotaLimits(producer=1_000))
    sent = 0
    while metered.clock.now < 1_000:
        wait = metered.charge(PRODUCE, 100_000 if sent == 0 else 100)
        sent += 100_000 if sent == 0 else 100
        metered.clock.now += max(wait, 0.001)
    assert 1_000 * 1_000 <= sent <= 1_001 * 1_000


def test_produce_counts_what_is_sent_and_fetch_what_is_got_and_requests_count_all() -> None:
    metered = Metered(QuotaLimits(producer=1_000, consumer=2_000))
    assert metered.charge(FETCH, 10_000, 1_000) == 0
    assert metered.charge(PRODUCE, 1_000, 10_000) == 0
    assert metered.charge(METADATA, 10_000, 10_000) == 0
    counted = Metered(QuotaLimits(requests=2))
    assert [counted.charge(METADATA) for _ in range(4)] == pytest.approx([0, 0, 0.5, 1.0])


def test_principals_have_quotas_of_their_own() -> None:
    metered = Metered(QuotaLimits(producer=1_000))
    assert metered.charge(PRODUCE, 5_000) > 0
    assert metered.charge(PRODUCE, 500, who="User:bob") == 0


def test_there_are_none_unless_they_are_set() -> None:
    assert not QuotaLimits().any
    assert QuotaLimits(requests=1).any


def fetched(throttle_ms: int, version: int) -> bytes:
    error = fetch.error_element(version, 0, 6)
    leaders = [LEADER] if version >= 16 else []
    return b"".join(map(bytes, fetch.encode_answer(7, version, [(b"o" * 16, error)], throttle_ms, 0, leaders)))


def produced(throttle_ms: int, version: int) -> bytes:
    """With the node that leads the partition behind the throttle time, as an answer of version 10 may have."""
    results = [ProduceResult(b"orders", 0, 6, -1), ProduceResult(b"orders", 1, 0, 5)]
    leaders = {(b"orders", 0): LEADER} if version >= 10 else None
    ids = {b"orders": b"o" * 16} if version >= 13 else None
    return produce.encode_answer(7, version, results, throttle_ms, ids, leaders)


@pytest.mark.parametrize(
    ("answer", "key", "version"),
    [*((fetched, FETCH, version) for version in range(4, 19)), *((produced, PRODUCE, each) for each in range(3, 14))],
)
def test_an_answer_says_the_longer_of_the_brokers_wait_and_the_nodes(
    answer: Callable[[int, int], bytes], key: int, version: int
) -> None:
    assert with_throttle(answer(0, version), key, version, 500) == answer(500, version)
    assert with_throttle(answer(9_000, version), key, version, 500) == answer(9_000, version)


@pytest.mark.parametrize(("key", "version"), [(FETCH, 0), (PRODUCE, 0), (METADATA, 3), (PRODUCE, 9), (PRODUCE, 13)])
def test_an_answer_without_a_place_for_it_stays_as_it_is(key: int, version: int) -> None:
    answer = frame_of(I32.pack(7) + b"\0\x02rest")
    assert with_throttle(answer, key, version, 500) == answer


class Charged(Recorder):
    """A handler whose connections are metered."""

    def __init__(self, quotas: Quotas) -> None:
        super().__init__()
        self.metering = Metering(quotas)
        self.principal: Callable[[], str | None] = lambda: "User:alice"

    def factory(self) -> ClientConnection:
        connection = ClientConnection(self, len(self.connections) + 1, self.limit, None)
        client = cast(Client, Whose(connection, self))
        connection.meter = ConnectionMeter(client, None, self.metering)
        return connection

    def client_closed(self, connection: ClientConnection) -> None:
        self.metering.end(cast(Client, Whose(connection, self)))
        super().client_closed(connection)


@dataclass
class Whose:
    """What a meter sees of a client."""

    connection: ClientConnection
    handler: Any

    @property
    def is_known(self) -> bool:
        return self.handler.principal() is not None

    @property
    def principal(self) -> str:
        return self.handler.principal()


async def throttle_of(peer: Peer) -> int:
    """What the next answer to a Produce without tagged fields says."""
    async with asyncio.timeout(5):
        size = I32.unpack(await peer.reader.readexactly(4))[0]
        return I32.unpack((await peer.reader.readexactly(size))[-4:])[0]


@on_uvloop
@pytest.mark.parametrize("how", ["broker", "node", "late"])
async def test_the_answer_leaves_at_once_and_the_next_request_is_not_read_for_so_long(how: str) -> None:
    clock = Clock()
    recorder = Charged(Quotas(QuotaLimits(producer=1_000), clock=clock))

    def answer(connection: ClientConnection, asked: Request, exchange: Exchange) -> None:
        found = produced(0, 8)
        if how == "node":
            exchange.answer([found])
        else:
            exchange.answer_frame(Frame(bytearray(found), 0, len(found), True))

    if how != "late":
        recorder.act = answer
    async with listening(recorder) as connect, connect() as peer:
        peer.writer.write(request(0, version=8, body=bytes(1_200)))
        if how == "late":  # the answer to the second comes first
            peer.writer.write(request(1, version=8))
            await wait_until(lambda: len(recorder.exchanges) == 2, "both requests")
            for number in (1, 0):
                found = produced(0, 8)
                exchange = recorder.exchanges[number]
                exchange.answer_frame(Frame(bytearray(found), 0, len(found), True))
        waits = await throttle_of(peer)
        assert 200 <= waits <= 300
        connection = recorder.connections[0]
        assert connection._budget.pauses & Pause.THROTTLED
        clock.now += 10
        peer.writer.write(request(2, version=8))
        if how != "late":
            assert await throttle_of(peer) == 0
        assert recorder.rejected == []


@on_uvloop
async def test_no_batch_is_taken_up_behind_one_that_is_over() -> None:
    """Clients pipeline: a broker, too, reads the next request only when the time is over."""
    recorder = Charged(Quotas(QuotaLimits(producer=1), clock=Clock()))
    async with listening(recorder) as connect, connect() as peer:
        peer.writer.write(b"".join(request(number, version=8, body=bytes(1_000)) for number in range(5)))
        await wait_until(lambda: recorder.exchanges, "the first one")
        (exchange,) = recorder.exchanges.values()
        exchange.answer([produced(0, 8)])
        assert await throttle_of(peer) == MOST_S * 1000


@on_uvloop
async def test_a_throttled_connection_that_ends_leaves_nothing_behind() -> None:
    recorder = Charged(Quotas(QuotaLimits(producer=1)))
    recorder.act = lambda connection, asked, exchange: exchange.answer([produced(0, 8)])
    async with listening(recorder) as connect, connect() as peer:
        peer.writer.write(request(0, version=8, body=bytes(1_000)))
        assert await throttle_of(peer) == MOST_S * 1000
        peer.close()
        await wait_until(lambda: recorder.closed, "the end of the connection")


@on_uvloop
async def test_what_is_sent_before_a_login_counts_for_nobody() -> None:
    metered = Metered(QuotaLimits(requests=1))
    recorder = Charged(metered.quotas)
    names: list[str | None] = [None]
    recorder.principal = lambda: names[-1]
    recorder.act = lambda connection, asked, exchange: exchange.answer([produced(0, 8)])
    async with listening(recorder) as connect, connect() as peer:
        for number in range(30):
            peer.writer.write(request(number, version=8))
            assert await throttle_of(peer) == 0
        assert metered.told == []
        names.append("User:alice")
        peer.writer.write(request(30, version=8))
        assert await throttle_of(peer) == 0
        peer.writer.write(request(31, version=8))
        assert await throttle_of(peer) == 1_000
