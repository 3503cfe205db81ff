"""What clients send to governed topics, from the request on: partitions that may not exist, refusals that are repeated,
producer ids of others, topics that were deleted. Nodes with their whole room, in virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from metadata.ownership import AccessMode
from sidecar.changelog import Kind
from sidecar.dedup.cleaning import LAG_MS
from sidecar.exclusive import cleaning, forgetting
from sidecar.exclusive.producing import ProducingState
from sidecar.fencing.expiry import KeepAlive
from sidecar.network.aside import Allowance
from sidecar.policy.policies import PolicyFields, Scope
from sidecar.protocol.caller import CallTimeoutError
from sidecar.protocol.calls.admin import AlterTopicConfig, ConfigResource, DescribeConfigs, Described, Outcome, Resource
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.produce import ProducePart, ProduceResult
from sidecar.protocol.session import Caller, Session
from tests.sim.host import Host
from tests.sim.loop import SimLoop
from tests.unit.exclusive.paper_cluster import TOPIC, Client, Cluster, cluster
from tests.unit.exclusive.test_governed_topics import room, writes

Story = Callable[["Setup"], Coroutine[Any, Any, None]]
MISSING, NOT_NOW = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE


class Setup:
    """A node with a policy for the topic. `there`: the partitions that it knows of each topic, None: it knows nothing;
    `learns`: what Kafka says when it is asked.
    """

    def __init__(self, paper: Cluster) -> None:
        self.paper = paper
        self.node, self.room = room(paper)
        writes(paper, self.node)
        self.there: dict[str, set[int]] = {TOPIC: {0, 1}}
        self.learns: dict[str, set[int]] | None = {}
        self.asked: list[bytes] = []
        self.refreshed: list[bytes] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.is_full = False
        vars(paper.kafka).update(
            has_partition=self._has_partition, learn=self._learn, refresh_soon=self.refreshed.extend,
            absent=self._absent,
        )  # fmt: skip
        vars(self.node.changelog)["snapshot_journal"] = lambda stamp, _: self.node.changelog.journal(stamp)  # pyright: ignore[reportUnknownLambdaType]
        admit = self.node.admit
        vars(self.node)["admit"] = lambda size: not self.is_full and admit(size)

    def _has_partition(self, topic: bytes, partition: int) -> bool | None:
        known = self.there.get(topic.decode())
        return None if known is None else partition in known

    async def _learn(self, topic: bytes) -> bool:
        self.asked.append(topic)
        await self.may_answer.wait()
        if self.learns is None:
            return False
        self.there |= self.learns
        return True

    async def _absent(self, names: Any) -> set[str]:
        return {name for name in names if name not in self.there}


class Producer:
    """A client's connection, and the answers that it got: when, and with which error."""

    carries_ordinary = False
    allowance = Allowance()

    def __init__(self, setup: Setup, number: int, mode: AccessMode | None = None) -> None:
        self.setup, self.paper = setup, Client(number, mode)
        self.governed = ProducingState()
        self.connection_id, self.address = self.paper.connection, "host"
        self.session = Session("conn:1-boot-1") if number >= 0 else self.paper.session
        self.producer, self.caller = (f"app-{number}", True, mode, None), Caller("User:app", f"app-{number}")
        self.alive, self.heard = True, asyncio.Event()
        self.answers: list[tuple[float, int]] = []

    def is_alive(self) -> bool:
        return self.alive

    def sends(
        self, value: int, partition: int = 0, topic: str = TOPIC, sequence: int | None = None, *, breaks: bool = False
    ) -> None:
        batch = self.paper.batch(value, partition=partition, sequence=sequence)
        batch[-1] ^= breaks

        def done(result: ProduceResult) -> None:
            self.heard.set()
            self.answers.append((round(asyncio.get_running_loop().time() - self.began, 3), result.error))

        self.began = asyncio.get_running_loop().time()
        client: Any = self
        part = ProducePart(topic.encode(), partition, 0, len(batch))
        self.setup.room.producers.append(client, part, batch, 1_000, done)

    async def answered(self, value: int, partition: int = 0, **how: Any) -> tuple[float, int]:
        self.heard.clear()
        await asyncio.sleep(0.01)  # another request
        self.sends(value, partition, **how)
        await self.heard.wait()
        return self.answers[-1]


def play(story: Story) -> None:
    async def played() -> None:
        async with cluster() as paper:
            await story(Setup(paper))

    SimLoop().finish(played(), Host("node"), 10_000)


async def turns() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


def test_a_client_owns_what_it_writes_to_until_its_connection_ends() -> None:
    async def story(setup: Setup) -> None:
        owner, rival = Producer(setup, 7), Producer(setup, 8)
        assert [(await owner.answered(value))[1] for value in (1, 2)] == [0, 0]
        topic = setup.room.topic(TOPIC)
        assert setup.room.topics.has_clients(topic)
        assert (await rival.answered(3))[1] == ErrorCode.POLICY_VIOLATION
        owner.alive = False
        setup.room.producers.connection_closed(owner.connection_id)
        await asyncio.sleep(1)
        codes = [(await rival.answered(4, sequence=1))[1] for _ in range(2)]
        assert codes == [NOT_NOW, 0], "it comes again behind the one that was refused"
        assert setup.paper.kafka.log().values == [1, 2, 4]
        setup.room.producers.connection_closed(rival.connection_id)
        assert not setup.room.topics.has_clients(topic)

    play(story)


# Partitions ---------------------------------------------------------------------------------------------------------


def test_batches_of_an_unknown_topic_wait_in_order_until_kafka_has_answered() -> None:
    async def story(setup: Setup) -> None:
        setup.there.clear()
        setup.learns = {TOPIC: {0, 1}}
        setup.may_answer.clear()
        owner = Producer(setup, 7)
        for value in (1, 2):
            owner.sends(value)
        await turns()
        assert (setup.asked, owner.answers) == ([TOPIC.encode()], [])
        setup.there[TOPIC] = {0, 1}
        owner.sends(3)
        await turns()
        assert owner.answers == [], "none overtakes those that wait"
        setup.may_answer.set()
        await asyncio.sleep(1)
        assert [code for _, code in owner.answers] == [0, 0, 0]
        assert setup.paper.kafka.log().values == [1, 2, 3]

    play(story)


@pytest.mark.parametrize(("learns", "code"), [({}, MISSING), (None, NOT_NOW), ({TOPIC: {1}}, MISSING)])
def test_a_partition_that_is_not_there_is_said_to_be_missing(learns: Any, code: int) -> None:
    async def story(setup: Setup) -> None:
        setup.there.clear()
        setup.learns = learns
        assert (await Producer(setup, 7).answered(1))[1] == code
        assert setup.paper.kafka.log().values == []
        assert bool(setup.node.reports("topic_forgotten")) is (learns == {})
        setup.there[TOPIC] = {0, 1}
        assert (await Producer(setup, 8).answered(1, 5))[1] == MISSING
        assert setup.refreshed[-1:] == [TOPIC.encode()], "it may have been added just now"

    play(story)


def test_a_batch_of_a_client_that_left_while_it_waited_begins_nothing() -> None:
    async def story(setup: Setup) -> None:
        setup.there.clear()
        setup.learns = {TOPIC: {0, 1}}
        setup.may_answer.clear()
        owner = Producer(setup, 7)
        owner.sends(1)
        owner.alive = False
        setup.may_answer.set()
        await asyncio.sleep(1)
        assert setup.paper.kafka.log().values == []
        assert not setup.room.topics.has_clients(setup.room.topic(TOPIC))

    play(story)


def test_a_batch_whose_bytes_do_not_fit_its_crc_is_refused() -> None:
    async def story(setup: Setup) -> None:
        owner = Producer(setup, 7)
        assert (await owner.answered(1, sequence=0, breaks=True))[1] == ErrorCode.CORRUPT_MESSAGE
        assert (await owner.answered(1, sequence=0))[1] == 0

    play(story)


def test_a_node_takes_no_batch_that_it_cannot_serve() -> None:
    async def story(setup: Setup) -> None:
        owner = Producer(setup, 7)
        setup.is_full = True
        assert (await owner.answered(1, sequence=0))[1] == ErrorCode.NOT_ENOUGH_REPLICAS
        setup.is_full = False
        assert (await owner.answered(1, sequence=0))[1] == 0
        setup.room.env.draining = True
        assert (await owner.answered(2, sequence=1))[1] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        setup.room.env.draining = False
        writes(setup.paper, setup.node, policy=None)
        await asyncio.sleep(1)
        assert (await owner.answered(2, sequence=1))[1] == ErrorCode.NOT_LEADER_OR_FOLLOWER, "its policy has ended"
        assert setup.paper.kafka.log().values == [1]

    play(story)


# Refusals -----------------------------------------------------------------------------------------------------------


def test_refusals_that_a_client_only_repeats_come_later_and_later() -> None:
    async def story(setup: Setup) -> None:
        owner, rival = Producer(setup, 7), Producer(setup, 8)
        await owner.answered(1)
        waits = [(await rival.answered(2)) for _ in range(4)]
        assert {code for _, code in waits} == {ErrorCode.POLICY_VIOLATION}
        assert waits[0][0] == 0
        assert [later > before for (before, _), (later, _) in pairwise(waits)] == [True] * 3
        rival.carries_ordinary = True
        assert (await rival.answered(2))[0] == 0, "other answers would wait for it"
        owner.alive = False
        setup.room.producers.connection_closed(owner.connection_id)
        await asyncio.sleep(1)
        rival.carries_ordinary = False
        refusals = rival.governed.refusals
        assert (await rival.answered(3, sequence=5))[1] == NOT_NOW
        assert rival.governed.refusals == refusals > 1
        assert (await rival.answered(3, sequence=5))[1] == 0
        assert rival.governed.refusals == 0, "it begins anew"

    play(story)


# Producer ids -------------------------------------------------------------------------------------------------------


def test_a_producer_id_is_its_clients_and_a_deposed_one_is_lost() -> None:
    async def story(setup: Setup) -> None:
        producers = setup.room.producers
        owner, stranger, rival = (
            Producer(setup, 7),
            Producer(setup, 8),
            Producer(setup, 9, AccessMode.EXCLUSIVE_WITH_FENCING),
        )
        producers.initialised(owner, 7, None)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]

        def code(client: Producer, producer_id: int | None, **how: bool) -> int:
            found: Any = client
            error = producers.check(found, producer_id, **how)
            return 0 if error is None else error.code

        assert (code(owner, 7), code(owner, None), code(stranger, 7) != 0) == (0, 0, True)
        assert code(stranger, 7, transactional=True) == 0, "Kafka knows whose it is"
        await owner.answered(1)
        await rival.answered(2)
        assert (code(owner, 7), code(rival, 9)) == (ErrorCode.PRODUCER_FENCED, 0)
        found: Any = owner
        producers.initialised(found, 70, 7)
        assert (producers.followed_by(Session("pid:70")), producers.followed_by(Session("pid:7"))) == ("pid:7", None)
        producers.initialised(found, 71, 71)
        assert producers.followed_by(Session("pid:71")) is None
        assert not producers.knows_first_id
        producers.initialised(found, 0, None)
        assert producers.knows_first_id

    play(story)


def test_what_was_refused_under_a_producer_id_before_kafka_gave_it_to_a_client_is_forgotten() -> None:
    async def story(setup: Setup) -> None:
        owner, early = Producer(setup, 7), Producer(setup, 8)
        await owner.answered(1)
        assert (await early.answered(2))[1] == ErrorCode.POLICY_VIOLATION
        topic: Any = next(iter(setup.room.topics.by_name.values()))
        assert topic.refusals.has(Session("pid:8"), topic.scope)
        client: Any = owner
        setup.room.producers.initialised(client, 8, None)
        assert not topic.refusals.has(Session("pid:8"), topic.scope)

    play(story)


# Deleted topics -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", [Scope.TOPIC, Scope.PARTITION])
def test_a_deleted_topic_is_forgotten_when_all_brokers_say_so_twice(
    scope: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forgetting, "_APART_S", 3.0)

    async def story(setup: Setup) -> None:
        writes(setup.paper, setup.node, policy=PolicyFields(AccessMode.EXCLUSIVE, scope=scope))
        owner, look = Producer(setup, 7), setup.room.forgetting.look
        assert (await owner.answered(1))[1] == 0
        generation = setup.room.topic(TOPIC).generation
        view = setup.node.changelog.view
        assert await look({TOPIC}) == [], "it is there"
        del setup.there[TOPIC]
        assert await look({TOPIC}) == []
        await asyncio.sleep(3.1)
        assert await look({TOPIC}) == [], "a client is connected, which goes on if it is created again"
        owner.alive = False
        setup.room.producers.connection_closed(owner.connection_id)
        await asyncio.sleep(1)
        setup.there[TOPIC] = {0, 1}
        assert await look({TOPIC}) == [], "it was created again"
        del setup.there[TOPIC]
        assert await look({TOPIC}) == []
        await asyncio.sleep(1.5)
        assert await look({TOPIC}) == []
        await asyncio.sleep(1.6)
        forgotten = await look({TOPIC})
        assert (forgotten, setup.node.reports("operation_failed")) == ([TOPIC], [])
        assert [entry.key.kind for entry in view.of_topic(TOPIC) if entry.key.kind is not Kind.POLICY] == [
            Kind.OWNERSHIP
        ]
        kept = view.ownership(TOPIC)
        assert kept is not None
        assert (kept.value.generation, kept.value.session, bool(kept.value.released_ms)) == (
            max(1, generation),
            "",
            True,
        )
        assert setup.node.reports("topic_gone") == [(TOPIC, max(1, generation))]
        assert await look({TOPIC}) == [], "there is nothing left"

    play(story)


# Cleaning -----------------------------------------------------------------------------------------------------------


class Configs:
    """Brokers that describe topics, and raise a lag, or refuse to. `raised`: to what."""

    def __init__(self, topics: Mapping[str, dict[str, str | None]], refuses: int = 0) -> None:
        self.topics, self.refuses = topics, refuses
        self.raised: list[tuple[str, str, str]] = []
        self.reported: list[tuple[Any, ...]] = []
        self.asked: Callable[[], None] = lambda: None

    async def ask_any(self, request: DescribeConfigs) -> Any:
        self.asked()
        return {
            each: Described(0 if each.name in self.topics else 3, None, self.topics.get(each.name, {}))
            for each in request.resources
        }

    async def call(self, _broker: None, request: Any) -> Any:
        assert isinstance(request, AlterTopicConfig)
        self.raised.append((request.topic, request.name, request.value))
        return Outcome(self.refuses, None)

    def compaction_lag_raised(self, *report: Any) -> None:
        self.reported.append(("raised", *report))

    def compaction_lag_low(self, *report: Any) -> None:
        self.reported.append(("low", *report))


def governed(name: str, terms: KeepAlive, *, ids: bool = True) -> Any:
    its = SimpleNamespace(unprotected="?", pace=None, protected_ms=0) if ids else None
    return SimpleNamespace(name=name, ids=its, upkeep=SimpleNamespace(terms=terms))


@pytest.mark.parametrize("refuses", [0, 44])
async def test_compaction_leaves_records_alone_for_as_long_as_ids_need_it(refuses: int) -> None:
    terms = KeepAlive(3_600.0, "x", oldest=86_400.0)
    needs = cleaning.needed(terms)
    brokers = Configs(
        {
            "low": {"cleanup.policy": "compact", "min.compaction.lag.ms": "5"},
            "high": {"cleanup.policy": "compact", "min.compaction.lag.ms": str(needs)},
            "plain": {"cleanup.policy": "delete"},
            "without": {"cleanup.policy": "compact"},
        },
        refuses,
    )
    topics = [governed(name, terms) for name in ("low", "high", "plain", "gone")]
    topics.append(governed("without", terms, ids=False))
    found: Any = brokers
    assert [cleaning.is_unprotected(topic) for topic in topics] == [True] * 4 + [False]
    await cleaning.protect_ids(found, topics, found)
    low, high, plain, gone, _ = topics
    assert not any(map(cleaning.is_unprotected, topics))
    assert brokers.raised == [("low", "min.compaction.lag.ms", str(needs))]
    assert (high.ids.unprotected, plain.ids.unprotected, gone.ids.unprotected) == (None, None, "?")
    ((kind, name, *_),) = brokers.reported
    assert (kind, name) == ("low" if refuses else "raised", "low")
    assert (low.ids.unprotected is None) is (not refuses)
    assert (low.ids.pace.seconds < high.ids.pace.seconds) is bool(refuses), "its snapshots are due every second"
    assert (Resource(ConfigResource.TOPIC, "low").name, gone.ids.pace) == ("low", None)


async def test_a_topic_that_loses_its_ids_while_its_settings_are_read_is_left_alone() -> None:
    topic = governed("low", KeepAlive(3_600.0, "x", oldest=86_400.0))
    brokers = Configs({"low": {"cleanup.policy": "compact", "min.compaction.lag.ms": "5"}})
    brokers.asked = lambda: setattr(topic, "ids", None)
    found: Any = brokers
    await cleaning.protect_ids(found, [topic], found)
    assert brokers.raised == []


def test_ids_need_a_longer_lag_where_records_may_be_old_already() -> None:
    terms = KeepAlive(86_400.0, "x", oldest=3 * 86_400.0)
    assert cleaning.needed(terms) > cleaning.needed(replace(terms, stamped=True))


@pytest.mark.parametrize(("refuses", "said"), [(0, "was raised from 5 to"), (44, "cannot be raised to")])
async def test_the_lag_of_topics_that_get_ids_is_raised_before_anything_is_written(
    refuses: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = KeepAlive(3_600.0, "x", oldest=86_400.0)

    async def read(_: Any, names: list[str]) -> dict[str, KeepAlive]:
        return {name: terms for name in names if name != "gone"}

    monkeypatch.setattr(cleaning, "read_keep_alives", read)
    brokers = Configs({"low": {"cleanup.policy": "compact", "min.compaction.lag.ms": "5"}, "plain": {}}, refuses)
    found: Any = brokers
    (done,) = await cleaning.raise_lags(found, ["low", "plain", "gone"], found)
    assert said in done
    assert await cleaning.raise_lags(found, ["plain"], found) == []
    assert await cleaning.raise_lags(found, [], found) == []


async def test_the_lag_is_raised_before_all_brokers_have_said_how_far(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of them may be silent for as long as a request may take."""
    terms: list[KeepAlive] = []

    async def read(_: Any, names: list[str]) -> dict[str, KeepAlive]:
        if not terms:
            raise CallTimeoutError("silent")
        return dict.fromkeys(names, terms[0])

    monkeypatch.setattr(cleaning, "read_keep_alives", read)
    brokers = Configs({"low": {"cleanup.policy": "compact", "min.compaction.lag.ms": "5"}})
    found: Any = brokers
    with pytest.raises(CallTimeoutError):
        await cleaning.raise_lags(found, ["low"], found)
    assert brokers.raised == [("low", "min.compaction.lag.ms", str(LAG_MS))]
    terms.append(KeepAlive(3_600.0, "x", oldest=3 * 86_400.0))
    brokers.raised.clear()
    (done,) = await cleaning.raise_lags(found, ["low"], found)
    assert [value for _, _, value in brokers.raised] == [str(LAG_MS), str(cleaning.needed(terms[0]))]
    assert f"to {cleaning.needed(terms[0])}" in done
