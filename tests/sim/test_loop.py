"""The loop: time jumps, hosts die and freeze between callbacks, sets of futures have one order."""

from __future__ import annotations

import asyncio

import pytest

from tests.sim.host import Host
from tests.sim.loop import LivelockError, SimLoop


@pytest.fixture
def loop() -> SimLoop:
    return SimLoop()


def test_time_jumps_to_the_next_timer(loop: SimLoop) -> None:
    async def main() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    assert loop.finish(main(), Host("a"), 7200) == pytest.approx(3600, abs=0.01)


def test_timers_fire_in_order_and_cancelled_ones_not_at_all(loop: SimLoop) -> None:
    fired: list[str] = []
    with loop.on(Host("a")):
        loop.call_later(2, fired.append, "second")
        loop.call_later(1, fired.append, "first")
        loop.call_later(1.5, fired.append, "never").cancel()
    loop.run(10)
    assert fired == ["first", "second"]


def test_what_a_host_schedules_belongs_to_it(loop: SimLoop) -> None:
    ran: list[Host | None] = []
    a, b = Host("a"), Host("b")

    async def main() -> None:
        await asyncio.sleep(1)
        ran.append(loop.current)

    for host in (a, b):
        with loop.on(host):
            loop.create_task(main())
    loop.run(5)
    assert ran == [a, b]


def test_nothing_of_a_killed_host_runs_again_not_even_finally(loop: SimLoop) -> None:
    ran: list[str] = []
    host = Host("a")

    async def main() -> None:
        try:
            await asyncio.sleep(1)
            ran.append("went on")
        finally:
            ran.append("cleaned up")

    with loop.on(host):
        loop.create_task(main())
    loop.run(0.5)
    loop.kill(host)
    loop.run(5)
    assert ran == []
    for task in host.tasks:
        task._log_destroy_pending = False


def test_a_fuse_kills_a_host_after_so_many_callbacks(loop: SimLoop) -> None:
    ran: list[int] = []
    host = Host("a")
    with loop.on(host):
        for number in range(10):
            loop.call_soon(ran.append, number)
    host.fuse = 3
    loop.run(1)
    assert ran == [0, 1, 2]
    assert not host.alive


def test_a_frozen_host_does_later_what_came_due_and_its_clock_went_on(loop: SimLoop) -> None:
    told: list[float] = []
    host = Host("a")
    with loop.on(host):
        loop.call_later(1, lambda: told.append(loop.time()))
    loop.freeze(host)
    loop.run(10)
    assert told == []
    loop.thaw(host)
    loop.run(11)
    assert told == [pytest.approx(10, abs=0.01)]


def test_the_monotonic_clock_of_a_suspended_host_stood_still(loop: SimLoop) -> None:
    told: list[tuple[float, float]] = []
    host = Host("a")
    with loop.on(host):
        loop.call_later(1, lambda: told.append((loop.time(), loop.now)))
        loop.call_later(20, lambda: told.append((loop.time(), loop.now)))
    loop.run(0.5)
    loop.freeze(host)
    loop.run(10)
    loop.thaw(host, slept=9.5)
    loop.run(60)
    assert told == [pytest.approx((1, 10.5), abs=0.01), pytest.approx((20, 29.5), abs=0.01)]


def test_sets_of_futures_have_the_order_of_their_making(loop: SimLoop) -> None:
    futures = [loop.create_future() for _ in range(5)]
    assert list({*reversed(futures)}) == sorted(futures, key=hash)


def test_work_for_threads_is_done_inline(loop: SimLoop) -> None:
    async def main() -> int:
        return await asyncio.to_thread(lambda: 7)

    assert loop.finish(main(), Host("a")) == 7


def test_turning_in_circles_is_found(loop: SimLoop) -> None:
    def again() -> None:
        loop.call_soon(again)

    with loop.on(Host("a")):
        again()
    with pytest.raises(LivelockError):
        loop.run(1)


def test_a_callback_that_raises_is_told(loop: SimLoop) -> None:
    def wrong() -> None:
        raise ValueError("wrong")

    with loop.on(Host("a")):
        loop.call_soon(wrong)
    loop.run(1)
    assert "wrong" in loop.crashes[0]
