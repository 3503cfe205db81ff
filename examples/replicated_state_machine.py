"""A replicated state machine: several processes, one of them leads, and the topic is its state (PIP-68's example).

The state is a map, here of visits by page. Each change is first a record in a compacted topic, and then a change of the
map in memory. The leader owns the topic. If it ends, crashes or is fenced, the next process owns the topic, reads the
records of all leaders before it, and continues from exactly that state.

    sidecar topic set 'example-*' --access exclusive
    python examples/replicated_state_machine.py --name a     # and --name b, --name c in other terminals; kill one
    sidecar producer fence example-visits                    # if the leader hangs: the next one leads

Why it is correct:

- A process owns the topic first and reads it second. Owning it fences the former leader: Kafka writes a marker after
  all records of earlier leaders, and from then on refuses their batches, however late they arrive. So the end of the
  log at the moment of ownership is the end of their history. If the process read first, it could miss a record.
- The record comes before the change in memory. So a leader that loses the topic knows nothing that the log does not
  have, except the outcome of at most one record. It ends, and the reader of the log finds out.
- The newest record of each key is the state, so the topic may be compacted: the length of a replay depends on the
  state, not on the history. A record without a value deletes its key. Compaction keeps such records for
  `delete.retention.ms`, by default a day: a replay has to be faster than that.

One partition has one history. Actions of a leader *outside* the topic are not fenced: see leader_election.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from contextlib import aclosing
from typing import TypeAlias

import click

from common import HELP, create_topic, own_name, read_to_end, run, tell, with_bootstrap
from sidecar.client import ExclusiveProducer, Mode

PAGES = ("/home", "/news", "/shop", "/help")
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",  # compact when a tenth is outdated (by default half), for a short replay
    "segment.ms": "3600000",  # only closed segments are compacted
    "delete.retention.ms": "86400000",  # how long a replay can see that a key was deleted
}

Visits: TypeAlias = dict[str, int]


class StateMachine:
    """The state. Only replaying the log and new records of this leader change it."""

    def __init__(self, producer: ExclusiveProducer) -> None:
        self.visits: Visits = {}
        self._producer = producer

    async def replay(self, bootstrap: str) -> int:
        """Apply all records of the topic, which `producer` owns; return their number."""
        count = 0
        async with aclosing(read_to_end(bootstrap, self._producer.topic)) as records:
            async for record in records:
                assert record.key is not None  # a compacted topic accepts no record without a key
                self._apply(record.key, record.value)
                count += 1
        return count

    async def write(self, page: str, visits: int | None) -> None:
        """Change the state: first the log, then the memory. None deletes the page."""
        producer, key = self._producer, page.encode()
        value = None if visits is None else str(visits).encode()
        headers = (("leader", producer.name.encode()), ("generation", str(producer.generation).encode()))
        receipt = await producer.send(value, key=key, headers=headers)
        self._apply(key, value)
        tell(f"{receipt.offset} {page}: {visits if visits is not None else 'gone'}")

    def _apply(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self.visits.pop(key.decode(), None)
        else:
            self.visits[key.decode()] = int(value)


async def visit(state: StateMachine) -> None:
    """Count a visit. It reads the state to change it, so a stale or torn state would be visible in the log."""
    page = random.choice(PAGES)
    if state.visits.get(page, 0) >= 10 and random.random() < 0.2:
        await state.write(page, None)
    else:
        await state.write(page, state.visits.get(page, 0) + 1)


async def lead(bootstrap: str, topic: str, name: str, mode: Mode, pause: float, writes: int | None) -> None:
    """Wait for the topic, replay it, write to it."""
    tell(f"{name} waits for {topic}")
    async with ExclusiveProducer(bootstrap, topic=topic, name=name, mode=mode) as producer:
        state = StateMachine(producer)
        replayed = await state.replay(bootstrap)
        tell(f"{name} leads (generation {producer.generation}); {replayed} records replayed: {state.visits}")
        for _ in itertools.count() if writes is None else range(writes):
            await visit(state)  # raises ProducerFencedError when the topic is lost, which ends the program
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await producer.lost()


@click.command(context_settings=HELP)
@with_bootstrap
@click.option("--topic", default="example-visits", help="Topic; created as a compacted one if it does not exist.")
@click.option("--name", default=own_name, show_default="host and process id", help="Name of this instance, for people.")
@click.option(
    "--mode",
    type=click.Choice(["wait_for_exclusive", "exclusive", "exclusive_with_fencing"]),
    default="wait_for_exclusive",
    help="While another process leads: wait, end, or take over from it.",
)
@click.option("--pause", default=0.5, help="Seconds between two visits.")
@click.option("--writes", type=click.IntRange(min=0), help="End after this number of visits.  [default: no end]")
@click.option("--replicas", default=1, help="Replicas of a topic that is created: 3 in production.")
def main(bootstrap: str, topic: str, name: str, mode: Mode, pause: float, writes: int | None, replicas: int) -> None:
    """Run one of several processes with the same state, of which one at a time writes."""

    async def program() -> None:
        await create_topic(bootstrap, topic, 1, replicas, COMPACTED)
        await lead(bootstrap, topic, name, mode, pause, writes)

    run(program())


if __name__ == "__main__":
    main()
