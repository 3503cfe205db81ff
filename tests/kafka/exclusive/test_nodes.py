"""Several nodes in front of one Kafka: failover, frozen nodes, rolling restarts; real processes, real clients."""

from __future__ import annotations

import json
from contextlib import ExitStack
from itertools import pairwise
from typing import cast

import pytest
import redis

from sidecar.cluster.nodes import NodeAddress, Placement
from tests.conftest import OwnValkey, StartNode, Unique
from tests.kafka.exclusive.checked import CheckedProducer
from tests.kafka.exclusive.producers import RawProducer
from tests.logs import read_log
from tests.nodes import NodeProcess
from tests.rest import Rest, govern
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for

PLACED = Placement([NodeAddress(number, "127.0.0.1", number) for number in (1, 2)])


class Nodes:
    """Two nodes of one cluster."""

    def __init__(self, start: StartNode, cluster: str) -> None:
        self.both = [
            start(cluster=cluster, node_id=number, LEASE_MS="1000", RECONNECT_GRACE_MS="20000") for number in (1, 2)
        ]
        wait_for(lambda: all(len(self._status(node)["nodes"]) == 2 for node in self.both), "both to know of each other")

    def _status(self, node: NodeProcess) -> dict[str, list[object]]:
        return Rest(node.admin_url).call("GET", "/v1/status")[1]

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.both)

    def serving(self, topic: str, *, seen_by: int = 0) -> NodeProcess:
        """The node that serves a topic."""
        found: list[int] = []

        def served() -> bool:
            found[:] = [Rest(self.both[seen_by].admin_url).topic(topic)["serving_node"] or 0]
            return found[0] > 0

        wait_for(served, "a node to serve the topic")
        return self.both[found[0] - 1]

    def other(self, node: NodeProcess) -> NodeProcess:
        return self.both[1 - self.both.index(node)]


@pytest.fixture
def nodes(node_process: StartNode, unique: Unique) -> Nodes:
    return Nodes(node_process, unique("n"))


@pytest.fixture
def topic(services: Services, nodes: Nodes) -> str:
    name = create_topic(services.kafka_bootstrap, partitions=1)
    govern(Rest(nodes.both[0].admin_url), name)
    return name


@pytest.mark.slow
def test_the_same_session_goes_on_at_another_node_when_its_own_is_killed(
    services: Services, nodes: Nodes, topic: str
) -> None:
    with CheckedProducer(nodes.bootstrap, "billing", topic) as billing:
        for _ in range(2):
            billing.goes_on(1_000)
            killed = nodes.serving(topic)
            killed.kill()
            billing.goes_on(1_000)
            assert nodes.serving(topic, seen_by=nodes.both.index(nodes.other(killed))) is nodes.other(killed)
            killed.start()
            wait_for(lambda killed=killed: Rest(killed.admin_url).call("GET", "/readyz")[0] == 200, "it to be back")
    assert billing.failed == []
    assert len(billing.acked) > 4_000
    assert read_log(services.kafka_bootstrap, topic) == billing.sent
    assert Rest(nodes.both[0].admin_url).topic(topic)["generation"] == 1


@pytest.mark.slow
def test_nodes_are_restarted_one_after_the_other_without_one_error(
    services: Services, nodes: Nodes, topic: str
) -> None:
    with CheckedProducer(nodes.bootstrap, "billing", topic) as billing:
        for node in nodes.both:
            billing.goes_on(500)
            assert node.stop() == 0
            node.start()
            wait_for(lambda node=node: Rest(node.admin_url).call("GET", "/readyz")[0] == 200, "it to be back")
        billing.goes_on(500)
    assert billing.failed == []
    assert read_log(services.kafka_bootstrap, topic) == billing.sent
    assert Rest(nodes.both[0].admin_url).topic(topic)["generation"] == 1


def test_nothing_of_a_node_that_was_frozen_through_a_takeover_is_behind_the_fence(
    services: Services, nodes: Nodes, topic: str
) -> None:
    first = CheckedProducer(nodes.bootstrap, "first", topic, prefix="a")
    with first:
        first.goes_on(1_000)
        frozen = nodes.serving(topic)
        alive = nodes.other(frozen)
        frozen.pause()
        try:
            settings = {"api.version.request.timeout.ms": 1_000}  # the frozen node takes connections all the same
            second = CheckedProducer(
                alive.bootstrap, "second;mode=exclusive_with_fencing", topic, prefix="b", **settings
            )
            with second:
                second.goes_on(1_000)
                frozen.resume()
                second.goes_on(1_000)
                wait_for(lambda: first.failed, "the old owner to be told", 60)
        finally:
            frozen.resume()
    assert second.failed == []
    assert {code for _, code in first.failed} == {90}
    log = read_log(services.kafka_bootstrap, topic)
    begins = log.index(b"b0")
    assert all(value.startswith(b"a") for value in log[:begins])
    assert log[begins:] == second.sent
    assert log[:begins] == first.sent[:begins]
    assert set(first.acked) <= set(log)
    assert all(one < two for one, two in pairwise(first.offsets))


@pytest.mark.parametrize("redis_forgets", [pytest.param(False, marks=pytest.mark.slow), True])
def test_who_waits_keeps_his_place_when_the_serving_node_is_killed(
    services: Services, node_process: StartNode, own_valkey: OwnValkey, unique: Unique, redis_forgets: bool
) -> None:
    valkey, cluster = own_valkey(), unique("q")
    first, second = [
        node_process(redis=valkey.url, cluster=cluster, node_id=number, LEASE_MS="900", RECONNECT_GRACE_MS="600")
        for number in (1, 2)
    ]
    topic = create_topic(services.kafka_bootstrap, partitions=1)
    govern(Rest(first.admin_url), topic)
    with RawProducer(first.bootstrap, "owner") as owner:
        owner.initialise()
        wait_for(lambda: owner.send(topic, b"owner", sequence=0).error == 0, "an owner at the first node")
        ids = [wait_at(first, topic, name) for name in ("a", "b", "c")]
        with redis.Redis.from_url(valkey.url) as client:
            if redis_forgets:
                client.flushall()
            wait_for(lambda: len(kept_queue(client, cluster, topic)) == 3, "the queue to be kept")
        first.kill()
    waiting = [RawProducer(second.bootstrap, f"{name};mode=wait_for_exclusive", ids[i]) for i, name in enumerate("abc")]
    got: list[int] = []

    def turn() -> bool:
        """All try, the last one first; who has it goes."""
        for index in (2, 1, 0):
            if index not in got and waiting[index].send(topic, b"abc"[index : index + 1], sequence=0).error == 0:
                got.append(index)
                waiting[index].close()
        return len(got) == 3

    try:
        wait_for(turn, "all of them to have had their turn", 60)
    finally:
        for each in waiting:
            each.close()
    assert got == [0, 1, 2]
    assert read_log(services.kafka_bootstrap, topic) == [b"owner", b"a", b"b", b"c"]


def kept_queue(client: redis.Redis, cluster: str, topic: str) -> list[str]:
    """Who waits, as Redis knows."""
    found = cast(bytes | None, client.hget(f"sidecar:{{{cluster}}}:queues", topic))
    return json.loads(found) if found else []


def wait_at(node: NodeProcess, topic: str, name: str) -> int:
    """Take a place in the queue; the producer id."""
    with RawProducer(node.bootstrap, f"{name};mode=wait_for_exclusive") as producer:
        producer.initialise()
        assert producer.send(topic, b"x", sequence=0).error == 7
        return producer.producer_id


@pytest.mark.slow
def test_a_node_that_is_added_takes_its_share_of_topics_and_no_session_ends(
    services: Services, node_process: StartNode, unique: Unique
) -> None:
    cluster = unique("n")
    first = node_process(cluster=cluster, node_id=1, LEASE_MS="600")
    rest = Rest(first.admin_url)
    topics = [create_topic(services.kafka_bootstrap, 1) for _ in range(12)]
    for topic in topics:
        govern(rest, topic)
    with ExitStack() as stack:
        busy = stack.enter_context(CheckedProducer(first.bootstrap, "busy", topics[0]))
        owners = [stack.enter_context(RawProducer(first.bootstrap, "owner")) for _ in topics[1:]]
        for number, (topic, owner) in enumerate(zip(topics[1:], owners, strict=True)):
            if number % 2:
                owner.initialise()
            assert owner.send(topic, b"0", sequence=0 if number % 2 else -1).error == 0
        second = node_process(cluster=cluster, node_id=2, LEASE_MS="600")
        plain, others = topics[1::2], [topics[0], *topics[2::2]]

        def moved() -> list[str]:
            return [topic for topic in others if rest.topic(topic)["serving_node"] == 2]

        share = [topic for topic in others if PLACED.of_topic(topic.encode()) == 2]
        wait_for(lambda: moved() == share, "the second node to have its share")
        assert [rest.topic(topic)["serving_node"] for topic in plain] == [1] * len(plain), "plain owners are not moved"
        busy.goes_on(500)
        for topic, owner in zip(topics[2::2], owners[1::2], strict=True):
            with RawProducer((second if topic in share else first).bootstrap, "owner", owner.producer_id) as again:
                wait_for(lambda: again.send(topic, b"1", sequence=1).error == 0, "the session to go on")  # noqa: B023
        for topic, owner in zip(plain, owners[::2], strict=True):
            assert owner.send(topic, b"1").error == 0
        assert all(rest.topic(topic)["generation"] == 1 for topic in topics)
    assert busy.failed == []
    assert read_log(services.kafka_bootstrap, topics[0]) == busy.sent


def test_any_node_may_be_asked_to_fence_and_a_rival_at_the_wrong_one_is_led_on(
    services: Services, nodes: Nodes, topic: str
) -> None:
    with RawProducer(nodes.both[0].bootstrap, "owner") as owner, RawProducer(nodes.both[1].bootstrap, "rival") as rival:
        owner.initialise()
        wait_for(lambda: owner.send(topic, b"0", sequence=0).error == 0, "an owner")
        other = nodes.other(nodes.serving(topic, seen_by=1))
        assert other is nodes.both[1]
        assert rival.send(topic, b"r").error == 6, "not 44, nor 7: that is the other node's to say"
        status, answer = Rest(other.admin_url).call("POST", f"/v1/topics/{topic}/fence")
        assert (status, answer["owner"], answer["generation"]) == (200, None, 2)
        assert owner.send(topic, b"1", sequence=1).error == 90
