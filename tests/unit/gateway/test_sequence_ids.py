"""What a topic's sequence ids say to whoever asks from outside, and in which state they are."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from metadata import MetadataUnavailable, Reason
from sidecar.cluster.nodes import NodeAddress, NodeDirectory, Placement
from sidecar.dedup.marks import Mark, Marks
from sidecar.dedup.topic import Progress
from sidecar.exclusive.answers import NO_REDIS
from sidecar.gateway import sequence_ids
from sidecar.gateway.owners import BehindError
from sidecar.gateway.sequence_ids import IdsError, KnownIds, SequenceIds, State, Why, progress_text, state_of
from sidecar.network.tasks import Tasks
from sidecar.protocol.caller import DisconnectedError, FencedError, TopicLayout, UnknownTopicError
from sidecar.protocol.errors import KafkaError, no_topic
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp


def known(partitions: set[int], **last: dict[int, int]) -> KnownIds:
    """Ids by name and partition; whoever has a higher one came later."""
    marks = {index: Marks() for found in last.values() for index in found}
    for name, found in last.items():
        for index, value in found.items():
            marks[index].learn(Mark(name.encode(), value, value, value))
    ids: Any = SimpleNamespace(
        partitions={index: SimpleNamespace(marks=each) for index, each in marks.items()},
    )
    return KnownIds(ids, frozenset(partitions))


async def last(ids: KnownIds, name: bytes) -> dict[int, int]:
    return {index: mark.id for index, mark in (await ids.marks(name)).items()}


async def test_a_producer_resumes_behind_the_least_of_its_ids():
    ids = known({0, 1}, billing={0: 9, 1: 4})
    assert ids.resume(await ids.marks(b"billing")) == 4


async def test_a_partition_without_an_id_of_it_makes_it_begin_anew():
    ids = known({0, 1, 2}, billing={0: 9, 1: 4})
    assert await last(ids, b"billing") == {0: 9, 1: 4}
    assert ids.resume(await ids.marks(b"billing")) == -1


async def test_a_name_that_nobody_knows_has_no_ids():
    ids = known({0}, billing={0: 9})
    assert await last(ids, b"other") == {}
    assert ids.resume({}) == -1


async def test_a_partition_that_is_gone_does_not_count():
    ids = known({0}, billing={0: 9, 7: 1})
    assert await last(ids, b"billing") == {0: 9}
    assert ids.resume(await ids.marks(b"billing")) == 9


async def test_the_newest_names_come_first_each_once():
    ids = known({0, 1}, old={0: 1, 1: 1}, new={0: 9, 1: 2}, between={1: 5})
    assert await ids.newest(10) == ([b"new", b"between", b"old"], None)
    first, behind = await ids.newest(2)
    assert (first, behind is None) == ([b"new", b"between"], False)
    assert await ids.newest(2, behind) == ([b"old"], None)


async def test_other_work_goes_on_while_names_are_gathered():
    ids = known(set(range(50)), billing=dict.fromkeys(range(50), 1))
    gathering = asyncio.get_running_loop().create_task(ids.newest(1))
    turns = 0
    while not gathering.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 50


async def test_other_work_goes_on_while_the_partitions_of_a_name_are_read():
    ids = known(set(range(5_000)), billing=dict.fromkeys(range(5_000), 1))
    reading = asyncio.get_running_loop().create_task(ids.marks(b"billing"))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 5
    assert ids.resume(reading.result()) == 1


def topic(*, serving: bool = True, **ids: Any) -> Any:
    read = {"progress": Progress(7, 10, 1_000), "problem": None, "crowded": None, "unprotected": None}
    return SimpleNamespace(ids=SimpleNamespace(**read | {"is_ready": False, "is_begun": True} | ids), serving=serving)


CROWDED = (
    "partition 3 remembers 4 of at most 5 producer names; above that the longest unused ones are forgotten, and their"
    " ids count as new"
)


def crowded() -> Any:
    """A partition that remembers nearly as many names as it may."""
    marks = Marks(5)
    for name in (b"a", b"b", b"c", b"d"):
        marks.learn(Mark(name, 1, 0, 0))
    return SimpleNamespace(partition=3, marks=marks)


@pytest.mark.parametrize(
    ("found", "elsewhere", "state", "detail"),
    [
        (SimpleNamespace(ids=None), False, State.OFF, None),
        (topic(is_ready=True), False, State.READY, None),
        (
            topic(is_ready=True, crowded=crowded()),
            False,
            State.READY,
            CROWDED,
        ),
        (topic(is_ready=True, unprotected="low"), False, State.READY, "low"),
        (topic(), False, State.READING, "10 of 1,000 offsets read, 7 records in them"),
        (topic(problem="orders-0 is lost", is_ready=False), False, State.LOST, "orders-0 is lost"),
        (topic(serving=False, is_begun=False), True, State.ELSEWHERE, None),
        (topic(serving=False, is_begun=False), False, State.IDLE, None),
    ],
)
def test_a_topic_says_what_is_known_of_its_ids(found: Any, elsewhere: bool, state: State, detail: str | None):
    assert state_of(found, elsewhere=elsewhere) == (state, detail)


def test_progress_is_told_in_offsets_and_records():
    assert progress_text(Progress(1_200, 3_000, 40_000)) == "3,000 of 40,000 offsets read, 1,200 records in them"


# Why they cannot be told ----------------------------------------------------------------------------------------------


class PaperUpstream:
    """Knows `orders` with two partitions, or fails."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure

    async def whole_layout(self, topic: str) -> TopicLayout:  # a partition that was added a moment ago has no id yet
        if self.failure is not None:
            raise self.failure
        return TopicLayout(UUID(int=1), {0: 1, 1: -1})


class PaperGovernedTopics:
    """One topic with deduplication, whose ids end in `outcome`: an exception, or nothing for ever (None)."""

    def __init__(self, outcome: Exception | None = None, **ids: Any) -> None:
        self.env = self
        self.failures: list[BaseException] = []
        self.tasks = Tasks(self.failures.append)
        self._outcome = outcome
        self._found = topic(**ids)
        self._found.name, self._found.know_ids = "orders", self._know_ids

    async def _know_ids(self, timeout: float) -> Any:
        if self._outcome is None:
            await asyncio.Event().wait()
        raise self._outcome or AssertionError

    def deduplicates(self, name: str) -> bool:
        return name == "orders"

    def is_served_elsewhere(self, name: str) -> bool:
        return False

    def topic(self, name: str) -> Any:
        return self._found


class UpToDate:
    """Nothing was acknowledged elsewhere."""

    async def now(self) -> None: ...


def asked_of(
    governed: PaperGovernedTopics, upstream: PaperUpstream | None = None, catching_up: UpToDate | None = None
) -> SequenceIds:
    nodes = NodeDirectory(NodeAddress(1, "here", 1))
    nodes.placement = Placement([nodes.me, NodeAddress(2, "there", 2)])
    nodes.serving[b"orders"] = 2
    found: Any = (upstream or PaperUpstream(), nodes, governed, catching_up or UpToDate())
    return SequenceIds(*found)


async def refusal(ids: SequenceIds, name: str = "orders", timeout: float = 1.0) -> tuple[Why, str]:
    with pytest.raises(IdsError) as refused:
        await ids.of(name, timeout)
    return refused.value.why, str(refused.value)


@pytest.mark.parametrize(
    ("failure", "why", "told"),
    [
        (KafkaError(6, "moved"), Why.ELSEWHERE, "node 2 serves orders: ask it"),
        (KafkaError(3, "gone"), Why.NO_TOPIC, no_topic("orders")),
        (MetadataUnavailable(Reason.AWAY, "10.0.0.1:6379"), Why.NOT_NOW, NO_REDIS),
        (DisconnectedError("broker 1 at 10.0.0.1:9092", sent=True), Why.NOT_NOW, "orders cannot be taken over now"),
        (KafkaError(44, "held"), Why.NOT_NOW, "orders cannot be taken over now; try again"),
        (
            FencedError(47, Stamp(ProducerId(1), ProducerEpoch(2)), "orders"),
            Why.NOT_NOW,
            "orders cannot be taken over now; try again",
        ),
        (TimeoutError(), Why.NOT_NOW, "orders cannot be taken over now; try again"),
        (KafkaError(5, "in time"), Why.NOT_NOW, "the sequence ids of orders are being read: 10 of 1,000 offsets read"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
async def test_a_failure_says_whether_to_ask_again_or_whom(failure: Exception, why: Why, told: str):
    governed = PaperGovernedTopics(failure)
    found = await refusal(asked_of(governed))
    assert (found[0], found[1].startswith(told)) == (why, True)
    assert governed.failures == []


async def test_a_topic_whose_policy_has_just_changed_says_what_begins_it():
    governed = PaperGovernedTopics(LookupError("orders"))
    governed._found.ids = None
    found = await refusal(asked_of(governed))
    assert found == (Why.NO_IDS, "topic orders has no deduplication; `sidecar topic set orders --dedup` begins it")


async def test_a_defect_is_not_taken_for_an_answer():
    governed = PaperGovernedTopics(KeyError("a defect"))
    with pytest.raises(KeyError):
        await asked_of(governed).of("orders", 1.0)
    assert len(governed.failures) == 1


@pytest.mark.parametrize(
    "ids", [{"is_begun": False}, {"problem": "the ids of orders-0 are lost"}], ids=["before", "lost"]
)
async def test_what_the_topic_says_by_itself_is_told_as_it_is(ids: dict[str, Any]):
    governed = PaperGovernedTopics(KafkaError(5, "its own words"), **ids)
    assert await refusal(asked_of(governed)) == (Why.NOT_NOW, "its own words")


async def test_who_asks_waits_no_longer_than_he_said_and_the_takeover_goes_on(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sequence_ids, "_TAKEOVER_S", 0.0)
    governed = PaperGovernedTopics()
    assert await refusal(asked_of(governed), timeout=0.0) == (Why.NOT_NOW, "orders is being taken over; try again")
    assert len(governed.env.tasks._tasks) == 1
    await governed.env.tasks.cancel()


@pytest.mark.parametrize(
    ("failure", "why"),
    [
        (UnknownTopicError("orders"), Why.NO_TOPIC),
        (KafkaError(17, "invalid"), Why.NO_TOPIC),
        (KafkaError(5, "no leader"), Why.NOT_NOW),
        (DisconnectedError("broker 1 at 10.0.0.1:9092", sent=False), Why.NOT_NOW),
    ],
)
async def test_where_kafka_does_not_describe_the_topic_no_broker_is_named(failure: Exception, why: Why):
    found, told = await refusal(asked_of(PaperGovernedTopics(), PaperUpstream(failure)))
    assert found is why
    assert "10.0.0.1" not in told


@pytest.mark.parametrize("name", ["", "a b", "ä", "x" * 250])
async def test_a_name_that_no_topic_can_have_is_not_asked_for(name: str):
    upstream = PaperUpstream(AssertionError())
    assert (await refusal(asked_of(PaperGovernedTopics(), upstream), name))[0] is Why.NO_TOPIC


async def test_what_another_node_acknowledged_is_known_before_it_is_looked_who_serves_the_topic():
    governed = PaperGovernedTopics()

    class Late(UpToDate):
        async def now(self) -> None:
            governed.env.is_served_elsewhere = lambda name: True  # type: ignore[method-assign]

    assert (await refusal(asked_of(governed, catching_up=Late())))[0] is Why.ELSEWHERE


async def test_a_node_that_cannot_read_on_guesses_nothing():
    class Behind(UpToDate):
        async def now(self) -> None:
            raise BehindError("this node cannot read on")

    found = await refusal(asked_of(PaperGovernedTopics(AssertionError()), catching_up=Behind()))
    assert found == (Why.NOT_NOW, "this node cannot read on")
