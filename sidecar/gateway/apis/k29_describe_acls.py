"""DescribeAcls (0-3), relayed as it is."""

from sidecar.gateway.access.asked import Asked, Operation, ResourceType, takes
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule

SPEC = ApiSpec(
    ApiKey.DESCRIBE_ACLS, (0, 3), Route.ANY, Asked(takes(Operation.DESCRIBE, ResourceType.CLUSTER)), ShadowRule.OWN,
)  # fmt: skip
