"""A client that asks brokers and waits for each answer: the same on a simulated cluster and on real brokers.

A class that implements `ask`, `pause`, `wall_ms` and `topic` gets the rest. Scenarios (`scenarios`) are written against
it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from tests.sim.kafka.batches import encode


class Talk(ABC):
    """See the module. Fields are Kafka's own in snake case, as in `tables`."""

    @abstractmethod
    def ask(self, broker: int | None, key: int, version: int, fields: dict[str, Any]) -> dict[str, Any]:
        """The answer of a broker (None: any) to one request, without tagged fields."""

    @abstractmethod
    def begin(self, broker: int | None, key: int, version: int, fields: dict[str, Any]) -> Any:
        """Send a request on its own connection and do not wait."""

    @abstractmethod
    def outcome(self, pending: Any, seconds: float = 10.0) -> dict[str, Any] | str | None:
        """What became of a request that was begun: its answer, "closed" where the broker ended the connection, or None
        where neither happened within `seconds`.
        """

    @abstractmethod
    def exchange(self, broker: int | None, frame: bytes) -> bytes | None:
        """The answer to a frame as it stands, on its own connection; None where the broker ends that one."""

    @abstractmethod
    def pause(self, seconds: float) -> None:
        """Let time pass."""

    @abstractmethod
    def wall_ms(self) -> int:
        """The brokers' clock."""

    @abstractmethod
    def topic(self, partitions: int = 1, **configs: str) -> str:
        """The name of a new topic that every broker knows; an underscore in a setting's name stands for a dot."""

    def unique(self, name: str) -> str:
        """A transactional id, or a group, that nobody has used yet."""
        return name

    def leader_of(self, topic: str, partition: int = 0) -> int:
        answer = self.ask(None, 3, 10, {"topics": [{"name": topic}], "allow_auto_topic_creation": False})
        return next(
            each["leader_id"] for each in answer["topics"][0]["partitions"] if each["partition_index"] == partition
        )

    def produce_fields(
        self, topic: str, values: Sequence[bytes | None], *, pid: int = -1, epoch: int = -1, seq: int = -1,
        partition: int = 0,
        acks: int = -1, timestamp: int | None = None, attributes: int = 0, key: bytes | None = None,
        timeout_ms: int = 5000, transactional_id: str | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        at = self.wall_ms() if timestamp is None else timestamp
        batch = encode([(key, value) for value in values], at, pid, epoch, seq, attributes)
        data = [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}]
        return {"transactional_id": transactional_id, "acks": acks, "timeout_ms": timeout_ms, "topic_data": data}

    def produce(
        self, topic: str, *values: bytes | None, broker: int | None = None, **more: Any
    ) -> tuple[int, int]:  # fmt: skip
        """(error, base offset) of one batch sent to the leader, or to a broker."""
        broker = self.leader_of(topic, more.get("partition", 0)) if broker is None else broker
        answer = self.ask(broker, 0, 8, self.produce_fields(topic, list(values), **more))
        row = answer["responses"][0]["partition_responses"][0]
        return row["error_code"], row["base_offset"]

    def fetch(self, topic: str, offset: int = 0, *, broker: int | None = None, **more: Any) -> dict[str, Any]:
        broker = self.leader_of(topic, more.get("partition", 0)) if broker is None else broker
        return self.ask(broker, 1, 11, fetch_fields(topic, offset, **more))["responses"][0]["partitions"][0]

    def latest(self, topic: str, partition: int = 0, *, broker: int | None = None, version: int = 5) -> tuple[int, int]:
        """(error, offset)."""
        broker = self.leader_of(topic, partition) if broker is None else broker
        part = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": -1}
        fields = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic, "partitions": [part]}]}
        row = self.ask(broker, 2, version, fields)["topics"][0]["partitions"][0]
        return row["error_code"], row["offset"]

    def delete(self, topic: str, offset: int, *, timeout_ms: int = 5000) -> tuple[int, int]:
        """DeleteRecords of partition 0: the error code and the low watermark."""
        fields = {
            "topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}],
            "timeout_ms": timeout_ms,
        }
        row = self.ask(self.leader_of(topic), 21, 1, fields)["topics"][0]["partitions"][0]
        return row["error_code"], row["low_watermark"]

    def coordinator(self, transactional_id: str) -> int:
        return self.ask(None, 10, 1, {"key": transactional_id, "key_type": 1})["node_id"]

    def init(
        self, transactional_id: str | None, pid: int = -1, epoch: int = -1, timeout_ms: int = 60_000
    ) -> tuple[int, int, int]:
        """(error, producer id, epoch), tried again while the coordinator is not ready (14, 15, 16, 51)."""
        for _ in range(100):
            broker = None if transactional_id is None else self.coordinator(transactional_id)
            fields = {
                "transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms, "producer_id": pid,
                "producer_epoch": epoch,
            }  # fmt: skip
            answer = self.ask(broker, 22, 4, fields)
            if answer["error_code"] not in (14, 15, 16, 51):
                return answer["error_code"], answer["producer_id"], answer["producer_epoch"]
            self.pause(0.05)
        raise AssertionError("the coordinator is never ready")

    def add(self, transactional_id: str, pid: int, epoch: int, topic: str, *partitions: int) -> int:
        fields = {
            "transactional_id": transactional_id, "producer_id": pid, "producer_epoch": epoch,
            "topics": [{"name": topic, "partitions": list(partitions or (0,))}],
        }  # fmt: skip
        answer = self.ask(self.coordinator(transactional_id), 24, 3, fields)
        return answer["results_by_topic"][0]["results_by_partition"][0]["partition_error_code"]

    def end(self, transactional_id: str, pid: int, epoch: int, *, commit: bool = False) -> int:
        fields = {
            "transactional_id": transactional_id,
            "producer_id": pid,
            "producer_epoch": epoch,
            "committed": commit,
        }
        return self.ask(self.coordinator(transactional_id), 26, 3, fields)["error_code"]

    def fence(self, transactional_id: str, topic: str, *partitions: int) -> tuple[int, int]:
        """A node's fence (docs/internals/architecture.md, Fencing): InitProducerId, an empty aborted transaction."""
        error, pid, epoch = self.init(transactional_id)
        assert not error
        assert self.add(transactional_id, pid, epoch, topic, *partitions) == 0
        assert self.end(transactional_id, pid, epoch) == 0
        for _ in range(100):
            if self.end(transactional_id, pid, epoch) == 0:
                return pid, epoch
            self.pause(0.02)
        raise AssertionError("markers are never written")

    def producers(self, topic: str, partition: int = 0, *, broker: int | None = None) -> dict[int, dict[str, Any]]:
        broker = self.leader_of(topic, partition) if broker is None else broker
        fields = {"topics": [{"name": topic, "partition_indexes": [partition]}]}
        row = self.ask(broker, 61, 0, fields)["topics"][0]["partitions"][0]
        return {each["producer_id"]: each for each in row["active_producers"]}


def fetch_fields(
    topic: str, offset: int = 0, *, partition: int = 0, max_wait_ms: int = 0, min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20, isolation: int = 0, epoch: int = -1,
) -> dict[str, Any]:  # fmt: skip
    part = {
        "partition": partition, "current_leader_epoch": epoch, "fetch_offset": offset, "log_start_offset": -1,
        "last_fetched_epoch": -1, "partition_max_bytes": partition_max_bytes,
    }  # fmt: skip
    return {
        "replica_id": -1, "max_wait_ms": max_wait_ms, "min_bytes": min_bytes, "max_bytes": max_bytes,
        "isolation_level": isolation, "session_id": 0, "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [part]}], "forgotten_topics_data": [], "rack_id": "",
    }  # fmt: skip


def without_tags(value: Any) -> Any:
    """Answers as plain values that can be compared."""
    if isinstance(value, dict):
        return {name: without_tags(each) for name, each in value.items() if name != "tags"}
    return [without_tags(each) for each in value] if isinstance(value, list) else value
