"""One operation at a time: it always ends, and whatever waits for it is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from sidecar.dedup.reply import Reply
from sidecar.exclusive.operations import BUSY, NO_BATCH, Offer, Operations
from sidecar.forwarder.outcome import Outcome
from sidecar.network.tasks import Tasks
from sidecar.ownership.state import Claimant
from sidecar.protocol.session import Session

DONE = Outcome(0)


class Buffer:
    """Takes the place of the forwarder: counts what is given back."""

    def __init__(self) -> None:
        self.given_back = 0

    def released(self, size: int) -> None:
        self.given_back += size


def offer(number: int, answers: dict[int, Outcome]) -> Offer:
    def done(outcome: Outcome) -> None:
        assert number not in answers, "answered twice"
        answers[number] = outcome

    claimant = Claimant(Session("pid:1"), "", is_named=False, connection=number)
    return Offer(claimant, "", number, NO_BATCH, memoryview(b"x"), 0, lambda: True, Reply(done))


async def run(judge: Callable[[Offer], None], failed: Callable[[Exception], Outcome | None]) -> list[object]:
    """An operation that fails, with three offers behind it: answers, bytes given back, what was unexpected, is idle."""
    unexpected: list[BaseException] = []
    answers: dict[int, Outcome] = {}
    buffer, idle = Buffer(), list[bool]()
    tasks = Tasks(unexpected.append)
    operations = Operations(tasks, buffer, judge, failed, lambda: idle.append(True))  # type: ignore[arg-type]

    async def work() -> None:
        await asyncio.sleep(0)
        raise LookupError("work")

    operations.begin(work)
    for number in range(3):
        operations.offer(offer(number, answers))
    await operations.over()
    assert not operations.busy
    await tasks.cancel()
    return [answers, buffer.given_back, [str(error) for error in unexpected], idle]


async def test_an_operation_that_fails_as_nobody_expects_ends_and_answers_what_waited() -> None:
    def failed(error: Exception) -> Outcome | None:
        raise error

    found = await run(lambda _: None, failed)
    assert found == [dict.fromkeys(range(3), BUSY), 3, ["work"], [True]]


async def test_a_batch_that_cannot_be_judged_leaves_no_other_without_an_answer() -> None:
    def judge(found: Offer) -> None:
        raise ValueError(found.partition)

    answers, given_back, unexpected, idle = await run(judge, lambda _: None)
    assert answers == {1: BUSY, 2: BUSY}
    assert (given_back, unexpected, idle) == (2, ["0"], [True])


async def test_a_batch_whose_client_left_during_an_operation_is_not_judged_after_it() -> None:
    judged: list[int] = []
    answers: dict[int, Outcome] = {}
    tasks = Tasks(lambda _: None)
    operations = Operations(tasks, Buffer(), lambda found: judged.append(found.partition), lambda _: None, lambda: None)  # type: ignore[arg-type]
    operations.begin(lambda: asyncio.sleep(0))
    operations.offer(replace(offer(1, answers), alive=lambda: False))
    operations.offer(offer(2, answers))
    await operations.over()
    assert (answers, judged) == ({1: BUSY}, [2])
