"""Readers are told whatever befalls one of them, and none of the others waits for all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.fanout.question import Question
from sidecar.fanout.tails import Tails
from sidecar.network.tasks import Tasks
from sidecar.protocol.calls.tails import Fetched, Position

if TYPE_CHECKING:
    from collections.abc import Mapping

_QUESTION = Question(Position(b"orders", 0, -1, 7), 0)
_NOTHING = bytes(30) + b"\xff" * 8 + bytes(4)
_READERS = 200


class PaperUpstream:
    """One broker that leads everything, and has a record when it is asked."""

    def __init__(self) -> None:
        self.view = self
        self.calls = 0

    def leader(self, _topic: bytes, _partition: int) -> int:
        return 1

    async def call(self, _broker: int, _request: Any, **_: Any) -> dict[tuple[bytes, int], Fetched]:
        self.calls += 1
        return {(b"orders", 0): Fetched(0, 10, _NOTHING + bytes(10))}


class Reader:
    def __init__(self, *, fails: bool = False) -> None:
        self.found: list[Mapping[Question, Fetched]] = []
        self._fails = fails

    def arrived(self, found: Mapping[Question, Fetched]) -> None:
        self.found.append(found)
        if self._fails:
            raise RuntimeError("a fault of one reader")


@pytest.mark.parametrize("failing", [None, 0, 70, _READERS - 1])
async def test_every_reader_is_told_once_a_few_at_a_time(failing: int | None) -> None:
    faults: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context["exception"]))
    upstream, tasks = PaperUpstream(), Tasks(faults.append)
    tails = Tails(upstream, tasks)  # pyright: ignore[reportArgumentType]
    readers = [Reader(fails=number == failing) for number in range(_READERS)]
    for reader in readers:
        tails.wait(_QUESTION, reader)
    at_once: list[int] = []
    while sum(len(reader.found) for reader in readers) < _READERS:
        before = sum(len(reader.found) for reader in readers)
        async with asyncio.timeout(5):
            await asyncio.sleep(0)
        at_once.append(sum(len(reader.found) for reader in readers) - before)
    assert max(at_once) < _READERS / 2
    assert all(list(reader.found[0]) == [_QUESTION] for reader in readers)
    assert len(faults) == (failing is not None)
    assert (upstream.calls, tails.waiting, tails.polls) == (1, 0, 0)
