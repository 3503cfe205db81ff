"""ListConfigResources (0-1): asked of any broker, lists nodes instead of brokers (KIP-714, KIP-1142)."""

from functools import partial

from sidecar.gateway import asking
from sidecar.gateway.access.asked import Asked, Operation, ResourceType, takes
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, Services, ShadowRule
from sidecar.gateway.client import Client
from sidecar.gateway.configs import OF_ONE_BROKER, hides
from sidecar.network.request import Exchange, Request
from sidecar.protocol.messages.admin import LIST_CONFIG_RESOURCES
from sidecar.protocol.schema import Values


async def _handle(of: Services, client: Client, exchange: Exchange, request: Request) -> None:
    """Ask any broker."""
    message = LIST_CONFIG_RESOURCES
    answer = await asking.first_that_answers(client, of.upstream, None, request, harmless=True)
    values = await asking.read(message, answer, request.version)
    if request.version:  # version 0 lists client metrics only
        nodes = of.nodes.at(client.listener).nodes
        resources: list[Values] = values["config_resources"]
        kept = [
            found
            for found in resources
            if found["resource_type"] not in OF_ONE_BROKER and not hides(of.resolver, client, found)
        ]
        kinds = dict.fromkeys(each for found in resources if (each := found["resource_type"]) in OF_ONE_BROKER)
        kept += [{"resource_name": str(node), "resource_type": kind} for kind in kinds for node in nodes]
        values = values | {"config_resources": kept}
    await asking.answer(exchange, message, values)


SPEC = ApiSpec(
    ApiKey.LIST_CONFIG_RESOURCES, (0, 1), Route.ANY, Asked(takes(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)),
    ShadowRule.OWN, cold=lambda _, of: partial(_handle, of), reason="newest known; brokers are listed as nodes",
)  # fmt: skip
