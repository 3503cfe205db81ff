"""A governed topic: what its clients are answered, and what is in the log, by what comes in between."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from metadata import MetadataUnavailable
from metadata.errors import Reason
from metadata.ownership import AccessMode, Generation, Ownership
from sidecar.changelog import MASTER_SLOT, Key, Kind, Record
from sidecar.exclusive.answers import QueueFoundError
from sidecar.fencing.expiry import KeepAlive
from sidecar.ownership.state import Awaited, Leaving, Owned
from sidecar.policy.policies import PolicyBook, PolicyFields
from sidecar.protocol.caller import FencedError
from sidecar.protocol.calls.transactions import EndTxn, InitProducerId
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp
from sidecar.takeover.arbitration import ExhaustedError, HeldError
from sidecar.takeover.requests import Purpose, Request
from sidecar.takeover.slots import GenerationError
from tests.unit.exclusive.paper_cluster import GRACE_S, TOPIC, Client, Cluster, Node, cluster
from tests.wait import wait_until

NOT_THERE, BUSY, MOVED, TIMED_OUT = 3, 5, 6, 7
TOO_OLD, POLICY_VIOLATION, GAP, REPEAT, STALE, DEPOSED = 32, 44, 45, 46, 47, 90
FENCING, WAITING, EXCLUSIVE = (
    AccessMode.EXCLUSIVE_WITH_FENCING,
    AccessMode.WAIT_FOR_EXCLUSIVE,
    AccessMode.EXCLUSIVE,
)


async def owned(paper: Cluster, **options: Any) -> tuple[Node, Client]:
    """A node, and a client that owns the topic there and has written 1."""
    node, client = paper.node(**options), Client(7)
    assert await client.send(node, 1) == 0
    return node, client


# Who may write ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rival", "code", "owner_then", "reason"),
    [
        (Client(8), POLICY_VIOLATION, 0, "not_owner"),
        (Client(8, AccessMode.SHARED), POLICY_VIOLATION, 0, "not_owner"),
        (Client(8, WAITING), TIMED_OUT, 0, "waiting"),
        (Client(8, FENCING), 0, DEPOSED, "deposed"),
        (Client(8, generation=0), 0, DEPOSED, "deposed"),
        (Client(8, generation=1), 0, DEPOSED, "deposed"),
        (Client(8, generation=9), 0, DEPOSED, "deposed"),
        (Client(8, succeeds="pid:7"), POLICY_VIOLATION, 0, "not_owner"),
        (Client(8, name="app-7", succeeds="pid:7"), 0, DEPOSED, "deposed"),
        (Client(7, name="attacker"), POLICY_VIOLATION, 0, "not_owner"),
        (Client(-1), POLICY_VIOLATION, 0, "not_owner"),
        (Client(-1, FENCING), 0, DEPOSED, "deposed"),
    ],
)
async def test_beside_a_connected_owner(rival: Client, code: int, owner_then: int, reason: str) -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        rival = deepcopy(rival)
        assert await rival.send(node, 2) == code
        assert await owner.send(node, 3) == owner_then
        assert paper.kafka.log().values == ([1, 2] if code == 0 else [1, 3])
        assert node.refusals == [reason]
        assert node.holder is not None
        assert node.holder.session == (rival.session if code == 0 else owner.session)
        assert node.whole.generation == (max(2, rival.claimant.generation or 0) if code == 0 else 1)
        assert paper.redis.owner == (node.whole.generation, node.holder.session)


async def test_a_batch_of_the_owner_is_not_compared_with_the_deposed_of_every_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A topic may have thousands of partitions, each with a list of its own."""
    async with cluster() as paper:
        node, owner = await owned(paper)
        asked: list[object] = []
        monkeypatch.setattr(node.env.deposed, "has", lambda *about: asked.append(about))
        assert await owner.send(node, 2) == 0
        assert not asked
        await Client(8).send(node, 3)
        assert asked


async def test_a_deposed_session_stays_out_on_every_node_and_its_connection_with_it() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        assert await Client(8, FENCING).send(node, 2) == 0
        assert await owner.send(node) == DEPOSED
        successor = Client(9, FENCING)
        successor.claimant = replace(successor.claimant, connection=owner.connection)
        assert await successor.send(node) == DEPOSED
        other = paper.node()
        paper.move(other)
        other.env.late = GRACE_S
        assert await Client(7).send(other) == DEPOSED
        assert paper.kafka.log().values == [1, 2]


async def test_the_connection_of_a_deposed_owner_is_no_way_in_even_before_it_tries() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        assert await Client(8, FENCING).send(node, 2) == 0
        other = Client(9, FENCING)
        other.claimant = replace(other.claimant, connection=owner.connection)
        assert await other.send(node) == DEPOSED


async def test_the_connection_of_an_owner_that_another_node_deposed_is_no_way_in_either() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        other = paper.node()
        paper.move(other)
        assert await Client(8, FENCING).send(other, 2) == 0
        node.whole.lose_epoch()
        await node.settled()
        next_one = Client(9, FENCING)
        next_one.claimant = replace(next_one.claimant, connection=owner.connection)
        assert await next_one.send(node) == DEPOSED


async def test_the_next_producer_of_the_owners_connection_takes_the_topic_and_keeps_its_good_name() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        successor = Client(9)
        successor.claimant = replace(successor.claimant, connection=owner.connection)
        assert await successor.send(node, 2) == 0
        assert await node.whole.give_up(successor.session)
        third = Client(10)
        third.claimant = replace(third.claimant, connection=owner.connection)
        assert await third.send(node, 3) == 0
        assert await owner.send(node) == DEPOSED
        assert paper.kafka.log().values == [1, 2, 3]


async def test_a_deposed_session_that_only_the_log_knows_is_refused_behind_the_fence() -> None:
    async with cluster() as paper:
        node, _ = await owned(paper)
        behind, rival = paper.node(), Client(8, FENCING)
        assert await rival.send(node, 2) == 0
        node.close(rival)
        await node.settled()
        paper.move(behind)
        behind.env.late = GRACE_S
        assert await Client(7).send(behind, 3, sequence=1) == DEPOSED
        assert await Client(9).send(behind, 4) == 0
        assert paper.kafka.log().values == [1, 2, 4]


async def test_a_client_that_numbers_nothing_owns_the_topic_until_its_connection_ends() -> None:
    async with cluster() as paper:
        node, plain, next_one = paper.node(), Client(-1), Client(8)
        assert [await plain.send(node, value) for value in (1, 2)] == [0, 0]
        node.close(plain)
        assert await next_one.send(node, 3) == 0
        assert paper.kafka.log().values == [1, 2, 3]


async def test_batches_in_order_are_forwarded_at_once_and_no_others() -> None:
    """`forward`, the way without a decision."""
    async with cluster() as paper:
        node, owner = await owned(paper)
        calls = len(paper.kafka.calls)
        taken = [
            owner.forwarded(node, 2, sequence=1),
            owner.forwarded(node, 2, sequence=1),  # its leader recognises a repeat
            owner.forwarded(node, 3, sequence=0, partition=5),
            Client(7).forwarded(node, 3, sequence=2),  # nothing was decided of this connection
            Client(8).forwarded(node, 3, sequence=0),
        ]
        node.whole.lose_epoch()
        taken.append(owner.forwarded(node, 3, sequence=2))  # an operation is under way
        assert taken == [True, True, *[False] * 4]
        assert len(paper.kafka.calls) == calls
        await node.settled()
        assert paper.kafka.log().values == [1, 2]


async def test_a_whole_request_goes_on_or_none_of_it() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        reported = len(node.reports("governed_produce"))
        batches = owner.batch(2, 3), owner.batch(4, partition=1)
        whole = owner.forwarded_whole(node, *enumerate(batches))
        assert whole is not None
        await wait_until(lambda: whole == {0: 0, 1: 0}, "the answers")
        (report,) = node.reports("governed_produce")[reported:]
        assert report == (TOPIC, 3, sum(map(len, batches)))
        assert (paper.kafka.log(0).values, paper.kafka.log(1).values) == ([1, 2, 3], [4])


async def test_a_whole_request_does_not_go_on_unless_all_of_it_may() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        fresh, second = owner.batch(2, sequence=1), owner.batch(3, partition=1, sequence=0)
        owner.age_s = 3600.0
        old = owner.batch(3, partition=1, sequence=0)
        assert owner.forwarded_whole(node, (0, fresh), (1, old)) is None
        assert owner.forwarded_whole(node, (1, old), (0, fresh)) is None
        assert owner.forwarded_whole(node, (0, fresh), (2, second)) is None, "no such partition"
        assert Client(7).forwarded_whole(node, (0, fresh)) is None, "another connection"
        assert Client(8).forwarded_whole(node, (0, fresh)) is None
        node.whole.lose_epoch()
        assert owner.forwarded_whole(node, (0, fresh)) is None, "an operation is under way"
        await node.settled()
        assert owner.forwarded_whole(node, (0, fresh)) is None, "nothing was decided since the takeover"
        owner.age_s = 0.0
        assert await owner.send(node, 2, sequence=1) == 0
        assert owner.forwarded_whole(node, (0, owner.batch(4, sequence=2)), (1, second)) is not None
        await wait_until(lambda: paper.kafka.log(1).values == [3], "the request")


async def test_a_whole_request_does_not_overtake_a_batch_that_failed() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        paper.kafka.holding = True
        failed = owner.offer(node, 2)
        paper.kafka.deliver(MOVED)
        assert owner.forwarded_whole(node, (0, owner.batch(3, sequence=2))) is None
        whole = owner.forwarded_whole(node, (1, owner.batch(4, partition=1)))
        assert whole is not None
        await wait_until(lambda: len(paper.kafka.under_way) == 2, "the batch that goes again")
        paper.kafka.deliver()
        assert ((await failed).error, whole) == (0, {1: 0})
        assert owner.forwarded_whole(node, (0, owner.batch(3, sequence=2))) is not None
        await wait_until(lambda: paper.kafka.under_way, "the batch behind it")
        paper.kafka.deliver()
        assert paper.kafka.log().values == [1, 2, 3]


async def test_records_that_are_too_old_go_no_way() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        owner.age_s = 3600.0
        assert not owner.forwarded(node, 2, sequence=1)
        assert await owner.send(node, 2, sequence=1) == BUSY, "how old they may be is not known yet"
        node.whole.upkeep.read(keep_alive(3600.0, oldest=1800.0))
        assert await owner.send(node, 2, sequence=1) == TOO_OLD
        node.whole.upkeep.read(keep_alive(3600.0, oldest=7200.0))
        assert await owner.send(node, 2, sequence=1) == 0
        assert paper.kafka.log().values == [1, 2]


def keep_alive(interval: float, *, oldest: float) -> KeepAlive:
    return KeepAlive(interval, "a setting", oldest=oldest)


# Sequences ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epoch", "sequence", "code", "written"),
    [
        (1, 0, 0, False),  # its leader recognises a repeat, and says where the first one is
        (1, 1, 0, False),
        (1, 2, 0, True),
        (1, 4, GAP, False),
        (0, 2, STALE, False),
        (2, 0, 0, True),
        (2, 1, GAP, False),
    ],
)
async def test_what_the_owner_sends_is_answered_by_its_sequences(
    epoch: int, sequence: int, code: int, written: bool
) -> None:
    async with cluster() as paper:
        node, owner = paper.node(), Client(7)
        owner.epoch = 1
        assert [await owner.send(node, value) for value in (1, 2)] == [0, 0]
        owner.epoch = epoch
        assert await owner.send(node, 3, sequence=sequence) == code
        assert paper.kafka.log().values == ([1, 2, 3] if written else [1, 2])


async def test_a_raised_epoch_needs_no_fence() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        paper.kafka.calls.clear()
        owner.epoch, before = 1, node.whole.written_under
        assert await owner.send(node, 2, sequence=0) == 0
        assert EndTxn not in paper.kafka.calls
        assert before is not None
        assert node.whole.written_under is not None
        assert node.whole.written_under.stamp.epoch == before.stamp.epoch + 1
        assert node.whole.taken is node.whole.written_under


async def test_an_epoch_that_ends_while_it_is_raised_is_not_followed_by_the_raised_one() -> None:
    """Its reason may have changed: the topic is taken over instead, which fences what is on its way."""
    async with cluster() as paper:
        node, owner = await owned(paper)

        async def lose(request: Any) -> None:
            if isinstance(request, InitProducerId):
                paper.kafka.before = None
                node.whole.lose_epoch()

        paper.kafka.before = lose
        paper.kafka.calls.clear()
        owner.epoch = 1
        assert await owner.send(node, 2, sequence=0) == 0
        assert EndTxn in paper.kafka.calls
        assert paper.kafka.log().values == [1, 2]
        assert await owner.send(node, 3, sequence=1) == 0


async def test_the_positions_of_a_dropped_epoch_are_its_sessions_and_nobody_elses() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        assert await owner.send(node, 2) == 0
        node.whole.reopen()
        rival = Client(8, FENCING)
        assert [await rival.send(node, value) for value in (3, 4)] == [0, 0]
        assert paper.kafka.log().values == [1, 2, 3, 4]


async def test_an_epoch_is_not_raised_while_the_outcome_of_a_batch_is_unknown() -> None:
    """Its client sends the batch again under its next epoch: only a fence settles whether it is in the log."""
    async with cluster() as paper:
        node, owner = await owned(paper)
        paper.kafka.holding = True
        lost = owner.offer(node, 2, timeout_ms=1)
        while not lost.done():
            paper.kafka.deliver(TIMED_OUT)
            await asyncio.sleep(0.001)
        assert (await lost).error == TIMED_OUT
        paper.kafka.holding = False
        paper.kafka.calls.clear()
        owner.epoch = 1
        assert await owner.send(node, 2, sequence=0) == 0
        assert EndTxn in paper.kafka.calls
        assert paper.kafka.log().values == [1, 2]


async def test_an_epoch_that_cannot_be_raised_as_a_rival_took_the_topic_is_not_written_under() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        rival, other = Client(8, FENCING), paper.node()
        paper.move(other)
        assert await rival.send(other, 5) == 0
        owner.epoch = 1
        assert await owner.send(node, 2, sequence=0) == MOVED
        assert await rival.send(other, 6) == 0
        assert paper.kafka.log().values == [1, 5, 6]


async def test_a_refused_batch_counts_as_sent_once_its_client_owns_the_topic() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        refused = Client(8)
        assert await refused.send(node, 2) == POLICY_VIOLATION
        node.close(owner)
        assert await refused.send(node, 3, sequence=1) == BUSY, "it may not know of the refusal yet"
        assert await refused.send(node, 3, sequence=1) == 0
        assert await refused.send(node, 4, sequence=0) == POLICY_VIOLATION, "refused once, refused for good"
        assert paper.kafka.log().values == [1, 3]


async def test_a_batch_of_no_numbers_with_an_unknown_outcome_needs_a_new_epoch() -> None:
    async with cluster() as paper:
        node, plain = paper.node(), Client(-1)
        assert await plain.send(node, 1) == 0
        before = node.whole.written_under
        paper.kafka.holding = True
        lost = plain.offer(node, 2, timeout_ms=1)
        while not lost.done():
            paper.kafka.deliver(TIMED_OUT)
            await asyncio.sleep(0.001)
        assert (await lost).error == TIMED_OUT
        paper.kafka.holding = False
        await node.settled()
        assert node.whole.written_under is not None, "it is opened before anybody asks for it"
        assert await plain.send(node, 3) == 0
        assert node.whole.written_under is not before
        assert paper.kafka.log().values == [1, 3]


@pytest.mark.parametrize(("added", "code"), [(1, 0), (0, NOT_THERE)])
async def test_a_partition_outside_the_fence(added: int, code: int) -> None:
    async with cluster(partitions=2) as paper:
        node, owner = await owned(paper)
        paper.kafka.count += added
        assert await owner.send(node, 2, partition=2) == code
        assert paper.kafka.log(2).values == [2] * added
        assert await owner.send(node, 3) == 0


# In flight ----------------------------------------------------------------------------------------------------------


async def test_a_batch_in_flight_is_not_appended_behind_the_next_owners_fence() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        paper.kafka.holding = True
        late = owner.offer(node, 2)
        paper.kafka.holding = False
        late_way, paper.kafka.under_way = paper.kafka.under_way, []
        assert await Client(8, FENCING).send(node, 3) == 0
        paper.kafka.under_way = late_way
        paper.kafka.deliver()
        assert (await late).error == MOVED
        assert paper.kafka.log().values == [1, 3]
        assert node.holder is not None
        assert node.holder.session == "pid:8", "an old lane's fence is nobody's loss"


async def test_an_owner_whose_epoch_kafka_refuses_goes_on_under_the_next_one() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        paper.kafka.holding = True
        late = owner.offer(node, 2)
        paper.kafka.holding = False
        paper.kafka.deliver(STALE)
        assert (await late).error == MOVED
        await node.settled()
        assert await owner.send(node, 2, sequence=1) == 0
        assert paper.kafka.log().values == [1, 2]
        assert node.whole.generation == 1


async def test_an_owner_that_another_node_deposed_is_refused_here_once_kafka_refuses_its_epoch() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        other = paper.node()
        paper.move(other)
        assert await Client(8, FENCING).send(other, 5) == 0
        assert await owner.send(node, 2) == MOVED
        await node.settled()
        assert await owner.send(node, 3) == DEPOSED
        late = Client(9)
        late.claimant = replace(late.claimant, connection=owner.connection)
        assert await late.send(node, 4) == DEPOSED, "its connection carried the deposed session"
        assert paper.kafka.log().values == [1, 5]


# The end of an ownership --------------------------------------------------------------------------------------------


async def test_without_a_grace_the_topic_is_free_when_the_last_connection_ends() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        second = Client(7)
        second.next[0] = 1
        assert await second.send(node, 2) == 0
        node.close(owner)
        await node.settled()
        assert isinstance(node.holder, Owned)
        node.close(second)
        await node.settled()
        assert node.holder is None
        assert paper.redis.owner == (1, None)
        assert node.reports("released") == [(TOPIC, "pid:7", 1)]
        assert await Client(8).send(node, 3) == 0
        assert node.whole.generation == 2


async def test_a_session_that_was_released_comes_back_with_its_sequences_and_its_generation() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        node.close(owner)
        await node.settled()
        back = Client(7)
        assert await back.send(node, 1, sequence=0) == REPEAT
        assert await back.send(node, 2, sequence=1) == 0
        assert node.whole.generation == 1
        assert paper.kafka.log().values == [1, 2]


async def test_within_the_grace_the_owner_comes_back_and_a_newcomer_is_told_to_try_again() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper, disconnect_grace=GRACE_S)
        node.close(owner)
        assert isinstance(node.holder, Leaving)
        assert await Client(8).send(node, 2) == TIMED_OUT
        back = Client(7)
        assert await back.send(node, 3, sequence=1) == 0
        assert isinstance(node.holder, Owned)
        assert node.whole.generation == 1


async def test_the_topic_is_free_when_the_grace_is_over() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper, disconnect_grace=0.01)
        node.close(owner)
        assert node.holder is not None
        await wait_until(lambda: node.holder is None, "the end of the grace")
        assert await Client(8).send(node, 2) == 0
        assert node.reports("released") == [(TOPIC, "pid:7", 1)]


async def test_a_connection_that_carried_no_batch_ends_the_grace_if_it_is_the_owners() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper, disconnect_grace=GRACE_S)
        node.close(owner)
        back, stranger = Client(7), Client(8)
        assert not node.whole.join(stranger.session, stranger.connection)
        assert node.whole.join(back.session, back.connection)
        assert isinstance(node.holder, Owned)


async def test_a_connection_of_the_owner_that_opens_as_its_release_begins_keeps_the_topic() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        node.close(owner)
        back = Client(7)
        assert node.whole.busy
        assert node.whole.join(back.session, back.connection)
        await node.settled()
        assert isinstance(node.holder, Owned)
        assert node.reports("released") == []


async def test_an_owner_that_leaves_after_its_epoch_was_lost_is_released_in_the_changelog_too() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        node.whole.fence_wanted()
        node.close(owner)
        await node.settled()
        assert node.reports("released") == [(TOPIC, "pid:7", 1)]
        record = paper.node().whole.state.record
        assert record is not None
        assert record.released_ms


async def test_an_owner_that_cannot_be_released_is_waited_for() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        node.whole.fence_wanted()
        paper.kafka.count = 0
        node.close(owner)
        await node.settled()
        assert (node.holder, node.reports("released")) == (None, [])
        paper.kafka.count = 2
        assert await Client(8).send(node, 2) == TIMED_OUT
        assert isinstance(node.holder, Awaited)


async def test_a_release_that_is_due_comes_before_what_waits_for_a_work() -> None:
    """The grace ends while the owner's epoch is raised, and a newcomer's batch waits for that."""
    async with cluster() as paper:
        node, owner = await owned(paper, disconnect_grace=1.0)

        async def leave(request: Any) -> None:
            paper.kafka.before = None
            node.close(owner)
            node.env.late = 2.0

        paper.kafka.before = leave
        owner.epoch = 1
        raised, newcomer = owner.offer(node, 2, sequence=0), Client(8).offer(node, 3)
        assert [(await raised).error, (await newcomer).error] == [BUSY, 0]
        assert node.reports("released") == [(TOPIC, "pid:7", 1)]
        assert paper.kafka.log().values == [1, 3]


async def test_an_owner_that_left_during_its_takeover_loses_the_topic_after_it() -> None:
    async with cluster() as paper:
        node, owner = paper.node(), Client(7)
        offered = owner.offer(node, 1)
        node.close(owner)
        assert (await offered).error == BUSY
        await node.settled()
        assert node.holder is None
        assert await Client(8).send(node, 2) == 0


@pytest.mark.parametrize("fence", [False, True])
async def test_an_administrator_takes_the_topic_from_its_owner(fence: bool) -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        released = await node.whole.administer(fence=fence, generations=frozenset({1}))
        assert released.session == "pid:7"
        assert node.holder is None
        assert await owner.send(node, 2) == (DEPOSED if fence else 0)
        assert await Client(8).send(node, 3) == (0 if fence else POLICY_VIOLATION)


async def test_a_fence_comes_before_the_batches_that_wait() -> None:
    """Each of them would take the topic over, and the next one would wait for that."""
    async with cluster() as paper:
        node, _ = await owned(paper)
        rivals = [Client(number, FENCING) for number in range(8, 28)]
        offered = [rival.offer(node, rival.number) for rival in rivals]
        fenced = node.tasks.start(node.whole.administer(fence=True))
        for answered in offered:
            await answered
        assert (await fenced).session == rivals[0].session
        await node.settled()
        assert node.whole.generation == len(rivals) + 2


async def test_what_an_administrator_cannot_do() -> None:
    async with cluster() as paper:
        node = paper.node()
        with pytest.raises(LookupError):
            await node.whole.administer(fence=True)
        assert await Client(7).send(node, 1) == 0
        with pytest.raises(ValueError, match="leave partition out"):
            await node.whole.administer(0, fence=True)
        for fence in (True, False):
            with pytest.raises(GenerationError) as other:
                await node.whole.administer(fence=fence, generations=frozenset({2, 3}))
            assert other.value.current == 1
        assert node.holder is not None


async def test_an_administrator_on_a_node_that_has_not_read_the_newest_owner_changes_nothing() -> None:
    async with cluster() as paper:
        node, _ = await owned(paper)
        behind = paper.node()
        assert await Client(8, FENCING).send(node, 2) == 0
        paper.move(behind)
        assert behind.whole.generation == 1
        with pytest.raises(GenerationError):
            await behind.whole.administer(fence=True, generations=frozenset({1}))
        assert node.holder is not None
        assert node.holder.session == "pid:8"


async def test_only_the_owner_gives_the_topic_up() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        assert not await node.whole.give_up(Client(8).session)
        assert await node.whole.give_up(owner.session)
        assert node.holder is None
        assert not await node.whole.give_up(owner.session)


async def test_a_node_that_hands_the_topic_back_finishes_what_is_in_flight() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        paper.kafka.holding = True
        late = owner.offer(node, 2)
        leaving = node.env.tasks.start(node.whole.hand_back())
        await wait_until(lambda: node.whole.busy, "the operation")
        assert not leaving.done()
        paper.kafka.deliver()
        await leaving
        assert (await late).error == 0
        assert (node.whole.serving, node.whole.has_slot, node.whole.written_under) == (False, False, None)
        assert isinstance(node.holder, Awaited)
        assert node.reports("topic_forgotten") == [(TOPIC,)]


async def test_a_node_hands_the_topic_back_though_its_ids_cannot_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails() -> None:
        raise LookupError("ids")

    async with cluster() as paper:
        node, _ = await owned(paper)
        node.env.catalog.book = PolicyBook({TOPIC: PolicyFields(access_mode=EXCLUSIVE, deduplication=True)})
        node.topic.policy_changed()
        assert node.topic.ids is not None
        node.topic.ids.is_begun = True
        monkeypatch.setattr(node.topic.ids, "save_all", fails)
        await node.topic.hand_back()
        assert (node.whole.serving, node.whole.has_slot, node.topic.ids.is_begun) == (False, False, False)
        assert isinstance(node.holder, Awaited)
        await node.tasks.cancel()
        assert [str(error) for error in node.failures] == ["ids"]
        node.failures.clear()


async def test_a_topic_is_handed_back_behind_the_operation_that_is_under_way() -> None:
    async with cluster() as paper:
        node, owner = paper.node(), Client(7)
        offered = owner.offer(node, 1)
        await node.whole.hand_back()
        assert (await offered).error == 0
        assert not node.whole.serving


async def test_under_an_epoch_that_was_opened_while_the_policy_changed_nothing_is_written() -> None:
    """Whether there are sequence ids is decided before the fence. The takeover is committed all the same."""
    async with cluster() as paper:
        node, owner, rival = paper.node(), Client(7), Client(8)
        node.env.catalog.book = PolicyBook({TOPIC: PolicyFields(access_mode=EXCLUSIVE, deduplication=True)})
        node.topic.policy_changed()

        async def change(request: Any) -> None:
            paper.kafka.before = None
            node.allow(EXCLUSIVE)
            node.topic.policy_changed()

        paper.kafka.before = change
        owns, refused = owner.offer(node, 1), rival.offer(node, 2)
        assert [(await owns).error, (await refused).error] == [0, POLICY_VIOLATION]
        assert paper.kafka.calls.count(InitProducerId) == 2
        assert paper.kafka.log().values == [1]


async def test_redis_hears_the_offset_of_the_owners_record_after_it_goes_on_under_the_next_epoch() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        node.whole.reopen()
        assert await owner.send(node, 2) == 0
        record = node.changelog.view.ownership(TOPIC)
        assert record is not None
        assert node.whole.state.position == record.offset


async def test_sessions_share_on_under_a_policy_that_changes_in_another_respect() -> None:
    async with cluster() as paper:
        node, writer = paper.node(AccessMode.SHARED), Client(7)
        assert await writer.send(node, 1) == 0
        fences = paper.kafka.calls.count(EndTxn)
        node.env.catalog.book = PolicyBook({TOPIC: PolicyFields(AccessMode.SHARED, exclusive_reader=True)})
        node.topic.policy_changed()
        assert await writer.send(node, 2) == 0
        assert paper.kafka.calls.count(EndTxn) == fences
        node.allow(EXCLUSIVE)
        node.topic.policy_changed()
        assert node.whole.shared.connected() == []


async def test_a_node_that_loses_the_topic_while_its_owner_raises_its_epoch_sends_it_away() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        other, rival = paper.node(), Client(8, FENCING)

        async def lose(request: Any) -> None:
            if isinstance(request, InitProducerId):
                paper.kafka.before = None
                paper.move(other)
                assert await rival.send(other, 5) == 0
                assert await other.whole.give_up(rival.session)
                node.whole.serving = False
                node.read()

        paper.kafka.before = lose
        owner.epoch = 1
        assert await owner.send(node, 2, sequence=0) == DEPOSED
        assert node.holder is None
        assert paper.kafka.log().values == [1, 5]


async def test_a_serving_node_does_not_follow_the_record_of_another_until_kafka_refuses_it() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        other = paper.node()
        paper.move(other)
        assert await Client(8, FENCING).send(other, 5) == 0
        node.read()
        assert node.holder is not None
        assert node.holder.session == owner.session
        node.whole.serving = False
        assert await Client(9, FENCING).send(other, 6) == 0
        node.read()
        assert node.holder.session == "pid:9"


async def test_a_topic_without_a_policy_has_no_owner_and_grants_nothing() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        node.whole.is_dropped = True
        assert await Client(8).send(node, 2) == MOVED
        await node.whole.ungoverned()
        assert node.holder is None
        assert not node.whole.serving
        assert await owner.send(node, 2) == MOVED
        assert paper.kafka.log().values == [1]


# The end of a policy that a client made -----------------------------------------------------------------------------


def by_client(paper: Cluster, node: Node) -> None:
    """The topic's policy is one that a client made."""
    record = PolicyFields(access_mode=AccessMode.SHARED).to_record(1, 0, by_client=True)
    paper.kafka.append_records([Record(Key(Kind.POLICY, TOPIC), record).encode()])
    node.read()


async def left_by_its_owner(paper: Cluster) -> tuple[Node, Node]:
    """A node whose topic has a policy of a client, which left; and another node, which knows of the policy."""
    node, owner = paper.node(), Client(7, EXCLUSIVE)
    by_client(paper, node)
    assert await owner.send(node, 1) == 0
    node.close(owner)
    await node.settled()
    other = paper.node()
    other.env.catalog.read()
    return node, other


async def test_a_policy_that_nobody_uses_ends_and_the_topic_with_it() -> None:
    async with cluster() as paper:
        node, owner = paper.node(), Client(7, EXCLUSIVE)
        by_client(paper, node)
        assert await owner.send(node, 1) == 0
        await node.whole.end_policy()
        assert paper.redis.deleted == [], "its owner is connected"
        node.close(owner)
        await node.settled()
        await node.whole.end_policy()
        await wait_until(lambda: not node.whole.serving, "the end")
        await node.settled()
        assert paper.redis.deleted == [TOPIC]
        assert (node.env.catalog.book.effective(TOPIC), node.whole.has_slot, node.holder) == (None, False, None)
        assert await Client(8, EXCLUSIVE).send(node, 2) == MOVED


async def test_a_policy_stays_if_no_node_serves_its_topic_yet() -> None:
    async with cluster() as paper:
        _, node = await left_by_its_owner(paper)
        paper.move(node)
        await node.whole.end_policy()
        assert paper.redis.deleted == []
        assert node.whole.serving
        await node.whole.end_policy()
        assert paper.redis.deleted == [TOPIC]


@pytest.mark.parametrize("happens", ["another node takes the topic", "an operator sets the policy"])
async def test_a_policy_that_is_wanted_again_meanwhile_stays(happens: str) -> None:
    async with cluster() as paper:
        node, other = await left_by_its_owner(paper)

        async def before(request: Any) -> None:
            if not isinstance(request, InitProducerId) or not (request.transactional_id or "").endswith("policy"):
                return
            paper.kafka.before = None
            if happens == "an operator sets the policy":
                record = PolicyFields(access_mode=AccessMode.SHARED).to_record(2, 0)
                paper.kafka.append_records([Record(Key(Kind.POLICY, TOPIC), record).encode()])
            else:
                paper.move(other)
                assert await Client(8, EXCLUSIVE).send(other, 2) == 0

        paper.kafka.before = before
        await node.whole.end_policy()
        assert paper.kafka.before is None
        assert paper.redis.deleted == []
        assert not node.whole.is_dropped


@pytest.mark.parametrize(
    ("mode", "is_connected", "is_used"),
    [(EXCLUSIVE, True, True), (EXCLUSIVE, False, False), (AccessMode.SHARED, True, True), (None, True, False)],
)
async def test_who_uses_a_policy(mode: AccessMode | None, is_connected: bool, is_used: bool) -> None:
    async with cluster() as paper:
        node, client = paper.node(AccessMode.SHARED), Client(7, mode)
        assert await client.send(node, 1) == 0
        if not is_connected:
            node.close(client)
            await node.settled()
        assert node.whole.use().is_on(node.env.now()) is is_used


async def test_a_session_that_waits_uses_the_policy_until_it_stops_to_try() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        assert await Client(8, WAITING).send(node) == TIMED_OUT
        node.close(owner)
        await node.settled()
        assert node.whole.use().is_on(node.env.now())
        node.env.late = GRACE_S
        assert not node.whole.use().is_on(node.env.now())


# Failover -----------------------------------------------------------------------------------------------------------


async def test_the_owner_goes_on_at_the_next_node_and_others_wait_for_it() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        paper.kafka.holding = True
        appended, lost = owner.offer(node, 2), owner.offer(node, 3)
        paper.kafka.holding = False
        lost_way = paper.kafka.under_way.pop()
        paper.kafka.deliver()
        other = paper.node()
        paper.move(other)
        assert isinstance(other.holder, Awaited)
        assert await Client(8).send(other) == TIMED_OUT
        back = Client(7)
        assert [await back.send(other, value, sequence=value - 1) for value in (1, 2, 3)] == [REPEAT, REPEAT, 0]
        paper.kafka.under_way = [lost_way]
        paper.kafka.deliver()
        assert ((await appended).error, (await lost).error) == (0, MOVED)
        assert paper.kafka.log().values == [1, 2, 3]
        assert other.whole.generation == 1
        assert other.reports("takeover")[-1][4:] == (1, None)


async def test_an_owner_that_does_not_come_back_in_time_loses_the_topic() -> None:
    async with cluster() as paper:
        await owned(paper)
        other = paper.node()
        paper.move(other)
        other.env.late = GRACE_S
        assert await Client(8).send(other, 2) == 0
        assert other.whole.generation == 2
        assert paper.redis.owner == (2, "pid:8")


async def test_an_owner_that_another_node_serves_is_not_released_here() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        other = paper.node()
        assert isinstance(other.holder, Awaited)
        other.env.late = GRACE_S / 2
        other.whole.served_elsewhere()
        other.env.late = GRACE_S * 1.4
        assert other.whole.current is not None
        other.env.late = GRACE_S * 1.6
        assert other.whole.current is None
        node.whole.served_elsewhere()
        assert isinstance(node.holder, Owned), "it is served here"
        assert await owner.send(node, 2) == 0


async def test_a_session_that_redis_knows_as_the_owner_is_waited_for() -> None:
    """Its node has written nothing that this one has read."""
    async with cluster() as paper:
        ahead, behind = paper.node(), paper.node()
        assert await Client(7).send(ahead, 1) == 0
        paper.move(behind)
        assert await Client(8).send(behind, 2) == TIMED_OUT
        assert isinstance(behind.holder, Awaited)
        assert behind.holder.session == "pid:7"
        assert paper.kafka.log().values == [1]


async def test_a_newcomer_is_sent_to_the_node_that_serves_the_topic() -> None:
    async with cluster() as paper:
        await owned(paper)
        other = paper.node()
        other.learn_of(1)
        assert await Client(8).send(other) == MOVED
        assert await Client(9, FENCING).send(other) == MOVED


# The queue ----------------------------------------------------------------------------------------------------------


async def test_sessions_that_wait_get_the_topic_in_their_order() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        first, second, third = Client(8, WAITING), Client(9, WAITING), Client(10, WAITING)
        assert [await waiting.send(node, sequence=0) for waiting in (first, second, third)] == [TIMED_OUT] * 3
        assert await Client(11, WAITING).send(node) == POLICY_VIOLATION, "the queue is full"
        await wait_until(lambda: paper.redis.waiting == ["pid:8", "pid:9", "pid:10"], "the queue in Redis")
        node.close(owner)
        await node.settled()
        assert await second.send(node, sequence=0) == TIMED_OUT
        assert await Client(12).send(node) == POLICY_VIOLATION, "others waited before it"
        assert await first.send(node, 2, sequence=0) == 0
        node.close(first)
        await node.settled()
        assert await second.send(node, 3, sequence=0) == 0
        assert paper.kafka.log().values == [1, 2, 3]


async def test_a_session_that_has_stopped_to_try_does_not_wait() -> None:
    async with cluster() as paper:
        node, _ = await owned(paper)
        assert await Client(8, WAITING).send(node) == TIMED_OUT
        assert [claimant.session for claimant, _ in node.whole.waiting()] == ["pid:8"]
        node.env.late = GRACE_S
        assert node.whole.waiting() == []


async def test_the_queue_is_kept_when_another_node_serves_the_topic() -> None:
    async with cluster() as paper:
        await owned(paper)
        other = paper.node()
        paper.move(other)
        paper.redis.queued("pid:9", "pid:8")
        other.env.late = GRACE_S
        assert await Client(8, WAITING).send(other, sequence=0) == TIMED_OUT
        assert await Client(12).send(other) == POLICY_VIOLATION
        assert await Client(9, WAITING).send(other, 2, sequence=0) == 0
        assert other.whole.sessions() == ("pid:8",)


async def test_a_claim_that_fences_ends_the_queue() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        waiting = Client(8, WAITING)
        assert await waiting.send(node, sequence=0) == TIMED_OUT
        assert await Client(9, FENCING).send(node, 2) == 0
        assert await waiting.send(node, sequence=0) == DEPOSED
        assert await owner.send(node) == DEPOSED
        assert node.whole.sessions() == ()


async def test_a_session_that_is_evicted_while_it_is_disconnected_leaves_nothing_of_its_connection() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        waiting = Client(8, WAITING)
        assert await waiting.send(node, sequence=0) == TIMED_OUT
        node.close(waiting)
        assert node.whole.sessions() == (waiting.session,)
        claimant = Client(9, FENCING)
        assert await claimant.send(node, 2) == 0
        assert node.whole.state.tainted == {owner.connection}
        assert await Client(8).send(node, sequence=0) == DEPOSED


async def test_a_session_that_waited_and_then_fences_is_not_among_those_that_it_evicts() -> None:
    async with cluster() as paper:
        node, _ = await owned(paper)
        assert [await Client(number, WAITING).send(node, sequence=0) for number in (8, 9)] == [TIMED_OUT] * 2
        claimant = Client(8, FENCING)
        assert await claimant.send(node, 2, sequence=0) == 0
        other = paper.node()
        paper.move(other)
        assert await Client(8).send(other, 3, sequence=1) == 0
        assert await Client(9).send(other, 4) == DEPOSED
        assert paper.kafka.log().values == [1, 2, 3]


async def test_an_owner_that_asks_to_share_an_exclusive_topic_is_refused() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        sharing = Client(7, AccessMode.SHARED)
        assert await sharing.send(node, 2, sequence=1) == POLICY_VIOLATION
        assert node.holder is not None
        assert node.holder.connections == {owner.connection}


# What fails ---------------------------------------------------------------------------------------------------------


async def test_without_redis_the_owner_goes_on_and_nobody_else_begins() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        paper.redis.is_away = True
        assert await owner.send(node, 2) == 0
        node.whole.lose_epoch()
        assert await owner.send(node, 3) == 0, "this node served last"
        assert await Client(8, FENCING).send(node) == BUSY
        assert node.refusals == ["redis_down"]
        assert await Client(7).send(paper.node(), 4, sequence=3) == BUSY
        assert paper.kafka.log().values == [1, 2, 3]


async def test_a_topic_that_is_not_there() -> None:
    async with cluster() as paper:
        node = paper.node()
        paper.kafka.count = 0
        assert await Client(7).send(node) == NOT_THERE
        await node.settled()
        assert node.whole.is_unknown
        assert node.holder is None


async def test_a_node_that_leaves_takes_no_topic() -> None:
    async with cluster() as paper:
        node = paper.node()
        node.env.draining = True
        assert await Client(7).send(node) == MOVED
        assert paper.redis.serving == {}


async def test_the_fence_is_renewed_and_ends_no_writing() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        before, paper.kafka.calls[:] = node.whole.written_under, []
        fenced_at = node.whole.upkeep.fenced_at
        await node.whole.keep_alive()
        assert node.whole.upkeep.fenced_at > fenced_at
        assert EndTxn in paper.kafka.calls
        assert InitProducerId not in paper.kafka.calls
        assert node.whole.written_under is before
        node.read()
        noted = node.changelog.view.tail(TOPIC, MASTER_SLOT, 0)
        assert noted is not None, "the next takeover reads from there"
        assert noted.value.last_sequence == 0
        assert await owner.send(node, 2) == 0


async def test_a_renewal_that_a_takeover_here_fenced_does_not_end_the_new_epoch() -> None:
    async with cluster() as paper:
        node, _ = await owned(paper)

        async def before(_: Any) -> None:
            paper.kafka.before = None
            assert await Client(8, FENCING).send(node, 2) == 0

        paper.kafka.before = before
        await node.whole.keep_alive()
        assert not node.whole.busy
        assert node.whole.written_under is not None
        assert node.whole.written_under.session == "pid:8"


async def test_leaders_are_asked_what_they_remember_once_something_was_written() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        upkeep = node.whole.upkeep
        upkeep.read(KeepAlive(3_600.0, "x", oldest=86_400.0))
        upkeep.asked()
        assert not upkeep.wants_look
        assert await owner.send(node, 2) == 0
        assert upkeep.wants_look


async def test_a_fence_that_cannot_be_renewed_as_another_node_took_the_topic_ends_the_ownership() -> None:
    async with cluster() as paper:
        node, _ = await owned(paper)
        other = paper.node()
        paper.move(other)
        assert await Client(8, FENCING).send(other, 2) == 0
        await node.whole.keep_alive()
        await node.settled()
        assert node.whole.written_under is None
        assert node.holder is not None
        assert node.holder.session == "pid:8"


@pytest.mark.parametrize(("late", "is_adopted"), [(0.0, False), (GRACE_S, True)])
async def test_a_topic_that_nobody_serves_is_adopted_when_its_owner_does_not_come_back(
    late: float, is_adopted: bool
) -> None:
    async with cluster() as paper:
        await owned(paper)
        other = paper.node()
        paper.move(other)
        other.env.late = late
        await other.whole.keep_alive()
        assert (other.whole.serving, other.whole.has_slot) == (is_adopted, is_adopted)
        assert await Client(7).send(other, 2, sequence=1) == 0
        assert other.whole.generation == 1


@pytest.mark.parametrize("may", [True, False])
async def test_a_topic_moves_unless_that_would_end_a_session(may: bool) -> None:
    async with cluster() as paper:
        node = paper.node()
        offered = Client(7 if may else -1).offer(node, 1)
        assert not node.whole.may_move, "a takeover is under way"
        await offered
        await node.settled()
        assert node.whole.may_move is may


async def test_ids_of_a_topic_without_deduplication() -> None:
    async with cluster() as paper:
        node = paper.node()
        assert node.whole.ids is None
        with pytest.raises(LookupError):
            await node.whole.know_ids(1.0)
        with pytest.raises(KafkaError):
            await node.whole.share_anew(lambda its: True)


class Ids:
    """Sequence ids that a takeover begins."""

    def __init__(self) -> None:
        self.is_begun = False
        self.waited: list[float] = []

    async def known(self, timeout: float) -> None:
        self.waited.append(timeout)


async def test_the_ids_of_a_topic_are_known_by_a_takeover_that_ends_no_ownership(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        ids, asked, topic = Ids(), list[Request](), node.whole

        async def take_over(request: Request) -> None:
            asked.append(request)
            ids.is_begun = True

        monkeypatch.setattr(topic, "policy_ids", SimpleNamespace(now=ids))
        monkeypatch.setattr(topic, "_run_takeover", take_over)
        with pytest.raises(KafkaError, match="may still come back") as refused:
            await topic.know_ids(1.0)
        assert (refused.value.code, asked, ids.waited) == (BUSY, [], [])
        monkeypatch.undo()
        node.close(owner)
        await node.settled()
        monkeypatch.setattr(topic, "policy_ids", SimpleNamespace(now=ids))
        monkeypatch.setattr(topic, "_run_takeover", take_over)
        for _ in range(2):
            assert await topic.know_ids(3.0) is cast(Any, ids)
        assert [request.purpose for request in asked] == [Purpose.ADOPT], "it is begun once"
        assert ids.waited == [3.0, 3.0]


# What batches are answered that waited for a failed work --------------------------------------------------------------


async def test_each_failure_of_a_work_has_its_answer() -> None:
    async with cluster() as paper:
        topic = paper.node().whole

        def told(error: Exception) -> int | None:
            outcome = topic._failed(error)
            return None if outcome is None else outcome.error

        exhausted = topic._failed(ExhaustedError(TOPIC))
        assert exhausted is not None
        assert exhausted.error == POLICY_VIOLATION
        assert "no generation is left" in (exhausted.message or "")
        assert told(MetadataUnavailable(Reason.AWAY, "away")) == BUSY
        assert [told(QueueFoundError()), told(GenerationError(TOPIC, 1))] == [None, None]
        assert not topic.is_unknown
        assert told(KafkaError(NOT_THERE, "none")) == NOT_THERE
        assert topic.is_unknown
        assert told(KafkaError(MOVED, "another")) == MOVED
        assert told(KafkaError(TOO_OLD, "?")) == BUSY
        assert told(FencedError(DEPOSED, Stamp(ProducerId(1), ProducerEpoch(0)), "append")) == BUSY
        assert told(HeldError(None)) == BUSY
        assert told(HeldError(Ownership(TOPIC, Generation(4), 9, "pid:1"))) is None, "now it is known who owns it"
        assert topic.state.holder is not None
        assert topic.state.holder.session == "pid:1"
        assert told(HeldError(Ownership(TOPIC, Generation(4), 9, "pid:1"))) == BUSY
        with pytest.raises(RuntimeError):
            topic._failed(RuntimeError())


async def test_a_session_that_only_the_changelog_knows_as_deposed_is_judged_again() -> None:
    async with cluster() as paper:
        node, _ = await owned(paper)
        behind = paper.node()
        assert await Client(8, FENCING).send(node, 2) == 0
        assert behind.whole.generation == 1
        behind.read()
        behind.whole.state = replace(behind.whole.state, holder=None)
        assert behind.whole._failed(KafkaError(DEPOSED, "fenced")) is None
        assert behind.whole.generation == 2
        assert behind.holder is not None
        assert behind.holder.session == "pid:8"


async def test_an_administrator_releases_an_owner_that_wrote_at_another_node() -> None:
    async with cluster() as paper:
        await owned(paper)
        other = paper.node()
        paper.move(other)
        with pytest.raises(GenerationError):
            await other.whole.administer(fence=False, generations=frozenset({2}))
        holder = await other.whole.administer(fence=False, generations=frozenset({1}))
        assert holder.session == "pid:7"
        assert other.holder is None
        entry = other.changelog.view.ownership(TOPIC)
        assert entry is not None
        assert bool(entry.value.released_ms)
        assert await Client(8).send(other, 2) == 0
        assert other.whole.generation == 2


async def test_an_administrators_generation_is_compared_with_what_another_node_wrote() -> None:
    async with cluster() as paper:
        node, _ = await owned(paper)
        behind = paper.node()
        assert await Client(8, FENCING).send(node, 2) == 0
        paper.move(behind)
        await behind.whole.administer(fence=True, generations=frozenset({2}))
        assert behind.whole.generation == 3
        assert behind.holder is None


async def test_nothing_is_released_under_an_epoch_that_is_gone() -> None:
    async with cluster() as paper:
        node, owner = await owned(paper)
        topic = node.whole
        topic.fence_wanted()
        with pytest.raises(KafkaError, match="changed meanwhile") as refused:
            await topic._let_go()
        assert refused.value.code == BUSY
        assert node.holder is not None
        assert await owner.send(node, 2) == 0


async def test_a_heartbeat_tells_of_an_owner_that_writes_here_and_of_no_other() -> None:
    async with cluster() as paper:
        node, _ = await owned(paper)
        other = paper.node()
        (told,) = node.whole.as_owned()
        assert (told.session, told.generation, told.node_id) == ("pid:7", 1, node.number)
        assert other.whole.as_owned() == []
        node.whole.fence_wanted()
        assert node.whole.as_owned() == []
