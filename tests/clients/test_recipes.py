"""docs/use/clients.md: each client library does with the page's settings what the page says.

The programs, examples/clients, are in the languages of their libraries: what they print is what their users see.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import Unique
from tests.logs import read_log
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for

from .further import OLD_JAVA
from .recipes import CannotBuildError, Recipes, Writer, read

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]
Write = Callable[[str, str], AbstractContextManager[Writer]]


@dataclass(frozen=True, slots=True)
class Told:
    """What a client makes of 44 and of 90, and what the same producer does once the topic is free after a 44."""

    refused: str
    free_again: str
    deposed: str
    missing: str = "ok"
    """Of a topic that is not there yet, where brokers make what clients ask for."""


CLIENTS = {
    "java": Told("error PolicyViolationException", "ok", "error ProducerFencedException"),
    "confluent-kafka": Told("error POLICY_VIOLATION", "ok", "error PRODUCER_FENCED"),
    "aiokafka": Told("error PolicyViolationError", "ok", "error UnknownError"),
    "kafka-python": Told("error PolicyViolationError", "ok", "error ProducerFencedError"),
    "kafkajs": Told("error POLICY_VIOLATION", "error POLICY_VIOLATION", "error KAFKAJS_UNKNOWN_ERROR_CODE"),
    "sarama": Told("error 44", "ok", "error 90"),
    "franz-go": Told(
        "error POLICY_VIOLATION", "ok", "error PRODUCER_FENCED", missing="error UNKNOWN_TOPIC_OR_PARTITION"
    ),
}
CLIENTS |= {f"java-{version}": CLIENTS["java"] for version in OLD_JAVA}


def _marks(client: str) -> list[pytest.MarkDecorator]:
    version = client.removeprefix("java-")
    return [pytest.mark.further(f"old-java-governed-{version}")] if version in OLD_JAVA else []


each_client = pytest.mark.parametrize("client", [pytest.param(client, marks=_marks(client)) for client in CLIENTS])


@pytest.fixture
def command(recipes: Recipes, client: str) -> list[str]:
    try:
        return recipes.command(client)
    except CannotBuildError as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))


@pytest.fixture
def write(command: list[str], node: NodeProcess, tmp_path: Path) -> Write:
    return lambda client_id, topic: Writer(command, node.bootstrap, client_id, topic, tmp_path / "errors.log")


@pytest.fixture
def orders(services: Services, rest: Rest) -> Iterator[str]:
    """An exclusive topic of one partition with deduplication."""
    topic = create_topic(services.kafka_bootstrap, 1)
    policy = {"access_mode": "exclusive", "deduplication": True}
    assert rest.call("PUT", f"/v1/topics/{topic}/policy", policy)[0] == 200
    yield topic
    rest.call("DELETE", f"/v1/topics/{topic}?force=true")


def owner(rest: Rest, topic: str) -> str | None:
    found = rest.topic(topic)["owner"]
    return None if found is None else found["name"]


@each_client
def test_an_owner_writes_a_rival_is_refused_and_writes_once_the_topic_is_free(
    client: str, write: Write, rest: Rest, orders: str
) -> None:
    with write("billing", orders) as billing, write("rival", orders) as rival:
        assert billing.send(0) == "ok"
        assert owner(rest, orders) == "billing"
        assert rival.send(0) == CLIENTS[client].refused
        assert billing.close() == 0
        wait_for(lambda: owner(rest, orders) is None, "the owner to be gone")
        assert rival.send(1) == CLIENTS[client].free_again


@each_client
def test_a_missing_topic_is_made_with_the_first_record_by_all_but_one(
    client: str, write: Write, rest: Rest, unique: Unique
) -> None:
    topic = unique("missing")
    with write("billing", topic) as billing:
        assert billing.send(0) == CLIENTS[client].missing
    rest.call("DELETE", f"/v1/topics/{topic}?force=true")


@each_client
def test_a_deposed_owner_is_told_so_and_a_new_producer_gets_in(
    client: str, write: Write, rest: Rest, orders: str, services: Services
) -> None:
    with write("billing", orders) as billing:
        assert billing.send(0) == "ok"
        with write("billing-2;mode=exclusive_with_fencing", orders) as second:
            assert second.send(0) == "ok"
            assert billing.send(1) == CLIENTS[client].deposed
            assert owner(rest, orders) == "billing-2"
    assert [int(value) for value in read_log(services.kafka_bootstrap, orders)] == [0, 0]


@each_client
def test_a_waiting_producer_takes_over_when_the_owner_leaves(
    client: str, write: Write, rest: Rest, orders: str
) -> None:
    with write("billing", orders) as billing, write("standby;mode=wait_for_exclusive", orders) as standby:
        assert billing.send(0) == "ok"
        standby.ask(1)
        wait_for(lambda: [each["name"] for each in rest.topic(orders)["waiting"]] == ["standby"], "it to wait")
        assert standby.quiet()
        assert billing.close() == 0
        assert standby.told() == "ok"
        assert owner(rest, orders) == "standby"


@each_client
def test_what_an_application_sends_again_after_its_restart_is_written_once(
    client: str, write: Write, services: Services, rest: Rest, orders: str
) -> None:
    for numbers in (range(3), range(5)):
        with write("billing", orders) as billing:
            assert [billing.send(number) for number in numbers] == ["ok"] * len(numbers)
            assert billing.close() == 0
        wait_for(lambda: owner(rest, orders) is None, "the owner to be gone")
    assert [int(value) for value in read_log(services.kafka_bootstrap, orders)] == [0, 1, 2, 3, 4]


@each_client
def test_a_consumer_reads_a_shadow(
    client: str, command: list[str], node: NodeProcess, write: Write, rest: Rest, orders: str, unique: Unique
) -> None:
    audit = unique("audit")
    with write("billing", orders) as billing:
        assert [billing.send(number) for number in range(3)] == ["ok"] * 3
    assert rest.call("POST", f"/v1/topics/{orders}/shadows", {"name": audit})[0] == 201
    assert read(command, node.bootstrap, audit, unique("group"), 3) == ["0", "1", "2"]
