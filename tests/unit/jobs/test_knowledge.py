"""What the events topic says of epochs that the changelog has compacted away."""

from __future__ import annotations

from sidecar.jobs.knowledge import _openings_in
from sidecar.v1 import state_pb2 as state


def test_an_epoch_is_of_the_client_that_writes_whatever_the_owner_is_called() -> None:
    """Sequence ids count under the client's name. Events of earlier nodes do not have it."""
    claimed = state.Event(kind=state.Event.CLAIMED, session="pid:7", name="the boss", producer_id=900, producer_epoch=4)
    named = state.Event(client_id="billing")
    named.MergeFrom(claimed)
    assert [(each.epoch, each.name) for each in _openings_in([claimed, named])] == [(4, "the boss"), (4, "billing")]
