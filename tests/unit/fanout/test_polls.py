"""What a node asks leaders for its readers: how many polls, on which connections, how long, and what is known then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from sidecar.fanout import tails as module
from sidecar.fanout.question import Asked, Question
from sidecar.fanout.tails import MOST_POLLS, Tails
from sidecar.network.tasks import Tasks
from sidecar.protocol import fetch
from sidecar.protocol.calls.tails import Fetched, FetchTails, FetchTailsById, Position
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.ids import Offset, TopicPartition
from tests.sim.kafka.direct import SimulatedKafka

FETCH = 1
PARTITIONS = 3


class Reader:
    """What it was answered, and when its time was up."""

    def __init__(self, kafka: SimulatedKafka) -> None:
        self.found: dict[Question, Fetched] = {}
        self.expired_at = 0.0
        self.answered_at = 0.0
        self._kafka = kafka

    def arrived(self, found: Mapping[Question, Fetched]) -> None:
        self.found |= found
        self.answered_at = self._kafka.now()

    def expired(self, tick: int) -> None:
        self.expired_at = self._kafka.now()

    @property
    def errors(self) -> list[int]:
        return [fetched.error for fetched in self.found.values()]


class Node:
    """The polls of a node, and the log `orders` with three partitions on one broker. `channels`: of each poll."""

    def __init__(self, kafka: SimulatedKafka) -> None:
        self.kafka, self.upstream = kafka, kafka.node()
        self.failures: list[BaseException] = []
        self.tasks = Tasks(self.failures.append)
        self.tails = Tails(self.upstream, self.tasks, longest_s=5.0)
        self.channels: list[str] = []
        call = self.upstream.call

        async def noted(broker: int | None, request: Any, **how: Any) -> Any:
            if isinstance(request, FetchTails):
                self.channels.append(how["channel"])
            return await call(broker, request, **how)

        self.upstream.call = noted  # type: ignore[method-assign]

    @property
    def polls(self) -> list[list[tuple[int, int]]]:
        """The polls so far: partitions and offsets."""
        requests = self.upstream.requests(FetchTails)
        return [[(position.partition, position.offset) for position in request.positions] for request in requests]

    async def write(self, partition: int = 0, count: int = 1) -> int:
        answer = await self.kafka.produce(TopicPartition("orders", partition), None, count=count)
        assert not answer.error
        return answer.base_offset

    def read(self, *questions: Question, seconds: float = 60.0) -> Reader:
        reader = Reader(self.kafka)
        self.tails.park(reader, [Asked(question, 1 << 20) for question in questions], seconds)
        return reader

    async def answered(self, reader: Reader) -> int:
        """The offset behind the records that it got of its only question."""
        while not reader.found:
            await self.kafka.pause(0.001)
        ((question, fetched),) = reader.found.items()
        assert not fetched.error
        behind = fetch.offset_behind(fetched.element, fetched.record_bytes)
        return question.position.offset if behind is None else behind


def question(offset: int, partition: int = 0, isolation: int = 0, topic_id: bytes = b"") -> Question:
    return Question(Position(b"orders", partition, -1, offset, topic_id), isolation)


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    kafka = SimulatedKafka()
    kafka.cluster.create_topic("orders", PARTITIONS, assignment={index: [1, 2] for index in range(PARTITIONS)})
    await kafka.pause(1)
    found = Node(kafka)
    await found.upstream.layout("orders")
    yield found
    await found.tasks.cancel()
    await kafka.close()
    assert found.failures == []


async def test_questions_for_a_leader_are_one_poll_and_both_isolation_levels_two(node: Node) -> None:
    readers = [node.read(question(0, index)) for index in range(PARTITIONS)]
    committed = node.read(question(0, isolation=1))
    both = node.read(question(0), question(0, 1))
    await node.kafka.pause(0.1)
    assert sorted(node.polls) == [[(0, 0)], [(0, 0), (1, 0), (2, 0)]]
    assert sorted(node.channels) == ["tails-0", "tails-1"]
    assert node.tails.waiting == 6
    assert [node.tails.is_waited_for(question(0, index)) for index in (0, 1, 2, 3)] == [True, True, True, False]
    await node.write(1)
    await node.kafka.pause(0.05)
    assert [bool(reader.found) for reader in readers] == [False, True, False]
    assert [bool(reader.found) for reader in (committed, both)] == [False, True]
    assert list(both.found) == [question(0, 1)]


async def test_the_same_log_at_two_offsets_is_two_polls_on_two_connections(node: Node) -> None:
    await node.write(count=2)
    await node.write(count=1)
    at_end, behind = node.read(question(3)), node.read(question(2))
    assert await node.answered(behind) == 3
    assert not at_end.found
    assert sorted(node.polls) == [[(0, 2)], [(0, 3)]]
    later = node.read(question(0, 1))
    await node.kafka.pause(0.01)
    assert node.tails.polls == 2, "on the connection that is free again"
    assert node.channels[2] == node.channels[1] != node.channels[0]
    await node.write(1)
    assert await node.answered(later) == 1


async def test_a_poll_without_records_is_repeated_each_half_second_in_one_bundle(node: Node) -> None:
    readers = []
    for index in range(PARTITIONS):
        readers.append(node.read(question(0, index)))
        await node.kafka.pause(0.001)
    assert sorted(node.polls) == [[(0, 0)], [(1, 0)], [(2, 0)]]
    await node.kafka.pause(2.6)
    assert node.polls[3:] != []
    assert [len(poll) for poll in node.polls[-2:]] == [3, 3]
    assert len(node.polls) <= 3 + 3 + 5
    for index, reader in enumerate(readers):
        await node.write(index)
        assert await node.answered(reader) == 1


async def test_a_poll_ends_with_its_last_reader_and_a_reader_that_left_gets_nothing(node: Node) -> None:
    reader = Reader(node.kafka)
    asked = [Asked(question(0), 1000)]
    tick = node.tails.park(reader, asked, 60.0)
    await node.kafka.pause(0.1)
    node.tails.leave(reader, asked, tick)
    assert (node.tails.waiting, node.tails.polls) == (0, 1)
    await node.kafka.pause(2)
    node.tails.leave(reader, asked, node.tails.park(reader, asked, 60.0))
    await node.kafka.pause(2)
    assert (node.tails.polls, len(node.polls)) == (0, 1), "nor is there one for a reader that has left at once"
    await node.write()
    await node.kafka.pause(1)
    assert reader.found == {}


async def test_a_reader_that_was_woken_is_counted_out_even_if_others_ask_the_same_again(node: Node) -> None:
    first, again = Reader(node.kafka), Reader(node.kafka)
    asked = [Asked(question(0), 1000)]
    ticks = [node.tails.park(first, asked, 60.0)]
    await node.write()
    await node.answered(first)
    ticks.append(node.tails.park(again, asked, 60.0))
    node.tails.woken(first, asked, ticks[0])
    assert node.tails.waiting == 1
    assert await node.answered(again) == 1
    node.tails.woken(again, asked, ticks[1])
    for connection in range(500):
        node.tails.crowd.gathers(connection, [(b"orders", 0)])
    assert node.tails.wait_s(0.001, 1) == 0.001, "none waits any more"
    await node.kafka.pause(61)
    assert (first.expired_at, again.expired_at) == (0.0, 0.0)


@pytest.mark.parametrize("how", ["no leader", "refused", "killed"])
async def test_readers_of_a_log_without_its_leader_are_told_and_the_leader_is_looked_up(node: Node, how: str) -> None:
    lost: list[set[bytes]] = []
    node.upstream.refresh_soon = lambda topics: lost.append(set(topics))  # type: ignore[method-assign]
    if how == "no leader":
        node.upstream.view.forget([b"orders"])
    elif how == "refused":
        node.kafka.refuse(FETCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    reader, other = node.read(question(0)), node.read(question(0))
    if how == "killed":
        await node.kafka.pause(0.05)
        node.kafka.cluster.brokers[1].kill()
    await node.kafka.pause(0.1)
    for each in (reader, other):
        assert each.errors == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert lost == [{b"orders"}]
    assert (node.tails.waiting, node.tails.polls) == (0, 0)
    assert len(node.upstream.requests(FetchTails)) == (0 if how == "no leader" else 1)


async def test_an_error_of_one_partition_says_nothing_of_the_others(node: Node) -> None:
    lost: list[object] = []
    node.upstream.refresh_soon = lost.append  # type: ignore[method-assign]
    wrong, right = node.read(question(7)), node.read(question(0, 1))
    await node.kafka.pause(0.1)
    assert wrong.errors == [ErrorCode.OFFSET_OUT_OF_RANGE]
    await node.write(1)
    assert await node.answered(right) == 1
    assert lost == [], "the leader has not moved"


# What is known ------------------------------------------------------------------------------------------------------


def offered(node: Node, *questions: Question, most: int = 1 << 20) -> dict[Question, int] | None:
    """The offsets behind the records that a reader can have at once."""
    found = node.tails.offer([Asked(question, most) for question in questions], 1 << 20)
    if found is None:
        return None
    return {
        question: fetch.offset_behind(fetched.element, fetched.record_bytes) or -1
        for question, fetched in found.items()
    }


async def test_the_end_of_a_log_is_asked_for_once_by_all_who_do_not_know_it(node: Node) -> None:
    await node.write(count=2)
    for connection in range(3):
        node.tails.crowd.gathers(connection, [(b"orders", 0), (b"orders", 1)])
    questions = [question(2), question(0, 1)]
    await asyncio.gather(*(node.tails.learn(questions) for _ in range(3)))
    assert node.channels == ["ends"]
    assert [node.tails.ends.is_reached(found) for found in (question(2), question(1), question(0, 1))] == [
        True, False, True,
    ]  # fmt: skip
    assert not node.tails.ends.is_known(question(2, isolation=1))
    await node.tails.learn(questions)
    assert node.channels == ["ends"]
    await node.tails.learn([question(2, isolation=1)])
    assert node.channels == ["ends", "ends"]
    for connection in range(3):
        node.tails.connection_closed(connection)
        assert node.tails.ends.is_known(question(2)) is (connection < 2)


@pytest.mark.parametrize("how", ["no leader", "refused", "all have left"])
async def test_an_end_that_cannot_be_learned_stays_unknown(node: Node, how: str) -> None:
    if how != "all have left":
        node.tails.crowd.gathers(1, [(b"orders", 0)])
    if how == "no leader":
        node.upstream.view.forget([b"orders"])
    if how == "refused":
        node.kafka.refuse(FETCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    await node.tails.learn([question(0)])
    assert not node.tails.ends.is_known(question(0))
    if how == "refused":
        await node.tails.learn([question(0)])
        assert node.tails.ends.is_known(question(0)), "the next reader asks again"


async def test_a_reader_at_the_end_may_wait_one_behind_gets_what_is_stored_and_one_far_off_reads_alone(
    node: Node,
) -> None:
    await node.write(count=3)
    for connection in range(4):
        node.tails.crowd.gathers(connection, [(b"orders", index) for index in (0, 1)])
    assert offered(node, question(3)) is None, "the end is not known"
    await node.tails.learn([question(3), question(0, 1)])
    assert offered(node, question(3)) == {}
    assert offered(node, question(1)) is None
    reader = node.read(question(3))
    await node.write(count=2)
    assert await node.answered(reader) == 5
    await node.kafka.pause(0.1)
    assert offered(node, question(3)) == {question(3): 5}
    assert offered(node, question(3), question(0, 1)) == {question(3): 5}, "what there is, at once"
    assert offered(node, question(5), question(0, 1)) == {}
    assert offered(node, question(5), question(1)) is None
    assert offered(node, question(4)) == {}, "it is near: by what came in the last seconds"
    await node.kafka.delete_records(TopicPartition("orders", 0), Offset(4))
    late = node.read(question(5))
    await node.write()
    await node.answered(late)
    assert offered(node, question(3)) == {}, "it was deleted: a poll says so"


async def test_an_answer_that_is_stored_names_the_newest_known_end_of_its_log(node: Node) -> None:
    """Clients calculate their lag from it."""
    for connection in range(4):
        node.tails.crowd.gathers(connection, [(b"orders", 0)])
    reader = node.read(question(0))
    await node.write()
    await node.answered(reader)
    later = node.read(question(1))
    await node.write(count=3)
    await node.answered(later)
    await node.kafka.pause(0.1)
    kept = node.tails.answer(question(0), 1)
    assert kept is not None
    assert fetch.watermarks(kept.element, 0).high_watermark == 4
    assert fetch.offset_behind(kept.element, kept.record_bytes) == 1


async def test_answers_are_forgotten_after_a_minute_again_and_again(node: Node) -> None:
    for offset in range(3):
        reader = node.read(question(offset))
        await node.write()
        await node.answered(reader)
        assert node.tails.answer(question(offset), 1) is not None
        await node.kafka.pause(62)
        assert not node.tails._recent.has((b"orders", 0)), offset


async def test_with_as_many_polls_as_may_be_a_reader_polls_alone(node: Node) -> None:
    await node.write(count=MOST_POLLS + 10)
    node.tails.crowd.gathers(1, [(b"orders", 0), (b"orders", 1)])
    await node.tails.learn([question(MOST_POLLS + 10), question(0, 1)])
    node.tails.polls = MOST_POLLS - 1
    assert offered(node, question(0, 1)) == {}
    node.tails.polls = MOST_POLLS
    assert offered(node, question(0, 1)) is None
    assert offered(node, question(MOST_POLLS + 10)) is None
    node.tails.polls = 0
    reader = node.read(question(0, 1))
    await node.kafka.pause(0.01)
    node.tails.polls = MOST_POLLS
    assert offered(node, question(0, 1)) == {}, "it joins a poll that is under way"
    node.tails.polls = 1
    await node.write(1)
    await node.answered(reader)


async def test_at_most_eight_questions_about_a_partition_are_asked_for_readers_near_its_end(node: Node) -> None:
    node.tails.crowd.gathers(1, [(b"orders", 0)])
    await node.tails.learn([question(0)])
    for _ in range(20):
        await node.write()
    reader = node.read(question(19))
    await node.answered(reader)
    node.kafka.cluster.brokers[1].freeze()
    for offset in range(8):
        assert node.tails.may_wait(question(offset))
        node.read(question(offset))
        await node.kafka.pause(0.001)
    assert not node.tails.may_wait(question(9))
    assert node.tails.may_wait(question(7)), "it is under way"
    assert node.tails.may_wait(question(20)), "it is at the end"
    await node.kafka.pause(10)


@pytest.mark.parametrize("is_busy", [False, True])
async def test_what_follows_records_is_asked_at_once_or_with_the_next_bundle_if_there_are_many_polls(
    node: Node, is_busy: bool
) -> None:
    for connection in range(4):
        node.tails.crowd.gathers(connection, [(b"orders", 0)])
    reader = node.read(question(0))
    await node.kafka.pause(0.1)
    if is_busy:
        node.tails.polls += MOST_POLLS // 2
    await node.write()
    await node.answered(reader)
    asked_at: list[float] = []

    async def note(request: object) -> None:
        asked_at.append(node.kafka.now())

    node.upstream.before = note
    was_asked = len(node.polls) > 1
    await node.kafka.pause(0.02)
    assert node.polls[-1] == [(0, 1)], "behind the records"
    assert was_asked is not is_busy
    await node.kafka.pause(module.AHEAD_S + 1)
    asked = len(node.polls)
    await node.kafka.pause(2)
    assert len(node.polls) == asked, "nobody came back"


async def test_a_log_of_another_id_answers_nothing_under_the_name(node: Node) -> None:
    """A shadow's readers ask for the log that it was made for, also where brokers know no Fetch by id."""
    topic_id = node.kafka.cluster.controller.topics["orders"].id
    await node.write()
    await node.write(1)
    by_name, wrong = node.read(question(0)), node.read(question(0, topic_id=b"x" * 16))
    await node.kafka.pause(0.1)
    assert (by_name.errors, wrong.errors) == ([0], [ErrorCode.NOT_LEADER_OR_FOLLOWER])
    for first, second in ((topic_id, b"x" * 16), (b"x" * 16, topic_id)):
        questions = [question(0, index, topic_id=found) for index, found in enumerate((first, second))]
        readers = [node.read(asked) for asked in questions]
        await node.kafka.pause(0.1)
        assert len(node.polls[-1]) == 2
        for reader, asked in zip(readers, questions, strict=True):
            is_right = asked.position.topic_id == topic_id
            assert reader.found[asked].error == ErrorCode.NOT_LEADER_OR_FOLLOWER or is_right
    assert await node.answered(node.read(question(0, topic_id=topic_id))) == 1
    assert not node.upstream.requests(FetchTailsById)
    await node.upstream.api_versions()
    assert await node.answered(node.read(question(0, topic_id=topic_id))) == 1
    assert len(node.upstream.requests(FetchTailsById)) == 1
