"""A topic whose partitions have their own owners: what one partition's owner does, or loses, is no other's matter."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from metadata.ownership import AccessMode
from sidecar.exclusive.partitions import PartitionedTopic
from sidecar.policy.policies import PolicyBook, PolicyFields, Scope
from sidecar.protocol.calls.transactions import EndTxn, InitProducerId
from tests.unit.exclusive.paper_cluster import GRACE_S, TOPIC, Client, Cluster, Node, cluster

NOT_THERE, BUSY, MOVED, TIMED_OUT = 3, 5, 6, 7
POLICY_VIOLATION, REPEAT, STALE, DEPOSED = 44, 46, 47, 90
FENCING = AccessMode.EXCLUSIVE_WITH_FENCING


async def two(paper: Cluster) -> tuple[Node, Client, Client]:
    """A node, and two clients that own partitions 0 and 1 and have written 1 and 2."""
    node, first, second = paper.node(scope=Scope.PARTITION), Client(7), Client(8)
    assert [await first.send(node, 1), await second.send(node, 2, partition=1)] == [0, 0]
    return node, first, second


def topic_of(node: Node) -> PartitionedTopic:
    assert isinstance(node.topic, PartitionedTopic)
    return node.topic


def owners(node: Node) -> dict[int, str | None]:
    """The owner's session, by partition."""
    holders = {part.scope.partition or 0: part.state.holder for part in topic_of(node).parts}
    return {index: holder.session if holder is not None else None for index, holder in holders.items()}


async def test_each_partition_has_its_own_owner() -> None:
    async with cluster() as paper:
        node, first, second = await two(paper)
        assert await first.send(node, 3, partition=1) == POLICY_VIOLATION
        assert await second.send(node, 4, partition=0) == POLICY_VIOLATION
        assert [await first.send(node, 5), await second.send(node, 6, partition=1)] == [0, 0]
        assert (paper.kafka.log(0).values, paper.kafka.log(1).values) == ([1, 5], [2, 6])
        assert owners(node) == {0: "pid:7", 1: "pid:8"}
        assert {claim.resource for claim in paper.redis.claims} == {f"{TOPIC}/p0", f"{TOPIC}/p1"}
        assert sorted(owned.resource for owned in node.topic.as_owned()) == [f"{TOPIC}/p0", f"{TOPIC}/p1"]


async def test_one_session_may_own_several_partitions() -> None:
    async with cluster() as paper:
        node, owner = paper.node(scope=Scope.PARTITION), Client(7)
        assert [await owner.send(node, partition, partition=partition) for partition in (0, 1)] == [0, 0]
        assert owners(node) == {0: "pid:7", 1: "pid:7"}
        node.close(owner)
        await node.settled()
        assert owners(node) == {0: None, 1: None}
        assert [await Client(8).send(node, 3), await Client(9).send(node, 4, partition=1)] == [0, 0]


async def test_a_takeover_of_one_partition_deposes_nobody_of_another() -> None:
    async with cluster() as paper:
        node, first, second = await two(paper)
        paper.kafka.holding = True
        late = [first.offer(node, 3), second.offer(node, 4, partition=1)]
        way, paper.kafka.under_way, paper.kafka.holding = paper.kafka.under_way, [], False
        assert await Client(9, FENCING).send(node, 5) == 0
        paper.kafka.under_way = way
        paper.kafka.deliver()
        assert [(await answered).error for answered in late] == [MOVED, 0]
        assert [await first.send(node, 6), await second.send(node, 7, partition=1)] == [DEPOSED, 0]
        assert (paper.kafka.log(0).values, paper.kafka.log(1).values) == ([1, 5], [2, 4, 7])
        assert topic_of(node).generation == 2


@pytest.mark.parametrize("partition", [0, 1])
async def test_a_node_that_takes_the_topic_fences_every_partitions_slot(partition: int) -> None:
    async with cluster() as paper:
        node, first, second = await two(paper)
        other = paper.node(scope=Scope.PARTITION)
        paper.move(other)
        assert owners(other) == {0: "pid:7", 1: "pid:8"}
        back = Client(7 if partition == 0 else 8)
        assert await back.send(other, 3, partition=partition, sequence=1) == 0
        assert [await first.send(node, 4), await second.send(node, 5, partition=1)] == [MOVED, MOVED]
        logs = [paper.kafka.log(0).values, paper.kafka.log(1).values]
        assert logs == [[1, 3], [2]] if partition == 0 else [[1], [2, 3]]
        assert topic_of(other).of(partition).generation == 1


async def test_the_owner_of_a_partition_may_come_back_to_another_node() -> None:
    async with cluster() as paper:
        await two(paper)
        other = paper.node(scope=Scope.PARTITION)
        paper.move(other)
        assert await Client(9).send(other, 3) == TIMED_OUT
        assert await Client(7).send(other, 1, sequence=0) == REPEAT
        other.env.late = GRACE_S
        assert await Client(9).send(other, 3, partition=1) == 0
        assert paper.kafka.log(1).values == [2, 3]


@pytest.mark.parametrize(
    ("partition", "added", "code"), [(2, 1, 0), (2, 0, NOT_THERE), (-1, 0, NOT_THERE), (2_000_000, 0, NOT_THERE)]
)
async def test_a_partition_outside_the_fence(partition: int, added: int, code: int) -> None:
    async with cluster() as paper:
        node, first, second = await two(paper)
        paper.kafka.count += added
        assert await Client(9).send(node, 3, partition=partition) == code
        assert owners(node) == {0: "pid:7", 1: "pid:8"} | ({2: "pid:9"} if added else {})
        after = MOVED if added else 0
        assert [await first.send(node, 4), await second.send(node, 5, partition=1)] == [after, after]
        await node.settled()
        again = [first.send(node, 4, sequence=1), second.send(node, 5, partition=1, sequence=1)]
        assert [await answered for answered in again] == [0, 0]
        assert (paper.kafka.log(0).values, paper.kafka.log(1).values) == ([1, 4], [2, 5])
        assert paper.kafka.log(2).values == [3] * added


async def test_a_partition_that_nobody_got_is_forgotten() -> None:
    async with cluster() as paper:
        node = paper.node(scope=Scope.PARTITION)
        assert await Client(7, AccessMode.SHARED).send(node, 1) == POLICY_VIOLATION
        assert owners(node) == {}
        paper.redis.is_away = True
        assert await Client(7).send(node, 1) == BUSY
        await node.settled()
        assert owners(node) == {}


async def test_a_partition_with_a_queue_is_kept() -> None:
    async with cluster() as paper:
        node, first, _ = await two(paper)
        waiting = Client(9, AccessMode.WAIT_FOR_EXCLUSIVE)
        assert await waiting.send(node, 3, sequence=0) == TIMED_OUT
        node.close(first)
        await node.settled()
        assert await Client(10).send(node, 4) == POLICY_VIOLATION
        assert await waiting.send(node, 3, sequence=0) == 0


async def test_sessions_do_not_share_a_partition() -> None:
    async with cluster() as paper:
        node = paper.node(AccessMode.SHARED, Scope.PARTITION)
        answer = await Client(7).offer(node, 1)
        assert (answer.error, "one owner each" in (answer.message or "")) == (POLICY_VIOLATION, True)
        assert await Client(8, AccessMode.EXCLUSIVE).send(node, 2) == 0


async def test_an_administrator_names_a_partition_that_has_an_owner() -> None:
    async with cluster() as paper:
        node, first, second = await two(paper)
        with pytest.raises(ValueError, match="say which one"):
            await node.topic.administer(None, fence=True)
        with pytest.raises(LookupError):
            await node.topic.administer(5, fence=True)
        with pytest.raises(LookupError):
            await node.topic.know_ids(1.0)
        assert (await node.topic.administer(0, fence=True)).session == "pid:7"
        assert [await first.send(node, 3), await second.send(node, 4, partition=1)] == [DEPOSED, 0]


async def test_the_fences_of_all_slots_are_renewed_at_their_epochs() -> None:
    async with cluster() as paper:
        node, first, second = await two(paper)
        paper.kafka.calls.clear()
        fenced_at = node.topic.upkeep.fenced_at
        await node.topic.keep_alive()
        assert node.topic.upkeep.fenced_at > fenced_at
        assert paper.kafka.calls.count(EndTxn) >= 3
        assert InitProducerId not in paper.kafka.calls
        assert [await first.send(node, 3), await second.send(node, 4, partition=1)] == [0, 0]


async def test_a_master_slot_that_is_taken_during_its_renewal_is_not_taken_again() -> None:
    async with cluster() as paper:
        node, _, _ = await two(paper)

        async def grow(request: object) -> None:
            paper.kafka.before = None
            paper.kafka.count += 1
            assert await Client(9).send(node, 3, partition=2) == 0

        paper.kafka.before = grow
        paper.kafka.calls.clear()
        await node.topic.keep_alive()
        assert paper.kafka.calls.count(InitProducerId) == 4, "of all three slots, and of the one that is taken"


async def test_a_topic_that_is_handed_back_during_its_renewal_stays_so() -> None:
    async with cluster() as paper:
        node, _, _ = await two(paper)
        is_taking, goes_on = asyncio.Event(), asyncio.Event()

        async def hold(request: object) -> None:
            paper.kafka.before = None
            is_taking.set()
            await goes_on.wait()

        topic_of(node).fence_wanted()
        paper.kafka.before = hold
        renewed = node.tasks.start(node.topic.keep_alive())
        await is_taking.wait()
        handed_back = node.tasks.start(node.topic.hand_back())
        await asyncio.sleep(0)
        goes_on.set()
        await asyncio.gather(renewed, handed_back)
        assert not node.topic.serving
        paper.kafka.calls.clear()
        assert await Client(7).send(node, 3, sequence=1) == 0
        assert paper.kafka.calls.count(InitProducerId) == 4, "of all three slots, and of the one that is taken"


async def test_slots_of_owners_that_did_not_come_back_are_renewed_too() -> None:
    async with cluster() as paper:
        await two(paper)
        other = paper.node(scope=Scope.PARTITION)
        paper.move(other)
        assert await Client(7).send(other, 3, sequence=1) == 0
        marks = len(paper.kafka.log(1).log)
        await other.topic.keep_alive()
        assert len(paper.kafka.log(1).log) == marks + 2, (
            "the master slot's marker, and that of the slot without an owner"
        )
        assert await Client(8).send(other, 4, partition=1, sequence=1) == 0
        marks = len(paper.kafka.log(1).log)
        await other.topic.keep_alive()
        assert len(paper.kafka.log(1).log) == marks + 2


async def test_a_topic_whose_fence_was_lost_is_fenced_again_before_a_partition_is_taken() -> None:
    async with cluster() as paper:
        node, _, _ = await two(paper)
        topic_of(node).fence_wanted()
        paper.kafka.calls.clear()
        assert await Client(7).send(node, 3, sequence=1) == 0
        assert paper.kafka.calls.count(InitProducerId) == 4, "of all three slots, and of the one that is taken"


async def test_a_node_that_lost_the_topic_takes_no_partition_and_renews_nothing() -> None:
    async with cluster() as paper:
        node, _, _ = await two(paper)
        other = paper.node(scope=Scope.PARTITION)
        paper.move(other)
        assert await Client(7).send(other, 3, sequence=1) == 0
        marks = len(paper.kafka.log().log)
        await node.topic.keep_alive()
        await node.settled()
        assert len(paper.kafka.log().log) == marks
        assert await Client(9, FENCING).send(node, 4, partition=1) == MOVED
        assert await Client(7).send(other, 5, sequence=2) == 0


async def test_a_node_that_hands_the_topic_back_has_no_partition_any_more() -> None:
    async with cluster() as paper:
        node, first, second = await two(paper)
        assert node.topic.may_move
        await node.topic.hand_back()
        assert not node.topic.serving
        assert node.reports("topic_forgotten") == [(TOPIC,)]
        assert [part.has_slot for part in node.topic.parts] == [False, False]
        assert node.topic.as_owned() == []
        paper.move(paper.node(scope=Scope.PARTITION))
        assert [await first.send(node, 3), await second.send(node, 4, partition=1)] == [MOVED, MOVED]


async def test_a_plain_owner_of_one_partition_holds_the_topic_on_its_node() -> None:
    async with cluster() as paper:
        node, _, _ = await two(paper)
        plain = Client(-1, FENCING)
        assert await plain.send(node, 3) == 0
        assert not node.topic.may_move


async def test_a_record_of_another_node_shows_who_owns_a_partition_now() -> None:
    async with cluster() as paper:
        _, _, second = await two(paper)
        other = paper.node(scope=Scope.PARTITION)
        assert await second.send(paper.nodes[0], 3, partition=1) == 0
        assert await Client(9, FENCING).send(paper.nodes[0], 4) == 0
        other.read()
        assert owners(other) == {0: "pid:9", 1: "pid:8"}
        other.topic.served_elsewhere()
        other.env.late = GRACE_S - 1
        assert topic_of(other).of(0).current is not None


async def test_a_serving_node_does_not_follow_the_record_of_another_until_kafka_refuses_it() -> None:
    async with cluster() as paper:
        node, _, _ = await two(paper)
        other = paper.node(scope=Scope.PARTITION)
        paper.move(other)
        assert await Client(9, FENCING).send(other, 3) == 0
        node.read()
        assert owners(node) == {0: "pid:7", 1: "pid:8"}


async def test_a_record_of_the_whole_topic_is_no_partitions() -> None:
    async with cluster() as paper:
        node, whole = paper.node(scope=Scope.PARTITION), paper.node()
        assert await Client(7).send(whole, 1) == 0
        node.read()
        assert owners(node) == {}


async def test_a_partitions_slot_is_fenced_on_its_partition_alone() -> None:
    async with cluster() as paper:
        await two(paper)
        slots = [next(batch.producer_id for batch in paper.kafka.log(index).log if batch.values) for index in (0, 1)]
        other = paper.node(scope=Scope.PARTITION)
        paper.move(other)
        assert await Client(7).send(other, 3, sequence=1) == 0
        await other.topic.keep_alive()
        assert slots[1] not in paper.kafka.log(0).remembered()
        assert slots[0] not in paper.kafka.log(1).remembered()


async def test_a_policy_that_changes_while_the_master_slot_is_taken_ends_that() -> None:
    async with cluster() as paper:
        node = paper.node(scope=Scope.PARTITION)

        async def change(request: object) -> None:
            paper.kafka.before = None
            policy = PolicyFields(AccessMode.EXCLUSIVE, deduplication=True, scope=Scope.PARTITION)
            node.env.catalog.book = PolicyBook({TOPIC: policy})
            node.topic.policy_changed()

        paper.kafka.before = change
        assert await Client(7).send(node, 1) == BUSY
        node.allow(AccessMode.EXCLUSIVE, Scope.PARTITION)
        node.topic.policy_changed()
        assert await Client(8).send(node, 2) == 0
        assert owners(node) == {0: "pid:8"}


async def test_batches_in_order_are_forwarded_at_once() -> None:
    async with cluster() as paper:
        node, first, second = await two(paper)
        taken = [
            first.forwarded(node, 3, sequence=1),
            second.forwarded(node, 4, sequence=1, partition=1),
            first.forwarded(node, 5, sequence=0, partition=1),
            first.forwarded(node, 5, sequence=0, partition=7),
        ]
        assert taken == [True, True, False, False]
        assert owners(node).keys() == {0, 1}
        await node.topic.hand_back()
        assert (paper.kafka.log(0).values, paper.kafka.log(1).values) == ([1, 3], [2, 4])


async def test_a_topic_changes_its_scope_and_generations_do_not_fall() -> None:
    async with cluster() as paper:
        whole, owner = paper.node(), Client(7)
        assert await owner.send(whole, 1) == 0
        assert await Client(8, FENCING).send(whole, 2) == 0
        parted = paper.node(scope=Scope.PARTITION)
        paper.move(parted)
        assert await Client(9).send(parted, 3) == 0
        assert topic_of(parted).of(0).generation == 3
        assert await Client(7).send(parted, 4, partition=1) == DEPOSED, "deposed from the whole, and so from its parts"
        again = paper.node()
        paper.move(again)
        again.env.late = GRACE_S
        assert again.whole.generation == 3
        assert await Client(10).send(again, 5) == 0
        assert again.whole.generation == 4
        assert paper.kafka.log().values == [1, 2, 3, 5]


async def test_the_ids_of_a_topic_are_known_under_its_master_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster() as paper:
        node = paper.node(scope=Scope.PARTITION)
        topic, taken, waited = topic_of(node), list[int](), list[float]()
        with pytest.raises(LookupError):
            await topic.know_ids(1.0)
        ids = SimpleNamespace(is_begun=False)

        async def take(partition: int) -> None:
            taken.append(partition)
            ids.is_begun = True

        async def known(timeout: float) -> None:
            waited.append(timeout)

        ids.known = known
        monkeypatch.setattr(topic.master, "policy_ids", SimpleNamespace(now=ids))
        monkeypatch.setattr(topic.master, "take", take)
        for _ in range(2):
            assert await topic.know_ids(2.0) is cast(Any, ids)
        assert (taken, waited) == ([0], [2.0, 2.0])


async def test_a_whole_request_for_one_partition_goes_on_and_one_for_more_does_not() -> None:
    async with cluster() as paper:
        node, first, _ = await two(paper)
        both = [(0, first.batch(3)), (1, first.batch(4, partition=1))]
        assert first.forwarded_whole(node, *both) is None
        assert first.forwarded_whole(node, (7, both[0][1])) is None, "nobody owns it here"
        errors = first.forwarded_whole(node, both[0])
        assert errors is not None
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert errors == {0: 0}
        assert paper.kafka.log(0).values == [1, 3]
        node.held = 0


async def test_a_session_is_live_while_it_owns_a_partition_by_an_open_connection() -> None:
    async with cluster() as paper:
        node, first, second = await two(paper)
        topic = topic_of(node)
        assert [topic._is_live(each) for each in (first.session, second.session, "pid:9")] == [True, True, False]
        node.close(first)
        await node.settled()
        assert [topic._is_live(each) for each in (first.session, second.session)] == [False, True]


async def test_a_topic_that_is_created_anew_is_fenced_as_a_whole_before_a_partition_has_an_owner() -> None:
    async with cluster() as paper:
        node, _, _ = await two(paper)
        paper.kafka.topic_id = UUID(int=2)
        paper.kafka.logs.pop(cast(Any, (TOPIC, 0)))
        paper.kafka.logs.pop(cast(Any, (TOPIC, 1)))
        assert await Client(9, FENCING).send(node, 3) == BUSY
        assert await Client(9, FENCING).send(node, 3) == 0
        assert paper.kafka.log(0).values == [3]
        assert topic_of(node).of(0).generation == 2


async def test_a_topic_does_not_move_while_its_master_slot_is_taken_or_a_partition_may_not() -> None:
    async with cluster() as paper:
        node, _, second = await two(paper)
        topic = topic_of(node)
        assert topic.may_move
        async with topic.master._taking:
            assert not topic.may_move
        plain = Client(-1, FENCING)
        assert await plain.send(node, 3, partition=1) == 0
        assert not topic.may_move, "a plain session ends with this node"
        node.close(plain, second)
        await node.settled()
        assert topic.may_move
