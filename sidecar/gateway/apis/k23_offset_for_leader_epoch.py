"""OffsetForLeaderEpoch (2-4): to the leaders (`tables`)."""

from sidecar.gateway.access.asked import Operation, PerTopic
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule
from sidecar.gateway.tables import TablesApi

_DESCRIBE = PerTopic(Operation.DESCRIBE, instead=Operation.CLUSTER_ACTION)
SPEC = ApiSpec(
    ApiKey.OFFSET_FOR_LEADER_EPOCH, (2, 4), Route.LEADERS, _DESCRIBE, ShadowRule.READ,
    hot=lambda row, of: TablesApi(of.upstream, of.resolver, of.tasks, _DESCRIBE, row.shadow).handle,
)  # fmt: skip
