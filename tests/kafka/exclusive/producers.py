"""A producer that sends exactly the batch it is told to: producer id, epoch and sequence are the test's own."""

import struct
import time
from dataclasses import dataclass

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from sidecar.protocol import produce_upstream
from sidecar.protocol.batch import BatchHeader, batch_sizes, read_header, stamp
from sidecar.protocol.caller import decode_frame, encode_frame
from sidecar.protocol.calls.logs import FetchPartition
from sidecar.protocol.ids import Offset, TopicPartition
from sidecar.protocol.primitives import Octets
from tests.frames import Frames
from tests.wait import wait_for

_HEAD = struct.Struct(">hhih")
_I64 = struct.Struct(">q")
_LOW_ATTRIBUTES_AT, _MAX_TIMESTAMP_AT = 22, 35
_PATIENCE = 20.0


def batch_of(
    values: list[bytes],
    producer_id: int,
    epoch: int,
    sequence: int,
    *,
    transactional: bool = False,
    timestamp_ms: int | None = None,
    headers: list[list[tuple[str, bytes | None]]] | None = None,
    codec: int = 0,
    claimed_ms: int | None = None,
    attributes: int = 0,
) -> bytearray:
    """One batch as a client sends it; its records are of now unless told otherwise. `headers` are those of each;
    `claimed_ms` is the newest time by the batch's own header, whatever the records have, `attributes` are more bits.
    """
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=transactional,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        batch_size=1 << 20,
    )
    now = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
    for index, each in enumerate(values):
        builder.append(index, now, None, each, [] if headers is None else headers[index])
    batch = bytearray(builder.build())
    if claimed_ms is not None or attributes:
        batch[_LOW_ATTRIBUTES_AT] |= attributes
        _I64.pack_into(batch, _MAX_TIMESTAMP_AT, now if claimed_ms is None else claimed_ms)
        stamp(batch, 0, len(batch), producer_id, epoch, sequence)
    return batch


def id_headers(sequence_id: int | bytes | None, name: bytes | None = None) -> list[tuple[str, bytes | None]]:
    """A record's headers: its sequence id (bytes: as they are), and a producer name of its own."""
    found: list[tuple[str, bytes | None]] = []
    if sequence_id is not None:
        text = sequence_id if isinstance(sequence_id, bytes) else str(sequence_id).encode()
        found.append(("sidecar-sequence-id", text))
    if name is not None:
        found.append(("sidecar-producer-name", name))
    return found


@dataclass(frozen=True)
class Sent:
    """The answer for one batch."""

    error: int
    offset: int
    message: str | None


class RawProducer(Frames):
    """One connection; `producer_id` -1: a plain producer without sequences."""

    def __init__(self, bootstrap: str, client_id: str, producer_id: int = -1, *, epoch: int = 0) -> None:
        super().__init__(bootstrap)
        self._client_id = client_id.encode()
        self._correlation = 0
        self.producer_id = producer_id
        self.epoch = epoch

    def send(
        self,
        topic: str,
        value: bytes | list[bytes],
        *,
        sequence: int = -1,
        partition: int = 0,
        epoch: int | None = None,
        transactional: bool = False,
        timestamp_ms: int | None = None,
    ) -> Sent:
        """Produce one batch and wait for its answer; 5 is tried again for a while, as every client does."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            self.begin(
                topic,
                value,
                sequence=sequence,
                partition=partition,
                epoch=epoch,
                transactional=transactional,
                timestamp_ms=timestamp_ms,
            )
            sent = self.finish()
            if sent.error != 5 or time.monotonic() > deadline:
                return sent

    def begin(
        self,
        topic: str,
        value: bytes | list[bytes],
        *,
        sequence: int = -1,
        partition: int = 0,
        epoch: int | None = None,
        transactional: bool = False,
        timestamp_ms: int | None = None,
        timeout_ms: int = 10_000,
    ) -> None:
        """Send one batch; its answer comes with `finish`, in order. `timeout_ms` is what the request gives the node."""
        values = value if isinstance(value, list) else [value]
        producer_epoch = (self.epoch if epoch is None else epoch) if self.producer_id >= 0 else -1
        batch = batch_of(
            values, self.producer_id, producer_epoch, sequence, transactional=transactional, timestamp_ms=timestamp_ms
        )
        self._correlation += 1
        parts = produce_upstream.encode_request(
            self._correlation, self._client_id, 8, -1, timeout_ms, [(topic.encode(), partition, batch)]
        )
        self.send_bytes(b"".join(parts))

    def finish(self) -> Sent:
        """The answer to the oldest batch that has none yet."""
        ((_, sent),) = self.finish_all().items()
        return sent

    def begin_all(self, topic: str, batches: dict[int, tuple[bytes, int]], *, version: int = 8) -> None:
        """Send the batches of several partitions (value, sequence) in one request; see `finish_all`."""
        records: list[tuple[bytes, int, Octets]] = [
            (topic.encode(), partition, batch_of([value], self.producer_id, self.epoch, sequence))
            for partition, (value, sequence) in batches.items()
        ]
        self._correlation += 1
        parts = produce_upstream.encode_request(self._correlation, self._client_id, version, -1, 10_000, records)
        self.send_bytes(b"".join(parts))

    def finish_all(self, *, version: int = 8) -> dict[int, Sent]:
        """The answer to the oldest request that has none yet, by partition."""
        frame = self.receive_frame()
        results, _ = produce_upstream.decode_answer(frame, 0, len(frame), version)
        return {result.partition: Sent(result.error, result.base_offset, result.message) for result in results}

    def initialise(self) -> None:
        """Take a producer id, as soon as the broker can give one."""
        wait_for(self._initialised, "a producer id")

    def _initialised(self) -> bool:
        error, producer_id = self.ask_producer_id()
        if error == 0:
            self.producer_id = producer_id
        return error == 0

    def ask_producer_id(self, named: int = -1, epoch: int = -1) -> tuple[int, int]:
        """InitProducerId v3 on this connection: (error, producer id)."""
        self._correlation += 1
        header = _HEAD.pack(22, 3, self._correlation, len(self._client_id)) + self._client_id + b"\0"
        body = b"\0" + struct.pack(">iqh", 60_000, named, epoch) + b"\0"
        self.send_bytes(struct.pack(">i", len(header) + len(body)) + header + body)
        error, producer_id = struct.unpack(">hq", self.receive_frame()[13:23])
        return error, producer_id


def fetch_batches(bootstrap: str, topic: str, partition: int = 0, start: int = 0) -> list[BatchHeader]:
    """The headers of all batches of a short log from offset `start` on, straight from a single broker."""
    request = FetchPartition(TopicPartition(topic, partition), Offset(start), max_wait_ms=100, max_bytes=50_000_000)
    with Frames(bootstrap) as connection:
        connection.send_bytes(encode_frame(request, 1, "test"))
        frame = connection.receive_frame()
    records = decode_frame(request, 1, frame, 4, len(frame)).records
    return [read_header(records, start, start + size) for start, size in batch_sizes(records, 0, len(records))]


def unconfirmed_produce(topic: str, value: bytes, partition: int = 0) -> bytes:
    """A whole Produce request with acks=0 and one plain record."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    builder.append(0, int(time.time() * 1000), None, value, [])
    batches: list[tuple[bytes, int, Octets]] = [(topic.encode(), partition, bytes(builder.build()))]
    return b"".join(produce_upstream.encode_request(1, b"test", 8, 0, 10_000, batches))
