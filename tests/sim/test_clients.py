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


@pytest.mark.parametrize(
    ("name", "epoch", "sent_anew"),
    [("java", 0, False), ("java", LAST, True), ("librdkafka", 0, True), ("librdkafka", LAST, True)],
)
def test_what_is_under_way_in_another_partition_is_sent_anew_where_it_is_numbered_anew(
    name: str, epoch: int, sent_anew: bool
) -> None:
    producer = Producer(LIBRARIES[name], "app.1", "app", [], "owned", Ledger(), random.Random(0), lambda: 0)
    producer.producer_id, producer.epoch = 7, epoch
    batch = Batch([Sent("app.1", "owned", 1, 0, b"")], 0.0, 0, epoch, 7, attempts=1)
    producer._lanes = {each: Lane(each, epoch=epoch) for each in (0, 1)}
    producer._lanes[1].batches.append(batch)
    producer._raise_epoch(producer._lanes[0])
    assert batch.is_dragged == sent_anew


@pytest.mark.parametrize(
    ("refused", "code", "sent_anew"), [(0, 44, True), (0, 45, False), (0, 10, False), (1, 44, True), (1, 10, True)]
)
async def test_java_numbers_what_is_under_way_beside_a_refused_batch_anew(
    refused: int, code: int, sent_anew: bool
) -> None:
    producer = Producer(LIBRARIES["java"], "app.1", "app", [], "owned", Ledger(), random.Random(0), lambda: 0)
    producer.producer_id, producer._pumping = 7, {0: True}
    batches = [Batch([Sent("app.1", "owned", 0, each, b"")], 0.0, each, 0, 7, attempts=1) for each in (0, 1)]
    other = batches[1 - refused]
    lane = Lane(0)
    lane.batches.extend(batches)
    producer._settle(lane, batches[refused], (refused, 0), code, -1, "")
    assert (other.epoch, other.is_dragged) == (1, sent_anew)


@pytest.mark.parametrize(
    ("name", "position", "sent_as", "acknowledged", "ends"),
    [
        ("librdkafka", 0, (5, 0), 4, True),
        ("librdkafka", 1, (6, 0), 4, False),
        ("librdkafka", 0, (9, 7), 4, False),
        ("librdkafka", 0, (5, 0), -1, False),
        ("java", 0, (5, 0), 4, False),
    ],
    ids=["what comes next", "a batch behind it", "sent under a former epoch", "its epoch does not begin at 0", "java"],
)
async def test_librdkafka_ends_by_a_gap_in_front_of_what_comes_next(
    name: str, position: int, sent_as: tuple[int, int], acknowledged: int, ends: bool
) -> None:
    """The library waits until nothing is in flight before it raises its epoch: then each partition begins at 0."""
    producer = Producer(LIBRARIES[name], "app.1", "app", [], "owned", Ledger(), random.Random(0), lambda: 0)
    producer.producer_id, producer._pumping = 7, {0: True}
    batches = [Batch([Sent("app.1", "owned", 0, each, b"")], 0.0, each, 0, 7, attempts=1) for each in (5, 6)]
    lane = producer._lanes.setdefault(0, Lane(0, acknowledged=acknowledged))
    lane.batches.extend(batches)
    producer._settle(lane, batches[position], sent_as, 45, -1, "")
    assert producer.fatal == (45 if ends else None)
    assert [record.code for batch in batches for record in batch.records] == ([45, 45] if ends else [0, 0])
