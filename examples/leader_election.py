"""Leader election: one of several processes works, and late actions of an old leader have no effect.

Processes claim a name, here `example-leader`. Its owner leads; the others wait in a queue. A leader that ends or
crashes loses its claim with its connection, and the next one leads at once. A leader that *stalls* keeps its
connection. The others detect that by its silence: each step of its work is a record in a topic, which waiting processes
read. They take the name by force if there was no record for a while.

    sidecar topic set 'example-*' --access exclusive
    python examples/leader_election.py work.db --name a   # and b, c in other terminals; then: kill -9, kill -STOP

Being elected is not enough. A silent leader may only be slow. Then for a moment two processes act as the leader, and a
stalled one does so when it resumes. No election can prevent that, here or elsewhere. So the target of a leader's
actions has to refuse those of an old leader:

- In a topic, by owning it: each leader takes the topic first, and from then on Kafka refuses the former leader. The
  records of two leaders are never interleaved.
- Elsewhere, by a *fencing token*: a number that rises with each leader and is sent with every action, and a store that
  refuses a token lower than one it has seen. The token here is the generation of the topic, which never falls; without
  a topic use `leadership.fencing_token`. Do not use the generation of the name: it begins again with 1 when nobody owns
  it.

Without a topic and without a store that compares tokens, use leadership only for work that may be done twice.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from contextlib import aclosing, closing
from pathlib import Path

import click
from aiokafka import AIOKafkaConsumer, TopicPartition

from common import (
    FENCED,
    HELP,
    UNREACHABLE,
    Failure,
    create_topic,
    in_thread,
    opened,
    own_name,
    read_to_end,
    run,
    tell,
    with_bootstrap,
)
from sidecar.client import ExclusiveProducer, Leadership, ProducerFencedError, SidecarUnavailableError

SCHEMA = """
CREATE TABLE IF NOT EXISTS work (step INTEGER PRIMARY KEY, leader TEXT NOT NULL, token INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS fence (id INTEGER PRIMARY KEY CHECK (id = 0), token INTEGER NOT NULL);
INSERT OR IGNORE INTO fence VALUES (0, 0);
"""


# The election ---------------------------------------------------------------------------------------------------------


async def elect(bootstrap: str, resource: str, name: str, topic: str, patience: float) -> Leadership:
    """Return when this process leads: by its place in the queue, or because the leader was silent for too long."""
    while True:
        waiting = Leadership(bootstrap, resource, name=name, mode="wait_for_exclusive")
        turn = asyncio.create_task(waiting.start())
        silence = asyncio.create_task(wait_for_silence(bootstrap, topic, patience))
        try:
            await asyncio.wait({turn, silence}, return_when=asyncio.FIRST_COMPLETED)
            if turn.done():
                turn.result()
                return waiting
            silence.result()
        except ProducerFencedError:
            tell(f"{name}: another one took over by force; waiting again")
            continue
        finally:
            for task in (turn, silence):
                task.cancel()
            await asyncio.gather(turn, silence, return_exceptions=True)
        tell(f"{name}: the leader is silent, taking over")
        leadership = Leadership(bootstrap, resource, name=name, mode="exclusive_with_fencing")
        await leadership.start()
        return leadership


async def wait_for_silence(bootstrap: str, topic: str, patience: float) -> None:
    """Return when the topic had no record for a while; the time is partly random, so that one process is first."""
    at = TopicPartition(topic, 0)
    async with opened(AIOKafkaConsumer(bootstrap_servers=bootstrap)) as consumer:
        consumer.assign([at])
        await consumer.seek_to_end(at)
        while await consumer.getmany(at, timeout_ms=int(1000 * patience * random.uniform(1, 1.5))):
            pass


# What the leader does -------------------------------------------------------------------------------------------------


class Store:
    """Another system to which leaders write. It only has to compare two numbers."""

    def __init__(self, path: Path) -> None:
        self._sqlite = sqlite3.connect(path, timeout=60, check_same_thread=False)  # used by one thread at a time
        with self._sqlite:
            self._sqlite.execute(
                "CREATE TABLE IF NOT EXISTS work (step INTEGER PRIMARY KEY, leader TEXT, token INTEGER)"
            )
            self._sqlite.execute(
                "CREATE TABLE IF NOT EXISTS fence (id INTEGER PRIMARY KEY CHECK (id = 0), token INTEGER)"
            )
            self._sqlite.execute("INSERT OR IGNORE INTO fence VALUES (0, 0)")

    def close(self) -> None:
        self._sqlite.close()

    def write(self, step: int, leader: str, token: int) -> None:
        """Store a step; a repeated step changes nothing. Refuses a token that is lower than one it has seen."""
        with self._sqlite:
            seen = self._sqlite.execute("UPDATE fence SET token = ? WHERE token <= ?", (token, token)).rowcount
            if not seen:
                raise Failure(f"the store refused {leader}: token {token} is an old leader's", FENCED)
            self._sqlite.execute("INSERT OR IGNORE INTO work VALUES (?, ?, ?)", (step, leader, token))


async def work(bootstrap: str, producer: ExclusiveProducer, store: Store, pause: float) -> None:
    """Do step after step without end: first write the record, then the store."""
    token = producer.generation
    headers = (("leader", producer.name.encode()), ("generation", str(token).encode()))
    step = -1
    async with aclosing(read_to_end(bootstrap, producer.topic)) as records:
        async for record in records:
            step = int(record.value or b"-1")
    if step >= 0:
        await in_thread(store.write, step, producer.name, token)  # also if the former leader already did it
    while True:
        step += 1
        await producer.send(str(step).encode(), headers=headers)
        await in_thread(store.write, step, producer.name, token)
        tell(f"{producer.name} (token {token}): step {step}")
        await asyncio.sleep(pause)


async def lead(bootstrap: str, topic: str, leadership: Leadership, store: Store, pause: float) -> None:
    """Work while this process leads; the loss raises an exception."""
    name = leadership.name
    async with ExclusiveProducer(bootstrap, topic=topic, name=name, mode="exclusive_with_fencing") as producer:
        tell(f"{name} leads: claim of generation {leadership.generation}, token {producer.generation}")
        working = asyncio.create_task(work(bootstrap, producer, store, pause))
        lost = asyncio.create_task(leadership.lost())
        try:
            await asyncio.wait({working, lost}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
            code = UNREACHABLE if isinstance(leadership.error, SidecarUnavailableError) else FENCED
            raise Failure(f"{name} leads no more: {leadership.error}", code)
        finally:
            for task in (working, lost):
                task.cancel()
            await asyncio.gather(working, lost, return_exceptions=True)


# The program ----------------------------------------------------------------------------------------------------------


@click.command(context_settings=HELP)
@click.argument("store", type=click.Path(dir_okay=False, path_type=Path))
@with_bootstrap
@click.option("--resource", default="example-leader", help="The name to claim.")
@click.option("--topic", default="example-work", help="Topic of the leaders' records; created if it does not exist.")
@click.option("--name", default=own_name, show_default="host and process id", help="Name of this instance, for people.")
@click.option("--pause", default=0.5, help="Seconds between two steps.")
@click.option("--patience", default=5.0, help="Seconds of silence after which another process takes over.")
@click.option("--replicas", default=1, help="Replicas of a topic that is created: 3 in production.")
def main(
    store: Path, bootstrap: str, resource: str, topic: str, name: str, pause: float, patience: float, replicas: int
) -> None:
    """Run one of several processes, of which one at a time works; STORE is the database of its work."""

    async def program() -> None:
        await create_topic(bootstrap, topic, 1, replicas, {"retention.ms": "-1"})
        with closing(Store(store)) as opened_store:
            leadership = await elect(bootstrap, resource, name, topic, patience)
            try:
                await lead(bootstrap, topic, leadership, opened_store, pause)
            finally:
                await leadership.close()

    run(program())


if __name__ == "__main__":
    main()
