"""GetTelemetrySubscriptions (0): see `client_metrics`."""

from functools import partial

from sidecar.gateway.access.asked import Open
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule
from sidecar.gateway.client_metrics import get_subscriptions

SPEC = ApiSpec(
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, (0, 0), Route.CLIENT_INSTANCE,
    Open("brokers ask for no right: a client asks what to tell of itself"), ShadowRule.UNNAMED,
    cold=lambda _, of: partial(get_subscriptions, of.upstream),
    reason="newest known (KIP-714); offered where brokers have a reporter that collects metrics of clients",
)  # fmt: skip
