"""The last known ends of logs: readers at the end of a log wait together. The end is the high watermark, or the last
stable offset for readers of committed transactions (KIP-98).

If the end of a log is not known yet, its first reader makes the node ask for it. Readers that come in the meantime wait
for the same answer; otherwise each would need a broker connection of its own. This poll uses the node's own
connections, as do the long polls for waiting readers (`tails`). What a client reads by itself uses the client's own
connections (`sidecar.gateway.leader_poll`). The first batch of an answer may exceed the limits (KIP-74).
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
from sidecar.protocol.caller import Channel, UpstreamError
from sidecar.protocol.calls.tails import VERSION, Fetched, FetchTails, FetchTailsById
from sidecar.protocol.errors import KafkaError

_MOST_PARTITIONS: Final = 500


class Limits(NamedTuple):
    """How long a poll waits for a first byte, and how many bytes it takes at most: in total, and per partition."""

    wait_ms: int
    most_bytes: int
    partition_bytes: int


async def poll(
    upstream: KafkaUpstream, leader: int, channel: Channel, questions: Sequence[Question], limits: Limits
) -> dict[tuple[bytes, int], Fetched]:
    """Returns a leader's answers, or {} if it does not answer. All questions have the same isolation level, each is
    about a different partition, and either all or none have topic ids. With ids the answers are about these topics,
    also from a broker that does not serve Fetch by id.
    """
    positions = [question.position for question in questions]
    by_id = bool(positions[0].topic_id)
    call = (
        FetchTailsById if by_id and upstream.serves(FetchTailsById.api_key, FetchTailsById.api_version) else FetchTails
    )
    request = call(positions, questions[0].isolation, *limits)
    try:
        if not by_id or call is FetchTailsById:
            return await upstream.call(leader, request, channel=channel)
        topics = {position.log: (position.topic_id, position.partition) for position in positions}
        found, are_same = await upstream.call_pair(leader, request, upstream.topic_check(topics), channel=channel)
    except (UpstreamError, KafkaError):
        return {}
    if not are_same:
        return {}
    # Of two topics of one name, the former and the present one, only that in `topics` was checked.
    checked = (position.of for position in positions if topics[position.log][0] == position.topic_id)
    return {partition: found[partition] for partition in checked if partition in found}


def bundle_up(bundles: list[dict[tuple[bytes, int], Question]], question: Question) -> None:
    """Put a question into the first bundle that lacks its partition: a broker takes each partition once per request."""
    key = question.position.of
    for bundle in bundles:
        if key not in bundle and len(bundle) < _MOST_PARTITIONS:
            bundle[key] = question
            return
    bundles.append({key: question})


_CHANNEL: Final = Channel("ends")
NEAR_S: Final = 5.0
"""A reader is near the end if it lacks no more than the records of the last seconds: this many, at most twice."""
_LITTLE: Final = 1
"""The byte limit of a poll for the end: the records themselves are not needed."""


class _End(NamedTuple):
    """The last known end of a log, and the log's element without records. `before`: the end at the time `at`. Both move
    forward every `NEAR_S` seconds.
    """

    offset: int
    empty: bytes
    before: int
    at: float


_Log = tuple[bytes, int, int]
"""Topic, partition, isolation level."""


class Ends:
    """The known ends of the logs that are read."""

    def __init__(self, upstream: KafkaUpstream, tasks: Tasks) -> None:
        self._upstream = upstream
        self._tasks = tasks
        self._ends: dict[_Log, _End] = {}
        self._asking: dict[_Log, asyncio.Task[None]] = {}

    def note(self, log: bytes, partition: int, isolation: int, element: bytes) -> None:
        """Take the end of a log from an element of v11 without an error, which a reader's own poll may have brought."""
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
        """Whether the end of the log is known."""
        return _log(question) in self._ends

    def is_reached(self, question: Question) -> bool:
        """Whether the question's offset is at the last known end, or behind it."""
        end = self._ends.get(_log(question))
        return end is not None and question.position.offset >= end.offset

    def is_deleted(self, question: Question) -> bool:
        """Whether the log is known to begin behind the question's offset, because records were deleted (KIP-107) or
        expired. Both isolation levels count, as the log begins at the same offset for both and either may be older.
        """
        log, partition, _ = _log(question)
        ends = [self._ends.get((log, partition, isolation)) for isolation in (0, 1)]
        starts = [fetch.watermarks(end.empty, 0).log_start for end in ends if end is not None]
        return bool(starts) and question.position.offset < max(starts)

    def is_near(self, question: Question) -> bool:
        """Whether the log has grown past the question's offset only in the last seconds (`NEAR_S`)."""
        end = self._ends.get(_log(question))
        return end is not None and question.position.offset >= end.before

    def empty(self, question: Question) -> bytes | None:
        """An element of v11 without records, as last received for the log; None if there was none."""
        end = self._ends.get(_log(question))
        return None if end is None else end.empty

    def forget(self, log: bytes, partition: int) -> None:
        """Drop the ends of a partition that has no reader any more."""
        for isolation in (0, 1):
            self._ends.pop((log, partition, isolation), None)

    async def learn(self, questions: Iterable[Question]) -> None:
        """Ask for the ends of those logs whose end is unknown. It stays unknown where the broker does not answer."""
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
            if fetched is not None and not fetched.error:  # else the end stays unknown and each reader polls alone
                self.note(log, partition, question.isolation, fetch.empty_element(fetched.element, 0, VERSION))


def _log(question: Question) -> _Log:
    position = question.position
    return position.log, position.partition, question.isolation
