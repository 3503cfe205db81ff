"""What `sidecar demo` does directly at the broker, without the node: it reads the log and sends a late batch."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final, TypeVar

from sidecar.changelog.records import RawRecord, build_batch, read_batches
from sidecar.cli.bench.client import OPEN, Connection
from sidecar.pipeline.security import Security, of_file
from sidecar.protocol.batch import BatchHeader, batch_sizes, read_header
from sidecar.protocol.caller import Request
from sidecar.protocol.calls.admin import CreateTopics, NewTopic
from sidecar.protocol.calls.logs import FetchPartition, ListOffsets, OffsetAt, ProduceBatch
from sidecar.protocol.ids import Offset, ProducerEpoch, ProducerId, Stamp, TopicPartition

AnswerT = TypeVar("AnswerT")
_PATIENCE_S: Final = 30.0


class KafkaItself:
    """The broker at `address`, host:port; `login`: the client's configuration file, if the broker requires a login."""

    def __init__(self, address: str, login: Path | None) -> None:
        security = OPEN if login is None else Security.of(of_file(login))
        host, port = address.rsplit(":", 1)
        self._address = host, int(port)
        self._security = security

    def _ask(self, request: Request[AnswerT]) -> AnswerT:
        with Connection(self._address, "demo", self._security) as connection:
            return connection.ask(request)

    def create_topic(self, topic: str) -> None:
        """Create a topic with one partition; waits until it has a leader."""
        self._ask(CreateTopics((NewTopic(topic, 1, 1),), timeout_ms=10_000))
        partition = TopicPartition(topic, 0)
        deadline = time.monotonic() + _PATIENCE_S
        while self._ask(ListOffsets({partition: OffsetAt.LATEST}))[partition].error:
            if time.monotonic() > deadline:
                raise TimeoutError(f"topic {topic} has no leader")
            time.sleep(0.05)

    def read_log(self, topic: str) -> list[tuple[BatchHeader, list[str]]]:
        """Every batch of partition 0, whose log is short: its header and its values as text."""
        request = FetchPartition(TopicPartition(topic, 0), Offset(0), max_wait_ms=100, max_bytes=10_000_000)
        records = self._ask(request).records
        found: list[tuple[BatchHeader, list[str]]] = []
        for start, size in batch_sizes(records, 0, len(records)):
            header = read_header(records, start, start + size)
            values: list[str] = []
            if not header.is_control:
                (batch,) = read_batches(records[start : start + size])
                values = [(record.value or b"").decode() for _, record in batch.records]
            found.append((header, values))
        return found

    def newest_batch(self, topic: str) -> BatchHeader:
        """The header of the last batch of records."""
        return [header for header, _ in self.read_log(topic) if not header.is_control][-1]

    def send_late(self, topic: str, stale: BatchHeader) -> int:
        """Send a delayed batch: the next sequence under an earlier stamp. Returns Kafka's error code."""
        writer = Stamp(ProducerId(stale.producer_id), ProducerEpoch(stale.producer_epoch))
        batch = build_batch([RawRecord(b"", b"alpha, too late")], writer, stale.last_sequence + 1)
        return self._ask(ProduceBatch(TopicPartition(topic, 0), batch, 10_000)).error
