"""DeleteRecords (0-2): to the leaders, after a snapshot of the sequence ids in what is deleted (`tables`)."""

from sidecar.gateway.access.asked import Operation, PerTopic
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route
from sidecar.gateway.tables import TablesApi

_DELETE = PerTopic(Operation.DELETE)
SPEC = ApiSpec(
    ApiKey.DELETE_RECORDS, (0, 2), Route.LEADERS, _DELETE,
    hot=lambda row, of: TablesApi(of.upstream, of.resolver, of.tasks, _DELETE, row.shadow, of.purging).handle,
)  # fmt: skip
