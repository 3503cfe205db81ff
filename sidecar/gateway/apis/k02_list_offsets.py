"""ListOffsets (1-11): to the leaders (`tables`)."""

from sidecar.gateway.access.asked import Operation, PerTopic
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule
from sidecar.gateway.tables import TablesApi

_DESCRIBE = PerTopic(Operation.DESCRIBE)
SPEC = ApiSpec(
    ApiKey.LIST_OFFSETS, (1, 11), Route.LEADERS, _DESCRIBE, ShadowRule.READ,
    hot=lambda row, of: TablesApi(of.upstream, of.resolver, of.tasks, _DESCRIBE, row.shadow).handle,
)  # fmt: skip
