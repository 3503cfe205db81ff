"""DescribeConfigs (0-4): split by the broker that must answer, and merged (`configs`)."""

from sidecar.gateway.access.asked import Asked, Operation
from sidecar.gateway.access.topics import configs
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule
from sidecar.gateway.configs import ConfigsApi

SPEC = ApiSpec(
    ApiKey.DESCRIBE_CONFIGS,
    (0, 4),
    Route.BROKER_CONFIG,
    Asked(configs(Operation.DESCRIBE_CONFIGS, "results")),
    ShadowRule.OWN,
    cold=lambda _, of: ConfigsApi(of.upstream, of.nodes, of.resolver).handle_describe,
)
