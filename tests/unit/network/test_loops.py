"""Loops go on, whatever they raise, and a node with one that cannot is known."""

from __future__ import annotations

import asyncio

import pytest

from sidecar.network.tasks import Loops, Tasks
from tests.sim.host import Host
from tests.sim.loop import SimLoop


class Room:
    """Loops, and what was told of them."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.tasks = Tasks(lambda error: self.told.append(("task", repr(error))))
        self.loops = Loops(self.tasks, lambda name, error: self.told.append((name, str(error))))


async def test_a_loop_that_raises_begins_again() -> None:
    room, begun = Room(), list[int]()
    goes_on = asyncio.Event()

    async def work() -> None:
        begun.append(len(begun))
        if len(begun) == 1:
            raise ValueError("the first round")
        goes_on.set()
        await asyncio.Event().wait()

    room.loops.start("renewing", work)
    await asyncio.wait_for(goes_on.wait(), 10)
    assert begun == [0, 1]
    assert room.told == [("renewing", "the first round")]
    assert room.loops.failing() == {}, "once is no habit"
    await room.tasks.cancel()


async def test_a_loop_that_ends_by_itself_begins_again() -> None:
    room, begun = Room(), asyncio.Semaphore(0)

    async def work() -> None:
        begun.release()

    room.loops.start("renewing", work)
    for _ in range(2):
        await asyncio.wait_for(begun.acquire(), 10)
    assert room.told[0] == ("renewing", "renewing ended by itself")
    await room.tasks.cancel()


async def test_a_loop_that_fails_again_and_again_is_named() -> None:
    room, failed = Room(), asyncio.Semaphore(0)

    async def work() -> None:
        failed.release()
        raise ValueError("as ever")

    room.loops.start("renewing", work)
    room.loops.start("sound", lambda: asyncio.sleep(3600))
    for _ in range(4):
        await asyncio.wait_for(failed.acquire(), 10)
    assert room.loops.failing() == {"renewing": "ValueError('as ever')"}
    await room.tasks.cancel()


@pytest.mark.parametrize(("every_s", "is_named"), [(1, True), (30, True), (100, True), (150, False)])
def test_a_loop_that_seldom_fails_is_named_unless_it_ran_for_long_without(every_s: int, is_named: bool) -> None:
    """A loop that waits for half a minute between its rounds has not recovered by waiting."""
    clock, process = SimLoop(), Host("node")

    async def work() -> None:
        await asyncio.sleep(every_s)
        raise ValueError("as ever")

    async def begin() -> Room:
        room = Room()
        room.loops.start("keeping fences", work)
        return room

    async def failing(room: Room) -> bool:
        return bool(room.loops.failing())

    room = clock.finish(begin(), process)
    clock.run(10 * every_s)
    assert len(room.told) > 3
    assert clock.finish(failing(room), process) is is_named


def test_a_loop_that_goes_on_again_is_named_no_more() -> None:
    clock, process, begun = SimLoop(), Host("node"), list[int]()

    async def work() -> None:
        begun.append(1)
        await asyncio.sleep(0.1 if len(begun) <= 3 else 3600)
        raise ValueError("as ever")

    async def begin() -> Room:
        room = Room()
        room.loops.start("keeping fences", work)
        return room

    async def failing(room: Room) -> bool:
        return bool(room.loops.failing())

    room = clock.finish(begin(), process)
    clock.run(100)
    assert clock.finish(failing(room), process)
    clock.run(200)
    assert not clock.finish(failing(room), process)


async def test_a_loop_that_is_cancelled_is_over() -> None:
    room = Room()
    task = room.loops.start("renewing", lambda: asyncio.sleep(3600))
    await asyncio.sleep(0)
    await room.tasks.cancel()
    assert task.cancelled()
    assert room.told == []
