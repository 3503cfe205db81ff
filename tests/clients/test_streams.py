"""Kafka Streams with `processing.guarantee=exactly_once_v2` on brokers, and through two nodes in front of them."""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.conftest import Unique
from tests.kafka.gateway.requests import request
from tests.raw import RawClient
from tests.topics import create_topic
from tests.wait import wait_for

from .applications import Application
from .further import KAFKA
from .locks import locked
from .outcome import Route
from .recipes import Program
from .stage import committed

if TYPE_CHECKING:
    from .stage import Stage

pytestmark = [pytest.mark.clients, pytest.mark.timeout(240)]
WORDS = ("one", "two", "three", "four", "five")
EACH = 20
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def counting() -> Application:
    return Application("Counting", locked(f"kafka-streams-{KAFKA}"))


def write(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(EACH * len(WORDS)):
        producer.produce(topic, WORDS[number % len(WORDS)], partition=number % 2)
    assert producer.flush(PATIENCE_S) == 0


def counts(bootstrap: str, topic: str, isolation: str = "read_committed") -> dict[str, list[int]]:
    """The counts of each word in the order in which they were written."""
    found = defaultdict[str, list[int]](list)
    for message in committed(bootstrap, topic, 2, isolation):
        key, value = message.key(), message.value()
        assert key is not None
        assert value is not None
        found[key.decode()].append(int(value))
    return found


def size(found: dict[str, list[int]]) -> int:
    return sum(map(len, found.values()))


def each_protocol(row: str) -> pytest.MarkDecorator:
    protocols = ("classic", "streams")
    return pytest.mark.parametrize(
        "protocol", [pytest.param(protocol, marks=pytest.mark.further(f"{row}-{protocol}")) for protocol in protocols]
    )


@pytest.mark.parametrize("route", Route, ids=lambda route: route.value)
@each_protocol("streams")
def test_each_record_is_counted_once_by_an_application_that_is_killed_in_a_transaction(
    counting: Application, stage: Stage, protocol: str, route: Route, unique: Unique, tmp_path: Path
) -> None:
    source = create_topic(stage.behind.bootstrap, 2)
    arguments = (source, create_topic(stage.behind.bootstrap, 2), unique("counting"), str(tmp_path / "state"), protocol)
    command = counting.command(stage.at(route), *arguments)
    count_and_be_killed(command, stage.behind.bootstrap, source, tmp_path)
    assert (source in described(stage.at(route), arguments[2])) is (protocol == "streams")


@each_protocol("streams-shadow")
def test_so_is_each_record_of_a_shadow(
    counting: Application, stage: Stage, protocol: str, unique: Unique, tmp_path: Path
) -> None:
    source, shadow = create_topic(stage.behind.bootstrap, 2), unique("audit")
    assert stage.rest.call("POST", f"/v1/topics/{source}/shadows", {"name": shadow})[0] == 201
    arguments = (shadow, create_topic(stage.behind.bootstrap, 2), unique("counting"), str(tmp_path / "state"), protocol)
    count_and_be_killed(counting.command(stage.at(Route.NODE), *arguments), stage.behind.bootstrap, source, tmp_path)


def described(bootstrap: str, application: str) -> str:
    """What an application wrote of its topology (KIP-1331)."""
    with RawClient(bootstrap) as wire:
        asked = request(89, 1, group_ids=[application], include_topology_description=True)
        return repr(wire.ask(asked).groups[0].topology_description)


def count_and_be_killed(command: list[str], kafka: str, source: str, logs: Path) -> None:
    """The application stands still in the second half of what is written to `source`, is killed and started again."""
    *_, target, _, _, _ = command
    written = EACH * len(WORDS)
    with ExitStack() as running:
        first = running.enter_context(Program([*command, str(written * 3 // 2)], logs / "first.log"))
        write(kafka, source)
        wait_for(lambda: size(counts(kafka, target)) == written, "the first records to be counted", PATIENCE_S)
        write(kafka, source)
        assert first.heard() == "stands still"
        wait_for(lambda: size(counts(kafka, target, "read_uncommitted")) > written, "an open transaction", PATIENCE_S)
        first.process.kill()
        second = running.enter_context(Program([*command, "0"], logs / "second.log"))
        wait_for(lambda: size(counts(kafka, target)) >= 2 * written, "all records to be counted", PATIENCE_S)
        assert second.close() == 0
        assert second.heard() == "closed NOT_RUNNING"
    assert counts(kafka, target) == {word: list(range(1, 2 * EACH + 1)) for word in WORDS}
