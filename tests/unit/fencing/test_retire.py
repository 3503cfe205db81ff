"""Which producer ids a slot had before."""

from __future__ import annotations

from sidecar.fencing import retired_ids
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp
from sidecar.v1 import state_pb2 as state


def test_the_slots_former_producer_ids_are_kept_once_each() -> None:
    newest = state.Serving(producer_id=5, retired_producer_ids=[3])
    assert retired_ids(newest, Stamp(ProducerId(5), ProducerEpoch(1))) == [3]
    assert retired_ids(newest, Stamp(ProducerId(6), ProducerEpoch(0))) == [3, 5]
    assert retired_ids(None, Stamp(ProducerId(6), ProducerEpoch(0))) == []
