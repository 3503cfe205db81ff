"""confluent-kafka: what it is told about the cluster, and whom it talks to."""

from __future__ import annotations

import json

from confluent_kafka import TopicCollection

from .. import records
from ..runtime import Cell, check, same, until
from .kit import WAIT_S, admin, consumer, create_topic, producer, scenarios, send, take
from .transactions import transactional


@scenarios("cluster")
def cluster(cell: Cell) -> str:
    topic, group = create_topic(cell, partitions=12), cell.name("group")
    statistics: list[str] = []
    watching = {"statistics_interval_ms": 100, "stats_cb": statistics.append}
    with producer(cell, **watching) as writing, transactional(cell) as atomic, consumer(cell, group) as reading:
        send(writing, topic, [one for number in range(12) for one in records.numbered(1, partition=number)])
        atomic.begin_transaction()
        send(atomic, topic, records.numbered(1, partition=0))
        atomic.commit_transaction(WAIT_S)
        reading.subscribe([topic])
        take(reading, 13)
        asking = admin(cell)
        metadata = asking.list_topics(timeout=WAIT_S)
        addresses = {f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()}
        cell.only_nodes(addresses, "the metadata")
        check(
            metadata.controller_id in metadata.brokers,
            f"controller {metadata.controller_id} is none of {list(metadata.brokers)}",
        )
        described = asking.describe_cluster(request_timeout=WAIT_S).result(WAIT_S)
        cell.only_nodes(
            (f"{node.host}:{node.port}" for node in [*described.nodes, described.controller]), "the cluster description"
        )
        same(
            {node.id for node in described.nodes}, set(metadata.brokers), "node ids of the description and the metadata"
        )
        same(described.cluster_id, metadata.cluster_id, "cluster id of the description and the metadata")
        placed = asking.describe_topics(TopicCollection([topic]), request_timeout=WAIT_S)[topic].result(WAIT_S)
        for partition in placed.partitions:
            on = [partition.leader, *partition.replicas, *partition.isr]
            in_sync = {node.id for node in partition.isr}
            check(
                partition.leader.id in in_sync,
                f"leader {partition.leader.id} of partition {partition.id} is not in sync: {in_sync}",
            )
            cell.only_nodes(
                (f"{node.host}:{node.port}" for node in on), f"partition {partition.id} of the topic description"
            )
        members = asking.describe_consumer_groups([group])[group].result(WAIT_S)
        cell.only_nodes([f"{members.coordinator.host}:{members.coordinator.port}"], "the group description")
        until("statistics arrive", lambda: writing.poll(0.1) or statistics)
        known = {one["nodename"] for one in json.loads(statistics[-1])["brokers"].values() if one["nodeid"] >= 0}
        cell.only_nodes(known, "the client's statistics")
        cell.hold()
    return f"{len(metadata.brokers)} node(s)"
