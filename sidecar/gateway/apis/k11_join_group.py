"""JoinGroup (0-9), which waits for other members."""

from sidecar.gateway.access.asked import NO_ID, Asked, Asking, Operation, ResourceType, takes
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, OneKey, Route, ShadowRule, SharedLinks
from sidecar.protocol.schema import Values


def _not_joined(asking: Asking) -> Values:
    return {"generation_id": NO_ID, "protocol_name": None if asking.version >= 7 else ""}


SPEC = ApiSpec(
    ApiKey.JOIN_GROUP, (0, 9), Route.GROUP, Asked(takes(Operation.READ, ResourceType.GROUP, _not_joined)),
    ShadowRule.OWN, OneKey(), links=SharedLinks(since=2, waits=True),
)  # fmt: skip
