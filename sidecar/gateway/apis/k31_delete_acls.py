"""DeleteAcls (0-3), relayed as it is."""

from sidecar.gateway.access.asked import Asked, Operation, ResourceType, takes
from sidecar.gateway.access.cluster import refused_elements
from sidecar.gateway.apis.audited import Audited, codes, rule
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule

SPEC = ApiSpec(
    ApiKey.DELETE_ACLS, (0, 3), Route.CONTROLLER,
    Asked(takes(Operation.ALTER, ResourceType.CLUSTER, refused_elements("filters", "filter_results"))), ShadowRule.OWN,
    audit=Audited(lambda asked: (rule(acl, "_filter") for acl in asked["filters"]), codes("filter_results")),
    for_super_users=True, changes_acls=True,
)  # fmt: skip
