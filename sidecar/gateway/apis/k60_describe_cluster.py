"""DescribeCluster (0-2): nodes instead of brokers (KIP-700, `metadata`)."""

from sidecar.gateway.access.asked import Asked, Asking, Divided, with_cluster_operations
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule


def _describe_cluster(asking: Asking) -> Divided | None:
    if not asking.fields["include_cluster_authorized_operations"]:
        return None
    return Divided(asking.fields, lambda answer: with_cluster_operations(asking.rights, answer))


SPEC = ApiSpec(
    ApiKey.DESCRIBE_CLUSTER,
    (0, 2),
    Route.LOCAL,
    Asked(_describe_cluster),
    ShadowRule.UNNAMED,
    cold=lambda _, of: of.cluster.handle_describe_cluster,
    reason="newest known; of no node it is said that it is fenced (2)",
)
