"""Watch (0): waits for a change of a token's claims (`own`)."""

from sidecar.gateway.access.asked import Open
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule

SPEC = ApiSpec(
    ApiKey.WATCH, (0, 0), Route.LOCAL, Open("a token is the right to its claims"), ShadowRule.UNNAMED,
    cold=lambda row, of: of.own[row.key],
    reason="the node that granted a claim, or keeps a place for one, reports on it; parks its connection",
)  # fmt: skip
