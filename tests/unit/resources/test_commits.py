"""How much is decided at once, before others have a turn."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from sidecar.network.tasks import Tasks
from sidecar.resources.claim_table import Change
from sidecar.resources.commits import WORK_AT_ONCE, Commits, Work

if TYPE_CHECKING:
    from collections.abc import Collection

    from sidecar.changelog import Key, StampedJournal
    from sidecar.protocol.ids import Offset


class Nothing(Work):
    """A session that ends and had nothing."""

    ends_session = True

    def __init__(self, number: int, done: list[int]) -> None:
        super().__init__()
        self.session = f"pid:{number}"
        self._number = number
        self._done = done

    def touched(self) -> Collection[Key]:
        return ()

    def decide(self) -> Change:
        return Change()

    def written(self, change: Change, last: Offset | None) -> None:
        assert (bool(change), last) == (False, None)
        self._done.append(self._number)

    def apply(self, change: Change) -> None:
        raise AssertionError


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
        commits.submit(Nothing(number, done))
    turns: list[int] = []
    while len(done) < size:
        await asyncio.sleep(0)
        turns.append(len(done))
    assert turns[:2] == [WORK_AT_ONCE, 2 * WORK_AT_ONCE]
    await commits.settled()
    assert done == list(range(size))
