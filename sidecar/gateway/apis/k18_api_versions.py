"""ApiVersions (0-5): the versions in these rows that all brokers serve, and the cluster's features (`metadata`)."""

from sidecar.gateway.access.asked import Open
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule

SPEC = ApiSpec(
    ApiKey.API_VERSIONS, (0, 5), Route.LOCAL, Open("a client asks for it before it has logged in"), ShadowRule.UNNAMED,
    hot=lambda _, of: of.cluster.handle_api_versions,
    reason="newest known; features are announced as the cluster has them (KIP-584); from 5 on, a client that names "
    "another cluster or node is answered 129, as by a broker (KIP-1242)",
)  # fmt: skip
