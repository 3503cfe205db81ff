"""What goes into one batch."""

from __future__ import annotations

import asyncio

import pytest

from sidecar.client.pipeline import Lane
from sidecar.client.receipt import Pending


def record(number: int | None, size: int = 100) -> Pending:
    return Pending(None, b"", (), number, 0, size, asyncio.get_running_loop().create_future())


def batches(records: list[Pending], last_id: int = -1) -> list[list[int | None]]:
    """The numbers of the records of each batch."""
    lane = Lane(0)
    for each in records:
        lane.add(each)
    found: list[list[int | None]] = []
    while lane.fill(last_id):
        assert lane.fill(last_id)  # a head stays what it is until it is settled
        found.append([each.number for each in lane.settled()])
    return found


@pytest.mark.parametrize(
    ("numbers", "last_id", "wanted"),
    [
        ([0, 1, 5], -1, [[0, 1, 5]]),
        ([None, None], -1, [[None, None]]),
        ([0, 1, 2, 3], 1, [[0, 1], [2, 3]]),
        ([6, 6, 7], 5, [[6], [6, 7]]),
        ([7, 6], 5, [[7], [6]]),
        ([], -1, []),
    ],
)
async def test_a_batch_is_of_rising_ids_all_known_or_all_new(
    numbers: list[int | None], last_id: int, wanted: list[list[int | None]]
) -> None:
    assert batches([record(number) for number in numbers], last_id) == wanted


async def test_a_batch_ends_where_it_is_full_and_has_one_record_at_least() -> None:
    sizes = [200_000, 40_000, 20_000, 10_000, 200_000]
    assert batches([record(number, size) for number, size in enumerate(sizes)]) == [[0], [1, 2], [3], [4]]


async def test_what_was_given_up_before_it_left_is_left_out() -> None:
    records = [record(number) for number in range(4)]
    for number in (0, 2):
        records[number].outcome.cancel()
    assert batches(records) == [[1, 3]]
    for each in records:
        each.outcome.cancel()
    assert batches(records) == []


async def test_what_was_given_up_under_way_stays_in_its_batch() -> None:
    """It is sent again as the same batch, or Kafka would not know it."""
    lane, records = Lane(0), [record(number) for number in range(2)]
    for each in records:
        lane.add(each)
    assert lane.fill(-1)
    records[0].outcome.cancel()
    assert lane.fill(-1)
    assert lane.head == records
