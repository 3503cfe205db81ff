"""Who waits until its time is told so once; nothing stays of who does not wait any more."""

from __future__ import annotations

import asyncio

import pytest

from sidecar.fanout.waiting import TICK_S, Wheel
from tests.wait import wait_until

_DAYS = 24 * 24 * 3600.0


async def test_those_whose_time_has_come_are_named_once_in_the_order_in_which_they_came() -> None:
    named: list[str] = []
    wheel = Wheel[str](lambda those, _: named.extend(those))
    for name in ("b", "a", "gone", "c"):
        tick = wheel.add(name, 0.02)
        if name == "gone":
            wheel.remove(name, tick)
    await wait_until(lambda: len(named) == 3, "their time has come")
    assert named == ["b", "a", "c"]
    assert len(wheel._ticks) == 0


async def test_those_who_wait_for_long_come_together_though_at_most_50_ms_late(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, began = asyncio.get_running_loop(), 1000.0
    monkeypatch.setattr(loop, "time", lambda: began)
    wheel = Wheel[float](lambda _, __: None)
    for seconds in (2.001, 2.02, 2.049):
        assert wheel.add(seconds, seconds) * TICK_S == pytest.approx(began + 2.05)
    assert wheel.add(0.9, 0.901) * TICK_S == pytest.approx(began + 0.905)


async def test_nothing_stays_of_those_that_were_answered_long_before_their_time() -> None:
    wheel = Wheel[int](lambda _, __: None)
    stays = wheel.add(0, _DAYS)
    for number in range(1, 1000):
        wheel.remove(number, wheel.add(number, _DAYS - number))
    assert len(wheel._ticks) == 1
    wheel.remove(0, stays)
    wheel.remove(0, stays)
    assert len(wheel._ticks) == 0
