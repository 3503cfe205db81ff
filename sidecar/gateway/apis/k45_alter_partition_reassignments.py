"""AlterPartitionReassignments (0-1): refused, each partition with its reason (KIP-455).

Replicas cannot be moved, as that names brokers. If the API were not served, tools would report a Kafka that is too old.
"""

from functools import partial
from typing import Final

from sidecar.cluster.resolver import NameResolver
from sidecar.gateway import asking
from sidecar.gateway.access.asked import Asked, Operation, ResourceType, takes
from sidecar.gateway.access.cluster import NOT_ON_CLUSTER, refused_topics
from sidecar.gateway.apis.audited import Audited, codes, named
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule
from sidecar.gateway.client import Client
from sidecar.network.request import Exchange, Request
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.messages.admin import ALTER_PARTITION_REASSIGNMENTS
from sidecar.protocol.schema import Values

_NOT_MOVED: Final = KafkaError(
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    "replicas cannot be moved through a sidecar, whose nodes stand for brokers: ask Kafka directly",
)
_NOTHING_TO_CANCEL: Final = KafkaError(
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment is known through a sidecar: ask Kafka directly"
)


async def _handle(
    shadow: ShadowRule, resolver: NameResolver, client: Client, exchange: Exchange, request: Request
) -> None:
    def not_moved(topic: Values, partition: Values) -> Values:
        refused = _NOTHING_TO_CANCEL if partition["replicas"] is None else _NOT_MOVED
        error = shadow.refusal(resolver, topic["name"], client) or refused
        exchange.note_error(error.code)
        index: int = partition["partition_index"]
        return {"error_code": error.code, "error_message": error.message, "partition_index": index}

    fields = await asking.fields(ALTER_PARTITION_REASSIGNMENTS, request)
    responses = [
        {"name": topic["name"], "partitions": [not_moved(topic, partition) for partition in topic["partitions"]]}
        for topic in fields["topics"]
    ]
    await asking.answer(exchange, ALTER_PARTITION_REASSIGNMENTS, {"responses": responses})


SPEC = ApiSpec(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS, (0, 1), Route.LOCAL,
    Asked(takes(Operation.ALTER, ResourceType.CLUSTER, refused_topics("topics", "responses", NOT_ON_CLUSTER))),
    audit=Audited(named("topics"), codes("responses", "partitions")),
    cold=lambda row, of: partial(_handle, row.shadow, of.resolver),
    reason="always refused: it names brokers, which a virtual cluster does not show",
)  # fmt: skip
