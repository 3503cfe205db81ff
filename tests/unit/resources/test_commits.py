"""How much is decided at once, before others have a turn."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from sidecar.changelog import Key
from sidecar.network.tasks import Tasks
from sidecar.protocol.errors import KafkaError
from sidecar.resources.claim_table import Change
from sidecar.resources.commits import WORK_AT_ONCE, Commits, Work

if TYPE_CHECKING:
    from sidecar.changelog import StampedJournal
    from sidecar.protocol.ids import Offset


def nothing(number: int, done: list[int]) -> Work:
    """A session that ends and had nothing."""

    def apply(_: Change) -> None:
        raise AssertionError

    def over(last: Offset | None, error: KafkaError | None) -> None:
        assert (last, error) == (None, None)
        done.append(number)

    return Work(tuple[Key], Change, apply, over, session=f"pid:{number}", ends_session=True)


async def confirm() -> None:
    """Nothing here claims."""


def fail(error: BaseException) -> None:
    raise error


async def test_thousands_of_sessions_that_end_at_once_are_ended_in_turns_and_in_order() -> None:
    done: list[int] = []
    none_is_written = cast("StampedJournal", None)
    commits = Commits(none_is_written, Tasks(fail), confirm, fail)
    size = 2 * WORK_AT_ONCE + 1
    for number in range(size):
        commits.submit(nothing(number, done))
    turns: list[int] = []
    while len(done) < size:
        await asyncio.sleep(0)
        turns.append(len(done))
    assert turns[:2] == [WORK_AT_ONCE, 2 * WORK_AT_ONCE]
    await commits.settled()
    assert done == list(range(size))
