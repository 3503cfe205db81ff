"""What tests of tables share: topics with records, their logs as a client reads them, and exports of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,  # pyright: ignore[reportPrivateImportUsage]
    ConfigEntry,  # pyright: ignore[reportPrivateImportUsage]
    ConfigResource,  # pyright: ignore[reportPrivateImportUsage]
    NewPartitions,  # pyright: ignore[reportPrivateImportUsage]
    NewTopic,  # pyright: ignore[reportPrivateImportUsage]
    ResourceType,  # pyright: ignore[reportPrivateImportUsage]
)
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sidecar.jobs.export import Exporter, Job, Progress, Summary
from sidecar.pipeline.kafka import Kafka
from tests.wait import wait_for

Headers = list[tuple[str, str | bytes | None]]


@dataclass
class Log:
    """A topic of its own, written and read by Kafka's own clients."""

    bootstrap: str
    topic: str
    partitions: int = 2

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap})
        kept = {"retention.ms": "-1"}  # some tests write records of long ago
        self.admin.create_topics([NewTopic(self.topic, self.partitions, 1, config=kept)])[self.topic].result()
        self._await_partitions(self.partitions)

    def write(
        self,
        records: int,
        *,
        prefix: str = "v",
        partitions: Sequence[int] = (0, 1),
        keys: int = 17,
        headers: Headers | None = None,
        in_a_batch: int = 10_000,
    ) -> None:
        """Records with keys that come again, over the partitions in turn."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 50, "batch.num.messages": in_a_batch})
        for number in range(records):
            partition = partitions[number % len(partitions)]
            producer.produce(self.topic, f"{prefix}{number}", f"k{number % keys}", partition, headers=headers or [])
            producer.poll(0)
        assert producer.flush(30) == 0

    def put(self, key: str | bytes | None, value: str | bytes | None, partition: int = 0, timestamp: int = 0) -> None:
        """One record; `timestamp` in ms, 0: now."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        producer.produce(self.topic, value, key, partition, timestamp=timestamp)
        assert producer.flush(30) == 0

    def transaction(self, records: int, partition: int, *, commit: bool) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": self.topic})
        producer.init_transactions(30)
        producer.begin_transaction()
        for number in range(records):
            producer.produce(self.topic, f"transaction {number}", partition=partition)
        producer.flush(30)
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)

    def grow(self, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(self.topic, partitions)])[self.topic].result()
        self._await_partitions(partitions)

    def lose(self, partition: int, before: int) -> None:
        """What retention does: the log of a partition begins at `before` from now on."""
        asked = TopicPartition(self.topic, partition, before)
        self.admin.delete_records([asked])[asked].result()

    def allow_any_time(self) -> None:
        """Brokers refuse times that are far from their own otherwise."""
        bounds = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
        entries = [ConfigEntry(name, str(2**63 - 1), incremental_operation=AlterConfigOpType.SET) for name in bounds]
        resource = ConfigResource(ResourceType.TOPIC, self.topic, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result()

    def read(self) -> dict[tuple[int, int], tuple[bytes | None, bytes | None, Any]]:
        """Key, value and headers of all committed records, by partition and offset."""
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.topic,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": "true",
            "isolation.level": "read_committed",
        }
        consumer, found, ended = Consumer(settings), {}, set[int]()
        count = len(self.admin.list_topics(self.topic).topics[self.topic].partitions)
        consumer.assign([TopicPartition(self.topic, partition, 0) for partition in range(count)])
        while len(ended) < count:
            message = consumer.poll(30)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                ended.add(message.partition() or 0)
            else:
                found[message.partition(), message.offset()] = message.key(), message.value(), message.headers()
        consumer.close()
        return found

    def _await_partitions(self, count: int) -> None:
        def known() -> bool:
            found = self.admin.list_topics(self.topic, timeout=10).topics[self.topic].partitions
            return len(found) == count and all(each.leader >= 0 for each in found.values())

        wait_for(known, f"{count} partitions of {self.topic}")


@dataclass
class Lake:
    """An export of one log, in this process, as often as a test wants."""

    spark: SparkSession
    bootstrap: str
    topic: str
    directory: Path
    progress: list[Progress] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    @property
    def path(self) -> Path:
        return self.directory / "table"

    @property
    def checkpoint(self) -> Path:
        return self.directory / "checkpoint"

    def job(self, **more: Any) -> Job:
        settings: Mapping[str, Any] = {
            "bootstrap": self.bootstrap,
            "topic": self.topic,
            "path": str(self.path),
            "checkpoint": str(self.checkpoint),
            "available_now": True,
        }
        return Job(**{**settings, **more})

    def exporter(self, kafka: Kafka, **more: Any) -> Exporter:
        return Exporter(self.spark, kafka, self.job(**more), self.progress.append, self.said.append)

    def export(self, **more: Any) -> Summary:
        with Kafka(self.bootstrap) as kafka:
            return self.exporter(kafka, **more).run()

    def rows(self) -> list[dict[str, Any]]:
        """All rows as somebody without Spark reads them."""
        return DeltaTable(self.path).to_pyarrow_table().to_pylist()

    def records(self) -> dict[tuple[int, int], tuple[bytes | None, bytes | None, Any]]:
        """The rows in the form of `Log.read`. A record that is there twice fails the test."""
        rows = self.rows()
        found = {(row["partition"], row["offset"]): _record(row) for row in rows}
        assert len(found) == len(rows), f"{len(rows) - len(found)} records are there twice"
        return found


def _record(row: dict[str, Any]) -> tuple[bytes | None, bytes | None, Any]:
    headers = row["headers"]
    return row["key"], row["value"], headers and [(each["key"], each["value"]) for each in headers]


class Files:
    """All files below a path as they are, to see that nothing has changed."""

    def __init__(self, path: Path) -> None:
        self._found = {str(each): each.read_bytes() for each in sorted(path.rglob("*")) if each.is_file()}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Files) and other._found == self._found

    def __hash__(self) -> int:
        return hash(tuple(self._found))
