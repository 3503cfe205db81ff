"""What the SDK itself asks a node besides `sidecar.protocol.own`: the few of Kafka's APIs that aiokafka does not show.

Each in one fixed version; see `sidecar.protocol.views`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from sidecar.protocol.messages.cluster import METADATA
from sidecar.protocol.messages.transactions import INIT_PRODUCER_ID
from sidecar.protocol.own import DescribeOwners
from sidecar.protocol.views import View
from sidecar.v1 import control_pb2 as control

if TYPE_CHECKING:
    from sidecar.protocol.schema import Values

_NO_TRANSACTION_MS: Final = 60_000
SEQUENCES: Final = 2**31
"""As many sequences there are; behind the last one comes 0."""


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
