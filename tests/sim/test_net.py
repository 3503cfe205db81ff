"""The network: ordered streams, and every way in which they end."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.sim.host import Host
from tests.sim.loop import SimLoop
from tests.sim.net import SILENCE_S, Network, Weather

ADDRESS = ("server", 9)


class Hearing(asyncio.Protocol):
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.data = b""
        self.transport: Any = None
        self.ended: list[Exception | None] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.append(exc)


class Pair:
    """A client and a server with a connection between them."""

    def __init__(self, seed: int = 1, weather: Weather | None = None) -> None:
        self.loop = SimLoop()
        self.network = self.loop.network = Network(self.loop, random.Random(seed), weather or Weather())
        self.servers: list[Hearing] = []
        self.server, self.near = Host("server"), Host("client")
        for host in (self.server, self.near):
            host.on_death = self.network.died
        self.loop.finish(self.loop.create_server(self._accepted, *ADDRESS), self.server)
        self.client = self.connect()

    def _accepted(self) -> Hearing:
        self.servers.append(Hearing())
        return self.servers[-1]

    def connect(self) -> Hearing:
        _, protocol = self.loop.finish(self.loop.create_connection(Hearing, *ADDRESS), self.near)
        self.run(0.5)
        return protocol

    def write(self, data: bytes) -> None:
        with self.loop.on(self.near):
            self.client.transport.write(data)

    def run(self, seconds: float) -> None:
        self.loop.run(self.loop.now + seconds)


def test_a_stream_arrives_whole_and_in_order_in_whatever_pieces() -> None:
    pair = Pair(weather=Weather(spikes=0.3, splits=0.5))
    sent = [b"%d," % number for number in range(200)]
    for piece in sent:
        pair.write(piece)
    pair.run(60)
    assert pair.servers[0].data == b"".join(sent)


def test_connections_overtake_each_other() -> None:
    pair = Pair(weather=Weather(spikes=0.5))
    other = pair.connect()
    orders = set[bool]()
    for _ in range(50):
        before = [server.data for server in pair.servers]
        pair.write(b"x")
        with pair.loop.on(pair.near):
            other.transport.write(b"y")
        pair.loop.run(pair.loop.now + 10, lambda before=before: [s.data for s in pair.servers] != before)
        orders.add(pair.servers[0].data != before[0])
        pair.run(10)
    assert orders == {True, False}


def test_the_end_of_a_stream_comes_behind_what_was_written() -> None:
    pair = Pair()
    pair.write(b"last words")
    with pair.loop.on(pair.near):
        pair.client.transport.close()
    pair.run(1)
    assert (pair.servers[0].data, pair.servers[0].ended, pair.client.ended) == (b"last words", [None], [None])


def test_a_process_that_dies_closes_its_connections_and_its_port() -> None:
    pair = Pair()
    pair.loop.kill(pair.server)
    pair.run(1)
    assert len(pair.client.ended) == 1
    with pytest.raises(ConnectionRefusedError):
        pair.connect()
    assert pair.servers[0].ended == []


def test_a_machine_that_dies_is_found_out_by_its_silence() -> None:
    pair = Pair()
    pair.server.on_death = lambda host: pair.network.died(host, silently=True)
    pair.loop.kill(pair.server)
    pair.run(SILENCE_S - 1)
    assert pair.client.ended == []
    pair.run(2)
    assert isinstance(pair.client.ended[0], ConnectionResetError)


def test_what_is_sent_over_a_cut_path_arrives_when_it_is_healed() -> None:
    pair = Pair()
    pair.network.cut("client", "server")
    pair.write(b"late")
    pair.run(10)
    assert pair.servers[0].data == b""
    pair.network.heal("server", "client")
    pair.run(1)
    assert pair.servers[0].data == b"late"


def test_an_end_that_was_closed_over_a_cut_path_is_told_when_it_is_healed() -> None:
    pair = Pair()
    pair.network.cut("client", "server")
    with pair.loop.on(pair.near):
        pair.client.transport.abort()
    pair.run(1)
    assert pair.servers[0].ended == []
    pair.network.heal("client", "server")
    pair.run(1)
    assert len(pair.servers[0].ended) == 1


def test_a_path_that_stays_cut_ends_its_connections() -> None:
    pair = Pair()
    pair.network.cut("client", "server")
    pair.run(SILENCE_S + 1)
    assert len(pair.client.ended) == len(pair.servers[0].ended) == 1


def test_lost_answers_are_followed_by_a_lost_connection() -> None:
    pair = Pair()
    (link,) = pair.network.between("client", "server")
    pair.network.lose_answers(link, 3.0)
    pair.write(b"asked")
    with pair.loop.on(pair.server):
        pair.servers[0].transport.write(b"answered")
    pair.run(2)
    assert (pair.servers[0].data, pair.client.data, pair.client.ended) == (b"asked", b"", [])
    pair.run(2)
    assert len(pair.client.ended) == len(pair.servers[0].ended) == 1


def test_a_reader_that_pauses_gets_it_later_and_its_writer_is_told() -> None:
    class Told(Hearing):
        full = False

        def pause_writing(self) -> None:
            self.full = True

        def resume_writing(self) -> None:
            self.full = False

    pair = Pair()
    _, told = pair.loop.finish(pair.loop.create_connection(Told, *ADDRESS), pair.near)
    pair.run(1)
    with pair.loop.on(pair.server):
        pair.servers[1].transport.pause_reading()
    with pair.loop.on(pair.near):
        for _ in range(3):
            told.transport.write(bytes(600_000))
    pair.run(1)
    assert told.full
    assert pair.servers[1].data == b""
    with pair.loop.on(pair.server):
        pair.servers[1].transport.resume_reading()
    pair.run(1)
    assert not told.full
    assert len(pair.servers[1].data) == 1_800_000


def test_what_reaches_a_frozen_host_waits_in_its_kernel() -> None:
    pair = Pair()
    pair.loop.freeze(pair.server)
    pair.write(b"hello")
    pair.run(5)
    assert pair.servers[0].data == b""
    pair.loop.thaw(pair.server)
    pair.run(1)
    assert pair.servers[0].data == b"hello"


def test_asyncio_streams_work_on_it() -> None:
    pair = Pair()

    async def main() -> bytes:
        reader, writer = await asyncio.open_connection(*ADDRESS)
        writer.write(b"ping")
        await writer.drain()
        await asyncio.sleep(0.1)
        with pair.loop.on(pair.server):
            pair.servers[1].transport.write(b"pong")
        answer = await reader.readexactly(4)
        writer.close()
        return answer

    assert pair.loop.finish(main(), pair.near) == b"pong"
