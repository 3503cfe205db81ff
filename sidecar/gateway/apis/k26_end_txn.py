"""EndTxn (0-5), relayed as it is. From version 5 on it answers with the producer id and epoch of the next transaction
(KIP-890).
"""

from sidecar.gateway.access.asked import Asked, Operation, ResourceType, takes
from sidecar.gateway.access.cluster import NO_PRODUCER
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, OneKey, Route, ShadowRule

SPEC = ApiSpec(
    ApiKey.END_TXN, (0, 5), Route.TRANSACTION,
    Asked(takes(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, lambda _: NO_PRODUCER)), ShadowRule.UNNAMED, OneKey(),
)  # fmt: skip
