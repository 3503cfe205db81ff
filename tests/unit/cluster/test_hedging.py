from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from sidecar.cluster.hedging import Hedged
from sidecar.protocol.caller import BadAnswerError, CallTimeoutError, DisconnectedError
from tests.wait import wait_for_async, wait_until

if TYPE_CHECKING:
    from collections.abc import Collection


class Brokers:
    """Brokers by number: each answers with its number, fails, or keeps silent until it is told to speak."""

    def __init__(self, **behaviour: str | Exception) -> None:
        self.behaviour = list(behaviour.values())
        self.asked: list[int] = []
        self.speak = [asyncio.Event() for _ in self.behaviour]

    async def ask(self, broker: int) -> int:
        self.asked.append(broker)
        if self.behaviour[broker] == "silent":
            await self.speak[broker].wait()
        found = self.behaviour[broker]
        if isinstance(found, Exception):
            raise found
        return broker

    def choose(self, asked: Collection[int]) -> int | None:
        return next((broker for broker in range(len(self.behaviour)) if broker not in asked), None)


def first_answer(hedged: Hedged, brokers: Brokers) -> asyncio.Task[int]:
    return asyncio.ensure_future(hedged.first_answer(brokers.ask, brokers.choose))


LOST = DisconnectedError("lost", sent=True)


async def test_a_prompt_broker_is_the_only_one_asked() -> None:
    brokers = Brokers(a="prompt", b="prompt")
    assert await first_answer(Hedged(), brokers) == 0
    assert brokers.asked == [0]


async def test_a_silent_broker_costs_a_moment_and_no_more() -> None:
    brokers = Brokers(a="silent", b="prompt")
    hedged = Hedged(patience=0.01)
    assert await first_answer(hedged, brokers) == 1
    await hedged.cancel()


async def test_a_late_answer_counts_as_long_as_there_is_no_other() -> None:
    brokers = Brokers(a="silent", b="silent", c="silent")
    hedged = Hedged(patience=0.001)
    answer = first_answer(hedged, brokers)

    async def all_asked() -> bool:
        return len(brokers.asked) == 3

    await wait_for_async(all_asked, "all brokers to be asked")
    brokers.speak[0].set()
    assert await answer == 0
    await hedged.cancel()


async def test_a_broker_that_fails_is_replaced_at_once() -> None:
    brokers = Brokers(a=LOST, b=CallTimeoutError("late"), c="prompt")
    assert await asyncio.wait_for(first_answer(Hedged(patience=60), brokers), 5) == 2


async def test_when_all_fail_the_last_failure_is_told() -> None:
    brokers = Brokers(a=CallTimeoutError("late"), b=LOST)
    with pytest.raises(DisconnectedError, match="lost"):
        await first_answer(Hedged(), brokers)


async def test_with_nobody_to_ask_there_is_no_answer() -> None:
    with pytest.raises(DisconnectedError, match="no broker is known"):
        await first_answer(Hedged(), Brokers())


@pytest.mark.parametrize("error", [BadAnswerError("nonsense"), ValueError("a bug")], ids=str)
async def test_an_error_that_no_other_broker_would_spare_is_told_at_once(error: Exception) -> None:
    brokers = Brokers(a=error, b="prompt")
    with pytest.raises(type(error)):
        await first_answer(Hedged(), brokers)
    assert brokers.asked == [0]


async def test_the_questions_left_over_end_without_a_trace() -> None:
    unheard: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: unheard.append(context))
    brokers = Brokers(a="silent", b="prompt")
    hedged = Hedged(patience=0.001)
    assert await first_answer(hedged, brokers) == 1
    brokers.behaviour[0] = LOST
    brokers.speak[0].set()
    await wait_until(lambda: not hedged._tasks, "the end of the other question")
    assert unheard == []


async def test_a_mistake_of_ours_that_no_caller_raises_is_reported() -> None:
    unheard: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    brokers = Brokers(a="silent", b="prompt")
    hedged = Hedged(patience=0.001)
    assert await first_answer(hedged, brokers) == 1
    brokers.behaviour[0] = ZeroDivisionError("a bug")
    brokers.speak[0].set()
    await wait_until(lambda: not hedged._tasks, "the end of the other question")
    assert [type(context["exception"]) for context in unheard] == [ZeroDivisionError]


# All of them --------------------------------------------------------------------------------------------------------


async def test_all_are_asked_and_one_that_fails_or_keeps_silent_is_left_out() -> None:
    brokers = Brokers(a="prompt", b="silent", c=LOST, d="prompt")
    hedged = Hedged(patience=0.01)
    assert sorted(await hedged.answers(brokers.ask, range(4))) == [0, 3]
    assert brokers.asked == [0, 1, 2, 3]
    await hedged.cancel()


async def test_a_late_answer_is_waited_for_as_long_as_there_is_no_other_one() -> None:
    brokers = Brokers(a="silent", b=LOST)
    hedged = Hedged(patience=0.001)
    answer = asyncio.ensure_future(hedged.answers(brokers.ask, range(2)))
    await wait_for_async(lambda: _asked(brokers, 2), "both to be asked")
    brokers.speak[0].set()
    assert await answer == [0]


async def _asked(brokers: Brokers, number: int) -> bool:
    return len(brokers.asked) == number


async def test_where_none_answers_that_is_told() -> None:
    with pytest.raises(DisconnectedError):
        await Hedged().answers(Brokers(a=LOST).ask, range(1))
