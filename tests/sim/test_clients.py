"""Simulated client libraries (`clients`): what they do at the ends of their numbers."""

from __future__ import annotations

import random

import pytest

from tests.sim.clients import LIBRARIES, Lane, Producer
from tests.sim.ledger import Ledger

LAST = 32_767


@pytest.mark.parametrize(("name", "epoch", "producer_id"), [("librdkafka", 0, 7), ("java", 0, -1)])
def test_librdkafka_wraps_its_epoch_and_java_asks_for_another_producer_id(
    name: str, epoch: int, producer_id: int
) -> None:
    producer = Producer(LIBRARIES[name], "app.1", "app", [], "owned", Ledger(), random.Random(0), lambda: 0)
    producer.producer_id, producer.epoch = 7, LAST
    producer._raise_epoch(Lane(0, epoch=LAST))
    assert (producer.epoch, producer.producer_id) == (epoch, producer_id)
