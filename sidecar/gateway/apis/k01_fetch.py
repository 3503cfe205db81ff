"""Fetch (4-18): to the leaders, whole or gathered from several polls (`fetch`)."""

from sidecar.gateway.access.asked import Operation, PerTopic
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule

SPEC = ApiSpec(
    ApiKey.FETCH, (4, 18), Route.LEADERS, PerTopic(Operation.READ), ShadowRule.READ, hot=lambda _, of: of.fetch.handle,
    flexible_since=12,
)  # fmt: skip
