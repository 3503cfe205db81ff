"""The shared polls: waiting questions are bundled by leader and isolation level, and each bundle is one long poll.

A question that comes while polls are under way is sent at once, on a connection of its own, because a broker answers
the requests of a connection one after the other. A poll ends after half a second at the latest; its unanswered
questions then continue in a few bundles.

The question that follows an answer is sent at once, before the first reader asks it. A busy node may need longer than
`UNWATCHED_S` to serve thousands of readers. If no poll ran during that time, it could not trust its stored answers,
and each reader that lags would send its own Fetch to the broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from sidecar.cluster.upstream import KafkaUpstream
from sidecar.cluster.view import NO_LEADER
from sidecar.fanout import waiting
from sidecar.fanout.crowd import LEAST, Crowd
from sidecar.fanout.ends import Ends, Limits, bundle_up, poll
from sidecar.fanout.question import Asked, Question
from sidecar.fanout.recent import Bodies, Chains, Recent
from sidecar.fanout.waiting import Reader, Waking, Wheel
from sidecar.network.tasks import Tasks
from sidecar.protocol import fetch
from sidecar.protocol.caller import Channel
from sidecar.protocol.calls.tails import VERSION, Fetched, error_of
from sidecar.protocol.errors import STALE_ROUTE, ErrorCode

WAIT_MS: Final = 500
"""The wait limit of a poll. A reader's answer about the log's end is no older than this."""
_GATHER_S: Final = 0.005
"""How long unanswered questions wait before they are sent again, so that others can join their bundles."""
UNWATCHED_S: Final = 0.05
"""Kafka takes longer than this to delete a topic and create another one of the same name."""
AHEAD_S: Final = 5.0
"""How long polls continue without a waiting reader: readers that were given records ask again, however late."""
_AGING_S: Final = 1.0
"""The least time between two checks for answers that are too old: a thousand answers may come each second."""
_MOST_BYTES: Final = 8 * 1024 * 1024
_PARTITION_BYTES: Final = 1024 * 1024
_MOST_QUESTIONS: Final = 8
"""The limit of questions about one partition: each takes its own poll."""
_MOST_AT_ONCE: Final = 64
MOST_POLLS: Final = 64
"""The limit of polls under way, each on a connection that stays open. Above it readers do better to poll alone."""


class Tails:
    """The polls of one node. `longest_s`: the longest wait for a first byte if many readers wait, for readers whose own
    limit is shorter. `least_readers`: from this number of readers on, two or more, those of a partition wait together.
    """

    def __init__(self, upstream: KafkaUpstream, tasks: Tasks, longest_s: float, least_readers: int = LEAST) -> None:
        self._upstream = upstream
        self._tasks = tasks
        self._longest_s = longest_s
        self._parked = 0
        self._deadlines: Wheel[Reader] = Wheel(self._expire)
        self.now = self._deadlines.now
        """The clock of the event loop, in seconds."""
        self.bodies = Bodies()
        self._readers: dict[Question, dict[Reader, None]] = {}
        self._asked: dict[tuple[bytes, int], set[Question]] = {}
        self._under_way: set[Question] = set()
        """The questions of `_asked` as one set."""
        self._watched: dict[tuple[bytes, int], float] = {}
        """For partitions with stored answers: when their last poll ended."""
        self._to_ask: dict[Question, None] = {}
        self._ahead: dict[Question, float] = {}
        """The time until which a question is asked without a reader, by the loop's clock."""
        self._follows = False
        self._asking_soon = False
        self._asking_later: asyncio.TimerHandle | None = None
        self._channels: dict[int, set[int]] = {}
        self.polls = 0
        """The number of polls under way."""
        self.crowd = Crowd(least_readers)
        self.ends = Ends(upstream, tasks)
        self._recent = Recent()
        self._chains = Chains(self._recent, self.ends.empty)
        self._aging: asyncio.TimerHandle | None = None
        self.waking = Waking()

    # What is known --------------------------------------------------------------------------------------------------

    def has_room(self, question: Question) -> bool:
        """Whether a question is already in a poll under way, or one more poll may start."""
        return question in self._under_way or self.polls < MOST_POLLS

    @property
    def waiting(self) -> int:
        """The number of waiting readers, each counted once per question."""
        return sum(map(len, self._readers.values()))

    def answer(self, question: Question, most_bytes: int) -> Fetched | None:
        """Returns the recent answers, if polls have been under way ever since: those would have ended with an error if
        the log had been deleted. None if the log has since deleted the question's offset. If several answers are
        joined, they have at most `most_bytes` of records.
        """
        now = self.now()
        found = self._chains.answer(question, most_bytes, now)
        if found is None or self.ends.is_deleted(question) or self._is_unwatched(question.position.of, now):
            return None
        return found.fetched

    def offer(self, asked: Sequence[Asked], most_bytes: int) -> dict[Question, Fetched] | None:
        """Returns the stored answers that a reader can have at once, up to `most_bytes` of records each; {} if it may
        wait instead. None if it should read by itself: it is far from an end, or would need one poll too many.
        """
        found: dict[Question, Fetched] = {}
        for question, most in asked:
            if self.ends.is_reached(question):
                continue
            fetched = self.answer(question, min(most, most_bytes))
            if fetched is not None:
                found[question] = fetched
            elif not self.may_wait(question):
                return None
        if not found:
            for question, _ in asked:
                if not self.has_room(question):
                    return None
        return found

    def _is_unwatched(self, partition: tuple[bytes, int], now: float) -> bool:
        """Whether no poll was under way for so long that the log may be a new one of the same name."""
        return partition not in self._asked and now - self._watched.get(partition, 0.0) > UNWATCHED_S

    async def learn(self, questions: Sequence[Question]) -> None:
        """Ask for the unknown ends of these logs (`Ends.learn`)."""
        try:
            await self.ends.learn(questions)
        finally:
            for question in questions:
                if not self.crowd.reads(*question.position.of):  # all readers may have disconnected in the meantime
                    self.ends.forget(*question.position.of)

    def connection_closed(self, connection: int) -> None:
        """Remove a closed connection from the readers of its partitions."""
        for log, partition in self.crowd.leaves(connection):
            self.ends.forget(log, partition)

    def may_wait(self, question: Question) -> bool:
        """Whether a reader may wait with others: at the end, or near it if few questions are under way."""
        if self.ends.is_reached(question) or question in self._under_way:
            return True
        few = len(self._asked.get(question.position.of, ())) < _MOST_QUESTIONS and len(self._to_ask) < _MOST_AT_ONCE
        return few and self.ends.is_near(question)

    # Readers --------------------------------------------------------------------------------------------------------

    def wait_s(self, asked_s: float, number: int) -> float:
        """How long one more reader waits for a first byte (`waiting`). A connection with many requests counts once."""
        return waiting.wait_s(asked_s, min(self._parked, self.crowd.connections), self._longest_s, number)

    def is_waited_for(self, question: Question) -> bool:
        """Whether other readers already wait for the answer to a question."""
        return question in self._readers

    def park(self, reader: Reader, asked: Iterable[Asked], seconds: float) -> int:
        """Call the reader back when one of its questions is answered, or after `seconds`. Returns the tick for `hurry`
        and `leave`.
        """
        self._parked += 1
        for question, _ in asked:
            readers = self._readers.get(question)
            if readers is not None:
                readers[reader] = None
                continue
            self._readers[question] = {reader: None}
            if question not in self._under_way:
                self._to_ask[question] = None
                if not self._asking_soon:
                    self._asking_soon = True
                    asyncio.get_running_loop().call_soon(self._ask)
        return self._deadlines.add(reader, seconds)

    def hurry(self, reader: Reader, tick: int, seconds: float) -> int:
        """Shorten a reader's wait to `seconds` from now. Returns its new tick."""
        self._deadlines.remove(reader, tick)
        return self._deadlines.add(reader, seconds)

    def woken(self, reader: Reader, asked: Sequence[Asked], tick: int) -> None:
        """The same as `leave`, for a reader of one question that was answered. No reader waits for that question any
        more, except readers that asked it again before this one was woken.
        """
        if asked[0].question in self._readers:
            self.leave(reader, asked, tick)
            return
        self._parked -= 1
        self._deadlines.remove(reader, tick)

    def leave(self, reader: Reader, asked: Iterable[Asked], tick: int) -> None:
        """Remove a reader that no longer waits. Its polls continue for a while: most readers ask again."""
        self._parked -= 1
        self._deadlines.remove(reader, tick)
        for question, _ in asked:
            readers = self._readers.get(question)
            if readers is not None:
                readers.pop(reader, None)
                if not readers:
                    del self._readers[question]

    # Polls ----------------------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        self._asking_soon = False
        if self._asking_later is not None:
            self._asking_later.cancel()
            self._asking_later = None
        questions, self._to_ask = self._to_ask, {}
        bundles: dict[tuple[int, int, bool], list[dict[tuple[bytes, int], Question]]] = {}
        lost: list[Question] = []
        unwatched: set[tuple[bytes, int]] = set()
        now = self.now()
        for question in questions:
            if question in self._under_way or not (question in self._readers or question in self._ahead):
                continue
            position = question.position
            leader = self._upstream.view.leader(position.log, position.partition)
            if leader == NO_LEADER:
                lost.append(question)
                continue
            if position.of in self._watched and self._is_unwatched(position.of, now):
                unwatched.add(position.of)
            self._asked.setdefault(position.of, set()).add(question)
            self._under_way.add(question)
            bundle_up(bundles.setdefault((leader, question.isolation, bool(position.topic_id)), []), question)
        if unwatched:
            self._forget_answers(unwatched)
            self._changed()
        for (leader, _, _), of_leader in bundles.items():
            for bundle in of_leader:
                self._tasks.start(self._poll(leader, list(bundle.values())))
        if lost:
            self._answered(lost, {})

    async def _poll(self, leader: int, questions: list[Question]) -> None:
        channels = self._channels.setdefault(leader, set())
        number = next(index for index in range(len(channels) + 1) if index not in channels)
        channels.add(number)
        self.polls += 1
        limits = Limits(WAIT_MS, _MOST_BYTES, _PARTITION_BYTES)
        answer: Mapping[tuple[bytes, int], Fetched] = {}
        try:
            answer = await poll(self._upstream, leader, Channel(f"tails-{number}"), questions, limits)
        finally:
            channels.discard(number)
            self.polls -= 1
            if not channels:
                self._channels.pop(leader, None)
            self._forget_asked(questions)
            self._answered(questions, answer)  # without an answer, each waiting reader looks for the leaders again

    def _forget_asked(self, questions: list[Question]) -> None:
        now = self.now()
        for question in questions:
            asked = self._asked[question.position.of]
            asked.discard(question)
            self._under_way.discard(question)
            if not asked:
                del self._asked[question.position.of]
                self._watched[question.position.of] = now

    def _answered(self, questions: list[Question], answer: Mapping[tuple[bytes, int], Fetched]) -> None:
        """Pass the answers found to their readers; ask the other questions again."""
        now = self.now()
        found: dict[Question, Fetched] = {}
        failed: set[tuple[bytes, int]] = set()
        stale: set[bytes] = set()
        for question in questions:
            log, partition = key = question.position.of
            fetched = answer.get(key) or error_of(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if fetched.error:
                self._ahead.pop(question, None)
                failed.add(key)
                if fetched.error in STALE_ROUTE:
                    stale.add(log)
                found[question] = fetched
            elif (kept := self._took(question, fetched, now)) is not None:
                found[question] = kept
        if failed:
            self._forget_answers(failed)
        for question in questions:
            if not self._recent.has(question.position.of):
                self._watched.pop(question.position.of, None)
        if found:
            self._changed()
        if stale:
            self._upstream.refresh_soon(stale)
        self._age(now)
        if self._follows:
            self._follows = False
            self._ask()
        self._wake(found)

    def _took(self, question: Question, fetched: Fetched, now: float) -> Fetched | None:
        """Stores the records of an answer and returns it as stored. None if it has none: then it is asked again."""
        waits, until = question in self._readers, self._ahead.pop(question, 0.0)
        until = now + AHEAD_S if waits else until
        log, partition = question.position.of
        goes_on = until > now and self.crowd.is_shared(log, partition)
        if waits or goes_on:
            self.ends.note(log, partition, question.isolation, fetch.empty_element(fetched.element, 0, VERSION))
        if fetched.record_bytes:
            if goes_on:
                self._follow(question, fetched, until)
            return self._recent.keep(question, fetched, now)
        if goes_on and not waits:
            self._ahead[question] = until
        if goes_on or waits:
            self._ask_again(question)
        return None

    def _follow(self, question: Question, fetched: Fetched, until: float) -> None:
        """Ask for what follows these records: at once, or with the next bundles if many polls are under way."""
        after = fetch.offset_behind(fetched.element, fetched.record_bytes)
        if after is None:
            return
        following = question._replace(position=question.position._replace(offset=after))
        self._ahead[following] = max(until, self._ahead.get(following, 0.0))
        if self.polls < MOST_POLLS // 2:
            self._to_ask[following] = None
            self._follows = True
        else:
            self._ask_again(following)

    def _ask_again(self, question: Question) -> None:
        self._to_ask[question] = None
        if not self._asking_soon and self._asking_later is None:
            self._asking_later = asyncio.get_running_loop().call_later(_GATHER_S, self._ask)

    def _forget_answers(self, partitions: set[tuple[bytes, int]]) -> None:
        """Drop the answers about partitions whose log moved or was deleted: it may be another log by now."""
        for partition in partitions:
            self._recent.forget(partition)

    def _age(self, now: float) -> None:
        left = self._recent.age(now)
        if left is not None and self._aging is None:
            self._aging = asyncio.get_running_loop().call_later(max(left, _AGING_S), self._aged)

    def _changed(self) -> None:
        self._chains.changed()
        self.bodies.clear()

    def _aged(self) -> None:
        self._aging = None
        self._changed()
        self._watched = {partition: at for partition, at in self._watched.items() if self._recent.has(partition)}
        self._age(self.now())

    # Answering ------------------------------------------------------------------------------------------------------

    def _wake(self, found: Mapping[Question, Fetched]) -> None:
        readers: dict[Reader, None] = {}
        for question in found:
            readers |= self._readers.pop(question, {})
        if readers:
            self.waking.add(readers, found)

    def _expire(self, readers: Iterable[Reader], tick: int) -> None:
        self.waking.add(readers, tick)
