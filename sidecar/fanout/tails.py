"""The shared polls: questions that wait are bundled by leader and isolation level, and each bundle is one long poll.

A question that comes while polls stand is asked at once, on its own connection, as a broker answers those of one
connection in turn. Polls end after half a second at the latest; what they carried then goes on in few bundles.

What is behind the records that came is asked for at once, before its first reader is: a node that needs longer than
`UNWATCHED_S` for thousands of readers could not vouch for what it kept, and each that is behind would read alone.
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
"""How long a poll is parked. A reader's answer about the log's end is no older than this."""
_GATHER_S: Final = 0.005
"""How long questions that had no answer wait for others to go on with."""
UNWATCHED_S: Final = 0.05
"""Kafka takes longer to delete a topic and create another one of its name."""
AHEAD_S: Final = 5.0
"""For how long polls go on without a reader that waits: those who were given records come again, however late."""
_AGING_S: Final = 1.0
"""Between two looks for answers that are too old: a thousand of them may come each second."""
_MOST_BYTES: Final = 8 * 1024 * 1024
_PARTITION_BYTES: Final = 1024 * 1024
_MOST_QUESTIONS: Final = 8
"""Of one partition: each takes its own poll."""
_MOST_AT_ONCE: Final = 64
MOST_POLLS: Final = 64
"""Beyond so many at a time, each on its own connection that stays, readers do better to ask alone."""


class Tails:
    """The polls of one node. `longest_s`: how long readers wait at most for a first byte, where many do and their own
    limit is shorter. `least_readers`: so many of a partition wait together, two or more.
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
        """The same questions."""
        self._watched: dict[tuple[bytes, int], float] = {}
        """When the last poll ended of partitions whose answers are kept."""
        self._to_ask: dict[Question, None] = {}
        self._ahead: dict[Question, float] = {}
        """Until when questions are asked without a reader, by the loop's clock."""
        self._follows = False
        self._asking_soon = False
        self._asking_later: asyncio.TimerHandle | None = None
        self._channels: dict[int, set[int]] = {}
        self.polls = 0
        """How many are under way."""
        self.crowd = Crowd(least_readers)
        self.ends = Ends(upstream, tasks)
        self._recent = Recent()
        self._chains = Chains(self._recent, self.ends.empty)
        self._aging: asyncio.TimerHandle | None = None
        self.waking = Waking()

    # What is known --------------------------------------------------------------------------------------------------

    def has_room(self, question: Question) -> bool:
        """Whether a question waits for polls that there are, or one more of them is not too many."""
        return question in self._under_way or self.polls < MOST_POLLS

    @property
    def waiting(self) -> int:
        """How many readers wait, each counted by the questions that it asks."""
        return sum(map(len, self._readers.values()))

    def answer(self, question: Question, most_bytes: int) -> Fetched | None:
        """The answers of a moment ago, as long as polls have stood ever since: they would have ended if the log
        had gone. None of what the log has deleted since. `most_bytes` of records, where several answers are put
        together.
        """
        now = self.now()
        found = self._chains.answer(question, most_bytes, now)
        if found is None or self.ends.is_deleted(question) or self._is_unwatched(question.position.of, now):
            return None
        return found.fetched

    def offer(self, asked: Sequence[Asked], most_bytes: int) -> dict[Question, Fetched] | None:
        """What a reader gets at once of what others got, up to `most_bytes` of records each; where that is
        nothing it may wait. None for one that does better alone: far from an end, or one poll too many.
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
        """Whether so much time has passed without a poll that the log may be another one of the same name."""
        return partition not in self._asked and now - self._watched.get(partition, 0.0) > UNWATCHED_S

    async def learn(self, questions: Sequence[Question]) -> None:
        """Ask where the logs end of which nothing was heard (`Ends.learn`)."""
        try:
            await self.ends.learn(questions)
        finally:
            for question in questions:
                if not self.crowd.reads(*question.position.of):  # all who wanted to know may have gone meanwhile
                    self.ends.forget(*question.position.of)

    def connection_closed(self, connection: int) -> None:
        """A client has gone: it reads nothing any more."""
        for log, partition in self.crowd.leaves(connection):
            self.ends.forget(log, partition)

    def may_wait(self, question: Question) -> bool:
        """Whether a reader waits with others: at the end, or near it where not too many questions are under way."""
        if self.ends.is_reached(question) or question in self._under_way:
            return True
        few = len(self._asked.get(question.position.of, ())) < _MOST_QUESTIONS and len(self._to_ask) < _MOST_AT_ONCE
        return few and self.ends.is_near(question)

    # Readers --------------------------------------------------------------------------------------------------------

    def wait_s(self, asked_s: float, number: int) -> float:
        """How long one more reader waits for a first byte (`waiting`). One that sends many requests counts once."""
        return waiting.wait_s(asked_s, min(self._parked, self.crowd.connections), self._longest_s, number)

    def is_waited_for(self, question: Question) -> bool:
        """Whether a poll is to answer it that readers wait for: one more may wait with them."""
        return question in self._readers

    def park(self, reader: Reader, asked: Iterable[Asked], seconds: float) -> int:
        """Call the reader back when one of its questions is answered, or the time is up. Returns what `hurry` and
        `leave` take.
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
        """The time is up earlier, in so many seconds."""
        self._deadlines.remove(reader, tick)
        return self._deadlines.add(reader, seconds)

    def woken(self, reader: Reader, asked: Sequence[Asked], tick: int) -> None:
        """The same as `leave` for a reader of one question, which was answered: nobody waits for that any more, but who
        came to ask it again before its turn to be woken.
        """
        if asked[0].question in self._readers:
            self.leave(reader, asked, tick)
            return
        self._parked -= 1
        self._deadlines.remove(reader, tick)

    def leave(self, reader: Reader, asked: Iterable[Asked], tick: int) -> None:
        """The reader does not wait any more. Its polls go on for a while: most come again."""
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
            self._answered(questions, answer)  # without one, each waiting reader looks for the leaders again

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
        """Answer the readers of what was found; ask the rest again."""
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
        """The records to a question, as they are kept; None where there are none: then it is asked again."""
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
        """Ask for what is behind these records: at once, unless there are many polls."""
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
        """A log that moved or went may be another one by now."""
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
