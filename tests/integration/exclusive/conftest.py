"""One node for the tests that need nothing special of it, topics under a policy, and a look at their logs."""

import asyncio
import json
import urllib.error
import urllib.request
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from metadata.ownership import AccessMode
from tests.conftest import Unique
from tests.integration.exclusive.producers import RawProducer
from tests.integration.exclusive.room import Room, open_room
from tests.nodes import NodeProcess, running_node
from tests.services import Services
from tests.wait import wait_for


@dataclass(frozen=True)
class Rest:
    """The node's REST interface."""

    url: str

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and decoded answer."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if data is not None else {}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def topic(self, name: str) -> dict[str, Any]:
        status, found = self.call("GET", f"/v1/topics/{name}")
        assert status == 200, found
        return found


@pytest.fixture(scope="session")  # of the package it would be started anew whenever another package was between
def node(services: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("node"), services.kafka_bootstrap, services.redis_url) as process:
        yield process


@pytest.fixture
def rest(node: NodeProcess) -> Rest:
    return Rest(node.admin_url)


def create_topic(bootstrap: str, partitions: int = 2, name: str = "", **config: str) -> str:
    """A new topic straight in Kafka."""
    name = name or f"orders-{uuid.uuid4().hex[:10]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(20)
    with RawProducer(bootstrap, "probe") as probe:  # a batch without records: the leader answers 87 once it is one
        for partition in range(partitions):
            wait_for(lambda: probe.send(name, [], partition=partition).error not in (3, 5, 6), "a leader")  # noqa: B023
    return name


def delete_records(bootstrap: str, topic: str, partition: int = 0) -> None:
    """Retention takes all that is in a log."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    everything = TopicPartition(topic, partition, -1)
    admin.delete_records([everything])[everything].result(20)


def govern(rest: Rest, topic: str, mode: str = "exclusive") -> None:
    """Put a topic under a policy."""
    status, answer = rest.call("PUT", f"/v1/topics/{topic}/policy", {"access_mode": mode})
    assert status == 200, answer


@pytest.fixture
def topic(services: Services, rest: Rest) -> str:
    """An exclusive topic of two partitions."""
    name = create_topic(services.kafka_bootstrap)
    govern(rest, name)
    return name


@pytest.fixture
async def room(services: Services, unique: Unique) -> AsyncIterator[Room]:
    """A room of its own, see `room.py`."""
    async with open_room(services.kafka_bootstrap, services.redis_url, unique("room")) as found:
        yield found


async def governed_in(
    room: Room, services: Services, partitions: int = 2, *, mode: AccessMode = AccessMode.EXCLUSIVE
) -> str:
    """A new topic under a policy of a room."""
    name = await asyncio.to_thread(create_topic, services.kafka_bootstrap, partitions)
    await room.govern(name, mode)
    return name


Connect = Callable[..., RawProducer]


@pytest.fixture
def connect(node: NodeProcess) -> Iterator[Connect]:
    """`connect("billing")`: an idempotent producer with a producer id of its own; `plain=True`: one without."""
    with ExitStack() as open_producers:

        def start(
            client_id: str, *, plain: bool = False, to: NodeProcess | None = None, producer_id: int | None = None
        ) -> RawProducer:
            producer = open_producers.enter_context(RawProducer((to or node).bootstrap, client_id))
            if producer_id is not None:
                producer.producer_id = producer_id
            elif not plain:
                producer.initialise()
            return producer

        yield start
