"""What is decided and written together, and how much of it at once, before others have a turn."""

from __future__ import annotations

from typing import Any, cast

import pytest

from sidecar.changelog import claim_key
from sidecar.resources.claim_table import Change
from sidecar.resources.claims import Claim, Claims, End, Intent, Release
from sidecar.resources.commits import BATCH_RECORDS, WORK_AT_ONCE, Commits, Work
from sidecar.resources.limits import BATCH_BYTES, CHANGE_RECORDS, ClaimLimits, may_be_too_large, too_large
from sidecar.resources.requests import Request, Wish
from sidecar.v1 import control_pb2 as control

WHOLE, PART = control.Resource(topic="t"), control.Resource(topic="t", partition=1)


def string(name: str) -> control.Resource:
    return control.Resource(name=name)


class Queue:
    """The work of an epoch, of which every session has a connection."""

    def __init__(self) -> None:
        self.claims = Claims(ClaimLimits(100), disconnect_grace=1.0)
        self.commits = Commits(cast(Any, None))

    def claim(
        self, *resources: control.Resource, token: bytes = b"", session: str = "pid:1", address: str = ""
    ) -> None:
        wishes = tuple(Wish.of("g" if one.topic else "", one) for one in resources)
        token = token or b"token %d" % len(self.commits.queue)
        self.claims.sessions.bind(1, session)
        self.add(Claim(Request(token, session, "app", control.EXCLUSIVE, wishes), 1, address))

    def add(self, *intents: Intent) -> None:
        self.commits.queue += map(Work, intents)

    def owns(self, name: str, token: bytes, session: str) -> None:
        """A claim that is in the log, of a session without a connection."""
        request = Request(token, session, "app", control.EXCLUSIVE, (Wish.of("", string(name)),))
        self.claims.table.apply(self.claims.table.grant(request, self.claims.table.judge(request), 0, ""))

    def batches(self) -> list[int]:
        """How many records each batch has, until nothing is left; they are in the log at once."""
        sizes: list[int] = []
        while self.commits.queue:
            batch = self.commits.next_batch(self.claims, 0)
            sizes.append(len(batch.records))
            for work, change in batch.writes:
                self.claims.stored(work.intent, change)
        return sizes


def test_thousands_of_sessions_that_end_at_once_are_ended_in_turns_and_in_order() -> None:
    queue, size = Queue(), 2 * WORK_AT_ONCE + 1
    queue.add(*[End(f"pid:{number}") for number in range(size)])
    done: list[int] = []
    while queue.commits.queue:
        batch = queue.commits.next_batch(queue.claims, 0)
        assert not batch.writes
        done.append(len(batch.done))
    assert done == [WORK_AT_ONCE, WORK_AT_ONCE, 1]


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        (string("a"), string("b"), True),
        (string("a"), string("a"), False),
        (WHOLE, PART, False),
        (PART, WHOLE, False),
        (PART, string("t"), True),
    ],
)
def test_a_claim_waits_for_one_of_an_overlapping_resource_that_is_being_written(
    first: control.Resource, second: control.Resource, together: bool
) -> None:
    queue = Queue()
    for resource in (first, second, string("z")):
        queue.claim(resource)
    assert queue.batches() == ([3] if together else [2, 1])


def test_work_of_one_token_is_written_one_after_the_other() -> None:
    queue = Queue()
    queue.claim(string("a"), token=b"t")
    queue.add(Release(b"t"))
    queue.claim(string("b"), token=b"u")
    assert queue.batches() == [2, 1]


@pytest.mark.parametrize("ends_first", [True, False])
def test_the_end_of_a_session_is_not_written_with_its_claims_but_with_those_of_others(
    ends_first: bool,
) -> None:
    for session, together in (("pid:1", False), ("pid:2", True)):
        queue = Queue()
        queue.owns("owned", b"old", "pid:1")
        if ends_first:
            queue.add(End("pid:1"))
        queue.claim(string("new"), session=session)
        if ends_first:
            queue.claims.sessions.closed(1, 0.0)
            queue.claims.sessions.overdue(2.0)
            queue.claims.sessions.bind(1, "pid:2")
        else:
            queue.add(End("pid:1"))
        first = queue.commits.next_batch(queue.claims, 0)
        assert len(first.writes) + len(first.done) == (2 if together else 1)


def test_a_batch_has_a_bound_in_records_in_bytes_and_in_what_is_looked_at() -> None:
    queue = Queue()
    for number in range(BATCH_RECORDS + 1):
        queue.claim(string(f"n{number}"))
    whole = queue.batches()
    assert max(whole) <= BATCH_RECORDS
    assert sum(whole) == BATCH_RECORDS + 1
    queue = Queue()
    for number in range(3):
        queue.claim(string(f"n{number}"), address="x" * (BATCH_BYTES // 2))
    assert queue.batches() == [1, 1, 1]
    queue = Queue()
    for number in range(5):
        queue.owns(f"n{number}", b"t%d" % number, f"pid:{number}")
        queue.add(End(f"pid:{number}", [b"a place"]))
    assert queue.batches() == [4, 1]


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
    gone = tuple(claim_key("g", control.Resource(topic="t", partition=index)) for index in range(count))
    refusal = too_large(wishes(2, 5), Change(gone=gone).records())
    assert (refusal is not None) is (count > CHANGE_RECORDS)
    if refusal is not None:
        assert [answer.error for answer in refusal.answers] == [control.INVALID_REQUEST] * 2
        assert "changes 5001 claims, 5000 is the limit" in refusal.answers[0].message
