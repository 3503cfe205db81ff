"""All governed topics of a node: what policies, heartbeats, deletions and a shutdown do to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import metadata
from metadata.ownership import AccessMode
from sidecar.changelog import MASTER_SLOT, Key, Kind, Record, SlotName, claim_key, partition_slot
from sidecar.cluster.nodes import NodeAddress, Placement
from sidecar.cluster.resolver import NameResolver, TopicKind
from sidecar.exclusive.governed_topics import GovernedTopics
from sidecar.exclusive.owning import TopicClaim, TopicOwners
from sidecar.exclusive.partitions import PartitionedTopic
from sidecar.fencing.expiry import DEFAULT_KEEP_ALIVE
from sidecar.fencing.slot import transactional_id
from sidecar.policy.policies import PolicyFields, Scope
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.calls.transactions import InitProducerId
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp
from sidecar.protocol.session import Caller
from sidecar.takeover.slots import SlotScope
from sidecar.v1 import control_pb2 as control
from sidecar.v1 import state_pb2 as records
from tests.sim.host import Host
from tests.sim.loop import SimLoop
from tests.unit.exclusive.paper_cluster import GRACE_S, TOPIC, Client, Cluster, Node, PaperEnvironment, boot, cluster
from tests.wait import wait_until

EXCLUSIVE = PolicyFields(AccessMode.EXCLUSIVE)
BY_PARTITION = PolicyFields(AccessMode.EXCLUSIVE, scope=Scope.PARTITION)


def room(paper: Cluster) -> tuple[Node, GovernedTopics]:
    """A node with its whole room, which has read the ownership topic."""
    node = paper.node()
    changelog: Any = node.changelog

    def subscribe(listener: Any, *kinds: Kind) -> Any:
        changelog.changed = lambda change: listener(change) if change.key.kind in kinds else None  # pyright: ignore[reportUnknownLambdaType]
        return lambda: setattr(changelog, "changed", lambda _: None)  # pyright: ignore[reportUnknownLambdaType]

    changelog.subscribe = subscribe
    forwarder: Any = node
    hooks: Any = node.hooks
    node.env = PaperEnvironment(
        node.env.services, forwarder, node.tasks, hooks, NameResolver(), node.nodes,
        reconnect_grace=GRACE_S, disconnect_grace=0.0, queue_limit=3,
    )  # fmt: skip
    governed = GovernedTopics(node.env)
    governed.start()
    return node, governed


def writes(paper: Cluster, *nodes: Node, name: str = TOPIC, policy: PolicyFields | None = EXCLUSIVE) -> None:
    """A policy is in the log (None: it is deleted), and these nodes have read it."""
    record = None if policy is None else policy.to_record(1, 0)
    paper.kafka.append_records([Record(Key(Kind.POLICY, name), record).encode()])
    for node in nodes:
        node.read()


@asynccontextmanager
async def owned() -> AsyncIterator[tuple[Cluster, Node, GovernedTopics, Client]]:
    """A node at which a client owns the topic."""
    async with cluster() as paper:
        node, governed = room(paper)
        writes(paper, node)
        node.topic = governed.topic(TOPIC)
        owner = Client(7)
        assert await owner.send(node, 1) == 0
        yield paper, node, governed, owner


async def live(paper: Cluster, node: int = 1) -> Any:
    return (await paper.redis.heartbeat(metadata.Node(node, boot(node), "node", 9092))).live


async def test_a_policy_governs_its_topics_until_it_is_deleted() -> None:
    async with owned() as (paper, node, governed, owner):
        changes: list[tuple[str, int | None]] = []
        governed.env.watchers.append(lambda *change: changes.append(change))
        assert governed.env.resolver.kind(TOPIC.encode()) is TopicKind.GOVERNED
        assert (governed.known_topics(), governed.served_topics(), governed.serves(TOPIC)) == ([TOPIC], [TOPIC], True)
        assert [record.session for record in governed.owned()] == ["pid:7"]
        assert governed.whole(TOPIC) is node.topic
        writes(paper, node, policy=None)
        assert (governed.known_topics(), governed.served_topics(), governed.serves(TOPIC)) == ([], [], False)
        assert governed.env.resolver.kind(TOPIC.encode()) is TopicKind.ORDINARY
        assert (TOPIC, None) in changes
        assert node.topic.is_dropped
        await wait_until(lambda: not node.topic.serving, "it serves it no more")
        assert await owner.send(node, 2) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert governed.owned() == []


async def test_a_policy_that_changes_leaves_the_owner_unless_the_scope_does() -> None:
    async with owned() as (paper, node, governed, owner):
        first = governed.topic(TOPIC)
        writes(paper, node, policy=PolicyFields(AccessMode.EXCLUSIVE, exclusive_reader=True))
        assert governed.topic(TOPIC) is first
        assert await owner.send(node, 2) == 0
        changes: list[tuple[str, int | None]] = []
        governed.env.watchers.append(lambda *change: changes.append(change))
        writes(paper, node, policy=BY_PARTITION)
        found = governed.topic(TOPIC)
        assert isinstance(found, PartitionedTopic)
        assert (found.serving, governed.whole(TOPIC), (TOPIC, None) in changes) == (True, None, True)
        await wait_until(lambda: not first.serving, "the former state is handed back")
        node.topic = found
        assert await Client(8).send(node, 3, partition=1) == 0


async def test_a_node_begins_with_what_the_log_says() -> None:
    async with owned() as (paper, _node, _governed, _owner):
        other, later = room(paper)
        paper.move(other)
        assert later.known_topics() == [TOPIC]
        assert later.serves(TOPIC) is False
        other.topic = later.topics.named[TOPIC]
        assert await Client(8).send(other, 2) != 0, "its owner may come back"
        other.env.late = GRACE_S
        assert await Client(8).send(other, 2) == 0


async def test_a_topic_that_another_node_serves_by_a_heartbeat_is_handed_back() -> None:
    async with owned() as (paper, node, governed, _owner):
        other, _later = room(paper)
        governed.heard(await live(paper), {TOPIC, "unknown"} - {TOPIC})
        assert governed.serves(TOPIC)
        paper.move(other)
        governed.heard(await live(paper), {TOPIC, "unknown"})
        assert not governed.serves(TOPIC)
        await wait_until(lambda: node.whole.writer.epoch is None, "it writes no more")
        assert governed.owned() == []


async def test_fences_are_kept_of_topics_that_are_served_and_of_those_that_nobody_serves() -> None:
    async with owned() as (paper, node, governed, _owner):
        assert [topic.name for topic in governed.kept_topics()] == [TOPIC]
        other, later = room(paper)
        later.heard(await live(paper, other.number), set())
        assert later.kept_topics() == [], "another node serves it"
        node.read()
        paper.redis.move(None)
        other.env.late += 60
        later.heard(await live(paper, other.number), set())
        other.learn_of()
        assert [topic.name for topic in later.kept_topics()] == [TOPIC]
        assert not later.serves(TOPIC)
        later.assume(DEFAULT_KEEP_ALIVE)
        assert all(topic.upkeep.terms == DEFAULT_KEEP_ALIVE for topic in later.kept_topics())
        later.env.draining = True
        assert later.kept_topics() == []


async def test_metrics_of_a_topic_that_kafka_does_not_know_are_freed_and_begin_again() -> None:
    async with owned() as (_paper, node, governed, _owner):
        reports = len(node.reports("owner_changed"))
        governed.gone({"gone"})
        assert node.reports("topic_forgotten") == [("gone",)]
        assert len(node.reports("owner_changed")) == reports + 1, "others are reported again"
        governed.gone({"gone"})
        assert len(node.reports("owner_changed")) == reports + 1
        governed.gone({TOPIC})
        assert len(node.reports("owner_changed")) == reports + 1
        governed.gone(set())
        assert len(node.reports("owner_changed")) == reports + 2


@pytest.mark.parametrize("how", ["serving", "idle", "a client waits"])
async def test_a_topic_that_its_node_has_forgotten_is_forgotten_by_others(how: str) -> None:
    async with owned() as (paper, node, _governed, owner):
        other, later = room(paper)
        found = later.topic(TOPIC)
        node.whole.reopen()
        assert await owner.send(node, 2) == 0
        assert later.env.bindings.check(Client(7).session, Caller("User:app", "stranger")) is not None
        if how == "serving":
            found.serving = True
        elif how == "a client waits":
            waiting = replace(Client(9, AccessMode.WAIT_FOR_EXCLUSIVE).claimant, names_session=True)
            TopicOwners(later).keep_place(TopicClaim(TOPIC, None, waiting, "host", lambda: True), 1.0)
        record = Record(Key(Kind.SERVING, TOPIC, MASTER_SLOT), None)
        other.read()
        assert later.topic(TOPIC) is found
        serving = other.changelog.view.serving(TOPIC)
        assert serving is not None
        paper.kafka.append_records([record.encode()], Stamp(ProducerId(serving.value.producer_id), ProducerEpoch(9)))
        other.read()
        stranger = Caller("User:app", "stranger")
        assert later.env.bindings.check(Client(7).session, stranger) is None, "what was bound by it is free"
        assert (TOPIC in later.topics.named) is (how != "idle")
        assert other.reports("topic_forgotten") == ([(TOPIC,)] if how == "idle" else [])


async def test_a_node_that_drains_hands_all_back_and_hears_no_more() -> None:
    async with owned() as (paper, node, governed, owner):
        paper.kafka.holding = True
        sent = owner.offer(node, 2)
        draining = asyncio.create_task(governed.drain())
        await asyncio.sleep(0)
        assert (governed.env.draining, draining.done()) == (True, False), "a batch is in flight"
        paper.kafka.deliver()
        paper.kafka.holding = False
        await draining
        assert (await sent).error == 0
        assert governed.served_topics() == []
        assert await owner.send(node, 3) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        writes(paper, node, name="later")
        assert governed.known_topics() == [TOPIC], "it has unsubscribed"


async def test_limits_may_change_at_run_time() -> None:
    async with owned() as (_paper, node, governed, owner):
        governed.limit(disconnect_grace=GRACE_S, queue_limit=0)
        waiting = Client(8, AccessMode.WAIT_FOR_EXCLUSIVE)
        assert await waiting.send(node, 2) == ErrorCode.POLICY_VIOLATION, "the queue has no place"
        node.close(owner)
        await node.settled()
        assert node.whole.current is not None, "it may come back"


async def test_a_topic_that_is_placed_on_another_node_moves_there_unless_that_ends_a_session() -> None:
    async with owned() as (paper, node, governed, owner):
        other = paper.node()
        node.nodes.placement = Placement([NodeAddress(other.number, "node", 9092)])
        governed.heard(await live(paper), set())
        assert paper.redis.serving == {TOPIC: node.number}, "the set of nodes is new"
        await asyncio.sleep(2 * paper.redis.lease_ms / 1000)
        governed.heard(await live(paper), set())
        assert (governed.served_topics(), governed.env.rights.moving) == ([], {TOPIC})
        await wait_until(lambda: not governed.env.rights.moving, "the move")
        assert paper.redis.serving == {TOPIC: other.number}
        assert await owner.send(other, 2) == 0
        assert other.whole.generation == 1


async def test_at_most_sixteen_topics_move_at_once() -> None:
    async with owned() as (paper, node, governed, _):
        for number in range(20):
            governed.topic(f"t{number}").serving = True
        node.nodes.placement = Placement([NodeAddress(2, "node", 9092)])
        governed.heard(await live(paper), set())
        await asyncio.sleep(2 * paper.redis.lease_ms / 1000)
        governed.heard(await live(paper), set())
        assert len(governed.env.rights.moving) == 16
        await wait_until(lambda: not governed.env.rights.moving, "the moves")


async def test_a_plain_owner_stays_at_its_node() -> None:
    async with cluster() as paper:
        node, governed = room(paper)
        writes(paper, node)
        node.topic = governed.topic(TOPIC)
        assert await Client(-1).send(node, 1) == 0
        node.nodes.placement = Placement([NodeAddress(2, "node", 9092)])
        governed.heard(await live(paper), set())
        await asyncio.sleep(2 * paper.redis.lease_ms / 1000)
        governed.heard(await live(paper), set())
        assert (governed.served_topics(), governed.env.rights.moving) == ([TOPIC], set())


async def test_partitions_of_a_topic_without_a_policy_grant_nothing_any_more() -> None:
    async with cluster() as paper:
        node, governed = room(paper)
        writes(paper, node, policy=BY_PARTITION)
        node.topic = governed.topic(TOPIC)
        assert await Client(7).send(node, 1) == 0
        writes(paper, node, policy=None)
        claims = len(paper.redis.claims)
        assert await Client(8, AccessMode.EXCLUSIVE_WITH_FENCING).send(node, 2) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await wait_until(lambda: not node.topic.serving, "it serves it no more")
        for partition in (0, 1):
            late = Client(9, AccessMode.EXCLUSIVE_WITH_FENCING)
            assert await late.send(node, 3, partition=partition) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert len(paper.redis.claims) == claims


async def test_a_policy_that_a_client_made_is_held_once_for_all_partitions() -> None:
    async with cluster() as paper:
        node, governed = room(paper)
        writes(paper, node, policy=BY_PARTITION, name=f"{TOPIC[:1]}*")
        made = PolicyFields(AccessMode.EXCLUSIVE).to_record(2, 0, by_client=True)
        paper.kafka.append_records([Record(Key(Kind.POLICY, TOPIC), made).encode()])
        node.read()
        node.topic, opened = governed.topic(TOPIC), list[str]()

        async def opens(request: Any) -> None:
            if isinstance(request, InitProducerId):
                opened.append((request.transactional_id or "").removeprefix(transactional_id("paper", TOPIC)))

        paper.kafka.before = opens
        assert [await Client(7).send(node, 1, partition=partition) for partition in (0, 1)] == [0, 0]
        assert opened == ["", "/policy", "/p0", "/p1"]


@pytest.mark.parametrize(
    ("policy", "slot", "then"),
    [
        (EXCLUSIVE, MASTER_SLOT, None),
        (EXCLUSIVE, MASTER_SLOT, BY_PARTITION),
        (BY_PARTITION, MASTER_SLOT, None),
        (BY_PARTITION, partition_slot(0), None),
        (BY_PARTITION, partition_slot(0), EXCLUSIVE),
    ],
    ids=["topic", "topic, another scope", "all partitions", "partition", "partition, another scope"],
)
async def test_a_takeover_that_is_fenced_after_the_policy_was_lost_grants_nothing(
    policy: PolicyFields, slot: SlotName, then: PolicyFields | None
) -> None:
    async with cluster() as paper:
        node, governed = room(paper)
        writes(paper, node, policy=policy)
        node.topic = governed.topic(TOPIC)

        async def lose(request: Any) -> None:
            if isinstance(request, InitProducerId) and request.transactional_id == transactional_id(
                "paper", TOPIC, slot
            ):
                paper.kafka.before = None
                writes(paper, node, policy=then)

        paper.kafka.before = lose
        assert await Client(7).send(node, 1) == ErrorCode.LEADER_NOT_AVAILABLE
        assert paper.kafka.before is None
        await wait_until(lambda: node.reports("topic_forgotten"), "it is handed back")
        owned = [entry.value.session for entry in node.changelog.view.entries(Kind.OWNERSHIP)]
        assert (owned, [part.state.holder for part in node.topic.parts if part.state.holder]) == ([], [])
        assert paper.kafka.log().values == []


@pytest.mark.parametrize("policy", [EXCLUSIVE, BY_PARTITION], ids=["topic", "partition"])
async def test_owners_of_a_topic_that_loses_its_policy_are_fenced_and_released(policy: PolicyFields) -> None:
    async with cluster() as paper:
        node, governed = room(paper)
        writes(paper, node, policy=policy)
        first, node.topic = governed.topic(TOPIC), governed.topic(TOPIC)
        owner, partitions = Client(7), range(1 if policy == EXCLUSIVE else 2)
        assert [await owner.send(node, 1, partition=partition) for partition in partitions] == [0 for _ in partitions]
        paper.kafka.holding = True
        late = [owner.offer(node, 2, partition=partition) for partition in partitions]
        way, paper.kafka.under_way, paper.kafka.holding = paper.kafka.under_way, [], False
        paper.kafka.calls.clear()
        writes(paper, node, policy=None)
        await wait_until(lambda: not first.serving, "it serves it no more")
        slots = 1 if policy == EXCLUSIVE else 3
        assert paper.kafka.calls.count(InitProducerId) == slots, "each slot is fenced once, and no policy's writer"
        paper.kafka.under_way = way
        paper.kafka.deliver()
        assert {(await answered).error for answered in late} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
        assert [paper.kafka.log(partition).values for partition in partitions] == [[1] for _ in partitions]
        assert [part.state.holder for part in first.parts if part.state.holder is not None] == []
        writes(paper, node, policy=policy)
        node.topic = governed.topic(TOPIC)
        rival = Client(8)
        assert [await rival.send(node, 3, partition=partition) for partition in partitions] == [0 for _ in partitions]
        assert node.topic.generation == 2
        assert [record.session for record in governed.owned()] == ["pid:8" for _ in partitions]


async def test_partitions_are_handed_back_although_their_owners_cannot_be_removed() -> None:
    async with cluster() as paper:
        node, governed = room(paper)
        writes(paper, node, policy=BY_PARTITION)
        node.topic = governed.topic(TOPIC)
        assert await Client(7).send(node, 1) == 0

        async def fail(_: Any) -> None:
            raise UpstreamError("away")

        paper.kafka.before = fail
        writes(paper, node, policy=None)
        await wait_until(lambda: not node.topic.serving, "it serves it no more")
        paper.kafka.before = None
        assert [str(error) for _, error in node.reports("operation_failed")] == ["away"]


async def test_a_topic_whose_scope_changed_grants_nothing_beside_the_one_after_it() -> None:
    async with owned() as (paper, node, governed, _):
        before = node.topic
        writes(paper, node, policy=BY_PARTITION)
        assert governed.topic(TOPIC) is not before
        await wait_until(lambda: node.reports("topic_forgotten"), "it was handed back")
        claims = len(paper.redis.claims)
        assert await Client(8, AccessMode.EXCLUSIVE_WITH_FENCING).send(node, 2) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert len(paper.redis.claims) == claims


async def test_a_topic_that_is_being_taken_is_not_forgotten_although_one_broker_does_not_know_it() -> None:
    async with cluster() as paper:
        node, governed = room(paper)
        writes(paper, node)
        node.topic = first = governed.topic(TOPIC)
        sent = Client(7).offer(node, 1)
        governed.topics.missing(TOPIC.encode())
        assert governed.topic(TOPIC) is first
        assert (await sent).error == 0


async def test_a_topic_that_kafka_did_not_know_is_forgotten_unless_it_was_taken_since() -> None:
    async with cluster() as paper:
        node, governed = room(paper)
        writes(paper, node)
        node.topic = governed.topic(TOPIC)
        paper.kafka.count, partitions = 0, paper.kafka.count
        assert await Client(7).send(node, 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await node.settled()
        assert (governed.topics.named, node.reports("topic_forgotten")) == ({}, [(TOPIC,)])
        paper.kafka.count = partitions
        node.topic = governed.topic(TOPIC)
        node.whole.is_unknown = True  # a takeover before had met a broker that lags
        assert await Client(7).send(node, 1) == 0
        await node.settled()
        assert governed.topic(TOPIC) is node.topic


@pytest.mark.parametrize("kind", [Kind.CLAIM, Kind.OWNERSHIP])
async def test_a_client_with_the_first_producer_id_is_known_by_the_records_of_every_node(kind: Kind) -> None:
    key = Key(kind, TOPIC, MASTER_SLOT) if kind is Kind.OWNERSHIP else claim_key("", control.Resource(name="leader"))
    record = records.Ownership if kind is Kind.OWNERSHIP else records.Claim
    async with cluster() as paper:
        node, governed = room(paper)
        for number, session in enumerate(("pid:10", "pid:0")):
            writer = Stamp(ProducerId(5), ProducerEpoch(0))
            stored = Record(key, record(session=session, generation=1)).encode()
            assert not governed.producers.knows_first_id
            paper.kafka.append_records([stored], writer, number)
            node.read()
        assert governed.producers.knows_first_id
        assert room(paper)[1].producers.knows_first_id, "it has read it at its start"


async def test_a_node_that_starts_knows_who_was_deposed_and_who_binds_which_producer_id() -> None:
    async with owned() as (paper, node, _, owner):
        assert await Client(8, AccessMode.EXCLUSIVE_WITH_FENCING).send(node, 2) == 0
        later_node, later = room(paper)
        assert later.env.deposed.lost_by(owner.session) == (TOPIC, 2)
        assert later.env.deposed.lost_by(Client(8).session) is None
        assert later.env.bindings.check(Client(8).session, Caller("User:app", "stranger")) is not None
        assert later.topics.named[TOPIC].generation == 2, "an owner's grace begins now"
        assert not later.producers.knows_first_id
        assert later.env.at_ms(later.env.now() - 5.0) - later.env.wall_ms() == pytest.approx(-5_000, abs=100)
        key = Key(Kind.OWNERSHIP, TOPIC, partition_slot(0))
        later.env.deposed.note(key, records.Ownership(generation=3, deposed=[records.Deposed(session="pid:9")]))
        whole, one, other = SlotScope(TOPIC), SlotScope.of_partition(TOPIC, 0), SlotScope.of_partition(TOPIC, 1)
        nine = Client(9).session
        assert [later.env.deposed.has(each, nine) for each in (whole, one, other)] == [True, False, False]
        assert [later.env.deposed.has(each, owner.session) for each in (whole, one, other)] == [False, True, True]
        later.env.deposed.note(key, records.Ownership(generation=4))
        assert later.env.deposed.lost_by(nine) is None
        assert later.env.deposed.lost_by(owner.session) == (TOPIC, 2)
        assert set(later.env.deposed._found[TOPIC]) == {MASTER_SLOT}, "nothing is kept of another"
        later.env.deposed.note(Key(Kind.OWNERSHIP, TOPIC, MASTER_SLOT), None)
        assert later.env.deposed.lost_by(owner.session) is None
        assert later.env.deposed._found == {}
        assert later_node.holder is not None


async def test_the_session_of_the_first_producer_id_is_known_from_the_records_at_the_start() -> None:
    async with cluster() as paper:
        node, governed = room(paper)
        writes(paper, node)
        node.topic = governed.topic(TOPIC)
        assert not governed.producers.knows_first_id
        assert await Client(0).send(node, 1) == 0
        assert governed.producers.knows_first_id
        assert room(paper)[1].producers.knows_first_id


async def test_an_emptied_redis_gets_the_policies_again() -> None:
    async with owned() as (paper, _, governed, _owner):
        await governed.refill()
        assert set((await paper.redis.policies()).by_name) == {TOPIC}


async def test_a_topic_is_let_go_only_by_the_node_that_may_serve_it() -> None:
    async with owned() as (paper, _, governed, _owner):
        other, later = room(paper)
        assert not await later._let_go(TOPIC), "the other node serves it"
        paper.move(other)
        later.env.draining = True
        assert not await later._let_go(TOPIC), "it hands all back itself"
        later.env.draining = False
        assert await later._let_go(TOPIC)
        assert not later.topic(TOPIC).serving
        assert await governed._let_go(TOPIC), "it does not know yet that it may not"
        assert not await governed._let_go(TOPIC)


class PaperIds:
    """Sequence ids whose snapshots are due. `silent`: for so long nobody answers; `fails`: what is wrong with them."""

    def __init__(self, silent: float = 0.0, fails: Exception | None = None) -> None:
        self.silent, self.fails, self.is_due = silent, fails, True
        self.begun = self.saved = self.forgot = 0

    async def save_due(self) -> None:
        self.begun += 1
        if self.fails is not None:
            raise self.fails
        await asyncio.sleep(self.silent)
        self.saved += 1

    async def forget_gone(self) -> None:
        self.forgot += 1


async def keep_ids(seconds: float, *ids: PaperIds | None, serving: bool = True) -> None:
    """Snapshots are kept for some virtual seconds."""
    topics = {str(name): SimpleNamespace(name=str(name), ids=each, serving=serving) for name, each in enumerate(ids)}
    now = asyncio.get_running_loop().time
    governed: Any = SimpleNamespace(env=SimpleNamespace(now=now), topics=SimpleNamespace(named=topics))
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await GovernedTopics.keep_ids(governed)


def on_paper(work: Coroutine[Any, Any, None]) -> None:
    SimLoop().finish(work, Host("node"), 10_000)


def test_no_topic_waits_for_the_snapshots_of_one_whose_broker_is_silent() -> None:
    silent, other, quiet, passive = PaperIds(30.0), PaperIds(), PaperIds(), PaperIds()
    quiet.is_due = False
    on_paper(keep_ids(10.2, silent, other, quiet, None))
    assert (silent.begun, silent.saved, other.saved, quiet.begun) == (1, 0, 20, 0)
    on_paper(keep_ids(10.2, passive, serving=False))
    assert passive.begun == 0


def test_sessions_that_are_gone_are_forgotten_once_a_minute() -> None:
    ids = PaperIds()
    on_paper(keep_ids(130.2, ids))
    assert ids.forgot == 2


def test_snapshots_that_fail_without_a_reason_that_is_known_end_the_loop() -> None:
    """So that it is reported, and the node is not ready if that happens again and again."""
    with pytest.raises(ExceptionGroup, match="unhandled"):
        on_paper(keep_ids(10.0, PaperIds(fails=ValueError("no"))))
