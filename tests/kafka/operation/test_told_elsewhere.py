"""A topic that another node serves: any node tells who waits and which ids there are, as long as that one answers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.conftest import StartNode, Unique
from tests.kafka.dedup.ids import IdProducer
from tests.kafka.exclusive.producers import RawProducer
from tests.nodes import NodeProcess
from tests.rest import Rest, govern
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for

SEEN = ("owner", "generation", "producers", "deduplication_state", "serving_node")


@pytest.mark.slow
def test_who_waits_and_which_ids_there_are_is_told_by_any_node_until_the_one_that_knows_falls_silent(
    node_process: StartNode, services: Services, unique: Unique
) -> None:
    cluster = unique("two")
    nodes = [node_process(node_id=number, cluster=cluster, LEASE_MS="12000") for number in (1, 2)]
    topic = create_topic(services.kafka_bootstrap, 1)
    policy = {"access_mode": "exclusive", "deduplication": True}
    assert Rest(nodes[0].admin_url).call("PUT", f"/v1/topics/{topic}/policy", policy)[0] == 200
    for_ids = [IdProducer(each.bootstrap, "billing") for each in nodes]
    try:
        wait_for(lambda: any(each.write(topic, 7).error == 0 for each in for_ids), "an owner", 60)
        number = wait_for(lambda: Rest(nodes[0].admin_url).topic(topic)["serving_node"], "a node that serves it")
        serving, other = nodes[number - 1], nodes[2 - number]
        assert (serving.node_id, other.node_id) == (number, 3 - number)
        with RawProducer(serving.bootstrap, "next;mode=wait_for_exclusive") as waiter:
            wait_for(lambda: told(other, topic)["serving_node"] == number, "the other node to know", 30)
            assert waiter.send(topic, [b"v"]).error != 0
            local = told(serving, topic)
            assert [each["name"] for each in local["waiting"]] == ["next"]
            assert [each["name"] for each in local["producers"]] == ["billing"]
            seen = told(other, topic)
            assert {key: seen[key] for key in SEEN} == {key: local[key] for key in SEEN}
            assert [each["session"] for each in seen["waiting"]] == [each["session"] for each in local["waiting"]]
            assert seen["owner"]["client"]
            status, answer = Rest(other.admin_url).call("GET", f"/v1/topics/{topic}?partition=x")
            assert (status, "partition" in answer["message"]) == (400, True)
            os.kill(serving.child.pid, signal.SIGSTOP)
            try:
                alone = told(other, topic)
            finally:
                os.kill(serving.child.pid, signal.SIGCONT)
            assert (alone["waiting"], alone["producers"]) == ([], [])
            assert alone["owner"]["name"] == "billing", "what the changelog tells it knows by itself"
            wait_for(
                lambda: waiter.send(topic, [b"v"]).error and told(other, topic)["waiting"],  # a place lasts 5 s
                "the node that serves it to answer again",
                60,
            )
    finally:
        for each in for_ids:
            each.close()


@pytest.mark.parametrize("advertised", ["127.0.0.1:1", None], ids=["the same", "its own"])
def test_a_node_that_cannot_reach_the_serving_one_says_why_instead_of_asking_itself(
    node_process: StartNode, services: Services, unique: Unique, advertised: str | None
) -> None:
    cluster = unique("two")
    told_by_hand: dict[str, Any] = {} if advertised is None else {"ADMIN_ADVERTISE": advertised}
    nodes = [node_process(node_id=number, cluster=cluster, **told_by_hand) for number in (1, 2)]
    with owned(nodes, services) as (topic, _, other):
        status, answer = Rest(other.admin_url).call("POST", f"/v1/topics/{topic}/fence")
    if advertised is None:
        assert status == 200, answer
    else:
        assert (status, "SIDECAR_ADMIN_ADVERTISE" in answer["message"]) == (503, True), answer


@pytest.mark.slow  # a request to a node that is silent is waited for, and so is its lease
def test_a_change_that_the_serving_node_took_and_did_not_answer_may_have_been_done(
    node_process: StartNode, services: Services, unique: Unique
) -> None:
    cluster = unique("two")
    nodes = [node_process(node_id=number, cluster=cluster, LEASE_MS="30000") for number in (1, 2)]
    with owned(nodes, services) as (topic, serving, other):
        serving.pause()
        try:
            status, answer = Rest(other.admin_url).call("POST", f"/v1/topics/{topic}/fence")
        finally:
            serving.resume()
        assert (status, f"look with `sidecar topic show {topic}`" in answer["message"]) == (503, True), answer
        wait_for(lambda: told(serving, topic)["owner"] is None, "the fence, which had arrived")
    serving.kill()
    status, answer = Rest(other.admin_url).call("POST", f"/v1/topics/{topic}/fence")
    assert (status, "may have been done" in answer["message"]) == (503, False), answer


@contextmanager
def owned(nodes: list[NodeProcess], services: Services) -> Iterator[tuple[str, NodeProcess, NodeProcess]]:
    """A topic with an owner, the node that serves it and the other one, which knows that."""
    topic = create_topic(services.kafka_bootstrap, 1)
    govern(Rest(nodes[0].admin_url), topic)
    with ExitStack() as clients:
        owners = [clients.enter_context(RawProducer(each.bootstrap, "owner")) for each in nodes]
        wait_for(lambda: any(each.send(topic, b"v").error == 0 for each in owners), "an owner", 60)
        number = wait_for(lambda: told(nodes[0], topic)["serving_node"], "a node that serves it")
        serving, other = nodes[number - 1], nodes[2 - number]
        wait_for(lambda: told(other, topic)["serving_node"] == number, "the other node to know", 30)
        yield topic, serving, other


def told(node: NodeProcess, topic: str) -> dict[str, Any]:
    return Rest(node.admin_url).topic(topic)
