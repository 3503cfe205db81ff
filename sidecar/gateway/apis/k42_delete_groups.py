"""DeleteGroups (0-3): split by the coordinators of the groups, and merged. A group with a reader that has claimed its
partitions: 68 NON_EMPTY_GROUP, as for a group with members.
"""

from sidecar.gateway.access.asked import Asked, Operation, ResourceType, each_takes
from sidecar.gateway.apis.audited import Audited, codes, named
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Keyed, Route, ShadowRule
from sidecar.gateway.client import Client
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.resources.readers import ReaderClaims


def _may_name(claims: ReaderClaims, client: Client, group: str) -> KafkaError | None:
    if not claims.any or claims.may_delete(group, client.reader):
        return None
    return KafkaError(ErrorCode.NON_EMPTY_GROUP, f"{group} has a reader that has claimed its partitions")


SPEC = ApiSpec(
    ApiKey.DELETE_GROUPS, (0, 3), Route.GROUPS,
    Asked(each_takes(Operation.DELETE, ResourceType.GROUP, ("groups_names", "results"), "group_id")),
    ShadowRule.UNNAMED, Keyed("groups_names", "results", "group_id", may_name=_may_name),
    Audited(named("groups_names"), codes("results")),
)  # fmt: skip
