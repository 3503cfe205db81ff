"""The last rows of the matrix: other versions of clients, and applications on a client.

A row is one or more tests that are marked `further(NAME)`. Where a test has a parameter `route` it runs as often as
there are routes, and has to see the same each time; one that is marked `compares=True` takes both routes itself; the
others are about what nodes alone have. `Further` counts which of them passed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from confluent_kafka import libversion

from .outcome import Route

if TYPE_CHECKING:
    import pytest

KAFKA: Final = "4.4.0"
"""Which these clients run against, where nothing else is said: the first Kafka with all kinds of groups is 4.2."""
OLD_JAVA: Final = ("2.8.2", "3.0.2")
LIBRDKAFKA: Final = libversion()[0]
CONNECT: Final = "4.1.1"
FLINK: Final = "2.0.0"
FLINK_CONNECTOR: Final = "4.0.1-2.0"
DEBEZIUM: Final = "3.3.1.Final"
KADM: Final = "1.20.0"
FRANZ_GO: Final = "1.22.0"
"""The last that acknowledges records of share groups on another connection than it reads on."""
KCAT: Final = "1.7.1"
KCAT_LIBRDKAFKA: Final = "2.0.2"
MARK: Final = "further"


@dataclass(frozen=True, slots=True)
class Row:
    """`name` is used by the marks of tests, the others in the report."""

    name: str
    client: str
    title: str


ROWS: Final = (
    *(
        Row(f"old-java-{name}-{version}", f"Java kafka-clients {version}", title)
        for version in OLD_JAVA
        for name, title in (
            ("records", "writes, reads in a group, and copies by transactions what was committed, each record once"),
            (
                "governed",
                "an exclusive topic: owns it, is refused, waits, is deposed; deduplication; a missing topic; a shadow",
            ),
        )
    ),
    Row(
        "share-acknowledge",
        f"Java KafkaShareConsumer {KAFKA}",
        "share group (KIP-932): records are accepted, released and taken again, rejected, renewed (KIP-1222)",
    ),
    Row(
        "share-together", f"Java KafkaShareConsumer {KAFKA}", "two members share, each record reaches one of them once"
    ),
    Row("share-shadow", f"Java KafkaShareConsumer {KAFKA}", "refused on a shadow, with the reason"),
    Row(
        "share-librdkafka",
        f"librdkafka {LIBRDKAFKA} ShareConsumer",
        "share group: records are accepted, released and taken again, rejected; two members share",
    ),
    Row(
        "share-franz-go",
        f"franz-go {FRANZ_GO}",
        "share group: it acknowledges on another connection than it reads on, and what it accepted comes to no other "
        "member",
    ),
    Row(
        "share-librdkafka-shadow",
        f"librdkafka {LIBRDKAFKA} ShareConsumer",
        "refused on a shadow, once; `sidecar refusals` has the reason",
    ),
    *(
        Row(
            f"{name}-{protocol}",
            f"Kafka Streams {KAFKA}, group.protocol={protocol}",
            f"exactly once{source}, over a repartition topic and with a store: killed in a transaction, it counts each "
            "record once",
        )
        for protocol in ("classic", "streams")
        for name, source in (("streams", ""), ("streams-shadow", " from a shadow"))
    ),
    Row(
        "connect",
        f"Kafka Connect {CONNECT}, distributed",
        "a source with exactly.once.source.support writes each line of a file once, although a frozen worker comes "
        "back when another has its task; a sink copies them",
    ),
    Row(
        "debezium",
        f"Debezium {DEBEZIUM} for PostgreSQL, Kafka Connect {CONNECT}",
        "an exclusive topic: a task that was frozen through the start of its successor is shut out",
    ),
    *(
        Row(
            f"flink-{naming}",
            f"Flink {FLINK}, connector {FLINK_CONNECTOR}",
            f"a source and a sink, exactly once, transactional ids {naming}: a job that fails between checkpoints "
            "copies each record once",
        )
        for naming in ("INCREMENTING", "POOLING")
    ),
    Row(
        "console-look",
        f"franz-go's kadm {KADM}, of Redpanda Console",
        "sees the same: brokers, topics, settings, sizes, groups of all kinds, lags, offsets, producers, transactions, "
        "ACLs, quotas, credentials",
    ),
    Row(
        "console-versions",
        f"franz-go's kadm {KADM}, of Redpanda Console and kminion",
        "finds the APIs that these need; its guess of Kafka's version differs (see clients.md)",
    ),
    Row(
        "console-edit",
        f"franz-go's kadm {KADM}, of Redpanda Console",
        "changes the same: topics, partitions, settings, records, offsets, groups, ACLs, quotas, credentials",
    ),
    Row(
        "kafka-ui-look",
        f"Java Admin {KAFKA}, the calls and options of Kafka UI (kafbat)",
        "sees the same: cluster, settings with synonyms and documentation, sizes, groups, offsets, producers, ACLs, "
        "quotas",
    ),
    Row(
        "kafka-ui-edit",
        f"Java Admin {KAFKA}, the calls and options of Kafka UI (kafbat)",
        "changes the same: topics, partitions, settings, records, offsets, groups, ACLs, quotas; nodes refuse to move "
        "replicas and to set one broker's configuration",
    ),
    Row(
        "kcat",
        f"kcat {KCAT}, librdkafka {KCAT_LIBRDKAFKA}",
        "writes with keys, headers and compression, by transactions too; reads by offset, by time and in a group; "
        "lists; finds offsets",
    ),
)


@dataclass
class Further:
    """The tests of rows in a session, by row and route."""

    planned: dict[tuple[str, Route], set[str]] = field(default_factory=dict)
    passed: dict[tuple[str, Route], set[str]] = field(default_factory=dict)
    """Those that were called and did not fail later."""

    def plan(self, item: pytest.Item) -> None:
        """A test was collected; it counts even if it is not selected."""
        for cell in _cells(item):
            self.planned.setdefault(cell, set()).add(item.nodeid)

    def note(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """One phase of a test is over."""
        for cell in _cells(item):
            passed = self.passed.setdefault(cell, set())
            if not report.passed:
                passed.discard(item.nodeid)
            elif report.when == "call":
                passed.add(item.nodeid)

    def result(self, row: Row, route: Route) -> bool | None:
        """Whether all tests of the row passed; None where it has none on this route."""
        planned = self.planned.get((row.name, route))
        return None if planned is None else planned == self.passed.get((row.name, route))

    def complete(self) -> bool:
        """Every row passed through nodes, and wherever else it ran."""
        results = {(row.name, route): self.result(row, route) for row in ROWS for route in Route}
        return False not in results.values() and all(results[row.name, Route.NODE] for row in ROWS)


def _cells(item: pytest.Item) -> list[tuple[str, Route]]:
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    route = parameters.get("route", Route.NODE)
    return [
        (mark.args[0], each)
        for mark in item.iter_markers(MARK)
        for each in (Route if mark.kwargs.get("compares") else (route,))
    ]
