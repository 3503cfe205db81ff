"""LastSequence (0): the highest sequence ids of a producer name (`own`)."""

from sidecar.gateway.access.asked import Open
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule

SPEC = ApiSpec(
    ApiKey.LAST_SEQUENCE, (0, 0), Route.LOCAL, Open("it asks for rights on what it names"), ShadowRule.OWN,
    cold=lambda row, of: of.own[row.key],
    reason="only the node that serves the topic knows its sequence ids; others name it",
)  # fmt: skip
