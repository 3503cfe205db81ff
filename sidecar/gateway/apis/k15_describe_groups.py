"""DescribeGroups (0-6): split by the coordinators of the groups, and merged."""

from sidecar.gateway.access.asked import Asked
from sidecar.gateway.access.groups import described
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule
from sidecar.gateway.coordinators import descriptions

SPEC = ApiSpec(
    ApiKey.DESCRIBE_GROUPS, (0, 6), Route.GROUPS, Asked(described("groups")), ShadowRule.OWN, descriptions("groups"),
    reason="newest known; 6 reports unknown groups as errors (KIP-1043)",
)  # fmt: skip
