"""Collects what a history left: records and ownership records in the brokers' logs, and what the play noted."""

from __future__ import annotations

import math
import struct
import zlib
from typing import TYPE_CHECKING, Final

from sidecar.v1 import state_pb2 as state
from tests.sim import words
from tests.sim.checker import Claimed, Evidence, OwnershipRecord
from tests.sim.wire import records_of
from tests.sim.world import TOPICS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tests.sim.kafka.batches import Batch
    from tests.sim.play import Play
    from tests.sim.wire import Record
    from tests.sim.world import World

OWNERSHIP: Final = "__sidecar_default"
_ZEROED: Final = {"name:string0"}
"""Keys of claims that may be made under generation 0."""
_NAMES: Final = "producer_names_limit"


def evidence_of(play: Play) -> Evidence:
    """All that the checker judges a history by."""
    world = play.world
    evidence = collect(world, {topic: play.counts[topic] for topic in play.topics})
    for producer, _ in play.producers:
        evidence.sessions.setdefault(producer.session, set()).update(f"pid:{each}" for each in producer.producer_ids)
    for stranger in play.strangers:
        evidence.sessions[stranger.name] = {f"pid:{stranger.producer_id}"} if stranger.producer_id >= 0 else set()
    _note_gone(play, evidence)
    evidence.troubled = {(session, topic) for session, topic, _ in misled(world) if topic == "ordinary"}
    evidence.since = {
        where: offset
        for where, offset in play.since.items()
        if where[0] not in world.cluster.deleted and where not in play.torn
    }
    evidence.policies, evidence.names_limit = play.watch.timeline, dict(play.history.shape.settings).get(_NAMES, 0)
    evidence.stuck, evidence.inside = play.stuck, play.inside.wrong
    evidence.believed, evidence.held = play.believed, play.work.held
    evidence.zeroed = _ZEROED
    evidence.overruled = list(_overruled(play))
    return evidence


def _note_gone(play: Play, evidence: Evidence) -> None:
    """What unclean elections lost, and what deleted topics had."""
    cluster = play.world.cluster
    evidence.lives = list(cluster.lives.values())
    for (topic_id, index), batches in cluster.dropped.items():
        life, where = cluster.lives[topic_id], (cluster.lives[topic_id].name, index)
        is_former = life.died < math.inf
        if not is_former and where not in play.torn:
            continue
        whole = [*batches, *cluster.before_cleaning(topic_id, index)] if is_former else batches
        records = list(_records(whole))
        values = {record.value for record in records}
        evidence.gone.setdefault(where, set()).update(values)
        last = max(batch.last for batch in whole)
        evidence.gone_to[where] = max(last, evidence.gone_to.get(where, -1))
        if is_former:
            log = evidence.former.setdefault((topic_id, index), {})
            for record in records:
                log.setdefault(record.offset, set()).add(record.value)
        if where in play.torn:
            evidence.torn.setdefault(where, set()).update(values)


def _overruled(play: Play) -> Iterator[str]:
    """What the nodes, and the log, have of what operators said."""
    ends: dict[str, bytes | None] = {f"{word.key}": None for word in play.words.said}
    for record in read(play.world, OWNERSHIP, 0):
        key = (record.key or b"").decode(errors="replace")
        if key.startswith(("policy/", "shadow/")):
            ends[key] = record.value
    log = {key: words.of_record(key, value) for key, value in ends.items()}
    yield from words.differing(log, words.in_nodes(play.world, log))
    yield from words.judge(play.words, log)


def misled(world: World) -> set[tuple[str, str, int]]:
    """The sessions whose batches a broker refused although nothing was wrong: session, topic, error."""
    sessions = {(sent.topic, sent.partition, sent.value): sent.session for sent in world.ledger.sent}
    return {
        (sessions[topic, partition, record.value], topic, error)
        for topic, partition, data, error in world.cluster.misled
        for record in _readable(data)
        if (topic, partition, record.value) in sessions
    }


def _readable(data: bytes) -> list[Record]:
    """The records of a refused batch; a stranger's may hold anything."""
    try:
        return records_of(data)
    except (zlib.error, OSError, EOFError, struct.error, IndexError):
        return []


def collect(world: World, topics: Mapping[str, int]) -> Evidence:
    """The logs of topics with so many partitions, as the leaders have them below their high watermarks, with what was
    deleted at their front.
    """
    found = Evidence(world.ledger, crashes=list(world.loop.crashes), began=world.loop.zero)
    for topic, partitions in sorted(topics.items()):
        for partition in range(partitions):
            records = found.logs[topic, partition] = read(world, topic, partition)
            found.removed[topic, partition] = _removed(world, topic, partition, records)
    found.shadows = {name: plan.shadow_of for name, plan in TOPICS.items() if plan.shadow_of}
    found.unfenced = {where: math.inf for where in found.logs if where[0] in world.cluster.deleted}
    for record in _records(world.cluster.history(OWNERSHIP, 0)):
        _note(record, found, world)
    return found


def read(world: World, topic: str, partition: int) -> list[Record]:
    """The committed records of a partition."""
    return list(_records(world.cluster.history(topic, partition)))


def _removed(world: World, topic: str, partition: int, records: list[Record]) -> dict[int, float]:
    """When what Kafka cleaned away was first missing, by offset."""
    named = world.cluster.controller.topics.get(topic)
    if named is None:
        return {}
    times = {record.offset: world.cluster.gone_at(named.id, partition, record.offset) for record in records}
    return {offset: at for offset, at in times.items() if at < math.inf}


def open_shadows(world: World) -> dict[str, str]:
    """Shadows that anybody may read, each with its source, as the ownership topic says: neither closed, nor of a source
    that was created anew, nor for some principals alone.
    """
    found: dict[str, str] = {}
    for record in read(world, OWNERSHIP, 0):
        key = record.key or b""
        if key.startswith(b"shadow/"):
            shadow = state.Shadow.FromString(record.value or b"")
            is_same = _is_present(world, shadow.source, shadow.source_topic_id)
            is_free = not shadow.closed and set(shadow.allow) <= {"User:*"}
            found[key.removeprefix(b"shadow/").decode()] = shadow.source if is_same and is_free else ""
    return {name: source for name, source in found.items() if source}


def _records(batches: Iterable[Batch]) -> Iterator[Record]:
    for batch in batches:
        if not batch.control:
            yield from (record._replace(at=batch.at) for record in records_of(batch.data))


def _note(record: Record, found: Evidence, world: World) -> None:
    if record.producer_id < 0 and not (record.key or b"").startswith(b"shadow/"):
        return  # no writer slot's: nodes pass over it too
    kind, _, rest = (record.key or b"").decode().partition("/")
    if kind == "shadow":
        shadow = state.Shadow.FromString(record.value or b"")
        found.sources.note(rest, shadow.source, record.at, shadow.source_topic_id)
    topic, _, slot = rest.rpartition("/")
    if kind == "claim":
        claim = state.Claim.FromString(record.value or b"")
        found.claims.append(Claimed(rest, claim.generation, claim.session, claim.token))
    if not record.value:
        return
    if kind == "ownership":
        owner = state.Ownership.FromString(record.value)
        start = tuple(zip(owner.start.partition, owner.start.offset, strict=True))
        found.ownerships.append(
            OwnershipRecord(
                topic, slot, owner.generation, owner.session, start, bool(owner.released_ms or not owner.session),
                record.offset, record.at, not _is_present(world, topic, owner.topic_id),
            )
        )  # fmt: skip
    elif kind in ("serving", "slot"):
        opened = (state.Serving if kind == "serving" else state.Slot).FromString(record.value)
        found.writers.add(opened.producer_id)
        found.opened.setdefault((opened.producer_id, opened.producer_epoch), record.offset)
        if kind == "serving" and _is_present(world, topic, opened.topic_id):
            if topic in world.cluster.deleted:
                found.renewed.setdefault(topic, record.at)
            for partition, offset in zip(opened.begins.partition, opened.begins.offset, strict=True):
                where = topic, partition
                if where in found.unfenced:
                    found.unfenced[where] = min(offset, found.unfenced[where])


def _is_present(world: World, topic: str, topic_id: bytes) -> bool:
    """Whether the topic that has this name now is the one that is meant."""
    now = world.cluster.controller.topics.get(topic)
    return now is not None and now.id == topic_id
