"""DescribeUserScramCredentials (0), relayed as it is."""

from sidecar.gateway.access.asked import Asked, Operation, ResourceType, takes
from sidecar.gateway.access.cluster import refused_elements
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule

SPEC = ApiSpec(
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, (0, 0), Route.CONTROLLER,
    Asked(takes(Operation.DESCRIBE, ResourceType.CLUSTER, refused_elements("users", "results"))), ShadowRule.UNNAMED,
)  # fmt: skip
