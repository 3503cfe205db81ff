"""Clients that fill the dashboards while they run: `docker compose --profile demo up --build --wait`.

- `demo-orders` is exclusive. Two rivals, `alpha` and `beta`, wait for each other and own it in turns; sometimes
  `usurper` takes it by force; `straggler`, an ordinary producer that nobody stopped, is refused.
- `demo-payments` is deduplicated. `ledger` restarts repeatedly and sends its newest records twice: each is in the log
  once.
- `demo-orders-audit` is a shadow of `demo-orders`; the group `audit` reads without lag, the group `archive` lags.
- `demo-scheduler` is a free string, not a topic: two schedulers lead in turns.
- `demo-clicks` has no policy; an ordinary producer and an ordinary consumer use it.

    CLIENT_BOOTSTRAP=127.0.0.1:19092 SIDECAR_ADMIN_URL=http://127.0.0.1:18080 python demo.py

DEMO_TEMPO (0.1 to 20, by default 1) multiplies the speed. The program ends with 0 on SIGTERM, and with 1 if one of the
five makes no progress.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from functools import partial
from http import HTTPStatus
from typing import Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

from progress import Progress, again, bootstrap, create_topics, number, run, tell
from sidecar.client import AdminClient, ExclusiveProducer, Leadership, ShadowReader, SidecarError

ORDERS: Final = "demo-orders"
PAYMENTS: Final = "demo-payments"
AUDIT: Final = "demo-orders-audit"
CLICKS: Final = "demo-clicks"
SCHEDULER: Final = "demo-scheduler"
PARTS: Final = ("orders", "payments", "audit", "archive", "scheduler", "clicks")

TENURE_S: Final = 25.0
FORCE_S: Final = 70.0
LATE_S: Final = 5.0
BATCH: Final = 40
REPEATED: Final = 10
EXPECTED: Final = (SidecarError, KafkaError, OSError, TimeoutError)


class Demo:
    """The parts of the demo. Durations are seconds, divided by the tempo."""

    def __init__(self, nodes: str, tempo: float, progress: Progress) -> None:
        self._nodes = nodes
        self._tempo = tempo
        self._progress = progress

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._tempo)

    async def _write(self, producer: ExclusiveProducer, seconds: float) -> None:
        """Orders, twenty a second at tempo 1, for this time."""
        end = time.monotonic() + seconds / self._tempo
        while time.monotonic() < end:
            await producer.send(f"order of {producer.name} at {time.time():.3f}".encode())
            self._progress.moved("orders")
            await self._pause(0.05)

    async def rival(self, name: str) -> None:
        """Waits for the topic, writes for a while, lets go."""
        async with ExclusiveProducer(self._nodes, ORDERS, name) as producer:
            tell(f"{name} owns {ORDERS}, generation {producer.generation}")
            await self._write(producer, TENURE_S)

    async def usurper(self) -> None:
        """Takes the topic by force now and then, and lets go soon."""
        await self._pause(FORCE_S)
        async with ExclusiveProducer(self._nodes, ORDERS, "usurper", "exclusive_with_fencing") as producer:
            tell(f"usurper took {ORDERS} by force, generation {producer.generation}")
            await self._write(producer, TENURE_S / 5)

    async def straggler(self) -> None:
        """An ordinary producer that knows nothing of the rivals."""
        await self._pause(LATE_S)
        producer = AIOKafkaProducer(bootstrap_servers=self._nodes, client_id="straggler", retry_backoff_ms=500)
        try:
            await producer.start()
            async with asyncio.timeout(10):
                await producer.send_and_wait(ORDERS, b"late", partition=0)
        finally:
            await producer.stop()

    async def ledger(self) -> None:
        """Sends what follows the last record that is in the log, and its newest records a second time."""
        async with ExclusiveProducer(self._nodes, PAYMENTS, "ledger", partitions=None) as producer:
            first = max(0, producer.last_sequence_id + 1 - REPEATED)
            repeated = 0
            for sequence_id in range(first, first + BATCH):
                receipt = await producer.send(f"payment {sequence_id}".encode(), sequence_id=sequence_id)
                repeated += receipt.duplicate
                self._progress.moved("payments")
                await self._pause(0.1)
        tell(f"ledger sent {BATCH} payments from {first} on, {repeated} of them were in the log already")

    async def reader(self, group: str, pause: float) -> None:
        """A group that reads the shadow; `pause` seconds after each hundred records."""
        async with ShadowReader(self._nodes, AUDIT, group) as reader:
            count = 0
            async for _ in reader:
                count += 1
                self._progress.moved(group)
                if count % 100 == 0:
                    await reader.commit()
                    await self._pause(pause)

    async def leader(self, name: str) -> None:
        """Waits until it leads, leads for a while, lets go."""
        async with Leadership(self._nodes, SCHEDULER, name=name) as leadership:
            self._progress.moved("scheduler")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TENURE_S / 2 / self._tempo):
                    await leadership.lost()

    async def clicks(self) -> None:
        """An ordinary producer on an ordinary topic."""
        async with AIOKafkaProducer(bootstrap_servers=self._nodes, client_id="clicks") as producer:
            while True:
                await producer.send_and_wait(CLICKS, b"click")
                await self._pause(0.1)

    async def counter(self) -> None:
        """An ordinary consumer of it."""
        async with AIOKafkaConsumer(
            CLICKS, bootstrap_servers=self._nodes, group_id="demo-counter", auto_offset_reset="earliest"
        ) as consumer:
            async for _ in consumer:
                self._progress.moved("clicks")


async def prepare(nodes: str) -> None:
    """The topics, their policies and the shadow; what is there stays."""
    await create_topics(nodes, {ORDERS: 3, PAYMENTS: 1, CLICKS: 3})
    async with AdminClient() as admin:
        await admin.set_policy(ORDERS, access_mode="exclusive")
        await admin.set_policy(PAYMENTS, access_mode="exclusive", deduplication=True)
        try:
            await admin.create_shadow(ORDERS, AUDIT)
        except SidecarError as error:
            if error.code != HTTPStatus.CONFLICT:
                raise
    tell("topics, policies and the shadow are there")


async def main() -> int:
    """The exit code."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # what matters comes as an exception
    nodes, tempo = bootstrap(), number("DEMO_TEMPO", 1, 0.1, 20)
    progress = Progress(PARTS, still_s=max(60.0, 60.0 / tempo))
    demo = Demo(nodes, tempo, progress)
    parts = {
        "alpha": partial(demo.rival, "alpha"),
        "beta": partial(demo.rival, "beta"),
        "usurper": demo.usurper,
        "straggler": demo.straggler,
        "ledger": demo.ledger,
        "audit": partial(demo.reader, "audit", 0),
        "archive": partial(demo.reader, "archive", 20),
        "scheduler 1": partial(demo.leader, "scheduler-1"),
        "scheduler 2": partial(demo.leader, "scheduler-2"),
        "clicks": demo.clicks,
        "counter": demo.counter,
    }

    async def story() -> None:
        await prepare(nodes)
        async with asyncio.TaskGroup() as group:
            for name, part in parts.items():
                group.create_task(again(name, part, EXPECTED))

    return await run([story()], progress)


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except EXPECTED as error:
        sys.stderr.write(f"cannot begin: {error}\n")
        sys.exit(1)
