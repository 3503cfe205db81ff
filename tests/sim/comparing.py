"""The same Fetch to a node and to the leader that it reads from: both answers are the same, in every version and form.

Asked when a history is over, so that what it did to the logs is there: elections, truncation, aborted transactions,
deleted records. The leader is asked before the node and behind it: where its own two answers differ, something was
written meanwhile, and nothing is compared.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final, NamedTuple

from sidecar.protocol.batch import HEADER_BYTES, batch_sizes
from tests.sim import flexible, wire
from tests.sim.collect import open_shadows
from tests.sim.flexible import Place, Row
from tests.sim.world import TOPICS

if TYPE_CHECKING:
    from tests.sim.kafka.replica import Replica
    from tests.sim.play import Play

_VERSIONS: Final = (4, 6, 8, 10, 11, 12, 13, 15, 16, 17, 18)
_FIRST_BY_ID: Final = 13
_QUESTIONS: Final = 24
_WAIT_S: Final = 5.0
_LOOKS: Final = 6
"""NOT_LEADER_OR_FOLLOWER: the node has just heard that it has to look for the leader anew. Clients ask again."""
_TRIES: Final = 10
_PAUSE_S: Final = 0.3
_LENGTH_AT, _ATTRIBUTES_AT, _FIRST_TIME_AT, _LAST_TIME_AT = 8, 21, 27, 35
"""In a batch (KIP-98)."""
_HAS_HORIZON: Final = 0x40
"""A bit of its attributes (KIP-534)."""
_CLAIMED: Final = "guarded"
"""Whose readers are held to claims."""


class Question(NamedTuple):
    """A Fetch of one partition. `topic` is the name that the node is asked under, and `log` the one whose log that is;
    `topic_id`: of the topic and of the log, where it is asked by id.
    """

    topic: str
    log: str
    partition: int
    version: int
    place: Place
    isolation: int
    ids: tuple[bytes, bytes] | None


def questions(play: Play, rng: random.Random) -> list[Question]:
    """At the edges of all logs that the history was about, and a little beyond them."""
    world, found = play.world, list[Question]()
    there = world.cluster.controller.topics
    shadows = open_shadows(world)
    names = [*play.topics, *(name for name, plan in TOPICS.items() if plan.shadow_of in play.topics)]
    readable = sorted(
        name
        for name in {*names}.intersection(TOPICS).intersection(there) - {_CLAIMED}
        if not TOPICS[name].shadow_of or shadows.get(name) in play.topics
    )
    for _ in range(_QUESTIONS if readable else 0):
        topic = rng.choice(readable)
        log = shadows.get(topic, topic)
        partition = rng.randrange(len(there[log].partitions))
        replica = world.cluster.replica(log, partition)
        if replica is None:
            continue
        version = rng.choice(_VERSIONS)
        ids = None
        if version >= _FIRST_BY_ID:
            ids = there[topic].id, there[log].id
            if rng.random() < 0.1:
                ids = (nobodys := rng.randbytes(16)), nobodys
        found.append(Question(topic, log, partition, version, _place(rng, replica), rng.choice((0, 1)), ids))
    return found


def _place(rng: random.Random, replica: Replica) -> Place:
    log = replica.log
    edges = (log.start, replica.stable_offset(), replica.high_watermark, log.end, (log.start + log.end) // 2)
    offset = max(0, rng.choice(edges) + rng.choice((-1, 0, 0, 0, 1)))
    epoch = rng.choice((-1, -1, -1, replica.epoch, replica.epoch - 1, replica.epoch + 1))
    return Place(offset, epoch, rng.choice((1 << 20, 1 << 20, 1, 300)))


async def ask(address: tuple[str, int], question: Question, *, of_log: bool) -> Row | None:
    """The answer of a node, or (`of_log`) of a broker; None without one."""
    topic: str | bytes = question.log if of_log else question.topic
    if question.ids is not None:
        topic = question.ids[1] if of_log else question.ids[0]
    body = flexible.fetch(question.version, topic, {question.partition: question.place}, isolation=question.isolation)
    try:
        to = await wire.Wire.open(address, "comparing")
        data = await to.call(wire.FETCH, body, _WAIT_S, version=question.version)
    except wire.LostError:
        return None
    to.close()
    return flexible.fetched(question.version, data).get(question.partition)


async def _compare(play: Play, question: Question, node: tuple[str, int]) -> None:
    cluster = play.world.cluster
    leader = cluster.brokers[cluster.leader(question.log, question.partition)].address
    before = mine = None
    for _ in range(_TRIES):
        before = await ask(leader, question, of_log=True)
        mine = await ask(node, question, of_log=False)
        looks = mine is not None and mine.error == _LOOKS and (before is None or before.error != _LOOKS)
        if not looks and not _lags(mine, before):
            break
        await asyncio.sleep(_PAUSE_S)
    if before is None or before != await ask(leader, question, of_log=True):
        return
    play.effect("answers compared")
    if _without_horizons(mine) != _without_horizons(before):
        play.stuck.append(f"a Fetch is answered otherwise by a node: {question}: {_shown(mine)}, not {_shown(before)}")


def _without_horizons(row: Row | None) -> Row | None:
    """An answer with nothing but the head of batches that may be deleted from some time on. Each replica cleans at its
    own moment, and puts that time in place of the first record's, to which all others refer (KIP-534). A node may read
    from another replica.
    """
    if row is None:
        return None
    batches = [row.records[start : start + size] for start, size in batch_sizes(row.records, 0, len(row.records))]
    cut = row.records[sum(map(len, batches)) :]
    kept = [
        batch[:_LENGTH_AT] + batch[_ATTRIBUTES_AT:_FIRST_TIME_AT] + batch[_LAST_TIME_AT:HEADER_BYTES]
        if batch[_ATTRIBUTES_AT + 1] & _HAS_HORIZON
        else batch
        for batch in batches
    ]
    return row._replace(records=b"".join([*kept, cut]))


def _lags(mine: Row | None, before: Row | None) -> bool:
    """Whether a node's answer may be a follower's, whose high watermark comes with its next fetch (KIP-392): a node
    that has not heard of a new leader reads on from the former one, as a consumer does.
    """
    if mine is None or before is None or mine.error or before.error:
        return False
    return mine.high_watermark < before.high_watermark


def _shown(row: Row | None) -> str:
    return "nothing" if row is None else str(row._replace(records=b"%d bytes" % len(row.records)))


def compare(play: Play) -> None:
    """Ask, at the end of a history. What differs is noted in `Play.stuck`."""
    world = play.world
    if not all(map(world.serving, world.nodes)):
        return
    rng = random.Random(f"{play.history.seed} comparing")
    host = play.client_host("comparing")

    async def all_of_them() -> None:
        for question in questions(play, rng):
            await _compare(play, question, rng.choice(world.addresses))

    world.loop.finish(all_of_them(), host, 60.0)
    world.loop.kill(host)
