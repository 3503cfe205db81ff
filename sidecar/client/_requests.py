"""What the SDK asks a node besides `sidecar.protocol.own`: a few of Kafka's APIs.

Each in one fixed version; see `sidecar.protocol.caller.Request`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from sidecar.protocol import api
from sidecar.protocol.caller import FixedRequest
from sidecar.protocol.own import DescribeOwners
from sidecar.protocol.primitives import Reader, Writer
from sidecar.v1 import control_pb2 as control

_NO_TRANSACTION_MS: Final = 60_000


class Producer(NamedTuple):
    """A producer id and its epoch."""

    id: int
    epoch: int


NOBODY: Final = Producer(-1, -1)


# The sidecar's own ----------------------------------------------------------------------------------------------------


def describe_owners(topic: str) -> DescribeOwners:
    """Who owns a topic, and its partitions where each has an owner of its own. Kafka itself hangs up on it."""
    return DescribeOwners(control.DescribeOwnersRequest(resources=[control.Resource(topic=topic)]))


# Kafka's --------------------------------------------------------------------------------------------------------------


class Layout(NamedTuple):
    """A topic as Metadata tells it: its error, the leader of each partition, and where the nodes are."""

    error: int
    leaders: dict[int, int]
    nodes: dict[int, tuple[str, int]]


@dataclass(frozen=True, slots=True)
class DescribeTopic(FixedRequest):
    """Metadata of one topic, which is not created; of None: the nodes alone."""

    api_key: ClassVar[int] = api.METADATA
    api_version: ClassVar[int] = 5

    topic: str | None

    def encode(self, writer: Writer) -> None:
        writer.array(0 if self.topic is None else 1)
        if self.topic is not None:
            writer.string(self.topic)
        writer.boolean(False)

    def decode(self, reader: Reader) -> Layout:
        reader.i32()
        nodes: dict[int, tuple[str, int]] = {}
        for _ in range(reader.array(element_bytes=12)):
            node = reader.i32()
            nodes[node] = reader.string(), reader.i32()
            reader.nullable_string()
        reader.nullable_string()
        reader.i32()
        error, leaders = 0, dict[int, int]()
        for _ in range(reader.array(element_bytes=9)):
            error = reader.i16()
            reader.string()
            reader.boolean()
            for _ in range(reader.array(element_bytes=22)):
                reader.i16()
                partition = reader.i32()
                leaders[partition] = reader.i32()
                for _ in range(3):  # replicas, those in sync, those offline
                    reader.skip(4 * reader.array(element_bytes=4))
        return Layout(error, leaders, nodes)


class Initialised(NamedTuple):
    """The answer to InitProducerId."""

    error: int
    producer: Producer


@dataclass(frozen=True, slots=True)
class NewProducer(FixedRequest):
    """InitProducerId for an idempotent producer; `after` names the session that the new one follows."""

    api_key: ClassVar[int] = api.INIT_PRODUCER_ID
    api_version: ClassVar[int] = 4
    flexible: ClassVar[bool] = True

    after: Producer = NOBODY

    def encode(self, writer: Writer) -> None:
        writer.compact_string(None)
        writer.i32(_NO_TRANSACTION_MS)
        writer.i64(self.after.id)
        writer.i16(self.after.epoch)
        writer.tags(True)

    def decode(self, reader: Reader) -> Initialised:
        reader.i32()
        answer = Initialised(reader.i16(), Producer(reader.i64(), reader.i16()))
        reader.skip_tags()
        return answer


class Appended(NamedTuple):
    """What Produce answers for one partition; `base_offset` is -1 where there is none."""

    error: int
    base_offset: int = -1
    message: str = ""


@dataclass(frozen=True, slots=True)
class Produce(FixedRequest):
    """Produce with acks=all: a batch for each partition. Brokers wait `timeout_ms` for replicas."""

    api_key: ClassVar[int] = api.PRODUCE
    api_version: ClassVar[int] = 8

    topic: str
    batches: Mapping[int, bytes]
    timeout_ms: int

    def encode(self, writer: Writer) -> None:
        writer.string(None)
        writer.i16(-1)
        writer.i32(self.timeout_ms)
        writer.array(1)
        writer.string(self.topic)
        writer.array(len(self.batches))
        for partition, batch in self.batches.items():
            writer.i32(partition)
            writer.nullable_bytes(batch)

    def decode(self, reader: Reader) -> dict[int, Appended]:
        found: dict[int, Appended] = {}
        for _ in range(reader.array(element_bytes=6)):
            reader.string()
            for _ in range(reader.array(element_bytes=36)):
                partition, error, base_offset = reader.i32(), reader.i16(), reader.i64()
                reader.skip(16)  # when it was appended, and where the log begins
                for _ in range(reader.array(element_bytes=6)):
                    reader.i32()
                    reader.nullable_string()
                found[partition] = Appended(error, base_offset, reader.nullable_string() or "")
        reader.i32()
        return found
