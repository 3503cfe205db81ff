"""The rows and columns of the matrix: which clients are run and what each of them is asked to do.

Pure data. A row names something an ordinary user of Kafka does, not a request of the protocol; how a client does it is
in its worker, where it cannot is in `absences`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Client:
    """A column: `name` is used in test ids, `title` in the report."""

    name: str
    title: str


@dataclass(frozen=True, slots=True)
class Feature:
    """A row. `limit_s` bounds one cell: a client that has not answered by then is killed and the cell fails."""

    name: str
    title: str
    section: str
    limit_s: float = 45.0


CLIENTS = (
    Client("confluent-kafka", "confluent-kafka (librdkafka)"),
    Client("aiokafka", "aiokafka"),
    Client("kafka-python", "kafka-python"),
    Client("java-tools", "Java tools"),
    Client("java-client", "Java client"),
)


def _section(section: str, *rows: tuple[str, str]) -> Iterator[Feature]:
    return (Feature(name, title, section) for name, title in rows)


FEATURES: tuple[Feature, ...] = (
    *_section(
        "Cluster",
        ("cluster", "metadata and the cluster description name reachable nodes only; every socket goes to one of them"),
        ("auto-create", "a topic that does not exist is created by writing to it"),
    ),
    *_section(
        "Producing",
        ("acks-0", "acks=0"),
        ("acks-1", "acks=1"),
        ("acks-all", "acks=all"),
        ("compression-none", "no compression, round trip"),
        ("compression-gzip", "gzip, round trip"),
        ("compression-snappy", "snappy, round trip"),
        ("compression-lz4", "lz4, round trip"),
        ("compression-zstd", "zstd, round trip"),
        ("idempotent", "idempotent producer: many batches, each record once and in order"),
        ("large-900k", "a record of 900 KB with the default settings"),
        ("large-5m", "a record of 5 MB on a topic that allows it; refused on one that does not"),
        ("headers-tombstones", "headers, null keys, null values"),
        ("timestamps", "create times are kept"),
    ),
    *_section(
        "Transactions",
        ("txn-commit", "commit: read_committed waits for it"),
        ("txn-abort", "abort: read_committed skips, read_uncommitted sees"),
        ("txn-offsets", "offsets of a group committed by the transaction"),
    ),
    *_section(
        "Consumer groups",
        ("rebalance", "two members share, one leaves, the other takes over"),
        ("static-membership", "a static member returns to its partitions without a rebalance"),
        ("cooperative", "cooperative rebalance: kept partitions are not revoked"),
        ("group-protocol-consumer", "group.protocol=consumer (KIP-848)"),
        ("commit-sync", "synchronous commit, a new member resumes there"),
        ("commit-async", "asynchronous commit, a new member resumes there"),
    ),
    *_section(
        "Consuming",
        ("seek-ends", "seek to the beginning and the end"),
        ("seek-timestamp", "seek by timestamp"),
        ("pause-resume", "a paused partition delivers nothing until resumed"),
        ("manual-assignment", "partitions assigned by hand, without a group"),
        ("many-partitions", "one consumer over 60 partitions of three topics"),
    ),
    *_section(
        "Topics and configuration",
        ("topics", "create, list, describe and delete topics"),
        ("partitions", "add partitions to a topic"),
        ("topic-configs", "describe and incrementally alter the configuration of a topic"),
        ("topic-configs-legacy", "replace the configuration of a topic (AlterConfigs)"),
        ("broker-configs", "describe the configuration of every node of the cluster description"),
        ("list-offsets", "earliest, latest and by-time offsets of partitions"),
        ("delete-records", "delete records up to an offset"),
        ("log-dirs", "describe log directories of every node"),
        ("elect-leaders", "elect preferred leaders"),
        ("reassignments", "list partition reassignments"),
    ),
    *_section(
        "Groups, seen by an administrator",
        ("groups", "list and describe groups"),
        ("groups-delete", "delete a group"),
        ("group-offsets", "list the offsets of a group"),
        ("group-offsets-alter", "set the offsets of a group"),
        ("group-offsets-delete", "delete an offset of a group"),
    ),
    *_section(
        "Security, quotas, transactions, seen by an administrator",
        ("acls", "create, describe and delete ACLs"),
        ("scram", "add, describe and delete SCRAM credentials"),
        ("quotas", "set, describe and remove client quotas"),
        ("producers", "describe the active producers of a partition"),
        ("transactions", "list and describe transactions"),
    ),
)

FEATURE = {feature.name: feature for feature in FEATURES}
CLIENT = {client.name: client for client in CLIENTS}
CELLS = tuple((client.name, feature.name) for feature in FEATURES for client in CLIENTS)
