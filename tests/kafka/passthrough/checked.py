"""Real clients that write and read all the time, and the log held against what they were told."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Self

from aiokafka import AIOKafkaProducer
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from tests.wait import wait_for

if TYPE_CHECKING:
    from types import TracebackType

_IN_FLIGHT = 500
_BURST = 10
_PAUSE = 0.005
"""Seconds between bursts: some thousand records a second, which leaves the machine to those that are tested."""


class Worker:
    """Work in a thread from the beginning of the context to its end."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._guarded, daemon=True)

    def _work(self) -> None:
        raise NotImplementedError

    def _guarded(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001  a thread has nobody else to tell
            self.failures.append(f"{type(self).__name__}: {error!r}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join(90)
        assert not self._thread.is_alive()
        assert kind is not None or self.failures == []


class Writing(Worker):
    """A producer that numbers its records, over all partitions in turn. `acked` are (partition, number)."""

    def __init__(self, name: str, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__()
        self.name = name
        self.acked: set[tuple[int, int]] = set()
        self.sent = 0
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions

    def _next(self) -> tuple[int, int, bytes]:
        number, self.sent = self.sent, self.sent + 1
        return number % self._partitions, number, f"{self.name}:{number}".encode()

    def goes_on(self, more: int = 300, timeout: float = 60.0) -> None:
        """Wait for this many more acknowledgements in every partition's share of them."""
        before = defaultdict[int, int](int)
        for partition, _ in self.acked.copy():
            before[partition] += 1
        share = max(1, more // self._partitions)

        def done() -> bool:
            now = defaultdict[int, int](int)
            for partition, _ in self.acked.copy():
                now[partition] += 1
            return all(now[partition] >= before[partition] + share for partition in range(self._partitions))

        wait_for(lambda: self.failures or done(), f"{self.name} to go on in every partition", timeout)
        assert self.failures == []


class LibrdkafkaWriting(Writing):
    """librdkafka's idempotent producer, pipelined."""

    def _work(self) -> None:
        settings = {
            "enable.idempotence": True,
            "linger.ms": 2,
            "delivery.timeout.ms": 60_000,
            "request.timeout.ms": 5_000,
        }
        producer = Producer({"bootstrap.servers": self._bootstrap, **settings, "error_cb": self._error})

        def done(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failures.append(f"{self.name}: {error}")
            else:
                self.acked.add((message.partition() or 0, int((message.value() or b"").rpartition(b":")[2])))

        while not self._end.is_set():
            for _ in range(min(_BURST, _IN_FLIGHT - self.sent + len(self.acked))):
                partition, _, value = self._next()
                producer.produce(self._topic, value, partition=partition, on_delivery=done)
            producer.poll(_PAUSE)
        producer.flush(60)

    def _error(self, error: KafkaError) -> None:
        if error.fatal():
            self.failures.append(f"{self.name}: fatal: {error}")


class AiokafkaWriting(Writing):
    """aiokafka's idempotent producer."""

    def _work(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap, enable_idempotence=True, linger_ms=2, request_timeout_ms=20_000
        )
        await producer.start()
        waiting: set[asyncio.Task[None]] = set()
        try:
            while not self._end.is_set():
                for _ in range(min(_BURST, _IN_FLIGHT - len(waiting))):
                    partition, number, value = self._next()
                    future = await producer.send(self._topic, value, partition=partition)
                    task = asyncio.ensure_future(self._settled(future, partition, number))
                    waiting.add(task)
                    task.add_done_callback(waiting.discard)
                await asyncio.sleep(_PAUSE)
            await asyncio.gather(*waiting)
        finally:
            await producer.stop()

    async def _settled(self, future: asyncio.Future[object], partition: int, number: int) -> None:
        try:
            await future
        except Exception as error:  # noqa: BLE001  any of them is a record that was not delivered
            self.failures.append(f"{self.name}: {error!r}")
        else:
            self.acked.add((partition, number))


class GroupReading(Worker):
    """A member of a consumer group that commits as it goes. `seen` are the values read, at least once each."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        super().__init__()
        self.seen: set[bytes] = set()
        self.committed = 0
        self._bootstrap = bootstrap
        self._topic = topic
        self._group = group

    def _work(self) -> None:
        settings = {"group.id": self._group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": self._bootstrap, **settings, "session.timeout.ms": 10_000})
        consumer.subscribe([self._topic])
        due = time.monotonic()
        while not self._end.is_set():
            for message in consumer.consume(500, 0.05):
                if message.error() is None:
                    self.seen.add(message.value() or b"")
            if time.monotonic() > due and self.seen:
                due = time.monotonic() + 0.1
                with contextlib.suppress(Exception):  # while there is no coordinator; it goes on afterwards
                    consumer.commit(asynchronous=False)
                    self.committed += 1
        consumer.close()

    def goes_on(self, timeout: float = 60.0) -> None:
        """Wait until it has read and committed more."""
        seen, committed = len(self.seen), self.committed
        wait_for(
            lambda: self.failures or (len(self.seen) > seen + 100 and self.committed > committed + 1),
            "the group to read and commit more",
            timeout,
        )
        assert self.failures == []


def log_of(bootstrap: str, topic: str, partitions: int) -> dict[int, list[bytes]]:
    """Every value in the log, asked of Kafka itself."""
    settings = {"group.id": "checker", "enable.partition.eof": True, "fetch.wait.max.ms": 10}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
    found: dict[int, list[bytes]] = {index: [] for index in range(partitions)}
    left = set(range(partitions))
    deadline = time.monotonic() + 60
    while left and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is None:
            found[message.partition() or 0].append(message.value() or b"")
        elif error.code() == KafkaError._PARTITION_EOF:
            left.discard(message.partition() or 0)
    consumer.close()
    assert not left, "the log could not be read to its end"
    return found


def check(log: dict[int, list[bytes]], writer: Writing) -> None:
    """Each record acknowledged lies in the log once, in order; none is there that was not sent."""
    for partition, values in log.items():
        mine = [int(value.rpartition(b":")[2]) for value in values if value.startswith(f"{writer.name}:".encode())]
        assert len(mine) == len(set(mine)), f"{writer.name}: repeats in partition {partition}"
        assert mine == sorted(mine), f"{writer.name}: out of order in partition {partition}"
        acked = {number for index, number in writer.acked if index == partition}
        assert acked <= set(mine), f"{writer.name}: {len(acked - set(mine))} acknowledged records lost"
        assert all(0 <= number < writer.sent for number in mine)
