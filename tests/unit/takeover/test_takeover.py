"""A takeover that is disturbed before any of its requests to Kafka, or of its answers from Redis.

What holds in each case: what was answered with success is in the log, once and in order; what was refused is not; and
the topic can be written afterwards by the session that owns it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from metadata import MetadataUnavailable
from metadata.errors import Reason
from metadata.ownership import AccessMode, ClaimAnswer, ClaimStatus
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.calls.logs import ListOffsets
from sidecar.protocol.calls.transactions import EndTxn, InitProducerId
from tests.unit.exclusive.paper_cluster import GRACE_S, TOPIC, Client, Cluster, Node, cluster

BUSY, MOVED, POLICY_VIOLATION, DEPOSED = 5, 6, 44, 90
FENCING = AccessMode.EXCLUSIVE_WITH_FENCING
REQUESTS = range(13)
"""The requests of a takeover of a topic that was owned before, without repeats; there are a few less."""


def before_request(paper: Cluster, number: int, happens: Callable[[], Awaitable[None]]) -> list[bool]:
    """Let something happen once, before this request to Kafka from now on; the list is empty until then."""
    happened, seen = list[bool](), 0

    async def before(request: Any) -> None:
        nonlocal seen
        if seen == number and not happened:
            happened.append(True)
            await happens()
        seen += not happened

    paper.kafka.before = before
    return happened


async def failed_over(paper: Cluster) -> tuple[Node, Node, Client]:
    """Two nodes, the first of which died with a batch that it had sent; the client owns the topic."""
    first, owner = paper.node(), Client(7)
    assert [await owner.send(first, value) for value in (1, 2)] == [0, 0]
    second = paper.node()
    paper.move(second)
    return first, second, Client(7)


@pytest.mark.parametrize("number", REQUESTS)
async def test_another_node_takes_the_topic_during_a_takeover(number: int) -> None:
    async with cluster() as paper:
        _, second, owner = await failed_over(paper)
        third, rival = paper.node(), Client(8, FENCING)

        async def overtake() -> None:
            paper.move(third)
            paper.redis.lapse()
            assert await rival.send(third, 8) == 0

        happened = before_request(paper, number, overtake)
        code = await owner.send(second, 3, sequence=2)
        await second.settled()
        assert not (happened and number == REQUESTS[-1]), "the range is the takeover's"
        if not happened:
            assert code == 0
            return
        assert code in (BUSY, MOVED, DEPOSED)
        if await rival.send(third, 9) == MOVED:  # the takeover went on to a fence before it found that it was late
            await third.settled()
            assert await rival.send(third, 9, sequence=1) == 0
        assert await owner.send(third, 3, sequence=2) == DEPOSED
        assert paper.kafka.log().values == [1, 2, 8, 9]
        assert paper.redis.owner == (2, "pid:8")


@pytest.mark.parametrize("number", REQUESTS)
async def test_kafka_does_not_answer_one_request_of_a_takeover(number: int) -> None:
    async with cluster() as paper:
        _, second, owner = await failed_over(paper)

        async def fail() -> None:
            raise UpstreamError("away")

        before_request(paper, number, fail)
        code = await owner.send(second, 3, sequence=2)
        assert code in (0, BUSY)
        assert paper.kafka.log().values == ([1, 2, 3] if code == 0 else [1, 2])
        assert paper.redis.open == [], "the claim is withdrawn, or published"
        assert await owner.send(second, 4, sequence=3 if code == 0 else 2) == 0
        assert second.whole.generation == 1


@pytest.mark.parametrize("number", REQUESTS)
async def test_a_batch_of_the_last_epoch_is_appended_during_a_takeover(number: int) -> None:
    """It is in front of the fence, and its client learns that it is there, or it is not appended."""
    async with cluster() as paper:
        first, second, owner = await failed_over(paper)
        paper.kafka.holding = True
        late = Client(7)
        late.claimant = replace(late.claimant, connection=min(first_connections(first)))
        answered = late.offer(first, 3, sequence=2)
        (on_its_way,), paper.kafka.under_way, paper.kafka.holding = paper.kafka.under_way, [], False

        async def append() -> None:
            paper.kafka.under_way = [on_its_way]
            paper.kafka.deliver()

        happened = before_request(paper, number, append)
        again = await owner.offer(second, 3, sequence=2)
        paper.kafka.before = None
        if not happened:
            await append()
        assert (await answered).error in (0, MOVED)
        assert paper.kafka.log().values == [1, 2, 3]
        assert again.error in (0, 46)
        assert await owner.send(second, 4, sequence=3) == 0


def first_connections(node: Node) -> frozenset[int]:
    """The connections of a node's owner."""
    assert node.holder is not None
    return node.holder.connections


# The topic itself changes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", REQUESTS)
async def test_a_partition_is_added_during_a_takeover(number: int) -> None:
    """An epoch covers all partitions that there are after its fence, or a batch for the new one needs the next."""
    async with cluster(partitions=1) as paper:
        _, second, owner = await failed_over(paper)

        async def add() -> None:
            paper.kafka.count = 2

        before_request(paper, number, add)
        assert await owner.send(second, 3, sequence=2) == 0
        paper.kafka.before, paper.kafka.count = None, 2
        assert await owner.send(second, 4, partition=1) == 0
        assert (paper.kafka.log(0).values, paper.kafka.log(1).values) == ([1, 2, 3], [4])
        taken = second.whole.written_under
        assert taken is not None
        assert taken.partitions == (0, 1)
        stamp = taken.stamp
        assert all(log.remembered()[stamp.producer_id][0] == stamp.epoch for log in paper.kafka.logs.values())


async def test_a_topic_that_was_created_again_has_no_owner_and_its_generation_does_not_fall() -> None:
    async with cluster() as paper:
        _, second, owner = await failed_over(paper)
        paper.kafka.topic_id = UUID(int=2)
        for partition in (0, 1):
            del paper.kafka.logs[next(found for found in paper.kafka.logs if found == (TOPIC, partition))]
        second.env.late = GRACE_S
        assert await Client(8).send(second, 5) == 0
        assert second.whole.generation == 2
        assert paper.kafka.log().values == [5]
        assert await owner.send(second, 6, sequence=0) == POLICY_VIOLATION


async def test_a_takeover_that_is_disturbed_each_time_ends_and_the_next_batch_begins_another() -> None:
    async with cluster() as paper:
        node = paper.node()

        async def create_again(request: Any) -> None:
            if isinstance(request, InitProducerId):
                paper.kafka.topic_id = UUID(int=paper.kafka.topic_id.int + 1)

        paper.kafka.before = create_again
        assert await Client(7).send(node, 1) == BUSY
        assert paper.kafka.calls.count(InitProducerId) == 4
        assert node.holder is None
        paper.kafka.before = None
        assert await Client(7).send(node, 2) == 0
        assert paper.kafka.log().values == [2]


async def test_a_partition_that_was_written_and_that_no_broker_knows_stops_a_takeover() -> None:
    async with cluster(partitions=2) as paper:
        first, owner = paper.node(), Client(7)
        assert await owner.send(first, 1, partition=1) == 0
        second = paper.node()
        paper.move(second)
        paper.kafka.count = 1
        assert await Client(7).send(second, 2) == BUSY
        paper.kafka.count = 2
        assert await Client(7).send(second, 2, partition=1, sequence=1) == 0
        assert paper.kafka.log(1).values == [1, 2]


async def test_a_client_that_wrote_before_the_topic_had_a_policy_goes_on_where_it_was() -> None:
    async with cluster() as paper:
        log = paper.kafka.log()
        assert [log.append(7, 0, number, (number,)) for number in range(3)] == [(0, 0), (0, 1), (0, 2)]
        node, owner = paper.node(), Client(7)
        assert await owner.send(node, 2, sequence=2) == 46
        assert await owner.send(node, 3, sequence=3) == 0
        assert log.values == [0, 1, 2, 3]


async def test_a_look_that_the_leader_does_not_answer_begins_no_fence() -> None:
    async with cluster() as paper:
        node = paper.node()

        async def fail(request: Any) -> None:
            if isinstance(request, ListOffsets):
                raise UpstreamError("away")

        paper.kafka.before = fail
        assert await Client(7).send(node, 1) == BUSY
        assert EndTxn not in paper.kafka.calls
        assert len(paper.redis.claims) == 1
        assert paper.redis.open == []


# Redis --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (ClaimStatus.BUSY, BUSY),
        (ClaimStatus.OVER, BUSY),
        (ClaimStatus.ELSEWHERE, MOVED),
        (ClaimStatus.EXHAUSTED, POLICY_VIOLATION),
        (ClaimStatus.HELD, POLICY_VIOLATION),
        (ClaimStatus.LOWER_GENERATION, POLICY_VIOLATION),
    ],
)
async def test_a_claim_that_redis_does_not_grant_touches_nothing_in_kafka(status: ClaimStatus, code: int) -> None:
    async with cluster() as paper:
        _, second, owner = await failed_over(paper)
        paper.redis.answers = [ClaimAnswer(status)]
        paper.kafka.calls.clear()
        assert await owner.send(second, 3, sequence=2) == code
        assert paper.kafka.calls == []
        assert await owner.send(second, 3, sequence=2) == 0


@pytest.mark.parametrize("is_sent", [True, False])
async def test_a_claim_whose_answer_was_lost_is_made_again_as_the_same_claim(is_sent: bool) -> None:
    async with cluster() as paper:
        node, owner = paper.node(), Client(7)
        paper.redis.answers = [MetadataUnavailable(Reason.AWAY, "lost", maybe_applied=is_sent)]
        assert await owner.send(node, 1) == (0 if is_sent else BUSY)
        assert len({claim.token for claim in paper.redis.claims}) == 1
        assert len(paper.redis.claims) == (2 if is_sent else 1)


@pytest.mark.parametrize("number", REQUESTS)
async def test_redis_goes_away_during_a_takeover(number: int) -> None:
    """Its claim was granted: the outcome is in Kafka, and the next heartbeat brings it to Redis."""
    async with cluster() as paper:
        _, second, owner = await failed_over(paper)

        async def away() -> None:
            paper.redis.is_away = True

        before_request(paper, number, away)
        assert await owner.send(second, 3, sequence=2) == 0
        assert await owner.send(second, 4, sequence=3) == 0
        paper.redis.is_away = False
        paper.redis.lapse()
        (owned,) = second.whole.as_owned()
        assert (owned.session, owned.generation, owned.node_id) == ("pid:7", 1, 2)
