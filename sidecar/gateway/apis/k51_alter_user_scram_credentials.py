"""AlterUserScramCredentials (0), relayed as it is."""

from collections.abc import Iterator

from sidecar.gateway.access.asked import Asked, Asking, Operation, ResourceType, takes
from sidecar.gateway.access.cluster import NOT_ON_CLUSTER
from sidecar.gateway.apis.audited import Audited, codes
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule
from sidecar.protocol.schema import Values


def _not_altered(asking: Asking) -> Values:
    users = dict.fromkeys(user["name"] for user in (*asking.fields["deletions"], *asking.fields["upsertions"]))
    return {"results": [{"user": user} | NOT_ON_CLUSTER for user in users]}


def _users(asked: Values) -> Iterator[str]:
    yield from (f"delete {user['name']}" for user in asked["deletions"])
    yield from (f"set {user['name']}" for user in asked["upsertions"])


SPEC = ApiSpec(
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS, (0, 0), Route.CONTROLLER,
    Asked(takes(Operation.ALTER, ResourceType.CLUSTER, _not_altered)), ShadowRule.UNNAMED,
    audit=Audited(_users, codes("results")), for_super_users=True,
)  # fmt: skip
