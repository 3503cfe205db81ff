"""When fences are renewed, settings read and leaders asked: the loop that keeps a node's topics, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sidecar.changelog import View
from sidecar.exclusive import keeper as module
from sidecar.exclusive.cleaning import needed
from sidecar.exclusive.keeper import Keeper
from sidecar.fencing.expiry import DEFAULT_KEEP_ALIVE, KeepAlive
from sidecar.network.tasks import Tasks
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp, TopicPartition
from tests.sim.host import Host
from tests.sim.loop import SimLoop

SLOW, SHORT = KeepAlive(86_400.0, "slow"), KeepAlive(1.0, "short")
AWAY = UpstreamError("away")


def now() -> float:
    return round(asyncio.get_running_loop().time(), 1)


class Topic:
    """A topic with its upkeep, as far as the keeper looks at them."""

    def __init__(self, name: str) -> None:
        self.name, self.upkeep = name, self
        self.terms = SLOW
        self.fenced_from: dict[int, int] = {}
        self.ids = SimpleNamespace(protected_ms=0)
        self.fenced_at, self.cause = -1.0, None
        self.due = self.wants_look = self.is_slow = False
        self.error: Exception | None = None
        self.renewed: list[float] = []
        self.failures: list[float] = []
        self.readings: list[KeepAlive] = []
        self.newest: list[int] = []
        self.notes: list[str] = []

    def now(self) -> float:
        return now()

    def is_due(self, _: float) -> bool:
        return self.due

    def failed(self, at: float) -> None:
        self.failures.append(at)

    def read(self, terms: KeepAlive) -> None:
        self.readings.append(terms)

    def asked(self) -> None:
        self.wants_look = False
        self.notes.append("asked")

    def wrote(self) -> None:
        self.notes.append("wrote")

    def remembered(self, timestamp_ms: int) -> bool:
        self.newest.append(timestamp_ms)
        return timestamp_ms == 1

    async def keep_alive(self) -> None:
        self.renewed.append(now())
        if self.is_slow:
            await asyncio.sleep(3)
        if self.error is not None:
            raise self.error
        self.due, self.fenced_at = False, now()


class Node:
    """A keeper, and what it is told. `terms`: the settings of topics, or why they cannot be read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *topics: Topic) -> None:
        self.topics = [*topics]
        self.terms: Any = {topic.name: SLOW for topic in topics}
        self.of_brokers: Any = SHORT
        self.read_at: list[float] = []
        self.reading_takes_s = 0.0
        self.protects: list[Exception] = []
        self.protected: list[tuple[float, list[str]]] = []
        self.rounds: list[list[str]] = []
        self.round_error: Exception | None = None
        self.failures: list[tuple[str, str]] = []
        self.gone: list[set[str]] = []
        self.assumed: list[KeepAlive] = []
        self.renewals: list[tuple[str, Any]] = []
        self.producers: Any = {}
        self.look_takes_s = 0.0
        self.view = View()
        hooks = SimpleNamespace(fence_renewed=lambda *renewal: self.renewals.append(renewal))
        governed: Any = SimpleNamespace(
            kept_topics=lambda: self.topics, assume=self.assumed.append, gone=self.gone.append,
            env=SimpleNamespace(hooks=hooks, changelog=SimpleNamespace(view=self.view)),
        )  # fmt: skip
        self.refreshed: list[set[bytes]] = []
        upstream: Any = SimpleNamespace(refresh_soon=self.refreshed.append, layout=self._layout)
        self.crashes: list[BaseException] = []
        self.tasks = Tasks(self.crashes.append)
        self.keeper = Keeper(
            upstream, self.tasks, governed, lambda name, error: self.failures.append((name, str(error)))
        )
        for name in ("read_broker_keep_alive", "read_keep_alives", "protect_ids", "Witness"):
            monkeypatch.setattr(module, name, getattr(self, f"_{name.lower()}"))
        self.keeper._watch = SimpleNamespace(round=self._round)  # type: ignore[assignment] # pyright: ignore[reportAttributeAccessIssue]

    async def _layout(self, _: str) -> Any:
        return SimpleNamespace(leaders={0: 1, 1: 1})

    async def _read_broker_keep_alive(self, _: Any) -> KeepAlive:
        if isinstance(self.of_brokers, Exception):
            raise self.of_brokers
        return self.of_brokers

    async def _read_keep_alives(self, _: Any, names: list[str]) -> dict[str, KeepAlive]:
        self.read_at.append(now())
        await asyncio.sleep(self.reading_takes_s)
        if isinstance(self.terms, Exception):
            raise self.terms
        return {name: self.terms[name] for name in names if name in self.terms}

    async def _protect_ids(self, _upstream: Any, topics: list[Any], _hooks: Any) -> None:
        self.protected.append((now(), [topic.name for topic in topics]))
        if self.protects:
            raise self.protects.pop()
        for topic in topics:
            topic.ids.protected_ms = needed(topic.terms)

    async def _round(self, topics: list[Topic]) -> None:
        self.rounds.append([topic.name for topic in topics])
        if self.round_error is not None:
            raise self.round_error

    def _witness(self, *_: Any) -> Any:
        async def producers(_: Any) -> Any:
            await asyncio.sleep(self.look_takes_s)
            if isinstance(self.producers, Exception):
                raise self.producers
            return self.producers

        return SimpleNamespace(producers=producers)


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Node]:
    """Run a keeper for some seconds of virtual time, in which `story` goes on."""

    def played(seconds: float, *topics: Topic, story: Any = None, **how: Any) -> Node:
        loop, host = SimLoop(), Host("node")

        async def run() -> Node:
            node = Node(monkeypatch, *topics)
            vars(node).update(how)
            node.tasks.start(node.keeper.run())
            if story is not None:
                await story(node)
            await asyncio.sleep(seconds)
            await node.tasks.cancel()
            return node

        node = loop.finish(run(), host, 10_000)
        assert (node.crashes, loop.crashes) == ([], [])
        return node

    return played


def test_fences_that_are_due_are_renewed_one_at_a_time_for_a_topic(play: Any) -> None:
    due, other = Topic("due"), Topic("other")
    due.due = due.is_slow = True
    node = play(10, due, other)
    assert (due.renewed, other.renewed) == ([0.0], [])
    assert (node.renewals, due.failures, node.failures) == ([("due", None)], [], [])


def test_a_fence_that_cannot_be_renewed_is_tried_again_and_others_go_on(play: Any) -> None:
    bad, good = Topic("bad"), Topic("good")
    bad.due = good.due = True
    bad.error = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "no")
    node = play(2.5, bad, good)
    assert (good.renewed, len(bad.renewed)) == ([0.0], 3)
    assert (bad.failures, {name for name, _ in node.failures}) == (bad.renewed, {"bad"})
    assert node.renewals == [("good", None)]


@pytest.mark.parametrize(("terms", "ticks"), [(SLOW, 5), (KeepAlive(8.0, "x"), 10), (KeepAlive(0.1, "x"), 100)])
def test_the_shorter_leaders_remember_the_more_often_it_looks(play: Any, terms: KeepAlive, ticks: int) -> None:
    topic = Topic("orders")
    topic.due, topic.terms, topic.error = True, terms, AWAY
    play(4.99, topic)
    assert len(topic.renewed) == ticks


def test_settings_are_read_once_a_minute_and_when_a_topic_is_new_or_they_were_changed(play: Any) -> None:
    first, later = Topic("first"), Topic("later")

    async def story(node: Node) -> None:
        await asyncio.sleep(10)
        node.topics.append(later)
        node.terms["later"] = SHORT
        await asyncio.sleep(10.5)
        node.keeper.read_soon()

    node = play(70, first, story=story)
    assert [round(each) for each in node.read_at] == [0, 10, 21, 81]
    assert (set(first.readings), set(later.readings), node.assumed) == ({SLOW}, {SHORT}, [SHORT])
    assert (node.gone[-1], node.failures) == (set(), [])
    assert node.refreshed == [{b"first"}, *[{b"first", b"later"}] * 3], "one may have been created anew"


@pytest.mark.parametrize("of_brokers", [SHORT, AWAY])
def test_settings_that_a_node_may_not_see_are_the_brokers_or_kafkas_own(play: Any, of_brokers: Any) -> None:
    topic = Topic("orders")
    node = play(2.5, topic, terms=KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no"), of_brokers=of_brokers)
    assert topic.readings == [DEFAULT_KEEP_ALIVE if of_brokers is AWAY else SHORT]
    assert node.assumed == ([] if of_brokers is AWAY else [SHORT])
    assert len(node.failures) == 1


def test_settings_that_cannot_be_read_now_are_read_with_the_next_tick(play: Any) -> None:
    node = play(2.5, Topic("orders"), terms=AWAY)
    assert (len(node.read_at), node.topics[0].readings, node.gone) == (3, [], [])
    assert node.failures == [("orders", "away")] * 3
    node = play(2.5)
    assert (node.read_at, node.assumed) == ([], [SHORT]), "new topics have what brokers require from the beginning"


def test_settings_that_were_changed_while_they_are_read_are_read_again(play: Any) -> None:
    async def story(node: Node) -> None:
        await asyncio.sleep(1)
        node.keeper.read_soon()

    assert play(9, Topic("orders"), story=story, reading_takes_s=3.0).read_at == [0, 3]


def test_a_silent_broker_holds_up_neither_fences_nor_the_protection_of_ids(play: Any) -> None:
    """Its settings are asked for half a minute: a fence that a leader forgot is renewed at once, and so are the ids of
    topics kept from compaction that are taken over then.
    """
    first, later = Topic("first"), Topic("later")

    async def story(node: Node) -> None:
        await asyncio.sleep(10.5)
        node.topics.append(later)
        first.due = True

    node = play(10, first, story=story, reading_takes_s=30.0, terms=AWAY)
    assert node.read_at == [0]
    assert node.protected == [(0, ["first"]), (11, ["first", "later"])]
    assert first.renewed == [11]


def test_ids_are_protected_once_a_minute_and_at_once_where_they_were_not_or_for_too_short(play: Any) -> None:
    topic = Topic("orders")

    async def story(node: Node) -> None:
        await asyncio.sleep(10.5)
        topic.terms = KeepAlive(86_400.0, "longer", oldest=7 * 86_400.0)
        await asyncio.sleep(10)
        topic.ids = SimpleNamespace(protected_ms=0)
        await asyncio.sleep(10)
        node.keeper.read_soon()

    node = play(61, topic, story=story)
    assert [at for at, _ in node.protected] == [0, 11, 21, 31, 91]


def test_ids_that_could_not_be_protected_are_tried_again_with_the_next_tick(play: Any) -> None:
    """Not a minute later: the cleaner may come meanwhile."""
    node = play(4.5, Topic("orders"), protects=[AWAY, AWAY])
    assert [at for at, _ in node.protected] == [0, 1, 2]
    assert node.failures == [("orders", "away")] * 2
    assert node.read_at == [0]


def test_a_topic_counts_as_deleted_when_kafka_has_not_known_it_for_half_a_minute(play: Any) -> None:
    async def story(node: Node) -> None:
        del node.terms["gone"]
        for _ in range(4):
            await asyncio.sleep(12)
            node.keeper.read_soon()

    node = play(1, Topic("gone"), Topic("there"), story=story)
    assert node.gone == [set(), set(), set(), {"gone"}, {"gone"}]

    async def comes_back(node: Node) -> None:
        terms = node.terms.pop("gone")
        await asyncio.sleep(20)
        node.terms["gone"] = terms
        node.keeper.read_soon()
        await asyncio.sleep(2)
        del node.terms["gone"]
        node.keeper.read_soon()
        await asyncio.sleep(15)
        node.keeper.read_soon()

    assert play(1, Topic("gone"), story=comes_back).gone == [set()] * 4


def test_fences_are_watched_of_topics_that_are_fenced(play: Any) -> None:
    fenced, other = Topic("fenced"), Topic("other")
    fenced.fenced_from = {0: 5}
    node = play(3 * module.WATCH_S + 1, fenced, other)
    assert node.rounds[0] == ["fenced"]
    assert 3 <= len(node.rounds) <= 4
    assert play(10, other).rounds == []
    node = play(3 * module.WATCH_S + 1, fenced, round_error=AWAY)
    assert 3 <= len(node.rounds) <= 4
    assert set(node.failures) == {("fenced", "away")}


def writers(node: Node, *newest: tuple[int, int]) -> None:
    """What leaders remember: producer ids and the time of their newest record."""
    stamp = [(Stamp(ProducerId(number), ProducerEpoch(0)), at) for number, at in newest]
    found = [SimpleNamespace(stamp=each, last_timestamp_ms=at) for each, at in stamp]
    nothing = SimpleNamespace(producers=())
    node.producers = {
        TopicPartition("orders", 0): SimpleNamespace(producers=found), TopicPartition("orders", 1): nothing
    }  # fmt: skip


def test_leaders_are_asked_what_they_remember_of_the_topics_writers(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic("orders")
    topic.wants_look = True
    own = Stamp(ProducerId(7), ProducerEpoch(0))
    monkeypatch.setattr(module, "stamp_of", lambda _: own)

    async def story(node: Node) -> None:
        monkeypatch.setattr(View, "opened", lambda *_: {"": None})
        writers(node, (7, 9), (8, 1), (7, 1))

    node = play(11, topic, story=story)
    assert (topic.notes, topic.newest) == (["asked"], [9, 1]), "others' times say nothing"
    assert len(node.failures) == 1
    assert "older than their header said" in node.failures[0][1]


def test_leaders_are_asked_every_five_seconds_while_clients_write(play: Any) -> None:
    topic = Topic("orders")

    async def story(node: Node) -> None:
        for _ in range(60):
            topic.wants_look = True
            await asyncio.sleep(0.2)

    node = play(0, topic, story=story, producers=AWAY)
    assert topic.notes == ["asked", "wrote"] * 3
    assert node.failures == [("orders", "away")] * 3


def test_leaders_that_cannot_be_asked_are_asked_again(play: Any) -> None:
    topic = Topic("orders")
    topic.wants_look = True

    async def story(node: Node) -> None:
        await asyncio.sleep(1)
        topic.wants_look = True

    node = play(4.5 + 3, topic, story=story, producers=AWAY)
    assert topic.notes == ["asked", "wrote"] * 2, "every five seconds"
    assert node.failures == [("orders", "away")] * 2


def test_leaders_that_are_slow_to_answer_are_not_asked_again_meanwhile(play: Any) -> None:
    topic = Topic("orders")

    async def story(node: Node) -> None:
        for _ in range(12):
            topic.wants_look = True
            await asyncio.sleep(1)

    play(1, topic, story=story, producers=AWAY, look_takes_s=20.0)
    assert topic.notes == ["asked"]
