"""A replicated state machine: several processes, one of them leads, and the topic is its state (PIP-68's example).

The state is a map, here of visits by page. Each change is a record in a compacted topic and then, once it is there, a
change of the map in memory. Whoever leads owns the topic. If it ends, crashes or is fenced, the next one owns it, reads
what all leaders before it wrote, and goes on from exactly that.

    sidecar topic set 'example-*' --access exclusive
    python examples/replicated_state_machine.py --name a     # and --name b, --name c in other terminals; kill one
    sidecar producer fence example-visits                    # where the leader hangs: the next one leads

What makes it right:

- Owning the topic comes first, reading it second. Taking it fences whoever had it: Kafka puts a marker behind all that
  earlier leaders got in, and refuses what they send from then on, however late it comes. So the end of the log at the
  moment of ownership is the end of their history, and a reader that has come that far has all of it. Read first, and a
  record may come in between.
- The record comes before the change in memory. A leader that is told that it lost the topic has nothing that the log
  does not have, save one record at most of which nobody knows; it ends, and that is settled by whoever reads the log.
- Each key's newest record is the state, so the topic may be compacted: replay stays as long as the state, not as the
  history. A record without a value takes its key away. Compaction keeps such records for `delete.retention.ms`, a day
  unless you say otherwise: a replay has to take less.

One partition, one history. What a leader does *outside* the topic is not fenced: see leader_election.py.
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
    "min.cleanable.dirty.ratio": "0.1",  # compact when a tenth is outdated, for a short replay; by default half
    "segment.ms": "3600000",  # only closed segments are compacted
    "delete.retention.ms": "86400000",  # for how long a replay sees that a key is gone
}

Visits: TypeAlias = dict[str, int]


class StateMachine:
    """The state, and the only two ways to it: what the log holds, and what this leader adds to that."""

    def __init__(self, producer: ExclusiveProducer) -> None:
        self.visits: Visits = {}
        self._producer = producer

    async def replay(self, bootstrap: str) -> int:
        """Apply what is in the topic, which `producer` owns by now; how many records those were."""
        count = 0
        async with aclosing(read_to_end(bootstrap, self._producer.topic)) as records:
            async for record in records:
                assert record.key is not None  # a compacted topic takes no other
                self._apply(record.key, record.value)
                count += 1
        return count

    async def write(self, page: str, visits: int | None) -> None:
        """Change the state: first the log, then the memory. None takes the page away."""
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
    """What this application is about. It reads the state to change it: a stale or torn one would be seen in the log."""
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
            await visit(state)  # raises ProducerFencedError once the topic is lost, which ends the program
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await producer.lost()


@click.command(context_settings=HELP)
@with_bootstrap
@click.option("--topic", default="example-visits", help="Created, compacted, where it is not there.")
@click.option("--name", default=own_name, show_default="host and process id", help="Who this instance is, for people.")
@click.option(
    "--mode",
    type=click.Choice(["wait_for_exclusive", "exclusive", "exclusive_with_fencing"]),
    default="wait_for_exclusive",
    help="While somebody else leads: wait, end, or take over from it.",
)
@click.option("--pause", default=0.5, help="Seconds between two visits.")
@click.option("--writes", type=click.IntRange(min=0), help="End after so many.  [default: go on for ever]")
@click.option("--replicas", default=1, help="Of a topic that is created: 3 in production.")
def main(bootstrap: str, topic: str, name: str, mode: Mode, pause: float, writes: int | None, replicas: int) -> None:
    """One of several processes that keep the same state, of which one at a time writes."""

    async def program() -> None:
        await create_topic(bootstrap, topic, 1, replicas, COMPACTED)
        await lead(bootstrap, topic, name, mode, pause, writes)

    run(program())


if __name__ == "__main__":
    main()
