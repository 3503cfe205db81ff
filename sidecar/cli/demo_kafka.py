"""What `sidecar demo` says to Kafka past the node: a topic, its log, and the late batch of a dead producer.

Speaks to a cluster of a single broker, as the demo starts it.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import TYPE_CHECKING, Final

from sidecar.changelog.records import RawRecord, build_batch, read_batches
from sidecar.protocol import produce, produce_upstream
from sidecar.protocol.batch import batch_sizes, read_header
from sidecar.protocol.calls import CreateTopics, FetchPartition, NewTopic
from sidecar.protocol.ids import Offset, ProducerEpoch, ProducerId, Stamp, TopicPartition
from sidecar.protocol.primitives import Reader, Writer

if TYPE_CHECKING:
    from sidecar.protocol.batch import BatchHeader

_PATIENCE_S: Final = 30.0


def _connect(kafka: str) -> socket.socket:
    host, port = kafka.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=10)


def _ask(kafka: str, key: int, version: int, body: bytes, *, flexible: bool = False) -> bytes:
    """One request to a single broker; the answer behind its correlation id."""
    message = struct.pack(">hhih", key, version, 1, 4) + b"demo" + (b"\0" if flexible else b"") + body
    with _connect(kafka) as connection:
        connection.sendall(struct.pack(">i", len(message)) + message)
        stream = connection.makefile("rb")
        answer = stream.read(struct.unpack(">i", stream.read(4))[0])
    return answer[4:]


def create_topic(kafka: str, topic: str) -> None:
    """One partition; waits until it has a leader."""
    writer = Writer()
    CreateTopics((NewTopic(topic, 1, 1),), timeout_ms=10_000).encode(writer)
    _ask(kafka, 19, 4, writer.finish())
    deadline = time.monotonic() + _PATIENCE_S
    while not _has_leader(kafka, topic):
        if time.monotonic() > deadline:
            raise TimeoutError(f"topic {topic} has no leader")
        time.sleep(0.05)


def _has_leader(kafka: str, topic: str) -> bool:
    name = struct.pack(">h", len(topic)) + topic.encode()
    answer = _ask(kafka, 2, 2, struct.pack(">ibi", -1, 0, 1) + name + struct.pack(">iiq", 1, 0, -1))
    return struct.unpack_from(">h", answer, 4 + 4 + 2 + len(topic) + 4 + 4)[0] == 0


def read_log(kafka: str, topic: str) -> list[tuple[BatchHeader, list[str]]]:
    """Every batch of partition 0 of a short log: its header and its values as text."""
    request = FetchPartition(TopicPartition(topic, 0), Offset(0), max_wait_ms=100, max_bytes=10_000_000)
    writer = Writer()
    request.encode(writer)
    records = request.decode(Reader(_ask(kafka, 1, 11, writer.finish()))).records
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
    parts = produce_upstream.encode_request(1, b"demo", 8, -1, 10_000, [(topic.encode(), 0, batch)])
    with _connect(kafka) as connection:
        connection.sendall(b"".join(parts))
        stream = connection.makefile("rb")
        size = stream.read(4)
        answer = size + stream.read(struct.unpack(">i", size)[0])
    return produce.decode_answer(answer, 0, len(answer), 8)[0][0].error
