"""DescribeCluster (0-2): nodes instead of brokers (KIP-700)."""

from functools import partial
from typing import Final

from sidecar.gateway.access.asked import Asked, Asking, Divided, with_cluster_operations
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, Services, ShadowRule
from sidecar.gateway.client import Client
from sidecar.gateway.metadata import brokers_of
from sidecar.network.request import Exchange, Request
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.messages.cluster import DESCRIBE_CLUSTER
from sidecar.protocol.metadata import Broker, MetadataRequest
from sidecar.protocol.schema import Values

_BROKER_ENDPOINTS: Final = 1
_CONTROLLER_ENDPOINTS: Final = 2


def _check(asking: Asking) -> Divided | None:
    if not asking.fields["include_cluster_authorized_operations"]:
        return None
    return Divided(asking.fields, lambda answer: with_cluster_operations(asking.rights, answer))


async def _handle(of: Services, client: Client, exchange: Exchange, request: Request) -> None:
    """Answer as Metadata without topics."""
    message = DESCRIBE_CLUSTER
    fields = message.decode_request(request.frame.buffer, request.body, request.frame.end, request.version)
    operations = fields["include_cluster_authorized_operations"]
    endpoints = fields.get("endpoint_type", _BROKER_ENDPOINTS)
    error = _endpoint_error(endpoints)
    state = await of.upstream.metadata(MetadataRequest((), False, include_cluster_operations=operations))
    placement = of.nodes.at(client.listener)
    described = {
        "error_code": error,
        "error_message": "only brokers can be described through a sidecar" if error else None,
        "endpoint_type": endpoints,
        "cluster_id": state.cluster_id or "",
        "controller_id": placement.controller,
        "brokers": [] if error else [_described(broker) for broker in brokers_of(placement)],
        "cluster_authorized_operations": state.operations,
    }
    exchange.answer([message.encode_answer(request.version, request.correlation_id, described)])


def _endpoint_error(endpoints: int) -> int:
    """A broker's error for an endpoint type other than brokers; 0 for brokers (KIP-919)."""
    if endpoints == _BROKER_ENDPOINTS:
        return ErrorCode.NONE
    is_known = endpoints == _CONTROLLER_ENDPOINTS
    return ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


def _described(broker: Broker) -> Values:
    return {"broker_id": broker.id, "host": broker.host, "port": broker.port, "rack": broker.rack}


SPEC = ApiSpec(
    ApiKey.DESCRIBE_CLUSTER, (0, 2), Route.LOCAL, Asked(_check), ShadowRule.UNNAMED,
    cold=lambda _, of: partial(_handle, of), reason="newest known; of no node it is said that it is fenced (2)",
)  # fmt: skip
