"""DescribeLogDirs (0-5): of the brokers that belong to this node (`merged`)."""

from sidecar.gateway.access.asked import Asked, Operation, ResourceType, takes
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule

SPEC = ApiSpec(
    ApiKey.DESCRIBE_LOG_DIRS,
    (0, 5),
    Route.OWN_BROKERS,
    Asked(takes(Operation.DESCRIBE, ResourceType.CLUSTER)),
    ShadowRule.OWN,
    cold=lambda _, of: of.merged.handle_log_dirs,
    reason="newest known; named partitions: by the node that leads them, of all brokers",
)
