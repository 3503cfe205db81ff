"""Where logs end, as far as the node has heard: readers that stand there wait together. The end is the high watermark,
or the last stable offset for readers of committed transactions (KIP-98).

Where no end is known yet, the first reader that waits asks, and all that come meanwhile wait for the same answer: each
would keep a connection to the broker for itself else. The poll for that, as the long ones for readers that wait
(`tails`), goes over the node's own connections; what a client reads by itself goes over its own
(`sidecar.gateway.leader_poll`). A first batch may be larger than the limits (KIP-74).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from sidecar.cluster.upstream import KafkaUpstream
from sidecar.cluster.view import NO_LEADER
from sidecar.fanout.question import Question
from sidecar.network.tasks import Tasks
from sidecar.protocol import fetch
from sidecar.protocol.caller import Channel, Upstream, UpstreamError
from sidecar.protocol.calls.tails import VERSION, Fetched, FetchTails, FetchTailsById
from sidecar.protocol.errors import KafkaError

_MOST_PARTITIONS: Final = 500


class Limits(NamedTuple):
    """How long a poll waits for a first byte, and how many bytes it takes: in all, and of each partition."""

    wait_ms: int
    most_bytes: int
    partition_bytes: int


async def poll(
    upstream: Upstream, leader: int, channel: Channel, questions: Sequence[Question], limits: Limits
) -> dict[tuple[bytes, int], Fetched]:
    """A leader's answers to questions of one isolation level, each about a different partition, all by id or all by
    name; {} if the leader does not answer.
    """
    positions = [question.position for question in questions]
    call = FetchTailsById if positions[0].topic_id else FetchTails
    try:
        return await upstream.call(leader, call(positions, questions[0].isolation, *limits), channel=channel)
    except (UpstreamError, KafkaError):
        return {}


def bundle_up(bundles: list[dict[tuple[bytes, int], Question]], question: Question) -> None:
    """Put a question into the first bundle without its partition: a broker takes each partition once per request."""
    key = question.position.of
    for bundle in bundles:
        if key not in bundle and len(bundle) < _MOST_PARTITIONS:
            bundle[key] = question
            return
    bundles.append({key: question})


_CHANNEL: Final = Channel("ends")
NEAR_S: Final = 5.0
"""A reader that is behind by no more than what came meanwhile is near the end."""
_LITTLE: Final = 1
"""Bytes that are asked for: what the log holds is not looked at."""


class _End(NamedTuple):
    """What was last heard of a log: up to where it can be read, and its element without records. `before`: where it
    ended at `at`, which is moved on every `NEAR_S` seconds.
    """

    offset: int
    empty: bytes
    before: int
    at: float


_Log = tuple[bytes, int, int]
"""Topic, partition, isolation level."""


class Ends:
    """What is known of logs that somebody reads."""

    def __init__(self, upstream: KafkaUpstream, tasks: Tasks) -> None:
        self._upstream = upstream
        self._tasks = tasks
        self._ends: dict[_Log, _End] = {}
        self._asking: dict[_Log, asyncio.Task[None]] = {}

    def note(self, log: bytes, partition: int, isolation: int, element: bytes) -> None:
        """An element of v11 without error has come, be it by a poll of a reader's own: where the log ends now."""
        key, now = (log, partition, isolation), asyncio.get_running_loop().time()
        offset = fetch.watermarks(element, 0).end(isolation)
        last = self._ends.get(key)
        if last is None:
            self._ends[key] = _End(offset, element, offset, now)
        elif now - last.at < NEAR_S:
            self._ends[key] = _End(offset, element, last.before, last.at)
        else:
            self._ends[key] = _End(offset, element, last.offset, now)

    def is_known(self, question: Question) -> bool:
        """Whether anything was heard of the log."""
        return _log(question) in self._ends

    def is_reached(self, question: Question) -> bool:
        """Whether there is nothing to read there, as far as is known."""
        end = self._ends.get(_log(question))
        return end is not None and question.position.offset >= end.offset

    def is_deleted(self, question: Question) -> bool:
        """Whether the log begins behind it, as far as is known: records were deleted (KIP-107), or are too old. It
        begins at the same offset for both isolation levels, and what was heard of one may be old.
        """
        log, partition, _ = _log(question)
        ends = [self._ends.get((log, partition, isolation)) for isolation in (0, 1)]
        starts = [fetch.watermarks(end.empty, 0).log_start for end in ends if end is not None]
        return bool(starts) and question.position.offset < max(starts)

    def is_near(self, question: Question) -> bool:
        """Whether what is to be read there has come in the last seconds."""
        end = self._ends.get(_log(question))
        return end is not None and question.position.offset >= end.before

    def empty(self, question: Question) -> bytes | None:
        """An element of v11 that has no records, with what was last heard of the log; None where nothing was."""
        end = self._ends.get(_log(question))
        return None if end is None else end.empty

    def forget(self, log: bytes, partition: int) -> None:
        """Nobody reads a partition any more."""
        for isolation in (0, 1):
            self._ends.pop((log, partition, isolation), None)

    async def learn(self, questions: Iterable[Question]) -> None:
        """Ask where the logs end of which nothing was heard. What a broker does not answer stays unknown."""
        logs = {_log(question): question for question in questions if not self.is_known(question)}
        by_leader: dict[tuple[int, int, bool], list[Question]] = {}
        for log, question in logs.items():
            leader = self._upstream.view.leader(log[0], log[1])
            if log not in self._asking and leader != NO_LEADER:
                by_id = bool(question.position.topic_id)
                by_leader.setdefault((leader, question.isolation, by_id), []).append(question)
        for (leader, _, _), of_leader in by_leader.items():
            task = self._tasks.start(self._ask(leader, of_leader))
            self._asking.update(dict.fromkeys(map(_log, of_leader), task))
        asked = {self._asking[log] for log in logs if log in self._asking}
        if asked:
            await asyncio.wait(asked)

    async def _ask(self, leader: int, questions: list[Question]) -> None:
        try:
            answer = await poll(self._upstream, leader, _CHANNEL, questions, Limits(0, _LITTLE, _LITTLE))
        finally:
            for question in questions:
                self._asking.pop(_log(question), None)
        for question in questions:
            log, partition = question.position.of
            fetched = answer.get((log, partition))
            if fetched is not None and not fetched.error:  # else it stays unknown: whoever asked goes on alone
                self.note(log, partition, question.isolation, fetch.empty_element(fetched.element, 0, VERSION))


def _log(question: Question) -> _Log:
    position = question.position
    return position.log, position.partition, question.isolation
