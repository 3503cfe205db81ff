"""Simulated client libraries (`clients`): what they do at the ends of their numbers."""

from __future__ import annotations

import random

import pytest

from tests.sim.clients import LIBRARIES, Batch, Lane, Producer
from tests.sim.ledger import Ledger, Sent

LAST = 32_767


@pytest.mark.parametrize(("name", "epoch", "producer_id"), [("librdkafka", 0, 7), ("java", 0, -1)])
def test_librdkafka_wraps_its_epoch_and_java_asks_for_another_producer_id(
    name: str, epoch: int, producer_id: int
) -> None:
    producer = Producer(LIBRARIES[name], "app.1", "app", [], "owned", Ledger(), random.Random(0), lambda: 0)
    producer.producer_id, producer.epoch = 7, LAST
    producer._raise_epoch(Lane(0, epoch=LAST))
    assert (producer.epoch, producer.producer_id) == (epoch, producer_id)


@pytest.mark.parametrize(("code", "sent_anew"), [(44, True), (45, False), (10, False)])
async def test_java_numbers_what_is_under_way_behind_a_refused_batch_anew(code: int, sent_anew: bool) -> None:
    producer = Producer(LIBRARIES["java"], "app.1", "app", [], "owned", Ledger(), random.Random(0), lambda: 0)
    producer.producer_id, producer._pumping = 7, {0: True}
    first, second = (
        Batch([Sent("app.1", "owned", 0, sequence, b"")], 0.0, sequence, 0, 7, attempts=1) for sequence in (0, 1)
    )
    lane = Lane(0)
    lane.batches.extend((first, second))
    producer._settle(lane, first, (0, 0), code, -1, "")
    assert (second.epoch, second.is_dragged) == (1, sent_anew)
