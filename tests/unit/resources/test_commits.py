"""How much is decided at once, before others have a turn."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from sidecar.changelog import Key, Record, claim_key
from sidecar.changelog.errors import AppendRefusedError, AppendUncertainError
from sidecar.network.backoff import RetryTimeoutError
from sidecar.network.tasks import Tasks
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.resources.claim_table import Change
from sidecar.resources.commits import (
    BATCH_BYTES,
    BATCH_RECORDS,
    CHANGE_RECORDS,
    WORK_AT_ONCE,
    Commits,
    Work,
    may_be_too_large,
    too_large,
)
from sidecar.resources.requests import Request, Wish
from sidecar.v1 import control_pb2 as control
from sidecar.v1 import state_pb2 as state

if TYPE_CHECKING:
    from collections.abc import Sequence

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


# What may stand in one batch ----------------------------------------------------------------------------------------

WHOLE, PART = (claim_key("g", control.Resource(topic="t", partition=index)) for index in (None, 1))


class Journal:
    """Takes batches when the test lets it; `batches` are the names of the resources in each."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.error: Exception | None = None

    async def append(self, records: Sequence[Record]) -> int:
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        self.batches.append([record.key.topic for record in records])
        return 10 * len(self.batches)


class Desk:
    """Work that each claims one resource."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.confirmed = 0
        self.refusal: KafkaError | None = None
        self.broken: list[BaseException] = []
        self.ended: list[tuple[str, int | None, int]] = []
        self.commits = Commits(cast("StampedJournal", self.journal), Tasks(fail), self._confirm, self.broken.append)

    async def _confirm(self) -> None:
        self.confirmed += 1
        if self.refusal is not None:
            raise self.refusal

    def submit(
        self, name: str, token: bytes = b"", session: str = "", *, ends: bool = False, claims: bool = False,
        also: tuple[Key, ...] = (), claim: state.Claim | None = None, is_empty: bool = False, weight: int = 0,
    ) -> None:  # fmt: skip
        key = claim_key("", control.Resource(name=name))
        change = Change() if is_empty else Change(claims={key: claim or state.Claim(generation=1)})

        def over(last: Offset | None, error: KafkaError | None) -> None:
            self.ended.append((name, last, 0 if error is None else error.code))

        work = Work(lambda: (key, *also), lambda: change, lambda _: None, over, token, session, ends, claims, weight)
        self.commits.submit(work)

    async def batches(self) -> list[int]:
        """How many records each batch has."""
        async with asyncio.timeout(10):
            await self.commits.settled()
        return [len(batch) for batch in self.journal.batches]


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ({}, {}, True),
        ({"token": b"t"}, {"token": b"u"}, True),
        ({"token": b"t"}, {"token": b"t"}, False),
        ({"session": "s"}, {"session": "s"}, True),
        ({"session": "s", "ends": True}, {"session": "s"}, False),
        ({"session": "s"}, {"session": "s", "ends": True}, False),
        ({"session": "s", "ends": True}, {"session": "u"}, True),
        ({"session": "s"}, {"session": "u", "ends": True}, True),
        ({}, {"also": (claim_key("", control.Resource(name="a")),)}, False),
        ({}, {"also": (claim_key("", control.Resource(name="c")),)}, True),
        ({"also": (WHOLE,)}, {"also": (PART,)}, False),
        ({"also": (PART,)}, {"also": (WHOLE,)}, False),
    ],
)
async def test_work_that_depends_on_what_is_being_written_waits_for_it(
    first: dict[str, Any], second: dict[str, Any], together: bool
) -> None:
    desk = Desk()
    desk.submit("a", **first)
    desk.submit("b", **second)
    desk.submit("z")
    assert await desk.batches() == ([3] if together else [2, 1])
    assert [code for _, _, code in desk.ended] == [0, 0, 0]
    assert desk.ended[-1][0] == ("z" if together else "b")


async def test_the_end_of_work_is_the_offset_of_its_batchs_last_record() -> None:
    desk = Desk()
    for name in "abc":
        desk.submit(name)
    desk.submit("d", is_empty=True)
    await desk.batches()
    assert sorted(desk.ended) == [("a", 12, 0), ("b", 12, 0), ("c", 12, 0), ("d", None, 0)]


async def test_a_batch_has_a_bound_in_records_in_bytes_and_in_what_is_looked_at() -> None:
    desk = Desk()
    for number in range(BATCH_RECORDS + 1):
        desk.submit(f"n{number}")
    whole = await desk.batches()
    assert max(whole) <= BATCH_RECORDS
    assert sum(whole) == BATCH_RECORDS + 1
    desk = Desk()
    for number in range(3):
        desk.submit(f"n{number}", claim=state.Claim(name="x" * (BATCH_BYTES // 2)))
    assert await desk.batches() == [1, 1, 1]
    desk = Desk()
    for number in range(3):
        desk.submit(f"n{number}", weight=1_500)
    assert await desk.batches() == [2, 1]


async def test_work_that_does_not_claim_needs_no_right() -> None:
    desk = Desk()
    desk.refusal = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "no")
    desk.submit("a", claims=True)
    desk.submit("b")
    assert await desk.batches() == [1]
    assert sorted(desk.ended) == [("a", None, 5), ("b", 10, 0)]
    assert desk.confirmed == 1
    desk.submit("c")
    await desk.batches()
    assert desk.confirmed == 1


@pytest.mark.parametrize(
    ("error", "is_broken"),
    [
        (AppendRefusedError(ErrorCode.MESSAGE_TOO_LARGE, "no"), False),
        (RetryTimeoutError("no"), False),
        (AppendUncertainError("perhaps"), True),
        (ZeroDivisionError(), True),
    ],
)
async def test_only_an_append_of_unknown_outcome_ends_the_epoch(error: Exception, is_broken: bool) -> None:
    desk = Desk()
    desk.journal.error = error
    desk.submit("a")
    await desk.batches()
    assert desk.ended == [("a", None, ErrorCode.LEADER_NOT_AVAILABLE)]
    assert bool(desk.broken) is is_broken


async def test_work_of_an_epoch_that_has_ended_fails_whatever_was_written() -> None:
    desk = Desk()
    desk.submit("a")
    await asyncio.sleep(0)
    desk.submit("b")
    desk.commits.close(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "over"))
    await desk.batches()
    assert sorted((name, code) for name, _, code in desk.ended) == [("a", 6), ("b", 6)]
    desk.submit("c")
    await asyncio.sleep(0)
    assert desk.ended[-1] == ("c", None, 6)


def wishes(count: int, length: int) -> Request:
    resources = [control.Resource(name=f"{number:0{length}}") for number in range(count)]
    made = tuple(Wish(claim_key("", resource), "", resource) for resource in resources)
    return Request(b"t", "pid:1", "app", control.EXCLUSIVE, made, "User:" + "x" * 100)


def test_a_request_is_looked_at_closely_only_if_it_may_be_too_large() -> None:
    """A thousand short names never are, unless their owners' records name many clients that were deposed."""
    short, long = wishes(1_000, 40), wishes(1_000, 1_100)
    assert not may_be_too_large(short, set())
    assert may_be_too_large(short, {wish.key for wish in short.wishes})
    assert may_be_too_large(long, set())


@pytest.mark.parametrize("count", [CHANGE_RECORDS, CHANGE_RECORDS + 1])
def test_a_request_that_ends_too_many_claims_of_others_is_refused(count: int) -> None:
    request = wishes(2, 5)
    gone = tuple(claim_key("g", control.Resource(topic="t", partition=index)) for index in range(count))
    refusal = too_large(request, Change(gone=gone))
    assert (refusal is not None) is (count > CHANGE_RECORDS)
    if refusal is not None:
        assert [found.error for found in refusal.answers] == [control.INVALID_REQUEST] * 2
        assert "changes 5001 claims, 5000 is the limit" in refusal.answers[0].message


async def test_a_node_that_ends_leaves_no_request_without_an_answer() -> None:
    desk = Desk()
    tasks = Tasks(fail)
    desk.commits = Commits(cast("StampedJournal", desk.journal), tasks, desk._confirm, desk.broken.append)
    desk.submit("a")
    await asyncio.sleep(0)
    await tasks.cancel()
    assert desk.ended == [("a", None, ErrorCode.LEADER_NOT_AVAILABLE)]
