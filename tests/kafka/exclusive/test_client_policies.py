"""A policy that a client made by asking for a mode ends with the last session that asked: its topic is ordinary."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaProducer

from tests.kafka.exclusive.producers import RawProducer
from tests.rest import Rest
from tests.topics import create_topic
from tests.wait import wait_for

if TYPE_CHECKING:
    from tests.conftest import StartNode, Unique
    from tests.services import Services

OK = 0


def test_transactions_work_again_once_a_client_that_asked_for_a_mode_has_left(
    node_process: StartNode, services: Services, unique: Unique
) -> None:
    node = node_process(RECONNECT_GRACE_MS="300")
    rest, topic = Rest(node.admin_url), create_topic(services.kafka_bootstrap, 1)

    def own(generation: int) -> None:
        with RawProducer(node.bootstrap, "x;mode=exclusive") as producer:
            producer.initialise()
            wait_for(lambda: producer.send(topic, b"own", sequence=0).error == OK, "the client to own the topic")
            assert rest.topic(topic)["generation"] == generation
        wait_for(lambda: rest.topic(topic)["policy"] is None, "the policy to end")

    async def transact() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=node.bootstrap, transactional_id=unique("txn"))
        await producer.start()
        try:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"together", partition=0)
        finally:
            await producer.stop()

    own(1)
    asyncio.run(transact())
    own(2)
