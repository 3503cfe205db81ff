"""DescribeClientQuotas (0-1), relayed as it is."""

from sidecar.gateway.access.asked import Asked, Operation, ResourceType, takes
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule

SPEC = ApiSpec(
    ApiKey.DESCRIBE_CLIENT_QUOTAS, (0, 1), Route.ANY,
    Asked(takes(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, lambda _: {"entries": None})), ShadowRule.UNNAMED,
)  # fmt: skip
