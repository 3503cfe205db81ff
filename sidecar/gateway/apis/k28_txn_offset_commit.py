"""TxnOffsetCommit (0-5), relayed without cursors that the client may not touch (`guarded_cursors`)."""

from sidecar.gateway.access.asked import TRANSACTIONAL_ID, Asked, Operation, ResourceType, takes
from sidecar.gateway.access.groups import not_committed, offset_commit
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, OneKey, Route, ShadowRule
from sidecar.gateway.groups import without_guarded

_NOTHING = not_committed(TRANSACTIONAL_ID)
SPEC = ApiSpec(
    ApiKey.TXN_OFFSET_COMMIT, (0, 5), Route.GROUP,
    Asked(takes(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, _NOTHING, offset_commit)), ShadowRule.OWN,
    OneKey(key_at=1, by_partition=True, divide=without_guarded),
    reason="6 names topics by id, which nodes do not translate yet (KIP-1319)", newest=6,
)  # fmt: skip
