"""Real logs while scope, policy, partitions or retention change, and parts of logs: what nodes write passes."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from pyspark.sql import SparkSession

from metadata import MetadataStore
from sidecar.changelog import MASTER_SLOT
from sidecar.dedup import snapshots
from sidecar.dedup.marks import Mark
from sidecar.dedup.snapshots import Saved
from sidecar.jobs import audit as auditing
from sidecar.jobs.knowledge import Knowledge, facts_of, learn
from sidecar.pipeline.kafka import Kafka
from sidecar.settings import resolve
from tests.conftest import OwnKafka, StartNode
from tests.kafka.exclusive.producers import RawProducer, fetch_batches
from tests.rest import Rest
from tests.services import Services
from tests.slow.pipeline.audit.cluster import CLEAN, Nodes, Past, wrote
from tests.slow.pipeline.logs import move_start
from tests.topics import create_topic
from tests.wait import wait_for


def test_partitions_with_owners_of_their_own_and_then_one_of_all_pass(spark: SparkSession, nodes: Nodes) -> None:
    topic = create_topic(nodes.kafka, 2)
    nodes.govern(topic, "exclusive", scope="partition")
    with (
        nodes.writer(topic, "north;mode=exclusive") as north,
        nodes.writer(topic, "south;mode=exclusive", partition=1) as south,
    ):
        wrote(north, topic, 1, 2)
        for first in range(3):
            wrote(south, topic, first, first + 1, partition=1)
        with nodes.writer(topic, "rival;mode=exclusive_with_fencing") as rival:
            assert north.write(topic, 3).error == 90
            wrote(rival, topic, 1, 2**63 - 1)
    nodes.govern(topic, "exclusive", scope="topic")
    with nodes.writer(topic, "whole;mode=exclusive_with_fencing") as whole:
        wrote(whole, topic, 0, 1, partition=1)
    (found,) = nodes.audit(spark, topic)
    assert found.totals == CLEAN, found.examples
    assert found.records == 3 + 3 + 1 + 4 + 2
    past = Past(nodes.kafka, topic)
    past.write((-1, -1), -1, None, partition=1)
    past.close()
    (found,) = nodes.audit(spark, topic)
    assert found.totals == {**CLEAN, "unowned": 1}


def test_what_is_written_while_a_topic_has_no_policy_passes(spark: SparkSession, nodes: Nodes) -> None:
    topic = create_topic(nodes.kafka, 1)
    for _ in range(2):
        nodes.govern(topic, "shared")
        with nodes.writer(topic, "one;") as one:
            wrote(one, topic, 1, 2)
            assert Rest(nodes.both[0].admin_url).call("DELETE", f"/v1/topics/{topic}/policy")[0] == 204
            with RawProducer(nodes.both[1].bootstrap, "plain") as plain:
                wait_for(lambda: is_passed_on(nodes, topic, plain), "batches to be passed on as they are", 30)
    nodes.govern(topic, "shared")
    with nodes.writer(topic, "two;"):
        pass
    (found,) = nodes.audit(spark, topic)
    assert found.totals == CLEAN, found.examples


def test_an_epoch_that_a_change_of_policy_brings_is_no_older_than_the_event_of_the_change(nodes: Nodes) -> None:
    topic = create_topic(nodes.kafka, 1)
    nodes.govern(topic, "shared")
    with nodes.writer(topic, "one;"):
        serving = nodes.serving(topic)
        silent = nodes.other(serving)
        silent.pause()  # the change is waited for while it holds at the other node
        try:
            assert Rest(serving.admin_url).call("DELETE", f"/v1/topics/{topic}/policy")[0] == 204
        finally:
            silent.resume()
    with Kafka(nodes.kafka) as kafka:
        found = wait_for(lambda: freed_and_deleted(learn(kafka, nodes.cluster), topic), "both")
    assert found is not None
    opened, deleted = found
    assert opened >= deleted


def freed_and_deleted(known: Knowledge, topic: str) -> tuple[int, int] | None:
    """When the epoch was opened that ended what had been governed, and when the event says that the policy went."""
    freed = known.view.serving(topic, MASTER_SLOT)
    deleted = [event.at_ms for event in known.events if event.topic == topic and event.detail == "deleted"]
    if freed is None or not freed.value.producer_epoch or not deleted:
        return None
    return freed.value.since_ms, deleted[0]


def is_passed_on(nodes: Nodes, topic: str, plain: RawProducer) -> bool:
    sent = plain.send(topic, b"plain")
    return sent.error == 0 and any(
        each.base_offset == sent.offset and each.producer_id < 0 for each in fetch_batches(nodes.kafka, topic)
    )


def test_all_that_nodes_served_is_audited_though_partitions_come_and_records_and_topics_go_meanwhile(
    spark: SparkSession, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    *topics, gone = sorted(create_topic(nodes.kafka, 1) for _ in range(3))
    for topic in (*topics, gone):
        nodes.govern(topic, "exclusive")
        with nodes.writer(topic, "billing;mode=exclusive") as billing:
            wrote(billing, topic, 1, 2)
            wrote(billing, topic, 3)
    admin = AdminClient({"bootstrap.servers": nodes.kafka})

    learnt: list[Knowledge] = []

    def late(kafka: Kafka, cluster: str) -> Knowledge:
        """Once for the list of topics, and then for each before its log is read."""
        if len(learnt) == 2:
            admin.delete_topics([gone])[gone].result(20)
            wait_for(lambda: gone not in kafka.topics(), "a topic to be gone")
            admin.create_partitions([NewPartitions(topics[1], 3)])[topics[1]].result(20)
            wait_for(lambda: len(kafka.partitions(topics[1])) == 3, "partitions")
            move_start(nodes.kafka, topics[1], 2)
        learnt.append(learn(kafka, cluster))
        return learnt[-1]

    monkeypatch.setattr(auditing, "learn", late)
    whole, part = nodes.audit(spark)
    assert [(each.topic, each.totals) for each in (whole, part)] == [(topic, CLEAN) for topic in topics]
    starts = [{index: first for index, (first, _) in each.bounds.items()} for each in (whole, part)]
    assert starts == [{0: 0}, {0: 2}]
    assert (whole.records, part.records) == (4, 3)


def test_a_range_may_be_given_by_times_and_by_offsets(spark: SparkSession, nodes: Nodes) -> None:
    topic = create_topic(nodes.kafka, 2)
    nodes.govern(topic, "exclusive")
    with nodes.writer(topic, "billing;mode=exclusive") as billing:
        wrote(billing, topic, 1, 5)
        wrote(billing, topic, 0, 1, partition=1)
        before = fetch_batches(nodes.kafka, topic, 1)[-1].max_timestamp
        wait_for(lambda: time.time() * 1000 > before + 2, "a later time")
        wrote(billing, topic, 6)
    middle = datetime.fromtimestamp((before + 1) / 1000, UTC).isoformat()
    (early,) = nodes.audit(spark, topic, until=middle)
    (late,) = nodes.audit(spark, topic, begin=middle)
    assert [early.totals, late.totals] == [CLEAN, CLEAN], [early.examples, late.examples]
    assert (early.records, early.gaps) == (5, 6 - 5)  # numbers from 0 to 5, and ids in both partitions
    assert [end for _, end in early.bounds.values()] == [start for start, _ in late.bounds.values()]
    (part,) = nodes.audit(spark, topic, until=json.dumps({"0": early.bounds[0][1], "1": 0}))
    assert (part.records, part.totals) == (3, CLEAN)


def test_an_id_that_redis_alone_remembers_is_missed(spark: SparkSession, nodes: Nodes) -> None:
    topic = create_topic(nodes.kafka, 1)
    nodes.govern(topic, "exclusive")
    with nodes.writer(topic, "billing;mode=exclusive") as billing:
        wrote(billing, topic, 1, 2)
    with Kafka(nodes.kafka) as kafka:
        end = kafka.ends(topic)[0]
    for node in nodes.both:
        node.stop()
    asyncio.run(remember(nodes, topic, Saved(2 * end, 1_000, [Mark(b"billing", 7, end - 1, 0)])))
    (found,) = nodes.audit(spark, topic)
    assert found.totals == {**CLEAN, "missing": 1}
    assert [(each["name"], each["sequence_id"]) for each in found.examples] == [("billing", 7)]


async def remember(nodes: Nodes, topic: str, saved: Saved) -> None:
    """As a node's copy of a snapshot that is not in the snapshot topic any more."""
    with Kafka(nodes.kafka) as kafka:
        topic_id = kafka.topic_id(topic)
    value = snapshots.to_value(snapshots.to_records(topic, 0, snapshots.encode(topic_id, saved, 0)))
    async with MetadataStore(nodes.redis, nodes.cluster) as store:
        assert await store.keep_snapshot(topic, 0, topic_id, saved.order, value)


def test_a_node_in_the_place_of_kafka_says_the_same(nodes: Nodes) -> None:
    topic = create_topic(nodes.kafka, 1)
    nodes.govern(topic, "exclusive")
    with nodes.writer(topic, "billing;mode=exclusive"):
        pass
    found = []
    for bootstrap in (nodes.kafka, nodes.both[0].bootstrap):
        with Kafka(bootstrap) as kafka:
            known = learn(kafka, nodes.cluster)
            facts = facts_of(known, topic, resolve({}, None).settings, lambda _: None)
            found.append(replace(facts, takeovers=()))  # the release may come between
    assert found[0] == found[1]
    assert found[0].governed


def test_sequences_that_an_epoch_left_out_are_missed(
    spark: SparkSession, own_kafka: OwnKafka, services: Services, node_process: StartNode
) -> None:
    """Kafka takes such a batch alone of a producer that it has forgotten."""
    forgetful = {"producer.id.expiration.ms": "2000", "producer.id.expiration.check.interval.ms": "200"}
    kafka = own_kafka(overrides=forgetful).bootstrap
    node = node_process(kafka=kafka)
    nodes = Nodes([node], kafka, services.redis_url, node.cluster)
    topic = create_topic(kafka, 1)
    nodes.govern(topic, "exclusive")
    with nodes.writer(topic, "billing;mode=exclusive") as billing:
        wrote(billing, topic, 1, 2)
    last = fetch_batches(kafka, topic)[-1]
    node.stop()
    with RawProducer(kafka, "past", last.producer_id, epoch=last.producer_epoch) as past:
        wait_for(lambda: past.send(topic, b"v", sequence=9).error == 0, "Kafka to have forgotten the producer", 30)
    (found,) = nodes.audit(spark, topic)
    assert found.totals == {**CLEAN, "missing": 1}
    assert [each["detail"] for each in found.examples] == ["stamped sequence 9 where 3 was next"]
