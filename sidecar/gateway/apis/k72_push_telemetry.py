"""PushTelemetry (0): see `client_metrics`."""

from functools import partial

from sidecar.gateway.access.asked import Open
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule
from sidecar.gateway.client_metrics import push

SPEC = ApiSpec(
    ApiKey.PUSH_TELEMETRY, (0, 0), Route.CLIENT_INSTANCE,
    Open("brokers ask for no right: a client tells of itself"), ShadowRule.UNNAMED,
    cold=lambda _, of: partial(push, of.upstream),
    reason="newest known (KIP-714); offered as GetTelemetrySubscriptions",
)  # fmt: skip
