"""ListConfigResources (0-1): asked of any broker, lists nodes instead of brokers (KIP-714, KIP-1142, `configs`)."""

from sidecar.gateway.access.asked import Asked, Operation, ResourceType, takes
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule
from sidecar.gateway.configs import ConfigsApi

SPEC = ApiSpec(
    ApiKey.LIST_CONFIG_RESOURCES,
    (0, 1),
    Route.ANY,
    Asked(takes(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)),
    ShadowRule.OWN,
    cold=lambda _, of: ConfigsApi(of.upstream, of.nodes, of.resolver).handle_list,
    reason="newest known; brokers are listed as nodes",
)
