"""Collects what a history left: records and ownership records in the brokers' logs, and what the play noted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from metadata.ownership import AccessMode
from sidecar.v1 import state_pb2 as state
from tests.sim.checker import Claimed, Evidence, Tenure
from tests.sim.wire import records_of
from tests.sim.world import TOPICS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.sim.play import Play
    from tests.sim.wire import Record
    from tests.sim.world import World

OWNERSHIP: Final = "__sidecar_default"
_ZEROED: Final = {"name:string0"}
"""Keys of claims that may be made under generation 0."""


def evidence_of(play: Play) -> Evidence:
    """All that the checker judges a history by."""
    sessions: dict[str, set[str]] = {}
    for producer, _ in play.producers:
        sessions.setdefault(producer.session, set()).update(f"pid:{each}" for each in producer.producer_ids)
    for stranger in play.strangers:
        sessions[stranger.name] = {f"pid:{stranger.producer_id}"} if stranger.producer_id >= 0 else set()
    counted = {name for name in play.topics if TOPICS[name].dedup and name not in play.loose | play.foreign}
    evidence = collect(play.world, {topic: play.counts[topic] for topic in play.topics})
    evidence.sessions, evidence.counted = sessions, counted
    evidence.stuck, evidence.torn = play.stuck, play.torn | play.reborn
    evidence.bare, evidence.loose = play.bare | play.reborn, play.loose | play.reborn
    evidence.inside = play.inside.wrong
    evidence.since = play.since if not play.torn | play.reborn else {}
    evidence.believed, evidence.held = play.believed, play.work.held
    evidence.wrecked, evidence.zeroed = play.wrecked, _ZEROED
    if play.history.shape.settings:  # names are forgotten for want of room
        evidence.counted = set()
    evidence.sometimes = {name for name in play.topics if TOPICS[name].dedup} | play.loose | play.foreign
    return evidence


def collect(world: World, topics: Mapping[str, int]) -> Evidence:
    """The logs of topics with so many partitions, as the leaders have them below their high watermarks."""
    found = Evidence(world.ledger, crashes=list(world.loop.crashes))
    for topic, partitions in sorted(topics.items()):
        for partition in range(partitions):
            found.logs[topic, partition] = read(world, topic, partition)
    found.shared = {name for name, plan in TOPICS.items() if plan.mode is AccessMode.SHARED}
    found.shadows = {name: plan.shadow_of for name, plan in TOPICS.items() if plan.shadow_of}
    for record in read(world, OWNERSHIP, 0):
        _note(record, found)
    return found


def read(world: World, topic: str, partition: int) -> list[Record]:
    """The committed records of a partition."""
    return records_of(b"".join(batch.data for batch in world.cluster.committed(topic, partition) if not batch.control))


def _note(record: Record, found: Evidence) -> None:
    if record.producer_id < 0:
        return  # no writer slot's: nodes pass over it too
    kind, _, rest = (record.key or b"").decode().partition("/")
    topic, _, slot = rest.rpartition("/")
    if kind == "claim":
        claim = state.Claim.FromString(record.value or b"")
        found.claims.append(Claimed(rest, claim.generation, claim.session, claim.token))
    if not record.value:
        return
    if kind == "ownership":
        owner = state.Ownership.FromString(record.value)
        start = tuple(zip(owner.start.partition, owner.start.offset, strict=True))
        found.tenures.append(
            Tenure(
                topic, slot, owner.generation, owner.session, start, bool(owner.released_ms or not owner.session),
                record.offset,
            )
        )  # fmt: skip
    elif kind in ("serving", "slot"):
        opened = (state.Serving if kind == "serving" else state.Slot).FromString(record.value)
        found.writers.add(opened.producer_id)
        found.opened.setdefault((opened.producer_id, opened.producer_epoch), record.offset)
