"""ShareFetch (1-2): split by leader and merged (KIP-932, `share`)."""

from functools import partial

from sidecar.gateway.access.asked import Operation, PerTopic
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route
from sidecar.gateway.plan import Rule

SPEC = ApiSpec(
    ApiKey.SHARE_FETCH, (1, 2), Route.LEADERS, PerTopic(Operation.READ),
    cold=lambda row, of: partial(of.shares.handle_fetch, Rule.of(row.shadow, reads=True)),
    reason="newest known; new leaders in answers are nodes",
)  # fmt: skip
