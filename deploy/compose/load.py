"""A steady load: `docker compose --profile load up --build --wait`.

    LOAD_RECORDS_PER_S=500     records a second, all topics together; 1 to 100000
    LOAD_RECORD_BYTES=1024     bytes of each value; 1 to 1000000
    LOAD_TOPICS=4              topics load-0, load-1 …, each with its own owner; 1 to 100
    LOAD_SECONDS=0             time after which the program ends; 0: on SIGTERM

`sidecar.client` writes the records, deduplicated, and one consumer group reads them. The schedule is fixed: a late
record is sent as soon as possible, and its latency counts from its due time. At most a thousand records of a topic wait
for an answer; beyond that the schedule is delayed, which the line printed every ten seconds shows. Each topic keeps
64 MiB.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from functools import partial
from typing import Final

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError

from progress import Progress, again, bootstrap, create_topics, number, run, tell
from sidecar.client import AdminClient, ExclusiveProducer, SidecarError

IN_FLIGHT: Final = 1000
REPORT_S: Final = 10.0
EXPECTED: Final = (SidecarError, KafkaError, OSError, TimeoutError)


class Tally:
    """What happened since the last report."""

    def __init__(self) -> None:
        self.written: list[float] = []
        self.read = 0

    def line(self, seconds: float) -> str:
        """One line; latencies from when a record was due until it was acknowledged."""
        latencies = sorted(self.written)
        rate, read = len(latencies) / seconds, self.read / seconds
        if not latencies:
            return f"written 0/s, read {read:.0f}/s"
        p50, p99 = (latencies[int((len(latencies) - 1) * share)] * 1000 for share in (0.5, 0.99))
        return f"written {rate:.0f}/s, p50 {p50:.1f} ms, p99 {p99:.1f} ms, read {read:.0f}/s"


class Load:
    """Writers and the reader."""

    def __init__(self, nodes: str, size: int, progress: Progress) -> None:
        self._nodes = nodes
        self._value = os.urandom(size)
        self._progress = progress
        self.tally = Tally()

    async def write(self, topic: str, rate: float) -> None:
        """So many records a second to one topic, on a fixed schedule."""
        async with ExclusiveProducer(self._nodes, topic, f"writer-of-{topic}") as producer:
            room = asyncio.Semaphore(IN_FLIGHT)
            async with asyncio.TaskGroup() as group:
                due = time.monotonic()
                while True:
                    await asyncio.sleep(max(0.0, due - time.monotonic()))
                    await room.acquire()
                    group.create_task(self._send(producer, due, room))
                    due = max(due + 1 / rate, time.monotonic() - IN_FLIGHT / rate)

    async def _send(self, producer: ExclusiveProducer, due: float, room: asyncio.Semaphore) -> None:
        try:
            await producer.send(self._value)
        finally:
            room.release()
        self.tally.written.append(time.monotonic() - due)
        self._progress.moved(producer.topic)

    async def read(self, topics: list[str]) -> None:
        """One consumer group over all topics."""
        async with AIOKafkaConsumer(*topics, bootstrap_servers=self._nodes, group_id="load") as consumer:
            async for _ in consumer:
                self.tally.read += 1
                self._progress.moved("reader")

    async def report(self) -> None:
        """A line every ten seconds."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(REPORT_S)
            done, self.tally = self.tally, Tally()
            tell(done.line(time.monotonic() - began))


def _unwrapped(error: BaseException) -> BaseException:
    """The first failure inside a group of them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def main() -> int:
    """The exit code."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # what matters comes as an exception
    nodes = bootstrap()
    rate = number("LOAD_RECORDS_PER_S", 500, 1, 100_000)
    size = int(number("LOAD_RECORD_BYTES", 1024, 1, 1_000_000))
    count = int(number("LOAD_TOPICS", 4, 1, 100))
    seconds = number("LOAD_SECONDS", 0, 0, 30 * 86_400)
    topics = [f"load-{index}" for index in range(count)]
    progress = Progress([*topics, "reader"], still_s=max(60.0, 10 * count / rate))
    load = Load(nodes, size, progress)

    async def writer(topic: str) -> None:
        try:
            await load.write(topic, rate / count)
        except* EXPECTED as group:
            raise SidecarError(-1, str(_unwrapped(group))) from None

    async def all_of_it() -> None:
        await create_topics(nodes, dict.fromkeys(topics, 1))
        async with AdminClient() as admin:
            await admin.set_policy("load-*", access_mode="exclusive", deduplication=True)
        tell(f"{rate:g} records/s of {size} bytes to {count} topics")
        async with asyncio.TaskGroup() as group:
            for topic in topics:
                group.create_task(again(topic, partial(writer, topic), EXPECTED))
            group.create_task(again("reader", partial(load.read, topics), EXPECTED))
            group.create_task(load.report())

    async def until_it_is_over() -> None:
        if seconds:
            await asyncio.sleep(seconds)
        else:
            await asyncio.Event().wait()

    return await run([all_of_it(), until_it_is_over()], progress)


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except EXPECTED as error:
        sys.stderr.write(f"cannot begin: {error}\n")
        sys.exit(1)
