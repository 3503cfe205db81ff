"""Kafka's tools by the names of their scripts, and the few runs of them that most scenarios share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from ..runtime import Cell, Scenarios, arguments, until
from .host import WAIT_S, Host, Output, Running

scenarios = Scenarios("java-tools")

MAIN = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "org.apache.kafka.tools.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "transactional-message-copier": "org.apache.kafka.tools.TransactionalMessageCopier",
}

_OTHER_OPTION = {
    "kafka-cluster": None,
    "kafka-producer-perf-test": None,
    "transactional-message-copier": "--broker-list",
}


@cache
def host() -> Host:
    """The JVM of this worker's tools."""
    return Host(arguments()["tools"])


def start(cell: Cell, tool: str, *arguments: str, stdin: str = "") -> Running:
    """Start a tool on the cell's cluster."""
    option = _OTHER_OPTION.get(tool, "--bootstrap-server")
    where = [option, cell.bootstrap] if option else []
    return host().start(MAIN[tool], [*where, *arguments], stdin)


def run(cell: Cell, tool: str, *arguments: str, stdin: str = "", expected: int = 0) -> Output:
    """Run a tool to its end; `expected` is the exit code it has to have."""
    return start(cell, tool, *arguments, stdin=stdin).end(expected=expected)


def create_topic(cell: Cell, suffix: str = "topic", partitions: int = 1, **config: str) -> str:
    """Create a topic and wait until every partition's leader serves it.

    Without that, the first of several batches under way may be refused and the second accepted, which no idempotent
    producer gets over: Kafka takes any sequence from a producer id that the partition does not know.
    """
    topic = cell.name(suffix)
    settings = [one for name, value in config.items() for one in ("--config", f"{name.replace('_', '.')}={value}")]
    run(cell, "kafka-topics", "--create", "--topic", topic, "--partitions", str(partitions), *settings)
    until(
        f"{topic} is served",
        lambda: len(start(cell, "kafka-get-offsets", "--topic", topic).look(WAIT_S).lines()) == partitions,
    )
    return topic


def produce(cell: Cell, topic: str, lines: list[str], *options: str, **settings: str) -> Output:
    """Write lines with kafka-console-producer; `settings` are producer properties with underscores for dots."""
    given = [
        one for name, value in settings.items() for one in ("--command-property", f"{name.replace('_', '.')}={value}")
    ]
    return run(
        cell, "kafka-console-producer", "--topic", topic, *options, *given, stdin="".join(f"{line}\n" for line in lines)
    )


def numbered(count: int, start_at: int = 0) -> list[str]:
    return [str(number) for number in range(start_at, start_at + count)]


def consume(cell: Cell, topic: str, count: int, *options: str) -> list[str]:
    """The lines of kafka-console-consumer for `count` records; give it a place or a group in `options`."""
    output = run(
        cell,
        "kafka-console-consumer",
        "--topic",
        topic,
        "--max-messages",
        str(count),
        "--timeout-ms",
        "20000",
        *options,
    )
    return output.lines()


def read(cell: Cell, topic: str, count: int, *options: str, partition: int = 0) -> list[str]:
    """The values of the first `count` records of a partition."""
    return consume(cell, topic, count, "--partition", str(partition), "--offset", "earliest", *options)


def visible(cell: Cell, topic: str, isolation: str) -> list[str]:
    """The values that a reader sees now: what it reads until nothing comes for a while."""
    where = ["--topic", topic, "--partition", "0", "--offset", "earliest"]
    return run(cell, "kafka-console-consumer", *where, "--isolation-level", isolation, "--timeout-ms", "1500").lines()


@contextmanager
def file_with(text: str) -> Iterator[str]:
    """The path of a file that some tools take their arguments from."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "argument"
        path.write_text(text, encoding="utf-8")
        yield str(path)
