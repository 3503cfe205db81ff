"""DeleteShareGroupOffsets (0), relayed as it is."""

from sidecar.gateway.access.asked import Asked, Operation
from sidecar.gateway.access.groups import share_topics
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, OneKey, Route, ShadowRule

SPEC = ApiSpec(
    ApiKey.DELETE_SHARE_GROUP_OFFSETS, (0, 0), Route.GROUP, Asked(share_topics(Operation.DELETE)), ShadowRule.OWN,
    OneKey(),
)  # fmt: skip
