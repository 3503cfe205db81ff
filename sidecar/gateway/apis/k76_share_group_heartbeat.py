"""ShareGroupHeartbeat (1) (KIP-932).

A member that subscribes to any shadow is refused with 42 INVALID_REQUEST: brokers keep the states of records by log,
and a shadow's log is its source's. For INVALID_REQUEST the Java client raises the reason and ends the membership. For
29 it drops the reason, and joins again at once (`AbstractHeartbeatRequestManager.onErrorResponse`).
"""

from sidecar.gateway.access.asked import Asked
from sidecar.gateway.access.groups import subscription
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, SharedLinks
from sidecar.gateway.groups import HeartbeatApi

SPEC = ApiSpec(
    ApiKey.SHARE_GROUP_HEARTBEAT, (1, 1), Route.GROUP, Asked(subscription), links=SharedLinks(since=0),
    cold=lambda row, of: HeartbeatApi(of.upstream, of.coordinators, of.resolver, row.message, row.shadow).handle,
    reason="newest known (KIP-932)",
)  # fmt: skip
