"""Calls to a transaction coordinator and what its markers did: InitProducerId, AddPartitionsToTxn, EndTxn and their
witnesses.

Versions are the newest that every broker since 3.0 serves and that keep the meaning the fence needs: EndTxn below 5
does not raise the epoch (KIP-890), InitProducerId 4 answers 90 to a stale epoch where older ones answer 47.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sidecar.protocol.caller import FixedRequest
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sidecar.protocol.primitives import Reader, Writer

NO_STAMP = Stamp(ProducerId(-1), ProducerEpoch(-1))


def read_stamp(reader: Reader) -> Stamp:
    return Stamp(ProducerId(reader.i64()), ProducerEpoch(reader.i16()))


def _write_stamp(writer: Writer, stamp: Stamp) -> None:
    writer.i64(stamp.producer_id)
    writer.i16(stamp.epoch)


@dataclass(frozen=True, slots=True)
class InitializedProducer:
    """Answer of InitProducerId; `stamp` is (-1, -1) where `error` is not 0."""

    error: int
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class InitProducerId(FixedRequest):
    """A producer id and epoch for a transactional id. `current` names what the caller holds (KIP-360); (-1, -1) names
    nothing.
    """

    api_key: ClassVar[int] = 22
    api_version: ClassVar[int] = 4
    flexible: ClassVar[bool] = True

    transactional_id: str
    transaction_timeout_ms: int
    current: Stamp = NO_STAMP

    def encode(self, writer: Writer) -> None:
        writer.compact_string(self.transactional_id)
        writer.i32(self.transaction_timeout_ms)
        _write_stamp(writer, self.current)
        writer.tags(True)

    @classmethod
    def decode(cls, reader: Reader) -> InitializedProducer:
        reader.i32()
        answer = InitializedProducer(reader.i16(), read_stamp(reader))
        reader.skip_tags()
        return answer


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxn(FixedRequest):
    """Put partitions into the transaction. All or nothing: one bad partition makes the others answer 55."""

    api_key: ClassVar[int] = 24
    api_version: ClassVar[int] = 3
    flexible: ClassVar[bool] = True

    transactional_id: str
    stamp: Stamp
    partitions: Mapping[str, Sequence[int]]

    def encode(self, writer: Writer) -> None:
        writer.compact_string(self.transactional_id)
        _write_stamp(writer, self.stamp)
        writer.array(len(self.partitions), True)
        for topic, indexes in self.partitions.items():
            writer.compact_string(topic)
            _write_indexes(writer, indexes)
            writer.tags(True)
        writer.tags(True)

    @classmethod
    def decode(cls, reader: Reader) -> dict[TopicPartition, int]:
        """Error code per partition."""
        reader.i32()
        errors = _read_errors(reader)
        reader.skip_tags()
        return errors


def _write_indexes(writer: Writer, indexes: Sequence[int]) -> None:
    writer.array(len(indexes), True)
    for index in indexes:
        writer.i32(index)


def _read_errors(reader: Reader) -> dict[TopicPartition, int]:
    """A table topic → partition → error code, as several flexible answers have it."""
    errors: dict[TopicPartition, int] = {}
    for _ in range(reader.array(True, element_bytes=3)):
        topic = reader.compact_string()
        for _ in range(reader.array(True, element_bytes=7)):
            partition = TopicPartition(topic, reader.i32())
            errors[partition] = reader.i16()
            reader.skip_tags()
        reader.skip_tags()
    return errors


@dataclass(frozen=True, slots=True)
class EndTxn(FixedRequest):
    """End the transaction. An answer of 0 to an abort means accepted; the next 0 means that every marker is in its
    log.
    """

    api_key: ClassVar[int] = 26
    api_version: ClassVar[int] = 3
    flexible: ClassVar[bool] = True

    transactional_id: str
    stamp: Stamp
    committed: bool = False

    def encode(self, writer: Writer) -> None:
        writer.compact_string(self.transactional_id)
        _write_stamp(writer, self.stamp)
        writer.boolean(self.committed)
        writer.tags(True)

    @classmethod
    def decode(cls, reader: Reader) -> int:
        """The error code."""
        reader.i32()
        error = reader.i16()
        reader.skip_tags()
        return error


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """What a partition remembers of a producer id. `last_sequence` is -1 where only a marker, or an older epoch,
    wrote.
    """

    stamp: Stamp
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start: int


@dataclass(frozen=True, slots=True)
class PartitionProducers:
    """Answer of DescribeProducers for one partition."""

    error: int
    message: str | None
    producers: tuple[ActiveProducer, ...]

    def of(self, producer_id: ProducerId) -> ActiveProducer | None:
        """What the partition remembers of one producer id."""
        return next((found for found in self.producers if found.stamp.producer_id == producer_id), None)


@dataclass(frozen=True, slots=True)
class DescribeProducers(FixedRequest):
    """Which producer ids partitions remember (KIP-664). Only the leader answers; needs READ on the topic."""

    api_key: ClassVar[int] = 61
    api_version: ClassVar[int] = 0
    flexible: ClassVar[bool] = True

    partitions: Mapping[str, Sequence[int]]

    def encode(self, writer: Writer) -> None:
        writer.array(len(self.partitions), True)
        for topic, indexes in self.partitions.items():
            writer.compact_string(topic)
            _write_indexes(writer, indexes)
            writer.tags(True)
        writer.tags(True)

    @classmethod
    def decode(cls, reader: Reader) -> dict[TopicPartition, PartitionProducers]:
        reader.i32()
        found: dict[TopicPartition, PartitionProducers] = {}
        for _ in range(reader.array(True, element_bytes=3)):
            topic = reader.compact_string()
            for _ in range(reader.array(True, element_bytes=9)):
                partition = TopicPartition(topic, reader.i32())
                error, message = reader.i16(), reader.compact_nullable_string()
                producers = tuple(_read_producer(reader) for _ in range(reader.array(True, element_bytes=37)))
                found[partition] = PartitionProducers(error, message, producers)
                reader.skip_tags()
            reader.skip_tags()
        reader.skip_tags()
        return found


def _read_producer(reader: Reader) -> ActiveProducer:
    stamp = Stamp(ProducerId(reader.i64()), ProducerEpoch(reader.i32()))
    producer = ActiveProducer(stamp, reader.i32(), reader.i64(), reader.i32(), reader.i64())
    reader.skip_tags()
    return producer


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id as its coordinator describes it. `partitions` are those whose marker is still missing."""

    error: int
    transactional_id: str
    state: str
    timeout_ms: int
    start_ms: int
    stamp: Stamp
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class DescribeTransactions(FixedRequest):
    """State of transactional ids at their coordinator (KIP-664). Needs DESCRIBE on them."""

    api_key: ClassVar[int] = 65
    api_version: ClassVar[int] = 0
    flexible: ClassVar[bool] = True

    transactional_ids: tuple[str, ...]

    def encode(self, writer: Writer) -> None:
        writer.array(len(self.transactional_ids), True)
        for name in self.transactional_ids:
            writer.compact_string(name)
        writer.tags(True)

    @classmethod
    def decode(cls, reader: Reader) -> tuple[TransactionDescription, ...]:
        reader.i32()
        found = tuple(_read_transaction(reader) for _ in range(reader.array(True, element_bytes=28)))
        reader.skip_tags()
        return found


def _read_transaction(reader: Reader) -> TransactionDescription:
    error, name, state = reader.i16(), reader.compact_string(), reader.compact_string()
    timeout_ms, start_ms, stamp = reader.i32(), reader.i64(), read_stamp(reader)
    partitions: list[TopicPartition] = []
    for _ in range(reader.array(True, element_bytes=3)):
        topic = reader.compact_string()
        partitions += (TopicPartition(topic, reader.i32()) for _ in range(reader.array(True, element_bytes=4)))
        reader.skip_tags()
    reader.skip_tags()
    return TransactionDescription(error, name, state, timeout_ms, start_ms, stamp, tuple(partitions))


@dataclass(frozen=True, slots=True)
class Marker:
    """An abort marker to be written to partitions of one leader, on behalf of no coordinator."""

    stamp: Stamp
    partitions: Mapping[str, Sequence[int]]
    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class WriteTxnMarkers(FixedRequest):
    """Write abort markers straight to a leader; it answers once they are replicated. Needs CLUSTER_ACTION or ALTER on
    the cluster.
    """

    api_key: ClassVar[int] = 27
    api_version: ClassVar[int] = 1
    flexible: ClassVar[bool] = True

    markers: tuple[Marker, ...]

    def encode(self, writer: Writer) -> None:
        writer.array(len(self.markers), True)
        for marker in self.markers:
            _write_stamp(writer, marker.stamp)
            writer.boolean(False)
            writer.array(len(marker.partitions), True)
            for topic, indexes in marker.partitions.items():
                writer.compact_string(topic)
                _write_indexes(writer, indexes)
                writer.tags(True)
            writer.i32(marker.coordinator_epoch)
            writer.tags(True)
        writer.tags(True)

    @classmethod
    def decode(cls, reader: Reader) -> dict[ProducerId, dict[TopicPartition, int]]:
        """Error code per producer id and partition."""
        found: dict[ProducerId, dict[TopicPartition, int]] = {}
        for _ in range(reader.array(True, element_bytes=10)):
            producer_id = ProducerId(reader.i64())
            found.setdefault(producer_id, {}).update(_read_errors(reader))
            reader.skip_tags()
        reader.skip_tags()
        return found


__all__ = [
    "NO_STAMP",
    "ActiveProducer",
    "AddPartitionsToTxn",
    "DescribeProducers",
    "DescribeTransactions",
    "EndTxn",
    "InitProducerId",
    "InitializedProducer",
    "Marker",
    "PartitionProducers",
    "TransactionDescription",
    "WriteTxnMarkers",
]
