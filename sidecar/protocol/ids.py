"""Types for Kafka's numbers that must not be confused, and small records of them. There are no rules here."""

from dataclasses import dataclass
from typing import Final, NamedTuple, NewType

ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
Offset = NewType("Offset", int)
ClientSequence = NewType("ClientSequence", int)
"""A sequence number in a client's own count."""
StampedSequence = NewType("StampedSequence", int)
"""A sequence number in a slot epoch's count, which Kafka gets in a governed batch. `sidecar.forwarder.sequences`
computes it from the client's.
"""

NO_SEQUENCE: Final = ClientSequence(-1)
"""The client sequence of a batch of a plain session."""

MAX_PRODUCER_EPOCH: Final = 32_767


class TopicPartition(NamedTuple):
    """One partition of a topic by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Stamp:
    """The (producer id, producer epoch) under which one writer appends; Kafka refuses older epochs after it has got a
    newer one.
    """

    producer_id: ProducerId
    epoch: ProducerEpoch

    def __str__(self) -> str:
        return f"{self.producer_id}@{self.epoch}"
