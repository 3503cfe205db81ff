"""What a thread opens for one client: a piece at a time, and so many bytes a second."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Coroutine

import pytest

from sidecar.network.aside import Allowance, aside
from sidecar.protocol.limits import BATCH_BYTES, OPENED_A_SECOND
from sidecar.protocol.room import room_for
from tests.unit.network.peers import on_uvloop


@on_uvloop
async def test_work_is_done_by_another_thread_and_raises_what_it_raises() -> None:
    assert await aside(threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await aside(lambda: 1 // 0)


class Clock:
    """Time that passes while somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self.now, raising=False)
        monkeypatch.setattr("sidecar.network.aside.asyncio.sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.now += seconds


class Loop(asyncio.SelectorEventLoop):
    """A loop whose clock can be exchanged."""


def run(work: Coroutine[None, None, None]) -> None:
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(work)


def test_who_opened_a_second_worth_of_bytes_waits_until_they_are_earned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        clock, allowance = Clock(monkeypatch), Allowance()
        for _ in range(3):
            async with allowance:
                allowance.spend(OPENED_A_SECOND)
        assert clock.now == pytest.approx(1001.0)

    run(story())


def test_a_piece_that_is_larger_than_what_is_left_delays_the_next_one_by_as_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        clock, allowance = Clock(monkeypatch), Allowance()
        async with allowance:
            allowance.spend(3 * OPENED_A_SECOND)
        async with allowance:
            pass
        assert clock.now == pytest.approx(1002.0)

    run(story())


def test_who_opens_nothing_for_long_has_saved_no_more_than_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        clock, allowance = Clock(monkeypatch), Allowance()
        async with allowance:
            pass
        clock.now += 3600
        async with allowance:
            allowance.spend(2 * OPENED_A_SECOND)
        began = clock.now
        async with allowance:
            pass
        assert clock.now - began == pytest.approx(1.0)

    run(story())


@on_uvloop
async def test_one_client_has_one_piece_opened_at_a_time_and_another_one_does_not_wait_for_that() -> None:
    allowance, other = Allowance(), Allowance()
    entered: list[str] = []

    async def enter() -> None:
        async with allowance:
            entered.append("second")

    async with allowance:
        second = asyncio.get_running_loop().create_task(enter())
        async with other:
            entered.append("other")
        await asyncio.sleep(0)
        assert entered == ["other"]
    await second
    assert entered == ["other", "second"]


@on_uvloop
async def test_who_is_cancelled_while_it_waits_leaves_the_place_to_the_next() -> None:
    allowance = Allowance()
    async with allowance:
        allowance.spend(1000 * OPENED_A_SECOND)

    async def enter() -> None:
        async with allowance:
            raise AssertionError

    waiting = asyncio.get_running_loop().create_task(enter())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    allowance.spend(-1000 * OPENED_A_SECOND)
    async with asyncio.timeout(5), allowance:
        pass


@on_uvloop
async def test_the_thread_gives_its_memory_back_when_nothing_is_left_to_do() -> None:
    def fill() -> bytes:
        room = room_for(BATCH_BYTES)
        assert room is not None
        room[:5] = b"batch"
        return bytes(room[:5])

    first, second = await asyncio.gather(aside(fill), aside(lambda: bytes((room_for(BATCH_BYTES) or b"")[:5])))
    assert (first, second) == (b"batch", b"batch")
    assert not any(await aside(lambda: bytes((room_for(BATCH_BYTES) or b"x")[:5])))


@on_uvloop
@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own in Linux alone")
async def test_the_thread_has_a_lower_priority_than_the_loop() -> None:
    mine = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    its = await aside(lambda: os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
    assert its > mine or mine == 19
