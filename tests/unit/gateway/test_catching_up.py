"""Whoever asks is told what was acknowledged before: a round that began earlier is none of his."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from sidecar.changelog import ChangelogError
from sidecar.changelog.tailer import Tailer
from sidecar.gateway.owners import BehindError, CatchingUp
from sidecar.network.tasks import Tasks
from sidecar.protocol.ids import Offset


class PaperLog:
    """Each reading ends when the test says so, in this order."""

    def __init__(self) -> None:
        self.readings: list[asyncio.Future[Offset]] = []

    async def read_to_end(self, timeout: float) -> Offset:
        self.readings.append(asyncio.get_running_loop().create_future())
        return await self.readings[-1]


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
async def tasks() -> AsyncIterator[Tasks]:
    failures: list[BaseException] = []
    found = Tasks(failures.append)
    yield found
    await found.cancel()
    assert failures == []


async def no_beat() -> None: ...


async def test_who_comes_while_a_round_is_under_way_waits_for_one_that_begins_behind_him(tasks: Tasks):
    log, beats = PaperLog(), [0]

    async def beat() -> None:
        beats[0] += 1

    catching_up = CatchingUp(cast(Tailer, log), beat, tasks)
    first = asyncio.ensure_future(catching_up.now())
    await turns()
    late = [asyncio.ensure_future(catching_up.now()) for _ in range(5)]
    await turns()
    assert len(log.readings) == 1
    log.readings[0].set_result(Offset(7))
    await turns()
    assert (first.done(), any(each.done() for each in late)) == (True, False)
    assert (len(log.readings), beats) == (2, [2]), "the five share one round"
    log.readings[1].set_result(Offset(7))
    await asyncio.gather(first, *late)


async def test_a_log_that_cannot_be_read_is_told_to_all_who_wait_and_the_next_one_tries_again(tasks: Tasks):
    log = PaperLog()
    catching_up = CatchingUp(cast(Tailer, log), no_beat, tasks)
    waiting = [asyncio.ensure_future(catching_up.now()) for _ in range(2)]
    await turns()
    log.readings[0].set_exception(ChangelogError("broker 10.0.0.1:9092 is away"))
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(each) for each in found] == [BehindError, BehindError]
    assert "10.0.0.1" not in str(found[0])
    again = asyncio.ensure_future(catching_up.now())
    await turns()
    log.readings[1].set_result(Offset(7))
    await again


async def test_who_gives_up_ends_the_round_for_nobody_else(tasks: Tasks):
    log = PaperLog()
    catching_up = CatchingUp(cast(Tailer, log), no_beat, tasks)
    impatient, patient = (asyncio.ensure_future(catching_up.now()) for _ in range(2))
    await turns()
    impatient.cancel()
    await turns()
    log.readings[0].set_result(Offset(7))
    await patient
    assert impatient.cancelled()
