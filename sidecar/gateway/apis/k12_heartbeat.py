"""Heartbeat (0-4), relayed as it is."""

from sidecar.gateway.access.asked import Asked, Operation, ResourceType, takes
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, OneKey, Route, ShadowRule, SharedLinks

SPEC = ApiSpec(
    ApiKey.HEARTBEAT, (0, 4), Route.GROUP, Asked(takes(Operation.READ, ResourceType.GROUP)), ShadowRule.UNNAMED,
    OneKey(), links=SharedLinks(since=1),
)  # fmt: skip
