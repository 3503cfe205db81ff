"""A client whose nodes are all gone begins anew at the address that it was given (KIP-899), and finds other nodes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, Producer

from sidecar.local.ports import free_ports
from tests.kafka.client.proxy import HOST, proxy
from tests.kafka.gateway.by_id import create, end_of
from tests.kafka.gateway.virtual import VirtualCluster

if TYPE_CHECKING:
    from tests.conftest import Unique
    from tests.services import Services

_PATIENCE_S = 30.0


async def delivered(producer: Producer, topic: str) -> None:
    """Write a record, and wait until it is written."""
    errors: list[Any] = []
    producer.produce(topic, b"value", partition=0, on_delivery=lambda error, _: errors.append(error))
    assert await asyncio.to_thread(producer.flush, _PATIENCE_S) == 0
    assert errors == [None]


async def test_clients_find_other_nodes_at_the_address_that_they_began_with(services: Services, unique: Unique) -> None:
    """The nodes that Metadata named are gone for good, and none of the new ones was ever named."""
    topic, port = unique("orders"), free_ports(1)[0]
    create(services.kafka_bootstrap, topic)
    settings = {
        "bootstrap.servers": f"{HOST}:{port}",
        "metadata.recovery.strategy": "rebootstrap",
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
    }
    producer = Producer(settings)
    consumer = Consumer(settings | {"group.id": unique("group"), "auto.offset.reset": "earliest"})
    with VirtualCluster(services.kafka_bootstrap, first_id=41) as former:
        async with proxy(port, former.bootstrap) as front:
            await delivered(producer, topic)
            consumer.subscribe([topic])
            message = await asyncio.to_thread(consumer.poll, _PATIENCE_S)
            assert message is not None
            assert (message.error(), message.offset()) == (None, 0)
            assert front.accepted
    with VirtualCluster(services.kafka_bootstrap, first_id=51) as latter:
        async with proxy(port, latter.bootstrap):
            await delivered(producer, topic)
            message = await asyncio.to_thread(consumer.poll, _PATIENCE_S)
            assert message is not None
            assert (message.error(), message.offset()) == (None, 1)
            (node,) = latter.nodes
            hosts = {client.identity.name for client in node.gateway.clients.values() if client.identity is not None}
            assert hosts == {"rdkafka"}
            await asyncio.to_thread(consumer.close)
    assert end_of(services.kafka_bootstrap, topic) == 2
