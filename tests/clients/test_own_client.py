"""A client of the own APIs in Go, made of control.proto and the page alone, against real nodes."""

from __future__ import annotations

from pathlib import Path

from sidecar.v1 import control_pb2 as control
from tests.conftest import StartNode, Unique
from tests.kafka.dedup.conftest import deduplicate
from tests.kafka.dedup.ids import IdProducer
from tests.nodes import NodeProcess
from tests.own import OwnClient
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for

from .ownctl import OwnCtl


def topic_with_ids(services: Services, node: NodeProcess, **policy: object) -> str:
    topic = create_topic(services.kafka_bootstrap)
    deduplicate(Rest(node.admin_url), topic, **policy)
    return topic


def test_a_producer_learns_where_it_resumes(ownctl: Path, services: Services, node: NodeProcess) -> None:
    topic = topic_with_ids(services, node)
    with IdProducer(node.bootstrap, "zähler/eu") as producer:
        assert producer.write(topic, 3, 9).error == 0
        assert producer.write(topic, 4, partition=1).error == 0
    asked = control.LastSequenceRequest(topic=topic, producer_name="zähler/eu")
    with OwnCtl(ownctl, node.bootstrap, "last-sequence", asked) as ctl:
        answer = ctl.expect("known")["answer"]
        assert (answer["last_sequence_ids"], answer["last_sequence_id"]) == ({"0": "9", "1": "4"}, "4")
        assert ctl.ended() == 0


def test_owners_are_told_as_a_python_client_is_told(ownctl: Path, services: Services, node: NodeProcess) -> None:
    topic = topic_with_ids(services, node, access_mode="exclusive")
    with IdProducer(node.bootstrap, "billing") as billing, OwnClient(node.bootstrap) as own:
        assert billing.write(topic, 1).error == 0
        asked = control.DescribeOwnersRequest(resources=[control.Resource(topic=topic, partition=1)])
        with OwnCtl(ownctl, node.bootstrap, "describe", asked) as ctl:
            [told] = ctl.expect("described")["answer"]["ownerships"]
            assert ctl.ended() == 0
        [found] = own.owners(*asked.resources).ownerships
    assert (told["owner_name"], told["owner_session"]) == ("billing", f"pid:{billing.producer_id}")
    assert (found.owner_name, found.owner_session) == (told["owner_name"], told["owner_session"])
    assert (int(told["generation"]), told["serving_node"]) == (found.generation, 1)
    assert told["resource"] == {"topic": topic, "name": "", "partition": 1}


def test_what_is_asked_wrongly_is_refused_by_name(ownctl: Path, node: NodeProcess) -> None:
    with OwnCtl(ownctl, node.bootstrap, "last-sequence", control.LastSequenceRequest(topic="not-there")) as ctl:
        told = ctl.expect("refused")
        assert told["error"] == "INVALID_REQUEST"
        assert told["message"].startswith("producer_name is empty")
        assert ctl.ended() == 4


def test_where_no_node_answers_it_says_so(ownctl: Path, services: Services) -> None:
    request = control.LastSequenceRequest(topic="orders", producer_name="billing")
    with OwnCtl(ownctl, services.kafka_bootstrap, "last-sequence", request, "-patience", "1s") as ctl:
        assert "the connection ended" in ctl.expect("failed")["message"]  # a Kafka without a sidecar hangs up
        assert ctl.ended() == 1


def test_it_finds_the_node_that_serves_the_topic(
    ownctl: Path, services: Services, node_process: StartNode, unique: Unique
) -> None:
    cluster = unique("c")
    nodes = [node_process(cluster=cluster, node_id=number) for number in (1, 2)]
    rests = [Rest(node.admin_url) for node in nodes]
    wait_for(lambda: all(len(r.call("GET", "/v1/status")[1]["nodes"]) == 2 for r in rests), "both nodes")
    topic = topic_with_ids(services, nodes[0], access_mode="exclusive")
    asked = control.LastSequenceRequest(topic=topic, producer_name="billing")
    with IdProducer(nodes[0].bootstrap, "billing") as billing:  # as long as it is there the topic stays where it is
        assert billing.write(topic, 7).error == 0
        wait_for(lambda: rests[1].topic(topic)["serving_node"] == 1, "the other node to know who serves the topic")
        with OwnClient(nodes[1].bootstrap) as there:
            assert there.last_sequence(topic, "billing").error == control.NOT_SERVING
        with OwnCtl(ownctl, nodes[1].bootstrap, "last-sequence", asked) as ctl:
            assert ctl.expect("known")["answer"]["last_sequence_ids"] == {"0": "7"}
            assert ctl.ended() == 0
