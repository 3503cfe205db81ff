"""ElectLeaders (0-2), AlterPartitionReassignments (0-1), ListPartitionReassignments (0): replicas and
their leaders (KIP-460, KIP-455).

- An election goes to the controller, without the topics that clients may not change: 29 TOPIC_AUTHORIZATION_FAILED.
- Replicas cannot be moved: that names brokers, which a virtual cluster does not show. The API is
  answered with the reason; if it were not served, tools would report a Kafka that is too old. No reassignment is ever
  listed.
"""

from __future__ import annotations

from typing import Any, Final

from sidecar.cluster.resolver import NameResolver
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway import asking
from sidecar.gateway.client import Client
from sidecar.network.request import Exchange, Request
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.messages import admin
from sidecar.protocol.schema import Values

_NOT_MOVED: Final = KafkaError(
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    "replicas cannot be moved through a sidecar, whose nodes stand for brokers: ask Kafka directly",
)
_NOTHING_TO_CANCEL: Final = KafkaError(
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment is known through a sidecar: ask Kafka directly"
)


class ReplicasApi:
    """Handles the requests of all clients of a node."""

    def __init__(self, upstream: KafkaUpstream, resolver: NameResolver) -> None:
        self._upstream = upstream
        self._resolver = resolver

    async def handle_elect(self, client: Client, exchange: Exchange, request: Request) -> None:
        """ElectLeaders. Null for the partitions means all of them, and is upstream's to judge."""

        def refusal(topic: Values) -> KafkaError | None:
            return self._resolver.kind(topic["topic"].encode()).change_refused

        def refused(topic: Values, error: KafkaError) -> Values:
            outcomes = [_outcome("partition_id", index, error) for index in topic["partitions"]]
            return {"topic": topic["topic"], "partition_result": outcomes}

        lists = "topic_partitions", "replica_election_results"
        await asking.change(client, exchange, self._upstream, request, admin.ELECT_LEADERS, lists, refusal, refused)

    async def handle_reassign(self, _client: Client, exchange: Exchange, request: Request) -> None:
        """AlterPartitionReassignments: refused, each partition with its reason."""
        message = admin.ALTER_PARTITION_REASSIGNMENTS
        fields = await asking.fields(message, request)
        responses = [
            {
                "name": topic["name"],
                "partitions": [self._not_moved(exchange, topic, each) for each in topic["partitions"]],
            }
            for topic in fields["topics"]
        ]
        await asking.answer(exchange, message, {"responses": responses})

    def _not_moved(self, exchange: Exchange, topic: Values, partition: Values) -> Values:
        error = self._resolver.kind(topic["name"].encode()).change_refused
        if error is None:
            error = _NOTHING_TO_CANCEL if partition["replicas"] is None else _NOT_MOVED
        exchange.note_error(error.code)
        return _outcome("partition_index", partition["partition_index"], error)

    async def handle_list(self, _client: Client, exchange: Exchange, request: Request) -> None:
        """ListPartitionReassignments: none."""
        message = admin.LIST_PARTITION_REASSIGNMENTS
        await asking.fields(message, request)
        await asking.answer(exchange, message, {})


def _outcome(key: str, partition: Any, error: KafkaError) -> Values:
    return {key: partition, "error_code": error.code, "error_message": error.message}
