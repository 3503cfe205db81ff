"""GetTelemetrySubscriptions (0) and PushTelemetry (0): brokers collect the metrics of clients (KIP-714).

A broker remembers each client instance by its id: what it was asked to push, and when it pushed last. So all requests
about an instance go to the same broker, through whichever node and connection they come: the id chooses it. A client
that has no id yet gets one from the node instead of from a broker.

Nothing is read of the metrics. A broker sees the client's client.id and instance id, but the address of the node, and
no software name: a subscription that matches clients by these matches none behind nodes. If the broker is lost, the
client is answered 89 THROTTLING_QUOTA_EXCEEDED, and tries again after its interval; other errors end its telemetry.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final
from uuid import uuid4

from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway import asking
from sidecar.gateway.client import Client
from sidecar.network.request import Exchange, Request
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.messages.telemetry import GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY
from sidecar.protocol.schema import Message

_NO_ID: Final = bytes(16)


def by_instance(instance_id: bytes, brokers: Iterable[int]) -> list[int]:
    """Return the brokers in the order in which they serve a client instance (rendezvous hashing)."""

    def weight(broker: int) -> bytes:
        return blake2b(instance_id + broker.to_bytes(4, "big"), digest_size=8).digest()

    return sorted(brokers, key=weight)


async def get_subscriptions(upstream: KafkaUpstream, client: Client, exchange: Exchange, request: Request) -> None:
    """Handle GetTelemetrySubscriptions."""
    message = GET_TELEMETRY_SUBSCRIPTIONS
    fields = await asking.fields(message, request)
    if fields["client_instance_id"] == _NO_ID:
        fields["client_instance_id"] = uuid4().bytes
        request = await asking.rewritten(client, request, message, fields)
    await _forward(upstream, client, exchange, request, message, fields["client_instance_id"])


async def push(upstream: KafkaUpstream, client: Client, exchange: Exchange, request: Request) -> None:
    """Handle PushTelemetry."""
    fields = await asking.fields(PUSH_TELEMETRY, request)
    await _forward(upstream, client, exchange, request, PUSH_TELEMETRY, fields["client_instance_id"])


async def _forward(
    upstream: KafkaUpstream, client: Client, exchange: Exchange, request: Request, message: Message, instance_id: bytes
) -> None:
    await asking.read_all(request)
    brokers = by_instance(instance_id, upstream.view.brokers)
    broker_id = next((broker for broker in brokers if upstream.may_connect(broker)), brokers[0])
    try:
        answer = await client.ask(broker_id, request)
    except DisconnectedError:
        exchange.note_error(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        await asking.answer(exchange, message, {"error_code": ErrorCode.THROTTLING_QUOTA_EXCEEDED})
        return
    exchange.answer([answer.view(answer.start, answer.end)])
