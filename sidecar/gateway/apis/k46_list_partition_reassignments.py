"""ListPartitionReassignments (0): none (KIP-455)."""

from sidecar.gateway import asking
from sidecar.gateway.access.asked import Asked, Operation, ResourceType, takes
from sidecar.gateway.access.cluster import refused_topics
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule
from sidecar.gateway.client import Client
from sidecar.network.request import Exchange, Request
from sidecar.protocol.messages.admin import LIST_PARTITION_REASSIGNMENTS


async def _handle(_client: Client, exchange: Exchange, request: Request) -> None:
    await asking.fields(LIST_PARTITION_REASSIGNMENTS, request)
    await asking.answer(exchange, LIST_PARTITION_REASSIGNMENTS, {})


SPEC = ApiSpec(
    ApiKey.LIST_PARTITION_REASSIGNMENTS, (0, 0), Route.LOCAL,
    Asked(takes(Operation.DESCRIBE, ResourceType.CLUSTER, refused_topics("topics", "topics", {}))), ShadowRule.OWN,
    cold=lambda _row, _of: _handle, reason="always empty: a virtual cluster has no replicas to move",
)  # fmt: skip
