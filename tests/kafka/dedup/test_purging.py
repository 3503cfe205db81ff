"""DeleteRecords of topics with sequence ids, as Kafka Streams sends it every half a minute (KIP-107)."""

from __future__ import annotations

from tests.conftest import StartNode, Unique
from tests.kafka.dedup.conftest import deduplicate
from tests.kafka.dedup.ids import IdProducer
from tests.kafka.gateway.requests import request
from tests.nodes import NodeProcess
from tests.own import OwnClient
from tests.raw import RawClient
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for


def purge(node: NodeProcess, topic: str, offset: int, version: int = 2) -> tuple[int, int]:
    """Delete the records before an offset of partition 0: the error and the log's first offset."""
    asked = [{"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}]
    with RawClient(node.bootstrap) as client:
        answer = client.ask(request(21, version, topics=asked, timeout=20_000))
    (found,) = answer.topics[0].partitions
    return found.error_code, found.low_watermark


def test_ids_of_records_that_were_purged_are_known_to_the_next_node(
    services: Services, node_process: StartNode
) -> None:
    """No snapshot had them: the next node accepted nothing any more, until an operator decided."""
    node = node_process(LEASE_MS="1000", RECONNECT_GRACE_MS="0")
    topic = create_topic(services.kafka_bootstrap)
    deduplicate(Rest(node.admin_url), topic, access_mode="exclusive")
    with IdProducer(node.bootstrap, "billing") as billing:
        last = [billing.write(topic, number).offset for number in range(5)][-1]
        assert purge(node, topic, -1) == (0, last + 1)
    node.kill()
    node.start()

    def known() -> bool:  # the lease of the process that was killed has to run out
        with OwnClient(node.bootstrap) as own:
            return dict(own.last_sequence(topic, "billing").last_sequence_ids) == {0: 4}

    wait_for(known, "the ids")
    with IdProducer(node.bootstrap, "billing") as billing:
        assert (billing.write(topic, 4).offset, billing.write(topic, 5).error) == (-1, 0)


def test_the_node_that_does_not_serve_the_topic_leaves_it_to_the_one_that_does(
    services: Services, node_process: StartNode, unique: Unique
) -> None:
    cluster = unique("purged")
    nodes = [node_process(cluster=cluster, node_id=number) for number in (1, 2)]
    topic = create_topic(services.kafka_bootstrap)
    deduplicate(Rest(nodes[0].admin_url), topic)
    with OwnClient(nodes[0].bootstrap) as own:
        own.last_sequence(topic, "billing")
    serving: int = wait_for(lambda: Rest(nodes[0].admin_url).topic(topic)["serving_node"], "a node to serve the topic")
    wait_for(lambda: Rest(nodes[1].admin_url).topic(topic)["serving_node"] == serving, "both to know that")
    with IdProducer(nodes[serving - 1].bootstrap, "billing") as billing:
        offset = billing.write(topic, 1).offset
    for version in range(3):
        assert purge(nodes[2 - serving], topic, offset, version) == (6, -1)
        assert purge(nodes[serving - 1], topic, offset, version) == (0, offset)


def test_an_offset_that_no_log_has_is_answered_by_kafka(services: Services, node: NodeProcess, topic: str) -> None:
    assert purge(node, topic, 1_000) == (1, -1)
    with RawClient(node.bootstrap) as client:
        asked = [{"name": topic, "partitions": [{"partition_index": 7, "offset": 0}]}]
        (found,) = client.ask(request(21, 2, topics=asked, timeout=20_000)).topics[0].partitions
    assert (found.error_code, found.low_watermark) == (3, -1)
