"""The client of `sidecar bench` for servers of this machine, and what only benchmarks ask."""

from __future__ import annotations

import time

from sidecar.changelog.records import RawRecord, build_batch
from sidecar.cli.bench import client
from sidecar.cli.bench.client import CLIENT_ID, PASSING, BatchFrame, DeleteTopic, RefusedError, new_producer
from sidecar.local.ports import HOST
from sidecar.protocol.caller import encode_frame
from sidecar.protocol.calls.logs import ListOffsets, OffsetAt
from sidecar.protocol.ids import Stamp, TopicPartition

__all__ = [
    "CLIENT_ID",
    "PASSING",
    "Connection",
    "DeleteTopic",
    "IdempotentProducer",
    "RefusedError",
    "list_offsets_frame",
    "new_producer",
]


class Connection(client.Connection):
    """One connection to a port of this machine, as the client `client_id`."""

    def __init__(self, port: int, client_id: str = CLIENT_ID) -> None:
        super().__init__((HOST, port), client_id)


class IdempotentProducer:
    """Appends batches of one record to partition 0 of a topic as an idempotent client does: producer id, sequences.

    `prepare` makes the next frame, outside of what is timed; `check` reads its answer. A record's time is that of its
    first `prepare`, as nodes look at the age of records. Which connection carries it is the caller's: a session may go
    on at another node.
    """

    def __init__(self, stamp: Stamp, topic: str, value_bytes: int, client_id: str = CLIENT_ID) -> None:
        self._stamp = stamp
        batch = build_batch([RawRecord(b"", bytes(value_bytes))], stamp)
        self._batch = BatchFrame(TopicPartition(topic, 0), batch, client_id=client_id)
        self._sequence = 0
        self._time_ms: int | None = None

    def prepare(self) -> bytearray:
        """The frame of the next append; the same one again until an answer was checked."""
        if self._time_ms is None:
            self._time_ms = int(time.time() * 1000)
        return self._batch.stamped(self._stamp, self._sequence, self._time_ms)

    def check(self, answer: bytearray) -> None:
        """Count on if the batch was appended. Raises RefusedError."""
        self._batch.check(answer)
        self._sequence += 1
        self._time_ms = None


def list_offsets_frame(topic: str) -> bytes:
    """A request for the end of partition 0."""
    return encode_frame(ListOffsets({TopicPartition(topic, 0): OffsetAt.LATEST}), 0, CLIENT_ID)
