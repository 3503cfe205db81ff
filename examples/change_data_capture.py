"""Change data capture: every change of a database table is in a topic, once and in order, whatever crashes when.

The table has a *journal*: triggers number each change and write it there, in the transaction of the change itself.
This program sends the journal to the topic, with the number as the record's *sequence id*, and deletes acknowledged
rows. It may be killed at any moment. If it had sent rows that it did not delete, the topic knows them by their sequence
ids: the next run reads the highest id of each partition, and skips the changes that are already there.

    sidecar topic set 'example-*' --access exclusive --dedup
    python examples/change_data_capture.py change shop.db --changes 100
    python examples/change_data_capture.py capture shop.db

Run `capture` twice to have a stand-by: one owns the topic, the other waits for it.

Why it is correct:

- Only one instance at a time owns the topic. What it read of the log at that moment stays true until it writes itself.
- In each partition, a change is sent when the previous one is in the log. If several were sent at once, one could fail
  and the next succeed; then the failed one would count as a duplicate, because its id is lower, and would be lost.
- All changes of a row have the row's key and so the same partition: readers see them in order. There is no order
  *between* partitions, and their highest numbers differ, so each partition resumes after its own. (To read the journal
  from one number on, use the minimum, `producer.last_sequence_id`.)
- Numbers are assigned in the order of commits, because SQLite has one writer at a time. A sequence of PostgreSQL is not
  in this order: there, number the rows in one transaction at a time, or use the log sequence number.
- A node may forget a name that an operator names, or of more than 10,000. Then the program reads its ids from the log.

Do not use it if partitions are added to the topic, because rows would change their partition.
"""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
from collections.abc import Iterable
from contextlib import aclosing, closing
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import click
from aiokafka import AIOKafkaConsumer
from aiokafka.partitioner import DefaultPartitioner

from common import HELP, Failure, create_topic, in_thread, opened, read_to_end, run, tell, with_bootstrap
from sidecar.client import ExclusiveProducer

SCHEMA = """
CREATE TABLE IF NOT EXISTS stock (item TEXT PRIMARY KEY, pieces INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS journal (number INTEGER PRIMARY KEY AUTOINCREMENT, item TEXT NOT NULL, change TEXT NOT NULL);

CREATE TRIGGER IF NOT EXISTS stock_inserted AFTER INSERT ON stock BEGIN
  INSERT INTO journal (item, change) VALUES (new.item, json_object('op', 'insert', 'pieces', new.pieces));
END;
CREATE TRIGGER IF NOT EXISTS stock_updated AFTER UPDATE ON stock BEGIN
  INSERT INTO journal (item, change) VALUES (new.item, json_object('op', 'update', 'pieces', new.pieces));
END;
CREATE TRIGGER IF NOT EXISTS stock_deleted AFTER DELETE ON stock BEGIN
  INSERT INTO journal (item, change) VALUES (old.item, json_object('op', 'delete'));
END;
"""
SEQUENCE_ID = "sidecar-sequence-id"
AT_ONCE = 200
IDLE_S = 0.2


# The database ---------------------------------------------------------------------------------------------------------


class Change(NamedTuple):
    """A row of the journal."""

    number: int
    item: str
    change: str


class Database:
    """A table of stock and the journal of its changes."""

    def __init__(self, path: Path) -> None:
        self._sqlite = sqlite3.connect(path, timeout=60, check_same_thread=False)  # used by one thread at a time
        self._sqlite.executescript(SCHEMA)

    def close(self) -> None:
        self._sqlite.close()

    def change(self, changes: int) -> None:
        """Make random changes, each in its own transaction, like an application."""
        for _ in range(changes):
            item = f"item-{random.randrange(20)}"
            with self._sqlite:
                if random.random() < 0.1 and self._sqlite.execute("DELETE FROM stock WHERE item = ?", (item,)).rowcount:
                    continue
                sql = "INSERT INTO stock VALUES (?, 1) ON CONFLICT (item) DO UPDATE SET pieces = pieces + 1"
                self._sqlite.execute(sql, (item,))

    def next_changes(self) -> list[Change]:
        """The oldest changes that are not known to be in the topic."""
        found = self._sqlite.execute("SELECT number, item, change FROM journal ORDER BY number LIMIT ?", (AT_ONCE,))
        return [Change(*row) for row in found]

    def forget(self, number: int) -> None:
        """Delete all changes up to this one: they are in the topic."""
        with self._sqlite:
            self._sqlite.execute("DELETE FROM journal WHERE number <= ?", (number,))

    def highest_number(self) -> int:
        """The highest number ever assigned, -1 before the first."""
        found = self._sqlite.execute("SELECT seq FROM sqlite_sequence WHERE name = 'journal'").fetchone()
        return -1 if found is None else found[0]


# The topic ------------------------------------------------------------------------------------------------------------


class Capture:
    """Sends changes to a topic that `producer` owns. `last` is the highest number that is in each partition's log."""

    def __init__(self, producer: ExclusiveProducer, last: dict[int, int]) -> None:
        self.sent = 0
        self._producer = producer
        self._last = last
        self._partitioner = DefaultPartitioner()  # the one of Java's client, for readers that join by key

    def partition_of(self, item: str) -> int:
        """The partition of all changes of an item."""
        everything = list(self._last)
        return self._partitioner(item.encode(), everything, everything)

    async def ship(self, changes: Iterable[Change]) -> None:
        """Send changes; return when all are in the log. Partitions do not wait for each other."""
        by_partition = sorted(changes, key=lambda each: (self.partition_of(each.item), each.number))
        lanes = groupby(by_partition, lambda each: self.partition_of(each.item))
        await asyncio.gather(*[self._ship_in_order(partition, list(lane)) for partition, lane in lanes])

    async def _ship_in_order(self, partition: int, changes: list[Change]) -> None:
        for number, item, change in changes:
            if number > self._last[partition]:  # else an earlier run sent it and ended before it deleted it
                value = json.dumps({"number": number, "item": item, **json.loads(change)}).encode()
                await self._producer.send(value, key=item.encode(), partition=partition, sequence_id=number)
                self._last[partition] = number
                self.sent += 1


async def highest_numbers(bootstrap: str, topic: str, known: dict[int, int]) -> dict[int, int]:
    """The highest number in each partition, -1 for an empty one: from the node, or else from the log.

    The owner calls it: no other session can write any more, so the result is complete and stays correct.
    """
    async with opened(AIOKafkaConsumer(topic, bootstrap_servers=bootstrap)) as consumer:
        partitions = sorted(consumer.partitions_for_topic(topic) or ())
    last = {partition: known.get(partition, -1) for partition in partitions}
    for partition in set(last) - set(known):
        async with aclosing(read_to_end(bootstrap, topic, partition)) as records:
            async for record in records:
                last[partition] = max(last[partition], int(dict(record.headers).get(SEQUENCE_ID, b"-1")))
    return last


# The program ----------------------------------------------------------------------------------------------------------


async def _capture(database: Database, bootstrap: str, topic: str, name: str, until_empty: bool) -> None:
    tell(f"waiting for {topic}")
    async with ExclusiveProducer(bootstrap, topic=topic, name=name) as producer:
        last = await highest_numbers(bootstrap, topic, producer.last_sequence_ids)
        tell(f"{topic} is ours (generation {producer.generation}); highest change by partition: {last}")
        highest = max(last.values())
        if highest > await in_thread(database.highest_number):
            message = f"{topic} holds change {highest}, which this database never made: was a backup restored?"
            raise Failure(f"{message} Its next changes would be taken for duplicates: give another --topic")
        shipping = Capture(producer, last)
        while True:
            changes = await in_thread(database.next_changes)
            if changes:
                await shipping.ship(changes)
                await in_thread(database.forget, changes[-1].number)
                tell(f"up to change {changes[-1].number}; {shipping.sent} sent")
            elif until_empty:
                return
            else:
                await asyncio.sleep(IDLE_S)


@click.group(context_settings=HELP)
def main() -> None:
    """Every change of a table in a topic, once and in order."""


@main.command()
@click.argument("database", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--changes", default=100, help="Number of changes.")
def change(database: Path, changes: int) -> None:
    """Make random changes to the table; create it if it does not exist."""
    with closing(Database(database)) as opened:
        opened.change(changes)
        tell(f"{opened.highest_number()} changes so far")


@main.command()
@click.argument("database", type=click.Path(dir_okay=False, path_type=Path))
@with_bootstrap
@click.option("--topic", default="example-stock", help="Topic; created if it does not exist.")
@click.option("--name", default="stock-capture", help="Producer name, under which sequence ids count. Never change it.")
@click.option("--partitions", default=3, help="Partitions of a topic that is created.")
@click.option("--replicas", default=1, help="Replicas of a topic that is created: 3 in production.")
@click.option("--until-empty", is_flag=True, help="End when the journal is empty, instead of waiting for changes.")
def capture(
    database: Path, bootstrap: str, topic: str, name: str, partitions: int, replicas: int, until_empty: bool
) -> None:
    """Send the journal to the topic."""

    async def program() -> None:
        await create_topic(bootstrap, topic, partitions, replicas, {"retention.ms": "-1"})
        with closing(Database(database)) as opened:
            await _capture(opened, bootstrap, topic, name, until_empty)

    run(program())


if __name__ == "__main__":
    main()
