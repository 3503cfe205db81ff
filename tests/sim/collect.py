"""Read what a history left in the brokers' logs: records, and what the nodes wrote down about owners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from metadata.ownership import AccessMode
from sidecar.v1 import state_pb2 as state
from tests.sim.checker import Claimed, Evidence, Tenure
from tests.sim.wire import records_of
from tests.sim.world import TOPICS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.sim.wire import Record
    from tests.sim.world import World

OWNERSHIP: Final = "__sidecar_default"


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
    batches, behind = world.cluster.committed(OWNERSHIP, 0), 0
    for batch in batches:
        found.compacted |= batch.base != behind or batch.count != batch.last - batch.base + 1
        behind = batch.last + 1
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
