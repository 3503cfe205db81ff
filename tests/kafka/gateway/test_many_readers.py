"""Hundreds and thousands of readers at the end of one log: each gets every record once and in order, whatever the
others do, and nothing is left of them. No figures: those are `benchmarks/fanout`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Producer

from benchmarks.fanout.subscriber import Limits, Subscriber
from sidecar.gateway import shared_fetch
from tests.kafka.gateway.test_shadows import Topics, topics
from tests.kafka.gateway.test_shared_reads import end_of
from tests.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.kafka.gateway.virtual import VirtualCluster

__all__ = ["topics"]

_AT_ONCE: Final = 50
_PATIENCE_S: Final = 60.0
_RECORDS: Final = 60
_PAUSE_S: Final = 0.03
_FIRST: Final = 3
"""Readers of one log who may ask before anybody else is known to."""


class Crowd:
    """Readers of partition 0, in turns by the source's name and its shadows'. Every tenth stalls for a while, every
    tenth hangs up and comes again.
    """

    def __init__(self, topics: Topics, size: int, end: int) -> None:
        self.received = [0] * size
        names = (topics.source, topics.shadow, topics.other)
        self.all = [self._reader(names[number % 3], number, end) for number in range(size)]
        self.stalling = self.all[::10]
        self.leaving = self.all[5::10]
        self._port = topics.node.nodes[0].port

    def _reader(self, name: str, number: int, end: int) -> Subscriber:
        def count(base: int, after: int) -> None:
            self.received[number] += after - base

        return Subscriber(name, end, Limits(wait_ms=500, isolation=number // 3 % 2), count)

    async def connect(self, readers: Sequence[Subscriber]) -> None:
        limit, loop = asyncio.Semaphore(_AT_ONCE), asyncio.get_running_loop()

        async def one(reader: Subscriber) -> None:
            async with limit:
                await loop.create_connection(lambda: reader, "127.0.0.1", self._port)

        await asyncio.gather(*map(one, readers))

    async def hang_up(self, readers: Sequence[Subscriber]) -> None:
        for reader in readers:
            reader.abort()
        await wait_until(lambda: not any(reader.connected for reader in readers), "they have hung up", _PATIENCE_S)

    @property
    def faults(self) -> list[str]:
        return [fault for reader in self.all for fault in reader.faults]


async def write(topics: Topics, records: int) -> None:
    """One at a time; each is in the log before the next one."""

    def put(number: int) -> None:
        producer.produce(topics.source, f"record {number}", partition=0)
        producer.flush(20)

    producer = Producer({"bootstrap.servers": topics.kafka, "linger.ms": 0, "log_level": 0})
    for number in range(records):
        await asyncio.to_thread(put, number)
        await asyncio.sleep(_PAUSE_S)


@pytest.mark.parametrize(
    ("size", "records"),
    [
        pytest.param(500, _RECORDS, id="500"),
        pytest.param(5_000, 5 * _RECORDS, id="5000", marks=[pytest.mark.slow, pytest.mark.timeout(300)]),
    ],
)
async def test_everybody_gets_every_record_once_whoever_stalls_or_hangs_up(
    topics: Topics, size: int, records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = end_of(topics)
    crowd = Crowd(topics, size, start)
    try:
        await disturbed(topics, crowd, start, records)
        assert crowd.faults == []
        assert set(crowd.received) == {records}
        monkeypatch.setattr(shared_fetch, "REST_S", 0.2)
        events = topics.node.events
        await wait_until(lambda: not events.upstream_open, "nobody keeps a connection of its own", _PATIENCE_S)
        await everybody_waits_at_few_polls(topics, crowd)
    finally:
        await crowd.hang_up(crowd.all)
    await nothing_is_left(topics.node)


async def disturbed(topics: Topics, crowd: Crowd, start: int, records: int) -> None:
    """Everybody reads from `start` on while records are written; some miss half of them for a while."""
    await crowd.connect(crowd.all)
    await wait_until(lambda: all(reader.answers for reader in crowd.all), "everybody was answered", _PATIENCE_S)
    assert topics.node.events.upstream_open <= _FIRST, "all but the first have a connection to the broker in common"

    await write(topics, records // 4)
    for reader in crowd.stalling:
        reader.stall()
    await crowd.hang_up(crowd.leaving)
    await write(topics, records // 2)
    missed = start + records // 4 + records // 2
    assert all(reader.offset < missed for reader in (*crowd.stalling, *crowd.leaving)), "nobody missed anything"
    await crowd.connect(crowd.leaving)
    for reader in crowd.stalling:
        reader.go_on()
    await write(topics, records - records // 4 - records // 2)

    end = start + records
    await wait_until(lambda: all(reader.offset >= end for reader in crowd.all), "everybody has everything", _PATIENCE_S)


async def everybody_waits_at_few_polls(topics: Topics, crowd: Crowd) -> None:
    tails = topics.node.nodes[0].fetches.tails
    await wait_until(lambda: tails.waiting == len(crowd.all), "everybody waits", _PATIENCE_S)
    await wait_until(lambda: tails.polls == 2, "one poll for each isolation level")


async def nothing_is_left(cluster: VirtualCluster) -> None:
    node = cluster.nodes[0]
    await wait_until(lambda: not node.gateway.clients, "no connection is left", _PATIENCE_S)
    fetches = node.fetches
    assert (fetches.tails.waiting, fetches.tails.crowd.connections, cluster.events.upstream_open) == (0, 0, 0)
    await wait_until(lambda: not fetches.tails.polls, "no poll is left")
    assert not fetches.tails.ends._ends
