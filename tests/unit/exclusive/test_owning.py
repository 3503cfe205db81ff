"""Claims by request to topics and partitions: what is seen before, what is taken, who is the owner afterwards."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from metadata import MetadataProtocolError
from metadata.ownership import AccessMode
from sidecar.access.prospects import Look, Prospect
from sidecar.exclusive.owning import TopicClaim, TopicOwners, refused
from sidecar.policy.policies import PolicyBook, Scope
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.takeover.takeover import LostRaceError
from sidecar.v1 import control_pb2 as control
from tests.unit.exclusive.paper_cluster import GRACE_S, TOPIC, Client, Cluster, Node, cluster
from tests.wait import wait_until

READY, WAIT, BUSY = Look(Prospect.READY), Look(Prospect.WAIT), Look(Prospect.BUSY)
FENCING, WAITING = AccessMode.EXCLUSIVE_WITH_FENCING, AccessMode.WAIT_FOR_EXCLUSIVE


def owners(node: Node) -> tuple[TopicOwners, list[int]]:
    """Claims at a node, and the connections that are connected with its topic."""
    connected: list[int] = []
    topics = SimpleNamespace(connected=lambda connection, topic: connected.append(connection))
    governed = SimpleNamespace(env=node.env, topic=lambda name: node.topic, topics=topics)
    return TopicOwners(cast(Any, governed)), connected


def claim(client: Client, partition: int | None = None) -> TopicClaim:
    claimant = replace(client.claimant, names_session=True)
    return TopicClaim(TOPIC, partition, claimant, "host", lambda: client.is_open)


async def owned(paper: Cluster) -> tuple[Node, TopicOwners, Client]:
    """A node at which a client owns the topic by request."""
    node, client = paper.node(), Client(7)
    its, connected = owners(node)
    assert its.look(claim(client)) == READY
    assert await its.take(claim(client)) == READY
    assert connected == [client.connection]
    return node, its, client


async def test_a_session_that_owns_by_request_writes_as_the_owner() -> None:
    async with cluster() as paper:
        node, its, client = await owned(paper)
        assert its.generation(claim(client)) == 1
        assert await client.send(node, 1) == 0
        assert node.whole.generation == 1
        assert await Client(8).send(node, 2) == 44
        assert await its.take(claim(client)) == READY
        assert paper.kafka.log().values == [1]


@pytest.mark.parametrize(
    ("rival", "error", "prospect"),
    [
        (Client(8), control.HELD, Prospect.REFUSED),
        (Client(8, WAITING), control.NONE, Prospect.WAIT),
        (Client(8, FENCING), control.NONE, Prospect.READY),
        (Client(8, generation=1), control.NONE, Prospect.READY),
    ],
)
async def test_beside_an_owner(rival: Client, error: control.Error, prospect: Prospect) -> None:
    async with cluster() as paper:
        node, its, owner = await owned(paper)
        looked = its.look(claim(rival))
        assert (looked.prospect, looked.error) == (prospect, error)
        assert node.holder is not None
        assert node.holder.session == owner.session, "a look changes nothing"
        taken = await its.take(claim(rival))
        assert (taken.prospect, taken.error) == (prospect, error)
        assert its.generation(claim(rival)) == (2 if prospect is Prospect.READY else None)
        assert its.generation(claim(owner)) == (None if prospect is Prospect.READY else 1)


async def test_a_deposed_session_and_a_lower_generation() -> None:
    async with cluster() as paper:
        _, its, owner = await owned(paper)
        assert await its.take(claim(Client(8, FENCING))) == READY
        for found in (its.look(claim(owner)), await its.take(claim(owner))):
            assert (found.prospect, found.error) == (Prospect.REFUSED, control.DEPOSED)
        lower = its.look(claim(Client(9, generation=1)))
        assert (lower.prospect, lower.error) == (Prospect.REFUSED, control.LOWER_GENERATION)


@pytest.mark.parametrize(
    ("code", "claimant", "error"),
    [
        (ErrorCode.PRODUCER_FENCED, Client(1), control.DEPOSED),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, Client(1), control.NOT_SERVING),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, Client(1), control.UNKNOWN_RESOURCE),
        (ErrorCode.INVALID_REQUEST, Client(1), control.INVALID_REQUEST),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, Client(1), control.NOT_AUTHORIZED),
        (ErrorCode.LEADER_NOT_AVAILABLE, Client(1), control.UNAVAILABLE),
        (ErrorCode.POLICY_VIOLATION, Client(1), control.HELD),
        (ErrorCode.POLICY_VIOLATION, Client(1, generation=2), control.LOWER_GENERATION),
        (ErrorCode.POLICY_VIOLATION, Client(1, WAITING), control.QUEUE_FULL),
        (ErrorCode.POLICY_VIOLATION, Client(1, WAITING, generation=2), control.LOWER_GENERATION),
    ],
)
def test_the_error_of_a_claim_by_that_of_a_batch(code: int, claimant: Client, error: control.Error) -> None:
    assert refused(claimant.claimant, code, "why") == Look(Prospect.REFUSED, error, "why")
    assert refused(claimant.claimant, code, None).message == ""


async def test_another_clients_producer_id_cannot_be_claimed() -> None:
    async with cluster() as paper:
        node, its, owner = await owned(paper)
        assert await owner.send(node, 1) == 0
        stranger = claim(Client(7, name="stranger"))
        for found in (its.look(stranger), await its.take(stranger)):
            assert (found.prospect, found.error) == (Prospect.REFUSED, control.HELD)
            assert "belongs to another client.id" in found.message
        assert its.look(claim(Client(7))) == READY


async def test_a_place_in_the_queue_is_kept_in_the_order_of_the_requests() -> None:
    async with cluster() as paper:
        node, its, owner = await owned(paper)
        late, early = Client(8, WAITING), Client(9, WAITING)
        its.keep_place(claim(late), 20.0)
        its.keep_place(claim(early), 10.0)
        gone = Client(10, WAITING)
        gone.is_open = False
        its.keep_place(claim(gone), 5.0)
        assert node.whole.sessions() == ("pid:9", "pid:8")
        assert its.head_of_queue(TOPIC, None) == "pid:9"
        node.env.late = 1e6
        assert its.head_of_queue(TOPIC, None) == "pid:9", "it waits until it leaves"
        node.env.late = 0.0
        its.leave(claim(early))
        assert its.head_of_queue(TOPIC, None) == "pid:8"
        await wait_until(lambda: paper.redis.waiting == ["pid:8"], "Redis, for the next node")
        assert await its.release(claim(owner)) == READY
        assert its.look(claim(late)) == READY
        assert its.look(claim(early)) == WAIT


async def test_the_topic_hears_of_the_end_of_a_connection_that_only_waits() -> None:
    async with cluster() as paper:
        its, connected = owners(paper.node())
        waiting = Client(8, WAITING)
        its.keep_place(claim(waiting), 5.0)
        assert connected == [waiting.connection]


async def test_a_claimant_that_went_away_takes_nothing() -> None:
    async with cluster() as paper:
        node, client = paper.node(), Client(7)
        its, _ = owners(node)
        client.is_open = False
        assert await its.take(claim(client)) == BUSY
        assert paper.redis.claims == []


async def test_while_an_operation_is_under_way_nothing_can_be_said() -> None:
    async with cluster() as paper:
        node = paper.node()
        its, _ = owners(node)
        offered = Client(7).offer(node, 1)
        assert its.look(claim(Client(8))) == BUSY
        await offered


async def test_an_owner_that_may_come_back_is_waited_for() -> None:
    async with cluster() as paper:
        await owned(paper)
        other = paper.node()
        paper.move(other)
        its, _ = owners(other)
        found = its.look(claim(Client(8)))
        assert (found.prospect, found.error) == (Prospect.REFUSED, control.UNAVAILABLE)
        assert await its.take(claim(Client(8))) == WAIT
        other.env.late = GRACE_S
        assert await its.take(claim(Client(8))) == READY


async def test_at_a_node_that_does_not_serve_the_topic() -> None:
    async with cluster() as paper:
        _, _, owner = await owned(paper)
        other = paper.node()
        other.learn_of(1)
        its, _ = owners(other)
        wanted = claim(Client(8))
        assert its.is_served_elsewhere(wanted)
        for found in (its.look(wanted), await its.take(wanted), await its.release(claim(owner))):
            assert (found.prospect, found.error) == (Prospect.REFUSED, control.NOT_SERVING)


async def test_a_broker_that_does_not_lead_is_no_other_node() -> None:
    async with cluster() as paper:
        node = paper.node()
        its, _ = owners(node)

        async def no_leader(request: Any) -> None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "no leader")

        paper.kafka.before = no_leader
        found = await its.take(claim(Client(7)))
        assert (found.prospect, found.error) == (Prospect.REFUSED, control.UNAVAILABLE)
        assert "has no leader now" in found.message


async def test_a_release_ends_the_ownership_of_its_session_alone() -> None:
    async with cluster() as paper:
        node, its, owner = await owned(paper)
        assert await its.release(claim(Client(8))) == READY
        assert node.holder is not None
        plain = Client(-1)
        assert its.generation(claim(plain)) is None
        successor = claim(plain).by(owner.connection, lambda: True)
        assert its.generation(successor) == 1, "it is on a connection of the owner"
        assert await its.release(successor) == READY
        assert node.holder is None
        assert its.generation(claim(owner)) is None


async def test_a_release_that_kafka_does_not_take() -> None:
    async with cluster() as paper:
        node, its, owner = await owned(paper)
        node.whole.lose_epoch()
        other = paper.node()
        paper.redis.is_away = True
        its, _ = owners(other)
        found = await its.release(claim(owner))
        assert (found.prospect, found.error) == (Prospect.REFUSED, control.UNAVAILABLE)
        assert "cannot be released now" in found.message


@pytest.mark.parametrize("error", [LostRaceError("it kept changing"), MetadataProtocolError("killed")])
async def test_a_release_that_fails_leaves_the_ownership(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster() as paper:
        node, its, owner = await owned(paper)
        monkeypatch.setattr(node.whole, "_release", AsyncMock(side_effect=error))
        found = await its.release(claim(owner))
        assert (found.prospect, found.error) == (Prospect.REFUSED, control.UNAVAILABLE)
        assert its.generation(claim(owner)) == 1


async def test_a_further_connection_keeps_the_ownership() -> None:
    async with cluster() as paper:
        node, its, owner = await owned(paper)
        second = Client(7)
        its.join(claim(second), second.connection)
        its.join(claim(Client(8)), 999)
        node.close(owner)
        await node.settled()
        assert node.holder is not None
        assert node.holder.connections == {second.connection}


# What can be claimed ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "partition", "fault"),
    [
        (Scope.TOPIC, None, ""),
        (Scope.TOPIC, 0, "claim the topic"),
        (Scope.PARTITION, 0, ""),
        (Scope.PARTITION, None, "claim partitions"),
    ],
)
async def test_the_scope_says_what_is_claimed(scope: Scope, partition: int | None, fault: str) -> None:
    async with cluster() as paper:
        its, _ = owners(paper.node(scope=scope))
        assert fault in its.scope_fault(TOPIC, partition)
        assert bool(its.scope_fault(TOPIC, partition)) is bool(fault)
        looked = its.look(claim(Client(7), partition))
        expected = (Prospect.REFUSED, control.INVALID_REQUEST) if fault else (Prospect.READY, control.NONE)
        assert (looked.prospect, looked.error) == expected


async def test_a_partition_is_claimed_and_no_other() -> None:
    async with cluster() as paper:
        node = paper.node(scope=Scope.PARTITION)
        its, _ = owners(node)
        assert await its.take(claim(Client(7), 1)) == READY
        assert its.look(claim(Client(8), 1)).error == control.HELD
        assert await its.take(claim(Client(8), 0)) == READY
        assert [its.generation(claim(Client(8), partition)) for partition in (0, 1)] == [1, None]
        assert await its.release(claim(Client(8), 0)) == READY
        await wait_until(lambda: its.generation(claim(Client(7), 1)) == 1, "the other owner")


async def test_each_partition_has_a_queue_of_its_own() -> None:
    async with cluster() as paper:
        its, _ = owners(paper.node(scope=Scope.PARTITION))
        assert await its.take(claim(Client(7), 1)) == READY
        its.keep_place(claim(Client(8, WAITING), 1), 1.0)
        assert [its.head_of_queue(TOPIC, partition) for partition in (0, 1)] == [None, "pid:8"]
        its.leave(claim(Client(8), 1))
        assert its.head_of_queue(TOPIC, 1) is None


async def test_a_topic_that_lost_its_policy_is_claimed_again() -> None:
    async with cluster() as paper:
        node, its, owner = await owned(paper)
        node.env.catalog.book = PolicyBook({})
        assert its.generation(claim(owner)) is None
        found = its.look(claim(owner))
        assert (found.error, "no policy any more" in found.message) == (control.INVALID_REQUEST, True)


@pytest.mark.parametrize(
    ("policy", "asked", "mode"),
    [
        (AccessMode.SHARED, control.ACCESS_MODE_UNSPECIFIED, AccessMode.EXCLUSIVE),
        (FENCING, control.ACCESS_MODE_UNSPECIFIED, FENCING),
        (FENCING, control.WAIT_FOR_EXCLUSIVE, WAITING),
        (AccessMode.SHARED, control.EXCLUSIVE_WITH_FENCING, FENCING),
    ],
)
async def test_the_mode_of_a_claim(policy: AccessMode, asked: control.AccessMode, mode: AccessMode) -> None:
    async with cluster() as paper:
        its, _ = owners(paper.node(policy))
        assert its.mode(TOPIC, asked) is mode


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.POLICY_VIOLATION, control.NOT_AUTHORIZED),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, control.UNKNOWN_RESOURCE),
        (ErrorCode.LEADER_NOT_AVAILABLE, control.UNAVAILABLE),
    ],
)
async def test_topics_that_do_not_become_governed(
    code: int, error: control.Error, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster() as paper:
        node = paper.node()
        its, _ = owners(node)
        asked: list[str] = []

        async def govern(name: str) -> KafkaError | None:
            asked.append(name)
            return KafkaError(code, "why") if name == "bad" else None

        monkeypatch.setattr(node.env.catalog, "govern", govern)
        assert await its.govern([TOPIC, "bad", "good"]) == {"bad": Look(Prospect.REFUSED, error, "why")}
        assert asked == ["bad", "good"]


async def test_a_node_that_shuts_down_says_so() -> None:
    async with cluster() as paper:
        node, its, client = await owned(paper)
        node.env.draining = True
        assert its.look(claim(client)) == Look(Prospect.REFUSED, control.NOT_SERVING, "this node is shutting down")


async def test_a_release_that_a_broker_refuses_is_told_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster() as paper:
        node, its, client = await owned(paper)
        monkeypatch.setattr(node.whole, "give_up", AsyncMock(side_effect=KafkaError(ErrorCode.PRODUCER_FENCED, "no")))
        assert await its.release(claim(client)) == Look(Prospect.REFUSED, control.DEPOSED, "no")
