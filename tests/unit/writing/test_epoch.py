"""The next epoch of a slot, without a broker: what it tells of itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from sidecar.changelog import MASTER_SLOT, Clock, Position, SlotName, View, shared_slot
from sidecar.protocol.ids import ClientSequence, ProducerEpoch, ProducerId, Stamp
from sidecar.protocol.session import Session
from sidecar.takeover.slots import SlotScope, TakenSlot
from sidecar.v1 import state_pb2 as state
from sidecar.writing.epoch import SlotEpoch

BEFORE, NEXT = (Stamp(ProducerId(900), ProducerEpoch(epoch)) for epoch in (4, 5))


@pytest.mark.parametrize(("slot", "stamps"), [(MASTER_SLOT, [NEXT]), (shared_slot(1), [])])
async def test_snapshots_of_sequence_ids_get_the_next_epoch_of_the_master_slot(
    slot: SlotName, stamps: list[Stamp]
) -> None:
    """Under the one before, Kafka would refuse them."""

    async def raised() -> Stamp:
        return NEXT

    async def appended(_: object) -> None: ...

    taken = TakenSlot(
        SlotScope("orders", slot), UUID(int=1), BEFORE, cast(Any, SimpleNamespace(raise_epoch=raised)),
        cast(Any, None), Session("pid:7"), "billing", 1, {0: Position(0, ClientSequence(3))}, {}, (0,),
        state.Ownership(), 0, {},
    )  # fmt: skip
    changelog = SimpleNamespace(view=View(), clock=Clock(), journal=lambda _: SimpleNamespace(append=appended))
    renewed: list[Stamp] = []
    ids = SimpleNamespace(renewed=renewed.append)
    epoch = SlotEpoch(taken, cast(Any, None), cast(Any, None), cast(Any, ids))
    following = await epoch.raise_for(cast(Any, SimpleNamespace(node_id=1, changelog=changelog)), 0, client_epoch=1)
    assert (following.taken.stamp, renewed) == (NEXT, stamps)
