"""Batches that a slot's writer does not forward at once: those whose age only their records show."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sidecar.exclusive.writer import SlotWriter
from sidecar.fencing.expiry import KeepAlive
from sidecar.forwarder.outcome import Outcome
from sidecar.network.aside import Allowance
from sidecar.protocol import limits
from tests.kafka.exclusive.room import Room
from tests.unit.exclusive.world import World

OK, TOO_OLD = 0, 32
GZIP = 1
DAY_MS = 24 * 3600 * 1000
TERMS = KeepAlive(3600.0, "producer.id.expiration.ms of the brokers", oldest=DAY_MS / 1000)


async def governed(world: World, room: Room) -> str:
    """A topic whose owner may write records of a day."""
    name = await world.govern(room)
    room.topic(name).upkeep.read(TERMS)
    return name


async def written(world: World, name: str) -> list[int]:
    """The sequences of what is in the log."""
    return [batch.base_sequence for batch in await world.batches(name) if not batch.is_control]


@pytest.fixture(params=["at once", "aside"])
def opened(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How batches are opened: large ones by a thread."""
    if request.param == "aside":
        monkeypatch.setattr(limits, "BATCH_AT_ONCE_BYTES", 100)
    return request.param


async def test_the_records_of_a_batch_decide_whether_it_is_too_old(world: World, room: Room, opened: str) -> None:
    name, owner, now = await governed(world, room), room.connect("owner"), world.kafka.wall_ms()
    value = bytes(200)
    assert await owner.send(name, b"0") == OK
    spent = owner.allowance._left
    old = now - 2 * DAY_MS
    assert await owner.send(name, value, codec=GZIP, timestamp_ms=old) == TOO_OLD
    assert await owner.send(name, value, codec=GZIP, timestamp_ms=now, claimed_ms=old, sequence=1) == OK
    assert (owner.allowance._left < spent) is (opened == "aside"), "what a thread opens is limited"
    assert await owner.send(name, b"1", sequence=2) == OK
    assert await written(world, name) == [0, 1, 2]


async def test_a_batch_of_any_age_is_written_where_brokers_set_the_time_until_they_do_not(
    world: World, room: Room, opened: str
) -> None:
    """The answer without a time of the broker's shows that its setting was changed."""
    name, owner = await governed(world, room), room.connect("owner")
    assert await owner.send(name, b"0") == OK
    upkeep, old = room.topic(name).upkeep, world.kafka.wall_ms() - 2 * DAY_MS
    upkeep.read(replace(TERMS, stamped=True))
    upkeep.kept(upkeep.now())
    assert upkeep.stamped
    assert await owner.send(name, bytes(200), codec=GZIP, timestamp_ms=old) == OK
    assert not upkeep.stamped
    assert await owner.send(name, bytes(200), codec=GZIP, timestamp_ms=old) == TOO_OLD
    assert await written(world, name) == [0, 1]


async def test_a_batch_that_is_examined_aside_is_not_overtaken(
    world: World, room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BATCH_AT_ONCE_BYTES", 100)
    name, owner, now = await governed(world, room), room.connect("owner"), world.kafka.wall_ms()
    assert await owner.send(name, b"0") == OK
    how: dict[str, Any] = {"codec": GZIP, "timestamp_ms": now, "claimed_ms": now - 2 * DAY_MS}
    answers = [owner.begin(name, bytes(200), **how), owner.begin(name, b"2"), owner.begin(name, b"3" * 200, **how)]
    assert [each.error for each in await asyncio.gather(*answers)] == [OK] * 3
    assert await written(world, name) == [0, 1, 2, 3]


@pytest.mark.parametrize(("sizes", "spent"), [([700], 700), ([], limits.BATCH_BYTES)])
async def test_what_a_thread_opens_is_spent_from_its_clients_allowance(sizes: list[int], spent: int) -> None:
    """A batch that cannot be opened may have cost as much as the largest one."""
    taken: list[int] = []

    class Counted(Allowance):
        def spend(self, size: int) -> None:
            taken.append(size)

    def examine(*_: object, opened: Callable[[int], None], at_once: bool) -> Outcome:
        assert not at_once
        for size in sizes:
            opened(size)
        return Outcome(TOO_OLD)

    nothing = cast(Any, None)
    writer = SlotWriter("orders", nothing, cast(Any, SimpleNamespace(examine=examine)))
    batch = memoryview(b"batch")
    reply = SimpleNamespace(allowance=Counted())
    answer = await writer.examine(cast(Any, SimpleNamespace(batch=batch, reply=reply)))
    assert (answer, taken) == (Outcome(TOO_OLD), [spent])
    assert writer._examined is None, "it is judged by its records again"
