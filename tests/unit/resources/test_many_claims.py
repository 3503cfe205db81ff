"""A client that has many claims: what its end takes of one turn of the event loop, counted, not timed."""

from __future__ import annotations

import asyncio
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.access.prospects import Prospect
from sidecar.changelog import claim_key
from sidecar.network.tasks import Tasks
from sidecar.protocol.primitives import at_once
from sidecar.resources.claims import News
from sidecar.resources.commits import BATCH_RECORDS, Commits
from sidecar.resources.coordinator import Coordinator
from sidecar.resources.limits import ClaimLimits
from sidecar.resources.requests import Request, Wish
from sidecar.v1 import control_pb2 as control

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecar.changelog import Record

SESSION = "conn:1-00-1"
REQUESTS, NAMES = 20, 1_000
LARGEST = BATCH_RECORDS + NAMES
"""What one turn may take: a batch, with one request in it that is as large as a request may be."""


class Journal:
    """An ownership topic that takes everything."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    async def append(self, records: Sequence[Record]) -> int:
        self.batches.append(len(records))
        await asyncio.sleep(0)
        return sum(self.batches) - len(records)


def fail(error: BaseException) -> None:
    raise error


def coordinator(journal: Journal) -> Coordinator:
    """One that coordinates, and whose view is never ahead."""
    nothing = lambda *_, **__: None  # noqa: E731
    tailer = SimpleNamespace(subscribe=lambda *_: nothing)
    changelog = SimpleNamespace(clock=SimpleNamespace(elapsed=lambda: 0.0, now_ms=lambda: 0), tailer=tailer)
    services: Any = SimpleNamespace(changelog=changelog, store=SimpleNamespace(lease_ms=3000), node_id=1)
    events: Any = SimpleNamespace(
        claims_answered=nothing, claims_granted=nothing, claims_let_go=nothing, coordinator_changed=nothing
    )
    nodes: Any = SimpleNamespace(serving={})
    tasks = Tasks(fail)
    room = Coordinator(services, nodes, tasks, events, ClaimLimits(100), reconnect_grace=1.0, disconnect_grace=0.0)
    epoch: Any = SimpleNamespace()
    written: Any = journal
    room.epoch, room.commits, room.serving = epoch, Commits(written), True
    return room


def claim_many(room: Coordinator) -> None:
    numbers = count()
    for _ in range(REQUESTS):
        resources = [control.Resource(name=f"n{next(numbers)}") for _ in range(NAMES)]
        wishes = tuple(Wish(claim_key("", resource), "", resource) for resource in resources)
        request = Request(next(numbers).to_bytes(16, "big"), SESSION, "me", control.EXCLUSIVE, wishes)
        verdict = room.claims.table.judge(request)
        assert verdict.prospect is Prospect.READY
        room.claims.table.apply(room.claims.table.grant(request, verdict, 0, "here"))


async def turns(room: Coordinator, left: Any) -> list[int]:
    """How much each turn took off, until nothing is left."""
    taken: list[int] = []
    before = left()
    async with asyncio.timeout(60):
        while before:
            await asyncio.sleep(0)
            taken.append(before - (before := left()))
    return taken


async def test_twenty_thousand_claims_of_a_client_that_left_are_released_in_turns() -> None:
    journal = Journal()
    room = coordinator(journal)
    claim_many(room)
    room.bind(1, SESSION)
    room.connection_closed(1)
    taken = await turns(room, lambda: len(room.claims.table.owners))
    assert max(taken) <= LARGEST
    assert max(journal.batches) <= LARGEST
    assert not room.claims.over


async def test_the_places_of_a_client_that_left_are_given_up_in_turns() -> None:
    room = coordinator(Journal())
    claim_many(room)
    keys = [*room.claims.table.owners]
    for number in range(REQUESTS):
        some = keys[number * NAMES : (number + 1) * NAMES]
        wishes = tuple(Wish(key, "", control.Resource(name="x")) for key in some)
        room.claims.table.wait(Request(b"w%d" % number, "conn:1-00-2", "me", control.WAIT_FOR_EXCLUSIVE, wishes), 0)
    room.bind(2, "conn:1-00-2")
    room.connection_closed(2)
    taken = await turns(room, lambda: room.claims.table.waiting.wishes)
    assert max(taken) <= LARGEST + 2 * NAMES


async def test_who_lost_claims_by_the_end_of_the_coordinators_epoch_is_told_in_turns() -> None:
    room, told, severed = coordinator(Journal()), list[int](), list[int]()

    def left() -> int:
        while not room.events.empty():
            event = room.events.get_nowait()
            if isinstance(event, News):
                told.append(len(event.lost))
            else:
                severed.append(event.connection)
        return REQUESTS * NAMES - sum(told)

    claim_many(room)
    room.bind(1, SESSION)
    room.heard({"__claims"})
    taken = await turns(room, left)
    assert max(taken) <= NAMES
    await asyncio.sleep(0)
    left()
    assert severed == [1]


@pytest.mark.parametrize("number", [1_000, 20_000])
async def test_claims_are_loaded_in_slices(number: int) -> None:
    room = coordinator(Journal())
    claim_many(room)
    claims = [*room.claims.table.owners.items()][:number]
    table = room.claims.new_table()
    steps = table.load(claims)
    sizes = [len(table.owners) for _ in steps]
    assert sizes == list(range(1_000, number + 1, 1_000))
    at_once(steps)
    assert len(table.owners) == number


async def test_claims_are_listed_in_slices() -> None:
    room = coordinator(Journal())
    claim_many(room)
    listing, taken = asyncio.create_task(room.claimed("")), 0
    while not listing.done():
        await asyncio.sleep(0)
        taken += 1
    assert len(listing.result()) == REQUESTS * NAMES
    assert taken > REQUESTS * NAMES / 1_000
