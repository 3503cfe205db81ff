"""Answers remembered for a moment."""

from __future__ import annotations

import asyncio

import pytest

from sidecar.shadow.cursors import Recent


class Counted:
    """Answers with how often it was asked, as soon as it may."""

    def __init__(self) -> None:
        self.asked = 0
        self.may = asyncio.Event()
        self.may.set()

    async def __call__(self) -> int:
        self.asked += 1
        answer = self.asked
        await self.may.wait()
        return answer


async def test_an_answer_is_given_again_until_it_is_old() -> None:
    recent, counted = Recent[int](0.05), Counted()
    assert [await recent.answer("a", counted) for _ in range(3)] == [1, 1, 1]
    assert await recent.answer("b", counted) == 2
    await asyncio.sleep(0.06)
    assert await recent.answer("a", counted) == 3


async def test_all_who_ask_meanwhile_wait_for_one_answer_and_leave_it_to_the_others() -> None:
    recent, counted = Recent[int](5), Counted()
    counted.may.clear()
    waiting = [asyncio.create_task(recent.answer("a", counted)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    counted.may.set()
    assert await asyncio.gather(*waiting[1:]) == [1, 1]


async def test_what_was_asked_before_a_change_is_not_remembered() -> None:
    recent, counted = Recent[int](5), Counted()
    counted.may.clear()
    before = asyncio.create_task(recent.answer("a", counted))
    await asyncio.sleep(0)
    recent.forget("a")
    after = asyncio.create_task(recent.answer("a", counted))
    await asyncio.sleep(0)
    counted.may.set()
    assert (await before, await after) == (1, 2)
    assert await recent.answer("a", counted) == 2
    recent.forget("a")
    assert await recent.answer("a", counted) == 3


async def test_failures_are_told_to_all_and_not_remembered() -> None:
    recent = Recent[int](5)
    tries = 0

    async def fail() -> int:
        nonlocal tries
        tries += 1
        await asyncio.sleep(0)
        raise LookupError

    for number in (1, 2):
        together = await asyncio.gather(recent.answer("a", fail), recent.answer("a", fail), return_exceptions=True)
        assert [type(found) for found in together] == [LookupError, LookupError]
        assert tries == number


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidecar.shadow.cursors._MOST", 3)
    recent, counted = Recent[int](5), Counted()
    for key in range(10):
        await recent.answer(key, counted)
    assert len(recent._kept) == 3
    await asyncio.sleep(6)
    await recent.answer("new", counted)
    asked = counted.asked
    await recent.answer("new", counted)
    assert counted.asked == asked, "old answers have made room"


async def test_closing_cancels_who_waits() -> None:
    recent, counted = Recent[int](5), Counted()
    counted.may.clear()
    waiting = asyncio.create_task(recent.answer("a", counted))
    await asyncio.sleep(0)
    await recent.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
