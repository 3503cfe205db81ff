"""What the SDK asks a node besides `sidecar.protocol.own`: a few of Kafka's APIs.

Each in one fixed version; see `sidecar.protocol.views`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from sidecar.protocol import api, produce_upstream
from sidecar.protocol.caller import FixedRequest
from sidecar.protocol.messages.cluster import METADATA
from sidecar.protocol.messages.transactions import INIT_PRODUCER_ID
from sidecar.protocol.own import DescribeOwners
from sidecar.protocol.views import View
from sidecar.v1 import control_pb2 as control

if TYPE_CHECKING:
    from sidecar.protocol.primitives import Reader, Writer
    from sidecar.protocol.schema import Values

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
class DescribeTopic(View[Layout], of=METADATA, version=5):
    """Metadata of one topic, which is not created; of None: the nodes alone."""

    topic: str | None

    def asked(self) -> Values:
        return {"topics": [] if self.topic is None else [{"name": self.topic}]}

    def answered(self, values: Values) -> Layout:
        error, leaders = 0, dict[int, int]()
        for topic in values["topics"]:
            error = topic["error_code"]
            leaders = {each["partition_index"]: each["leader_id"] for each in topic["partitions"]}
        return Layout(error, leaders, {each["node_id"]: (each["host"], each["port"]) for each in values["brokers"]})


class Initialised(NamedTuple):
    """The answer to InitProducerId."""

    error: int
    producer: Producer


@dataclass(frozen=True, slots=True)
class NewProducer(View[Initialised], of=INIT_PRODUCER_ID, version=4):
    """InitProducerId for an idempotent producer; `after` names the session that the new one follows."""

    after: Producer = NOBODY

    def asked(self) -> Values:
        timeout_ms, after = _NO_TRANSACTION_MS, self.after
        return {"transaction_timeout_ms": timeout_ms, "producer_id": after.id, "producer_epoch": after.epoch}

    def answered(self, values: Values) -> Initialised:
        return Initialised(values["error_code"], Producer(values["producer_id"], values["producer_epoch"]))


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
        results, _ = produce_upstream.read_body(reader, self.api_version)
        return {found.partition: Appended(found.error, found.base_offset, found.message or "") for found in results}
