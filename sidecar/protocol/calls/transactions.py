"""Calls to a transaction coordinator, and calls that show or write its markers: InitProducerId, AddPartitionsToTxn,
EndTxn, DescribeProducers, WriteTxnMarkers.

Versions are the newest that every broker since 3.0 serves and that keep the meaning the fence needs: EndTxn below 5
does not raise the epoch (KIP-890), InitProducerId 4 answers 90 PRODUCER_FENCED to a stale epoch where older ones answer
47 INVALID_PRODUCER_EPOCH.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp, TopicPartition
from sidecar.protocol.messages import transactions as tables
from sidecar.protocol.schema import Values
from sidecar.protocol.views import View, by_partition, named

NO_STAMP = Stamp(ProducerId(-1), ProducerEpoch(-1))


def stamp_of(values: Values) -> Stamp:
    """The producer of a record that has one."""
    return Stamp(ProducerId(values["producer_id"]), ProducerEpoch(values["producer_epoch"]))


def _stamped(stamp: Stamp) -> Values:
    return {"producer_id": stamp.producer_id, "producer_epoch": stamp.epoch}


@dataclass(frozen=True, slots=True)
class InitializedProducer:
    """Answer of InitProducerId; `stamp` is (-1, -1) where `error` is not 0."""

    error: int
    stamp: Stamp


class InitProducerId(View[InitializedProducer], of=tables.INIT_PRODUCER_ID, version=4):
    """A producer id and epoch for a transactional id; None: for an idempotent producer. `current`: the
    caller's present id and epoch (KIP-360), (-1, -1) for none.
    """

    transactional_id: str | None
    transaction_timeout_ms: int
    current: Stamp = NO_STAMP

    def asked(self) -> Values:
        name, timeout_ms = self.transactional_id, self.transaction_timeout_ms
        return {"transactional_id": name, "transaction_timeout_ms": timeout_ms, **_stamped(self.current)}

    def answered(self, values: Values) -> InitializedProducer:
        return InitializedProducer(values["error_code"], stamp_of(values))


class AddPartitionsToTxn(View[dict[TopicPartition, int]], of=tables.ADD_PARTITIONS_TO_TXN, version=3):
    """Put partitions into the transaction. All or nothing: one bad partition makes the others answer 55.

    Answered by an error code for each partition.
    """

    transactional_id: str
    stamp: Stamp
    partitions: Mapping[str, Sequence[int]]

    def asked(self) -> Values:
        topics = named(self.partitions, "partitions")
        return {"transactional_id": self.transactional_id, **_stamped(self.stamp), "topics": topics}

    def answered(self, values: Values) -> dict[TopicPartition, int]:
        found = by_partition(values["results_by_topic"], "results_by_partition")
        return {partition: each["partition_error_code"] for partition, each in found.items()}


class EndTxn(View[int], of=tables.END_TXN, version=3):
    """End the transaction. An answer of 0 to an abort means accepted; the next 0 means that every marker is in its
    log. Answered by the error code.
    """

    transactional_id: str
    stamp: Stamp
    committed: bool = False

    def asked(self) -> Values:
        return {"transactional_id": self.transactional_id, **_stamped(self.stamp), "committed": self.committed}

    def answered(self, values: Values) -> int:
        return values["error_code"]


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A partition's state of a producer id. `last_sequence` is -1 if only a marker, or an older epoch, wrote."""

    stamp: Stamp
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start: int

    @classmethod
    def of(cls, values: Values) -> "ActiveProducer":
        return cls(
            stamp_of(values),
            values["last_sequence"],
            values["last_timestamp"],
            values["coordinator_epoch"],
            values["current_txn_start_offset"],
        )


@dataclass(frozen=True, slots=True)
class PartitionProducers:
    """Answer of DescribeProducers for one partition."""

    error: int
    message: str | None
    producers: tuple[ActiveProducer, ...]

    def of(self, producer_id: ProducerId) -> ActiveProducer | None:
        """The partition's state of one producer id."""
        return next((found for found in self.producers if found.stamp.producer_id == producer_id), None)


class DescribeProducers(View[dict[TopicPartition, PartitionProducers]], of=tables.DESCRIBE_PRODUCERS, version=0):
    """The producer ids that partitions have state of (KIP-664). Only the leader answers; needs READ on the topic."""

    partitions: Mapping[str, Sequence[int]]

    def asked(self) -> Values:
        return {"topics": named(self.partitions, "partition_indexes")}

    def answered(self, values: Values) -> dict[TopicPartition, PartitionProducers]:
        return {
            partition: PartitionProducers(
                each["error_code"], each["error_message"], tuple(map(ActiveProducer.of, each["active_producers"]))
            )
            for partition, each in by_partition(values["topics"]).items()
        }


@dataclass(frozen=True, slots=True)
class Marker:
    """An abort marker to be written to partitions of one leader, on behalf of no coordinator."""

    stamp: Stamp
    partitions: Mapping[str, Sequence[int]]
    coordinator_epoch: int


class WriteTxnMarkers(View[dict[ProducerId, dict[TopicPartition, int]]], of=tables.WRITE_TXN_MARKERS, version=1):
    """Write abort markers directly to a leader, which answers once they are replicated. Needs CLUSTER_ACTION or ALTER
    on the cluster. Answered by an error code for each producer id and partition.
    """

    markers: tuple[Marker, ...]

    def asked(self) -> Values:
        return {
            "markers": [
                {
                    **_stamped(marker.stamp),
                    "topics": named(marker.partitions, "partition_indexes"),
                    "coordinator_epoch": marker.coordinator_epoch,
                }
                for marker in self.markers
            ]
        }

    def answered(self, values: Values) -> dict[ProducerId, dict[TopicPartition, int]]:
        found: dict[ProducerId, dict[TopicPartition, int]] = {}
        for marker in values["markers"]:
            of_producer = found.setdefault(ProducerId(marker["producer_id"]), {})
            for partition, each in by_partition(marker["topics"]).items():
                of_producer[partition] = each["error_code"]
        return found
