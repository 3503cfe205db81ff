"""AddOffsetsToTxn (0-4), relayed as it is."""

from sidecar.gateway.access.asked import Asked, Operation, ResourceType, takes
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, OneKey, Route, ShadowRule

_READ_GROUP = takes(Operation.READ, ResourceType.GROUP)
SPEC = ApiSpec(
    ApiKey.ADD_OFFSETS_TO_TXN, (0, 4), Route.TRANSACTION,
    Asked(takes(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, then=_READ_GROUP)), ShadowRule.UNNAMED, OneKey(),
)  # fmt: skip
