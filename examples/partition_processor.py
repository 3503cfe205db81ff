"""A stream processor that shares partitions among processes: each input record counts once, whichever process reads it.

The input has orders by customer; the output has the running total of each customer. One process at a time computes
partition p of the output from partition p of the input. The output partition is its *journal*: it contains the totals,
which the process also has in memory, and the position in the input. (Kafka wiki, Single Reader/Writer: Samza's tasks
and their journals.)

    sidecar topic set 'example-totals' --access exclusive --dedup --scope partition
    python examples/partition_processor.py process        # in several terminals; kill one, start another
    python examples/partition_processor.py feed --orders 1000

Why it is correct:

- A consumer group decides which process *should* have a partition. It may be wrong for a while: it gives the partition
  of a stalled process to another one, and the stalled process does not know that when it resumes. So the group only
  shares the work.
- The owner of the output's partition is the only process that *may* write there. A process that is assigned a partition
  takes it (`exclusive_with_fencing`); later records of the former owner are refused. For a moment both may work, but
  only one of them can write.
- A new owner reads the journal to its end, after the fence, and so has the totals and the position. It commits no
  offset that could differ from the output: each record's sequence id is the input's offset.
- A total is sent when the previous one is in the log (see change_data_capture.py). A process that does not know whether
  it is ends, and the next one reads the journal.

The program ends (exit code 4) when it writes to a partition that another process took, and has to be restarted. A
process that stalls just when it is assigned a partition may take it back from a newer owner, until the group corrects
that: this costs a restart, but no record. Do not use it if one input record makes several output records, or one
elsewhere: that needs a transaction of Kafka, which cannot write to governed topics.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Coroutine, Iterable
from contextlib import aclosing
from typing import Any, NamedTuple

import click
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from common import FENCED, HELP, Failure, Record, create_topic, opened, own_name, read_to_end, run, tell, with_bootstrap
from sidecar.client import ExclusiveProducer

SEQUENCE_ID = "sidecar-sequence-id"
CUSTOMERS = 20


class Setting(NamedTuple):
    """The options of a process."""

    bootstrap: str
    orders: str
    totals: str
    name: str


# One partition --------------------------------------------------------------------------------------------------------


class Totals:
    """The state in a partition's journal: totals by customer, and the next offset of the input."""

    def __init__(self) -> None:
        self.position = 0
        self._totals: dict[bytes, int] = {}

    def replay(self, record: Record) -> None:
        """Apply a record of the journal, which may be compacted: the newest record of a customer remains."""
        assert record.key is not None
        assert record.value is not None
        self._totals[record.key] = json.loads(record.value)["total"]
        self.position = int(dict(record.headers)[SEQUENCE_ID]) + 1

    def process(self, order: Record) -> bytes:
        """Apply an order; return the value of the next record of the journal."""
        customer = order.key or b""
        self._totals[customer] = self._totals.get(customer, 0) + json.loads(order.value or b"{}")["amount"]
        self.position = order.offset + 1
        return json.dumps({"total": self._totals[customer]}).encode()


async def process_partition(setting: Setting, partition: int) -> None:
    """Own a partition, read its journal and continue from there, without end. Raises `ProducerFencedError` when another
    process owns it.
    """
    producer = ExclusiveProducer(
        setting.bootstrap,
        topic=setting.totals,
        name=f"totals-{partition}",  # the name of the sequence ids belongs to the partition, not to the process
        mode="exclusive_with_fencing",
        partitions=[partition],
    )
    async with producer:
        totals = Totals()
        async with aclosing(read_to_end(setting.bootstrap, setting.totals, partition)) as records:
            async for record in records:
                totals.replay(record)
        tell(f"partition {partition}: ours (generation {producer.generation}), from input offset {totals.position} on")
        headers = (("leader", setting.name.encode()), ("generation", str(producer.generation).encode()))
        source = TopicPartition(setting.orders, partition)
        lost = asyncio.ensure_future(producer.lost())
        async with opened(AIOKafkaConsumer(bootstrap_servers=setting.bootstrap, auto_offset_reset="none")) as consumer:
            consumer.assign([source])
            consumer.seek(source, totals.position or (await consumer.beginning_offsets([source]))[source])
            while not lost.done():
                orders = await next_orders(consumer, source)
                for order in orders:
                    key, value = order.key or b"", totals.process(order)
                    await producer.send(value, key=key, headers=headers, partition=partition, sequence_id=order.offset)
                if orders:
                    tell(f"partition {partition}: {len(orders)} processed, now at input offset {totals.position}")
        raise Failure(f"partition {partition} of {setting.totals} is not ours any more", FENCED)


async def next_orders(consumer: AIOKafkaConsumer, source: TopicPartition) -> list[Record]:
    """The next orders; none if there are none for a while."""
    try:
        return (await consumer.getmany(source, timeout_ms=500)).get(source, [])
    except OffsetOutOfRangeError as error:  # to continue after the gap would silently make a smaller total
        raise Failure(f"orders were gone before they were processed: {error}") from error


# All partitions of a process ------------------------------------------------------------------------------------------


class Share(ConsumerRebalanceListener):
    """The partitions that the group assigned to this process, with a task for each."""

    def __init__(self, consumer: AIOKafkaConsumer, begin: Callable[[int], Coroutine[Any, Any, None]]) -> None:
        self._consumer = consumer
        self._begin = begin
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Start a task for each of them."""
        self._consumer.pause(*assigned)  # each task reads its own; the group's consumer only keeps the membership
        self._tasks = {each.partition: asyncio.create_task(self._begin(each.partition)) for each in assigned}
        tell(f"the group gives us the partitions {sorted(self._tasks)}")

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """End all tasks and release their partitions before the group assigns them again."""
        tasks, self._tasks = self._tasks, {}
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)

    def check(self) -> None:
        """Raise the exception of a failed task."""
        for task in self._tasks.values():
            if task.done():
                task.result()


async def process_share(setting: Setting, group: str) -> None:
    """Process the partitions that the group assigns to this process, until a task fails."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=setting.bootstrap,
        group_id=group,
        enable_auto_commit=False,  # the journal has the position
        session_timeout_ms=6000,
        heartbeat_interval_ms=1000,
    )
    share = Share(consumer, lambda partition: process_partition(setting, partition))
    consumer.subscribe([setting.orders], listener=share)
    async with opened(consumer):
        try:
            while True:
                await consumer.getmany(timeout_ms=200)
                share.check()
        finally:
            await share.on_partitions_revoked(())


# The program ----------------------------------------------------------------------------------------------------------


@click.group(context_settings=HELP)
def main() -> None:
    """Compute totals of orders by customer, each order once."""


with_orders = click.option("--orders-topic", default="incoming-orders", help="Input topic; created if missing.")
with_partitions = click.option("--partitions", default=4, help="Partitions of topics that are created.")
with_replicas = click.option("--replicas", default=1, help="Replicas of topics that are created: 3 in production.")


@main.command()
@with_bootstrap
@with_orders
@click.option("--totals-topic", default="example-totals", help="Output topic and journal; created if missing.")
@click.option("--group", default="example-totals", help="Consumer group whose members share the partitions.")
@click.option("--name", default=own_name, show_default="host and process id", help="Name of this instance, for people.")
@with_partitions
@with_replicas
def process(
    bootstrap: str, orders_topic: str, totals_topic: str, group: str, name: str, partitions: int, replicas: int
) -> None:
    """Process a share of the partitions."""

    async def program() -> None:
        await create_topic(bootstrap, orders_topic, partitions, replicas, {})
        await create_topic(bootstrap, totals_topic, partitions, replicas, {"cleanup.policy": "compact"})
        await process_share(Setting(bootstrap, orders_topic, totals_topic, name), group)

    run(program())


@main.command()
@with_bootstrap
@with_orders
@click.option("--orders", default=100, help="Number of orders.")
@click.option("--pause", default=0.0, help="Seconds between two orders.")
@with_partitions
@with_replicas
def feed(bootstrap: str, orders_topic: str, orders: int, pause: float, partitions: int, replicas: int) -> None:
    """Write random orders. Every client may do this."""

    async def program() -> None:
        await create_topic(bootstrap, orders_topic, partitions, replicas, {})
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
            for _ in range(orders):
                value = json.dumps({"amount": random.randrange(1, 100)}).encode()
                customer = f"customer-{random.randrange(CUSTOMERS)}"
                await producer.send_and_wait(orders_topic, value, key=customer.encode())
                await asyncio.sleep(pause)

    run(program())


if __name__ == "__main__":
    main()
