"""Topics by their ids on the wire: requests of kio's, what their answers say, topics that are created anew, and leaders
that a node has not heard of.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from uuid import UUID

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,  # pyright: ignore[reportPrivateImportUsage]
)

from sidecar.cluster.view import TopicRoute
from tests import raw
from tests.kafka.gateway.requests import request
from tests.kafka.gateway.virtual import Node, VirtualCluster
from tests.raw import RawClient
from tests.wait import wait_for


def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def create(bootstrap: str, *names: str) -> None:
    asking = admin(bootstrap)
    for done in asking.create_topics([NewTopic(name, 2, 1) for name in names]).values():
        done.result(20)
    for name in names:
        wait_for(lambda name=name: end_of(bootstrap, name) >= 0, f"leaders of {name}")


def metadata(version: int, *topics: str | UUID, auto: bool = False) -> Any:
    named = [
        {"name": None, "topic_id": each} if isinstance(each, UUID) else {"name": each, "topic_id": None}
        for each in topics
    ]
    return request(3, version, topics=named, allow_auto_topic_creation=auto)


def id_of(bootstrap: str, topic: str) -> UUID:
    def asked() -> UUID | None:
        with RawClient(bootstrap) as wire:
            return wire.ask(metadata(12, topic)).topics[0].topic_id

    found = wait_for(asked, f"the id of {topic}")
    assert found is not None
    return found


def recreate(bootstrap: str, topic: str) -> UUID:
    """Another topic of the same name; its id."""
    before = id_of(bootstrap, topic)
    asking = admin(bootstrap)
    asking.delete_topics([topic])[topic].result(20)

    def created() -> bool:
        try:
            create(bootstrap, topic)
        except KafkaException:  # it is still being deleted
            return False
        return True

    wait_for(created, f"{topic} to be created anew", 30)
    wait_for(lambda: id_of(bootstrap, topic) != before, f"the new id of {topic}", 30)
    return id_of(bootstrap, topic)


def produce(version: int, parts: Mapping[Any, bytes], transactional_id: str | None = None) -> Any:
    data = [
        {
            "topic_id" if isinstance(topic, UUID) else "name": topic,
            "partition_data": [{"index": index, "records": records}],
        }
        for (topic, index), records in parts.items()
    ]
    return request(0, version, acks=-1, timeout=20_000, topic_data=data, transactional_id=transactional_id)


def produced(answer: Any) -> dict[tuple[UUID | str, int], int]:
    return {
        (getattr(topic, "topic_id", None) or topic.name, found.index): found.error_code.value
        for topic in answer.responses
        for found in topic.partition_responses
    }


def end_of(bootstrap: str, topic: str) -> int:
    """How many records are in both partitions."""
    with RawClient(bootstrap) as wire:
        answer = wire.ask(raw.list_offsets({(topic, index): -1 for index in (0, 1)}))
    return sum(found.offset for each in answer.topics for found in each.partitions)


def fetch(version: int, positions: Mapping[Any, int], wait_ms: int = 500, **fields: Any) -> Any:
    topics = [
        {
            "topic_id" if isinstance(topic, UUID) else "topic": topic,
            "partitions": [
                {"partition": index, "fetch_offset": offset, "current_leader_epoch": -1, "last_fetched_epoch": -1}
                | {"log_start_offset": -1, "partition_max_bytes": 1 << 20}
            ],
        }
        for (topic, index), offset in positions.items()
    ]
    fields = {"max_wait": wait_ms, "min_bytes": 1, "max_bytes": 1 << 24, "session_epoch": -1} | fields
    return request(1, version, topics=topics, **fields, **({"replica_id": -1} if version < 15 else {}))


def fetched(answer: Any) -> dict[tuple[UUID | str, int], tuple[int, int, int]]:
    """Error, high watermark and bytes of records of each partition."""
    return {
        (getattr(topic, "topic_id", None) or topic.topic, found.partition_index): (
            found.error_code.value,
            found.high_watermark,
            len(found.records or b""),
        )
        for topic in answer.responses
        for found in topic.partitions
    }


def write(bootstrap: str, topic: str, count: int = 3) -> None:
    with RawClient(bootstrap) as wire:
        for index in (0, 1):
            assert produced(wire.ask(produce(9, {(topic, index): bytes(raw.batch(count=count))})))[topic, index] == 0


def mislead(cluster: VirtualCluster, topic: str, *, node: Node | None = None, partition: int = 0) -> int:
    """Have a node (the first) believe that another broker leads a partition, as after an election that it did not hear
    of; the leader epoch that it does not know.
    """
    upstream = (node or cluster.nodes[0]).upstream
    cluster.run(upstream.layout(topic, refresh=True))
    view = upstream.view
    route = view.route(topic.encode())
    assert route is not None
    wrong = next(broker for broker in view.brokers if broker != route.leaders[partition])

    async def replace() -> None:
        leaders, epochs = (
            route.leaders | {partition: wrong},
            route.leader_epochs | {partition: route.leader_epochs[partition] - 1},
        )
        view._topics[topic.encode()] = TopicRoute(route.topic_id, MappingProxyType(leaders), MappingProxyType(epochs))
        view.version += 1

    cluster.run(replace())
    return route.leader_epochs[partition]
