"""Transactions of version 2 (KIP-890): a Produce adds its partition, EndTxn gives the epoch of the next transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Consumer

from tests.kafka_calls import kafka_calls
from tests.wait import wait_for

if TYPE_CHECKING:
    from sidecar.local.tools import Tools
    from tests.conftest import Unique
    from tests.kafka.gateway.virtual import VirtualCluster
    from tests.services import Services

_RECORDS = 300


async def test_kafkas_own_producer_uses_them_through_nodes(
    one_node: VirtualCluster, services: Services, kafka_tools: Tools, unique: Unique
) -> None:
    topic = unique("orders")
    async with kafka_calls(services.kafka_bootstrap) as calls:
        await calls.create(topic, partitions=4)
    one_node.events.served.clear()
    kafka_tools.run(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(_RECORDS), "--record-size", "100", "--throughput", "1000"),
        *("--transactional-id", unique("t"), "--transaction-duration-ms", "50"),
        *("--producer-props", f"bootstrap.servers={one_node.bootstrap}"),
    )
    assert {0, 22, 26} <= one_node.events.served
    assert 24 not in one_node.events.served, "no AddPartitionsToTxn"
    settings = {"auto.offset.reset": "earliest", "isolation.level": "read_committed", "log_level": 0}
    found: list[bytes | None] = []
    with Consumer({"bootstrap.servers": services.kafka_bootstrap, "group.id": unique("g"), **settings}) as reader:
        reader.subscribe([topic])

        def came() -> bool:
            message = reader.poll(0.2)
            if message is not None and message.error() is None:
                found.append(message.value())
            return len(found) >= _RECORDS

        wait_for(came, "every record of a committed transaction", 60)
    assert one_node.events.rejected == one_node.events.failed == []
