"""DescribeConfigs (0-4): split by the broker that must answer, and merged.

A broker of the node that a BROKER or BROKER_LOGGER resource names describes it (any broker, if the node has none), and
the answer has the node's id and listeners, so that tools that inspect every broker work. If the request names nothing
else, the answer is forwarded unchanged: it may have megabytes. A shadow that an allow list hides from the client is
refused with 29 TOPIC_AUTHORIZATION_FAILED, as a topic without DESCRIBE.
"""

import asyncio
from collections.abc import Generator
from functools import partial
from typing import Final

from sidecar.cluster.nodes import NodeAddress
from sidecar.cluster.resolver import HIDDEN
from sidecar.gateway import asking
from sidecar.gateway.access.asked import Asked, Operation
from sidecar.gateway.access.topics import configs
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, Services, ShadowRule
from sidecar.gateway.client import Client
from sidecar.gateway.configs import OF_ONE_BROKER, hides, lists_replicas, refused, show_as
from sidecar.network.request import Exchange, Request
from sidecar.network.slices import in_slices
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.messages.admin import DESCRIBE_CONFIGS
from sidecar.protocol.metadata import MetadataRequest
from sidecar.protocol.schema import Values

_RESULTS_AT_ONCE: Final = 10
"""Results that are converted per slice; each has about 40 settings."""
_NO_BROKER: Final = KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "no broker answers for this node")


async def _handle(of: Services, client: Client, exchange: Exchange, request: Request) -> None:
    """Ask the brokers that must answer, each about its resources."""
    message = DESCRIBE_CONFIGS
    fields = await asking.fields(message, request)
    if not any(
        found["resource_type"] in OF_ONE_BROKER or hides(of.resolver, client, found) for found in fields["resources"]
    ):
        await _pass_description(of, client, exchange, request)
        return
    nodes = of.nodes.at(client.listener)
    anywhere: dict[tuple[int, str], Values] = {}
    named: dict[tuple[int, int], tuple[Values, NodeAddress]] = {}
    results: list[Values] = []
    for resource in fields["resources"]:
        if hides(of.resolver, client, resource):
            client.note_refusal(resource["resource_name"].encode(), HIDDEN.code, None)
            exchange.note_error(HIDDEN.code)
            results.append(refused(resource, HIDDEN))
            continue
        if resource["resource_type"] not in OF_ONE_BROKER or not resource["resource_name"]:
            anywhere[resource["resource_type"], resource["resource_name"]] = resource  # named twice: requested once
            continue
        name: str = resource["resource_name"]
        node = nodes.nodes.get(int(name)) if name.isascii() and name.isdigit() else None
        if node is None:
            exchange.note_error(ErrorCode.INVALID_REQUEST)
            known = ", ".join(map(str, nodes.nodes))
            unknown = f"there is no broker {name} here, only {known}"
            results.append(refused(resource, KafkaError(ErrorCode.INVALID_REQUEST, unknown)))
        else:
            named[resource["resource_type"], node.id] = resource, node  # each needs a request to a broker
    asked = [_describe_node(of, client, request, fields, *found) for found in named.values()]
    if anywhere or not (named or results):
        asked.append(_describe_anywhere(of, client, request, fields | {"resources": [*anywhere.values()]}))
    for answer in await asyncio.gather(*asked):
        results += answer
    await asking.answer(exchange, message, {"results": results})


async def _pass_description(of: Services, client: Client, exchange: Exchange, request: Request) -> None:
    """Describe resources of no broker: the answer is forwarded unchanged, unless it lists replicas by broker."""
    message = DESCRIBE_CONFIGS
    answer = await asking.first_that_answers(client, of.upstream, None, request, harmless=True)
    whole = answer.view(answer.start, answer.end)
    if not lists_replicas(whole, flexible=request.version >= message.flexible):
        exchange.answer([whole])
        return
    values = await asking.read(message, answer, request.version)
    await in_slices(_show(of, values["results"], client.listener))
    await asking.answer(exchange, message, values)


async def _describe_anywhere(of: Services, client: Client, request: Request, fields: Values) -> list[Values]:
    answer = await asking.anywhere(client, of.upstream, request, DESCRIBE_CONFIGS, fields)
    results: list[Values] = answer["results"]
    await in_slices(_show(of, results, client.listener))
    return results


def _show(of: Services, results: list[Values], listener: str) -> Generator[None, None, None]:
    """Replace the broker that described itself by this node, in slices."""
    me = of.nodes.me.at(listener, of.nodes.first_listener) or of.nodes.me
    for number, result in enumerate(results, 1):
        for config in result["configs"]:
            show_as(me, config, listener)
        if not number % _RESULTS_AT_ONCE:
            yield


async def _describe_node(
    of: Services, client: Client, request: Request, fields: Values, named: Values, node: NodeAddress
) -> list[Values]:
    for _ in range(2):
        brokers = await of.upstream.brokers()
        mine = of.nodes.at(client.listener).brokers_of(node.id, brokers) or sorted(brokers)
        for broker_id in mine:
            values = fields | {"resources": [named | {"resource_name": str(broker_id)}]}
            try:
                answer = await asking.one(client, broker_id, request, DESCRIBE_CONFIGS, values)
            except DisconnectedError:
                if client.connection.closed:
                    raise
                continue
            for result in answer["results"]:
                for config in result["configs"]:
                    show_as(node, config, client.listener)
                result["resource_name"] = named["resource_name"]
                if result["error_code"]:  # a broker's message for success is empty, not null
                    result["error_message"] = "the broker behind this node refused"
            return answer["results"]
        await of.upstream.metadata(MetadataRequest(()))
    return [refused(named, _NO_BROKER)]


SPEC = ApiSpec(
    ApiKey.DESCRIBE_CONFIGS, (0, 4), Route.BROKER_CONFIG, Asked(configs(Operation.DESCRIBE_CONFIGS, "results")),
    ShadowRule.OWN, cold=lambda _, of: partial(_handle, of),
)  # fmt: skip
