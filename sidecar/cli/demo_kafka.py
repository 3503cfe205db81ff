"""What `sidecar demo` says to Kafka past the node: a topic, its log, and the late batch of a dead producer.

Speaks to a cluster of a single broker, as the demo starts it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeVar

from sidecar.changelog.records import RawRecord, build_batch, read_batches
from sidecar.cli.bench.client import Connection
from sidecar.protocol.addresses import addresses
from sidecar.protocol.batch import batch_sizes, read_header
from sidecar.protocol.calls import CreateTopics, FetchPartition, ListOffsets, NewTopic, OffsetAt, ProduceBatch
from sidecar.protocol.ids import Offset, ProducerEpoch, ProducerId, Stamp, TopicPartition

if TYPE_CHECKING:
    from sidecar.protocol.batch import BatchHeader
    from sidecar.protocol.caller import Request

AnswerT = TypeVar("AnswerT")
_PATIENCE_S: Final = 30.0


def _ask(kafka: str, request: Request[AnswerT]) -> AnswerT:
    """One request to a single broker, and its answer."""
    (broker,) = addresses(kafka)
    with Connection(broker, "demo") as connection:
        return connection.ask(request)


def create_topic(kafka: str, topic: str) -> None:
    """One partition; waits until it has a leader."""
    _ask(kafka, CreateTopics((NewTopic(topic, 1, 1),), timeout_ms=10_000))
    partition = TopicPartition(topic, 0)
    deadline = time.monotonic() + _PATIENCE_S
    while _ask(kafka, ListOffsets({partition: OffsetAt.LATEST}))[partition].error:
        if time.monotonic() > deadline:
            raise TimeoutError(f"topic {topic} has no leader")
        time.sleep(0.05)


def read_log(kafka: str, topic: str) -> list[tuple[BatchHeader, list[str]]]:
    """Every batch of partition 0 of a short log: its header and its values as text."""
    request = FetchPartition(TopicPartition(topic, 0), Offset(0), max_wait_ms=100, max_bytes=10_000_000)
    records = _ask(kafka, request).records
    found: list[tuple[BatchHeader, list[str]]] = []
    for start, size in batch_sizes(records, 0, len(records)):
        header = read_header(records, start, start + size)
        values: list[str] = []
        if not header.is_control:
            (batch,) = read_batches(records[start : start + size])
            values = [(record.value or b"").decode() for _, record in batch.records]
        found.append((header, values))
    return found


def newest_batch(kafka: str, topic: str) -> BatchHeader:
    """The header of the last batch of records."""
    return [header for header, _ in read_log(kafka, topic) if not header.is_control][-1]


def send_straight_to_kafka(kafka: str, topic: str, stale: BatchHeader) -> int:
    """What a delayed batch would be: the next sequence under a stamp of before. Kafka's error code."""
    writer = Stamp(ProducerId(stale.producer_id), ProducerEpoch(stale.producer_epoch))
    batch = build_batch([RawRecord(b"", b"alpha, too late")], writer, stale.last_sequence + 1)
    return _ask(kafka, ProduceBatch(TopicPartition(topic, 0), batch, 10_000)).error
