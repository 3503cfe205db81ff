"""Readers are answered in order, some in each turn, whatever befalls one of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.fanout.waiting import AT_A_TIME, Waking
from tests.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping


class Recorded:
    """A reader that notes when it is answered, and fails where it is to."""

    def __init__(self, name: int, told: list[int], *, fails: bool = False) -> None:
        self._name, self._told, self._fails = name, told, fails

    def arrived(self, found: Mapping[Any, Any]) -> None:
        self._told.append(self._name)
        if self._fails:
            raise ValueError(self._name)

    def expired(self, tick: int) -> None:
        self._told.append(-tick)


async def test_readers_are_answered_in_order_a_few_in_each_turn() -> None:
    told, waking = list[int](), Waking()
    waking.add([Recorded(number, told) for number in range(AT_A_TIME + 10)], {})
    waking.add([Recorded(0, told)], 7)
    assert told == list(range(AT_A_TIME))
    assert waking.left == 11
    await wait_until(lambda: not waking.is_busy, "all are answered")
    assert told == [*range(AT_A_TIME + 10), -7]
    assert not waking.left


async def test_groups_share_a_turn_and_one_as_large_as_a_turn_ends() -> None:
    told, waking = list[int](), Waking()
    waking.is_busy = True
    for number in range(2):
        waking.add([Recorded(number, told)] * (AT_A_TIME // 2), {})
    waking.go_on()
    assert told == [0] * (AT_A_TIME // 2) + [1] * (AT_A_TIME // 2)
    await wait_until(lambda: not waking.is_busy, "there is nobody left")
    assert len(told) == AT_A_TIME


async def test_many_small_groups_are_no_more_in_a_turn_than_a_large_one() -> None:
    """All polls of a leader that is lost end in one turn, each with readers of its own: 4,000 were answered at once."""
    told, waking = list[int](), Waking()
    for number in range(AT_A_TIME):
        waking.add([Recorded(number, told)] * (AT_A_TIME - 1), {})
    assert len(told) == AT_A_TIME
    for turn in range(2, AT_A_TIME):
        await asyncio.sleep(0)
        assert len(told) == turn * AT_A_TIME
    await asyncio.sleep(0)
    assert not waking.is_busy
    waking.add([Recorded(-1, told)] * AT_A_TIME, {})
    waking.add([Recorded(-2, told)], {})
    assert told[-1] == -1, "the first of a new turn are answered at once, those beyond in the next"
    await asyncio.sleep(0)
    assert told == sorted(told[: -AT_A_TIME - 1]) + [-1] * AT_A_TIME + [-2]


async def test_a_reader_that_fails_does_not_keep_others_from_their_answers() -> None:
    failed = list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
    told, waking = list[int](), Waking()
    with pytest.raises(ValueError, match="1"):
        waking.add([Recorded(0, told), Recorded(1, told, fails=True), Recorded(2, told)], {})
    assert told == [0, 1]
    await wait_until(lambda: not waking.is_busy, "the rest is answered")
    assert told == [0, 1, 2]
    assert not failed
