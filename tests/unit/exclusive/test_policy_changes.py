"""How policies change: by whom, behind which generation, on all nodes or not at all. The catalog, the scripts and the
records are real.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from metadata import MetadataUnavailable
from metadata.errors import GenerationChanged
from metadata.ownership import AccessMode
from metadata.policies import ANY, Under
from sidecar.changelog import Key, Kind, Record, partition_slot
from sidecar.policy.catalog import PolicyCatalog, UnservedError, Wanted
from sidecar.policy.policies import PolicyBook, PolicyFields, Scope
from sidecar.protocol.caller import UnknownTopicError, UpstreamError
from sidecar.protocol.calls.admin import AlterTopicConfig, Outcome
from sidecar.protocol.calls.transactions import InitProducerId
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp
from sidecar.v1 import state_pb2 as state
from tests.sim.host import Host
from tests.sim.loop import SimLoop
from tests.unit.exclusive.paper_cluster import TOPIC, Client, Cluster, Node, cluster
from tests.unit.policy.test_catalog import live

SHARED, EXCLUSIVE = PolicyFields(AccessMode.SHARED), PolicyFields(AccessMode.EXCLUSIVE)
Story = Callable[[Cluster, Node, PolicyCatalog], Coroutine[Any, Any, None]]


def play(story: Story) -> None:
    """Play a story on a node without policies, in virtual time."""

    async def played() -> None:
        async with cluster() as paper:
            node = paper.node()
            node.env.catalog.book = PolicyBook({})
            await story(paper, node, node.env.catalog)

    SimLoop().finish(played(), Host("node"), 100)


def reported(node: Node) -> list[tuple[str, str, str, bool]]:
    """The events about policies: name, what it is now, by whom, whether it was deleted."""
    events = node.changelog.events
    return [(each.topic, each.detail, each.details.by, each.details.deleted) for each in events]


def test_a_change_is_merged_into_the_policy_and_written_for_all_nodes() -> None:
    async def story(paper: Cluster, node: Node, catalog: PolicyCatalog) -> None:
        changes = 0

        def changed() -> None:
            nonlocal changes
            changes += 1

        catalog.settings_changed = changed
        assert await catalog.set(TOPIC, SHARED, by="ann") == SHARED
        both = PolicyFields(AccessMode.SHARED, exclusive_reader=True)
        assert await catalog.set(TOPIC, PolicyFields(exclusive_reader=True)) == both
        assert await catalog.set("pay*", PolicyFields(scope=Scope.PARTITION)) == PolicyFields(scope=Scope.PARTITION)
        catalog.read()
        assert (catalog.book.exact(TOPIC), catalog.version, changes) == (both, 3, 0)
        other = paper.node()
        other.env.catalog.read()
        assert other.env.catalog.book.exact(TOPIC) == both
        assert other.env.catalog.book.exact("pay*") == PolicyFields(scope=Scope.PARTITION)
        assert catalog.by_clients == frozenset()
        await asyncio.sleep(0)
        assert reported(node)[:2] == [(TOPIC, SHARED.body(), "ann", False), (TOPIC, both.body(), "", False)]

    play(story)


def test_a_policy_is_deleted_once() -> None:
    async def story(paper: Cluster, node: Node, catalog: PolicyCatalog) -> None:
        assert not await catalog.delete(TOPIC)
        assert paper.kafka.calls == [], "nobody is fenced for nothing"
        await catalog.set(TOPIC, SHARED)
        catalog.read()
        assert not await catalog.delete(TOPIC, is_wanted=lambda: False)
        assert await catalog.delete(TOPIC, by="ann")
        catalog.read()
        assert (catalog.book.effective(TOPIC), await catalog.delete(TOPIC)) == (None, False)
        await asyncio.sleep(0)
        assert reported(node)[-1] == (TOPIC, "deleted", "ann", True)
        await catalog.set(TOPIC, SHARED)
        catalog.read()
        assert catalog.version == 3, "the version of a deleted policy is not given again"

    play(story)


def test_a_change_may_be_bound_to_the_generation_of_the_owner() -> None:
    async def story(paper: Cluster, node: Node, catalog: PolicyCatalog) -> None:
        await catalog.set(TOPIC, EXCLUSIVE)
        catalog.read()
        assert await Client(7).send(node, 1) == 0
        with pytest.raises(GenerationChanged):
            await catalog.set(TOPIC, SHARED, Wanted(frozenset({0, 2})))
        with pytest.raises(GenerationChanged):
            await catalog.delete(TOPIC, Wanted(frozenset({2})))
        assert catalog.read().exact(TOPIC) == EXCLUSIVE
        with pytest.raises(GenerationChanged):
            await catalog.set(TOPIC, SHARED, Wanted(frozenset({0}), partition=1))
        assert await catalog.set(TOPIC, SHARED, Wanted(frozenset({1}))) == SHARED

    play(story)


# Timestamps ---------------------------------------------------------------------------------------------------------


class Stamping:
    """Kafka's answers to a change of `message.timestamp.type`."""

    def __init__(self, paper: Cluster, *errors: int) -> None:
        self.kinds: list[str] = []
        self._errors, self._call = [*errors], paper.kafka.call
        vars(paper.kafka)["call"] = self.call

    async def call(self, broker: int | None, request: Any, **more: Any) -> Any:
        if not isinstance(request, AlterTopicConfig):
            return await self._call(broker, request, **more)
        assert (request.topic, request.name) == (TOPIC, "message.timestamp.type")
        self.kinds.append(request.value)
        return Outcome(self._errors.pop(0) if self._errors else 0, None)


def test_brokers_stamp_records_once_redis_has_decided() -> None:
    async def story(paper: Cluster, node: Node, catalog: PolicyCatalog) -> None:
        kafka, changes = Stamping(paper), list[str]()
        catalog.settings_changed = lambda: changes.append(kafka.kinds[-1])
        stamps = PolicyFields(log_append_time=True)
        for change in (SHARED, stamps, stamps, EXCLUSIVE, PolicyFields(log_append_time=False), SHARED):
            await catalog.set(TOPIC, change)
            catalog.read()
        assert kafka.kinds == ["LogAppendTime", "LogAppendTime", "CreateTime"], "it is repeated if it is asked for"
        assert changes == kafka.kinds
        with pytest.raises(UnservedError, match="not a prefix"):
            await catalog.set("ord*", stamps)

    play(story)


@pytest.mark.parametrize(("code", "error"), [(3, UnservedError), (29, KafkaError)])
def test_what_kafka_does_not_stamp_is_not_the_policy(code: int, error: type[Exception]) -> None:
    async def story(paper: Cluster, node: Node, catalog: PolicyCatalog) -> None:
        await catalog.set(TOPIC, SHARED)
        catalog.read()
        Stamping(paper, code)
        with pytest.raises(error):
            await catalog.set(TOPIC, PolicyFields(AccessMode.EXCLUSIVE, log_append_time=True))
        assert catalog.read().exact(TOPIC) == SHARED
        stored = await paper.redis.policies()
        assert PolicyFields.of_body(stored.by_name[TOPIC].body) == SHARED, "Redis has what it had before"

    play(story)


# Other nodes --------------------------------------------------------------------------------------------------------


def test_a_change_is_done_when_every_live_node_applies_it() -> None:
    async def story(paper: Cluster, node: Node, catalog: PolicyCatalog) -> None:
        behind: Any = SimpleNamespace(version=0)
        beats: list[float] = []

        async def beat() -> None:
            beats.append(asyncio.get_running_loop().time())
            catalog.heard(live(behind, position=-1 if len(beats) < 5 else 1_000))
            behind.version = 1_000

        catalog.beat = beat
        await catalog.set(TOPIC, SHARED)
        assert len(beats) == 5
        beats.clear()
        catalog.beat = beat

        async def silent() -> None:
            catalog.heard(live(behind, position=-1))

        catalog.beat = silent
        began = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError, match="does not apply the new policy"):
            await catalog.set(TOPIC, EXCLUSIVE, by="ann")
        assert asyncio.get_running_loop().time() - began >= 2, "two leases"
        assert catalog.read().exact(TOPIC) == EXCLUSIVE
        await asyncio.sleep(0)
        assert reported(node)[-1][2] == "ann", "it is made, and reported"

    play(story)


def test_a_change_that_another_node_fences_is_made_on_top() -> None:
    async def story(paper: Cluster, node: Node, catalog: PolicyCatalog) -> None:
        other = paper.node().env.catalog
        other.book = PolicyBook({})

        async def fences(request: Any) -> None:
            if isinstance(request, InitProducerId):
                return
            paper.kafka.before = None
            await other.set(TOPIC, PolicyFields(exclusive_reader=True))

        paper.kafka.before = fences
        merged = await catalog.set(TOPIC, SHARED)
        assert merged == PolicyFields(AccessMode.SHARED, exclusive_reader=True)

    play(story)


# Made by clients ----------------------------------------------------------------------------------------------------


def test_a_client_that_asks_for_a_mode_makes_a_policy_where_there_is_none() -> None:
    async def story(paper: Cluster, node: Node, catalog: PolicyCatalog) -> None:
        assert await catalog.govern(TOPIC) is None
        assert (catalog.read().exact(TOPIC), catalog.by_clients) == (SHARED, {TOPIC})
        await asyncio.sleep(0)
        assert reported(node) == [(TOPIC, SHARED.body(), "a client that asks for a mode", False)]
        assert await catalog.govern(TOPIC) is None
        assert len([*catalog.book.topics]) == 1
        await catalog.set(TOPIC, EXCLUSIVE)
        assert (catalog.read().exact(TOPIC), catalog.by_clients) == (EXCLUSIVE, frozenset())
        internal = await catalog.govern("__internal")
        assert internal is not None
        assert (internal.code, "cannot be governed" in internal.message) == (ErrorCode.POLICY_VIOLATION, True)

    play(story)


def test_two_nodes_make_one_policy_and_a_dead_ones_is_finished() -> None:
    async def story(paper: Cluster, node: Node, catalog: PolicyCatalog) -> None:
        await paper.redis.set_policy(TOPIC, SHARED.body(by_client=True), catalog._known(), b"t" * 16, only_new=True)
        refused = await catalog.govern(TOPIC)
        assert refused is not None
        assert (refused.code, "not settled yet" in refused.message) == (ErrorCode.LEADER_NOT_AVAILABLE, True)
        assert catalog.read().effective(TOPIC) is None, "the node that decided it may still write it"
        await asyncio.sleep(1.5)
        assert (await catalog.govern(TOPIC)) is not None
        assert catalog.read().exact(TOPIC) == SHARED
        assert catalog.by_clients == {TOPIC}
        assert await catalog.govern(TOPIC) is None

    play(story)


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        ("redis", ErrorCode.LEADER_NOT_AVAILABLE),
        (UnknownTopicError(TOPIC), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (UpstreamError("away"), ErrorCode.LEADER_NOT_AVAILABLE),
    ],
)
def test_a_topic_that_cannot_become_governed_now_says_why(failure: Any, code: int) -> None:
    async def story(paper: Cluster, node: Node, catalog: PolicyCatalog) -> None:
        async def layout(*_: Any, **__: Any) -> Any:
            raise failure

        if failure == "redis":
            paper.redis.is_away = True
        else:
            vars(paper.kafka)["layout"] = layout
        error = await catalog.govern(TOPIC)
        assert error is not None
        assert error.code == code
        assert catalog.book.effective(TOPIC) is None

    play(story)


def test_an_emptied_redis_gets_the_policies_back() -> None:
    async def story(paper: Cluster, node: Node, catalog: PolicyCatalog) -> None:
        record = PolicyFields(AccessMode.EXCLUSIVE).to_record(7, 0)
        paper.kafka.append_records([Record(Key(Kind.POLICY, TOPIC), record).encode()])
        node.read()
        catalog.read()
        await catalog.refill()
        stored = await paper.redis.policies()
        assert (stored.version, PolicyFields.of_body(stored.by_name[TOPIC].body)) == (7, EXCLUSIVE)
        paper.redis.is_away = True
        await catalog.refill()
        with pytest.raises(MetadataUnavailable):
            await catalog.set(TOPIC, SHARED)

    play(story)


def test_a_topic_is_held_behind_its_fence_only_while_it_has_a_policy() -> None:
    async def story(paper: Cluster, node: Node, catalog: PolicyCatalog) -> None:
        with pytest.raises(KafkaError, match="no policy any more"):
            await catalog.hold(TOPIC)
        await catalog.set(TOPIC, SHARED)
        catalog.read()
        paper.kafka.calls.clear()
        await catalog.hold(TOPIC)
        assert paper.kafka.calls == [], "an operator's policy needs no look"
        await catalog.delete(TOPIC)
        catalog.read()
        assert await catalog.govern(TOPIC) is None
        catalog.read()
        paper.kafka.calls.clear()
        await catalog.hold(TOPIC)
        assert paper.kafka.calls, "a deletion that began before is fenced"

    play(story)


# What another node has decided --------------------------------------------------------------------------------------


def decided(paper: Cluster, catalog: PolicyCatalog, policy: PolicyFields, *, by_client: bool = False) -> Any:
    """Redis has a policy that no node has written down."""
    body = policy.body(by_client=by_client)
    return paper.redis.set_policy(TOPIC, body, catalog._known(), b"t" * 16, only_new=True)


@pytest.mark.parametrize("by_client", [False, True])
def test_a_dead_nodes_decision_is_written_down_as_it_was_made_but_for_kafkas_setting(by_client: bool) -> None:
    async def story(paper: Cluster, node: Node, catalog: PolicyCatalog) -> None:
        wanted = PolicyFields(AccessMode.EXCLUSIVE, log_append_time=True)
        await decided(paper, catalog, wanted, by_client=by_client)
        assert await catalog.govern(TOPIC) is not None
        await asyncio.sleep(10.9)
        assert await catalog.govern(TOPIC) is not None
        assert catalog.read().exact(TOPIC) is None, "its node may still ask Kafka"
        await asyncio.sleep(0.2)
        assert await catalog.govern(TOPIC) is not None
        assert catalog.read().exact(TOPIC) == EXCLUSIVE, "brokers were not asked to set times"
        assert catalog.by_clients == ({TOPIC} if by_client else frozenset())
        assert catalog._undone == {}
        stored = await paper.redis.policies()
        assert PolicyFields.of_body(stored.by_name[TOPIC].body) == EXCLUSIVE
        await asyncio.sleep(0)
        assert reported(node) == [(TOPIC, EXCLUSIVE.body(), "", False)]
        assert await catalog.govern(TOPIC) is None

    play(story)


def test_a_newer_decision_is_left_to_its_node_anew() -> None:
    async def story(paper: Cluster, node: Node, catalog: PolicyCatalog) -> None:
        await decided(paper, catalog, SHARED)
        assert await catalog.govern(TOPIC) is not None
        await asyncio.sleep(0.9)
        await paper.redis.set_policy(TOPIC, EXCLUSIVE.body(), catalog._known(), b"u" * 16)
        await asyncio.sleep(0.9)
        assert await catalog.govern(TOPIC) is not None
        await asyncio.sleep(0.9)
        assert await catalog.govern(TOPIC) is not None
        assert catalog.read().exact(TOPIC) is None
        await asyncio.sleep(0.2)
        assert await catalog.govern(TOPIC) is not None
        assert catalog.read().exact(TOPIC) == EXCLUSIVE

    play(story)


def test_a_decision_that_its_node_wrote_down_meanwhile_is_left_alone() -> None:
    async def story(paper: Cluster, node: Node, catalog: PolicyCatalog) -> None:
        other = paper.node()
        other.env.catalog.book = PolicyBook({})
        await decided(paper, catalog, SHARED)
        assert await catalog.govern(TOPIC) is not None
        await asyncio.sleep(1.1)
        record = EXCLUSIVE.to_record(2, 0)
        paper.kafka.append_records([Record(Key(Kind.POLICY, TOPIC), record).encode()])
        seen = node.changelog.seen

        async def read_with_the_fence(*about: Any, **more: Any) -> None:
            await seen(*about, **more)
            catalog.read()

        vars(node.changelog)["seen"] = read_with_the_fence
        assert await catalog.govern(TOPIC) is not None
        assert (catalog.book.exact(TOPIC), catalog.by_clients) == (EXCLUSIVE, frozenset())
        assert await catalog.govern(TOPIC) is None

    play(story)


def test_only_one_of_two_nodes_makes_a_clients_policy() -> None:
    async def story(paper: Cluster, node: Node, catalog: PolicyCatalog) -> None:
        policies = paper.redis.policies

        async def before_the_other(*_: Any) -> Any:
            found = await policies()
            await decided(paper, catalog, EXCLUSIVE)
            return found

        vars(paper.redis)["policies"] = before_the_other
        error = await catalog.govern(TOPIC)
        assert error is not None
        assert (error.code, "not settled yet" in error.message) == (ErrorCode.LEADER_NOT_AVAILABLE, True)
        assert catalog.read().exact(TOPIC) is None
        assert catalog._undone == {}

    play(story)


def test_a_policy_of_a_prefix_or_an_operator_that_redis_has_keeps_a_client_from_making_one() -> None:
    async def story(paper: Cluster, node: Node, catalog: PolicyCatalog) -> None:
        await paper.redis.set_policy("ord*", SHARED.body(), catalog._known(), b"t" * 16, only_new=True)
        await paper.redis.set_policy("pay*", SHARED.body(), catalog._known(), b"u" * 16, only_new=True)
        assert await catalog.govern(TOPIC) is not None
        assert set(catalog._undone) == {"ord*"}
        assert set((await paper.redis.policies()).by_name) == {"ord*", "pay*"}
        await asyncio.sleep(1.1)
        assert await catalog.govern(TOPIC) is not None
        assert catalog.read().exact("ord*") == SHARED
        assert await catalog.govern(TOPIC) is None

    play(story)


def test_redis_compares_the_generations_of_all_slots_that_a_change_concerns() -> None:
    async def story(paper: Cluster, node: Node, catalog: PolicyCatalog) -> None:
        for partition in (0, 1):
            key = partition_slot(partition)
            opened, owner = state.Serving(generation=3 + partition), state.Ownership(generation=3 + partition)
            records = [Record(Key(Kind.SERVING, TOPIC, key), opened), Record(Key(Kind.OWNERSHIP, TOPIC, key), owner)]
            writer = Stamp(ProducerId(900 + partition), ProducerEpoch(0))
            paper.kafka.append_records([record.encode() for record in records], writer)
        assert await catalog._under(TOPIC, None) is ANY
        whole = await catalog._under(TOPIC, Wanted(frozenset({4})))
        assert whole == Under(frozenset({4}), 4, (TOPIC, f"{TOPIC}/p0", f"{TOPIC}/p1"))
        one = await catalog._under(TOPIC, Wanted(frozenset({3}), partition=0))
        assert one == Under(frozenset({3}), 3, (f"{TOPIC}/p0",))

    play(story)
