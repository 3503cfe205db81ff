"""A topic that another node has just begun to serve, of which no heartbeat has told yet."""

from __future__ import annotations

import pytest

from tests.conftest import StartNode, Unique
from tests.kafka.exclusive.producers import RawProducer
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for


@pytest.mark.parametrize("scope", ["topic", "partition"])
@pytest.mark.slow
def test_an_owner_is_fenced_and_released_by_a_node_that_has_not_heard_of_it(
    node_process: StartNode, services: Services, unique: Unique, scope: str
) -> None:
    cluster, query = unique("two"), "?partition=0" if scope == "partition" else ""
    nodes = [node_process(node_id=number, cluster=cluster) for number in (1, 2)]
    for turn in range(4):
        act, topic = ("fence", "release")[turn % 2], create_topic(services.kafka_bootstrap, 1)
        policy = {"access_mode": "exclusive", "scope": scope}
        assert Rest(nodes[0].admin_url).call("PUT", f"/v1/topics/{topic}/policy", policy)[0] == 200
        serving, other = nodes if turn % 4 < 2 else nodes[::-1]
        asked = Rest(other.admin_url)
        with RawProducer(serving.bootstrap, "a") as producer:
            wait_for(lambda: producer.send(topic, [b"v"]).error == 0, "the owner")  # noqa: B023 - used before the next
            status, answer = asked.call("POST", f"/v1/topics/{topic}/{act}{query}")
            assert (status, answer.get("owner"), answer.get("owners") or None) == (200, None, None), answer
        for each in nodes:
            status, answer = Rest(each.admin_url).call("POST", f"/v1/topics/{topic}/{act}{query}")
            assert (status, answer["message"].startswith("nobody owns")) == (409, True)
