"""Kafka's own command line tools, unchanged, on a shadow: they tell of the source's log under the shadow's name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from sidecar.local.tools import Tools
from tests.conftest import Unique
from tests.kafka.gateway.conftest import create_internal_topics
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic

RECORDS = 30
BEGAN = 1_750_000_000_000
"""Time of the first record, Unix ms; each later one is a second younger."""
_TOOLS = "org.apache.kafka.tools."
_GROUPS = _TOOLS + "consumer.group.ConsumerGroupCommand"
_SHOWN = ("partition", "offset", "timestamp", "headers", "key", "value")

Run = Callable[..., list[str]]


@pytest.fixture
def run(kafka_tools: Tools) -> Run:
    """`run(node.bootstrap, "TopicCommand", "--list")`: the lines that a tool writes."""

    def called(bootstrap: str, tool: str, *arguments: str) -> list[str]:
        done = kafka_tools.run(tool, "--bootstrap-server", bootstrap, *arguments, timeout=90)
        return [line for line in done.stdout.splitlines() if line.strip()]

    return called


@pytest.fixture
def orders(services: Services) -> str:
    """A topic of two partitions with fifteen records in each, of known times."""
    create_internal_topics(services.kafka_bootstrap)
    topic = create_topic(services.kafka_bootstrap, 2, **{"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": services.kafka_bootstrap, "log_level": 0})
    for number in range(RECORDS):
        at = BEGAN + 1000 * number
        headers: dict[str, str | bytes | None] = {"n": str(number)}
        producer.produce(topic, f"v{number}", key=f"k{number}", partition=number % 2, timestamp=at, headers=headers)
    assert producer.flush(30) == 0
    return topic


@pytest.fixture
def audit(rest: Rest, orders: str, unique: Unique) -> str:
    """A shadow of it."""
    name = unique("audit")
    assert rest.call("POST", f"/v1/topics/{orders}/shadows", {"name": name})[0] == 201
    return name


@pytest.mark.timeout(240)  # a dozen Java processes
@pytest.mark.slow
def test_the_console_consumer_reads_a_shadow_and_the_groups_tool_tells_its_lag_and_resets_it(
    node: NodeProcess, services: Services, orders: str, audit: str, unique: Unique, run: Run
) -> None:
    group = unique("audit")

    def consumed(bootstrap: str, topic: str, group: str, count: int) -> list[str]:
        arguments = ["--topic", topic, "--group", group, "--from-beginning", "--max-messages", str(count)]
        arguments += [word for what in _SHOWN for word in ("--property", f"print.{what}=true")]
        return sorted(run(bootstrap, _TOOLS + "consumer.ConsoleConsumer", *arguments, "--timeout-ms", "30000"))

    direct = consumed(services.kafka_bootstrap, orders, group, RECORDS)
    assert len(direct) == RECORDS
    assert f"CreateTime:{BEGAN}\tPartition:0\tOffset:0\tn:0\tk0\tv0" in direct
    assert consumed(node.bootstrap, audit, group, RECORDS) == direct

    def described() -> dict[tuple[str, int], list[str]]:
        """Current offset, end of the log and lag by topic and partition."""
        rows = [line.split() for line in run(node.bootstrap, _GROUPS, "--describe", "--group", group)]
        return {(row[1], int(row[2])): row[3:6] for row in rows if row[0] == group}

    def reset(*how: str) -> None:
        run(node.bootstrap, _GROUPS, "--reset-offsets", "--group", group, "--topic", audit, *how, "--execute")

    untouched = {(orders, partition): ["15", "15", "0"] for partition in (0, 1)}
    assert described() == {**untouched, **{(audit, partition): ["15", "15", "0"] for partition in (0, 1)}}
    reset("--to-earliest")
    assert described() == {**untouched, **{(audit, partition): ["0", "15", "15"] for partition in (0, 1)}}
    moment = datetime.fromtimestamp(BEGAN / 1000 + 20, UTC).strftime("%Y-%m-%dT%H:%M:%S.000")
    reset("--to-datetime", moment)
    assert described() == {**untouched, **{(audit, partition): ["10", "15", "5"] for partition in (0, 1)}}
    reader = Consumer({"bootstrap.servers": node.bootstrap, "group.id": group, "log_level": 0})
    places = reader.committed([TopicPartition(audit, partition) for partition in (0, 1)], 30)
    reader.close()
    assert [place.offset for place in places] == [10, 10]


@pytest.mark.timeout(240)
def test_the_tools_describe_a_shadow_as_a_topic_with_the_offsets_of_its_source(
    node: NodeProcess, audit: str, run: Run
) -> None:
    offsets = run(node.bootstrap, _TOOLS + "GetOffsetShell", "--topic", audit)
    assert offsets == [f"{audit}:0:15", f"{audit}:1:15"]
    at_a_time = run(node.bootstrap, _TOOLS + "GetOffsetShell", "--topic", audit, "--time", str(BEGAN + 20_000))
    assert at_a_time == [f"{audit}:0:10", f"{audit}:1:10"]
    described = run(node.bootstrap, _TOOLS + "TopicCommand", "--describe", "--topic", audit)
    assert f"Topic: {audit}" in described[0]
    assert "PartitionCount: 2" in described[0]
    assert [("Partition: 0" in described[1], "Partition: 1" in described[2], len(described))] == [(True, True, 3)]
    assert all("Leader: 1\t" in line for line in described[1:])
    configs = run(node.bootstrap, "kafka.admin.ConfigCommand", "--describe", "--all", "--topic", audit)
    assert f"All configs for topic {audit} are:" in configs[0]
    assert any(line.strip().startswith("cleanup.policy=") for line in configs)
