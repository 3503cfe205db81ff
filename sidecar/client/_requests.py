"""Requests of the SDK besides those of `sidecar.protocol.own`: DescribeOwners, and Kafka's Produce.

Each is sent in one fixed version; see `sidecar.protocol.views`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from sidecar.protocol import produce_upstream
from sidecar.protocol.api import ApiKey
from sidecar.protocol.caller import Request
from sidecar.protocol.own import DescribeOwners
from sidecar.protocol.primitives import Reader, Writer
from sidecar.v1 import control_pb2 as control

# The sidecar's own ----------------------------------------------------------------------------------------------------


def describe_owners(topic: str) -> DescribeOwners:
    """The request for the owner of a topic, or of each partition if they have their own owners. A Kafka broker closes
    the connection.
    """
    return DescribeOwners(control.DescribeOwnersRequest(resources=[control.Resource(topic=topic)]))


# Kafka's --------------------------------------------------------------------------------------------------------------


class Appended(NamedTuple):
    """The answer of Produce for one partition; `base_offset` is -1 if there is none."""

    error: int
    base_offset: int = -1
    message: str = ""


class Produce(Request[dict[int, Appended]]):
    """Produce with acks=all: a batch for each partition. Brokers wait `timeout_ms` for replicas."""

    api_key: ClassVar[int] = ApiKey.PRODUCE
    api_version: ClassVar[int] = 8

    topic: str
    batches: Mapping[int, bytes]
    timeout_ms: int

    def encode(self, writer: Writer) -> None:
        writer.text(None)
        writer.i16(-1)
        writer.i32(self.timeout_ms)
        writer.array(1)
        writer.text(self.topic)
        writer.array(len(self.batches))
        for partition, batch in self.batches.items():
            writer.i32(partition)
            writer.nullable_bytes(batch)

    def decode(self, reader: Reader) -> dict[int, Appended]:
        results, _ = produce_upstream.read_body(reader, self.api_version)
        return {found.partition: Appended(found.error, found.base_offset, found.message or "") for found in results}
