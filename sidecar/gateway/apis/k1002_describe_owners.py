"""DescribeOwners (0): who owns resources, and who waits for them (`own`)."""

from sidecar.gateway.access.asked import Open
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule

SPEC = ApiSpec(
    ApiKey.DESCRIBE_OWNERS, (0, 0), Route.LOCAL, Open("it asks for rights on what it names"), ShadowRule.OWN,
    cold=lambda row, of: of.own[row.key],
    reason="of topics served elsewhere: what the changelog holds; only that node knows the queue there",
)  # fmt: skip
