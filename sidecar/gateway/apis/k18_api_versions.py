"""ApiVersions (0-4): the versions in these rows that all brokers serve, and the cluster's features (`metadata`)."""

from sidecar.gateway.access.asked import Open
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule

SPEC = ApiSpec(
    ApiKey.API_VERSIONS,
    (0, 4),
    Route.LOCAL,
    Open("a client asks for it before it has logged in"),
    ShadowRule.UNNAMED,
    hot=lambda _, of: of.cluster.handle_api_versions,
    reason="5 names the broker that a client means, which nodes do not check yet (KIP-1242); features are announced as "
    "the cluster has them (KIP-584)",
    newest=5,
)
