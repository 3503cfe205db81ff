"""TxnOffsetCommit (0-6), relayed without cursors that the client may not touch (`guarded_cursors`)."""

from sidecar.gateway.access.asked import TRANSACTIONAL_ID, Asked, Operation, ResourceType, ids_in, takes
from sidecar.gateway.access.groups import not_committed, offset_commit
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, OneKey, Route, ShadowRule
from sidecar.gateway.groups import without_guarded

_CHECK = takes(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, not_committed(TRANSACTIONAL_ID), offset_commit)
SPEC = ApiSpec(
    ApiKey.TXN_OFFSET_COMMIT, (0, 6), Route.GROUP, Asked(_CHECK, ids=lambda fields: ids_in(fields["topics"])),
    ShadowRule.OWN, OneKey(key_at=1, by_partition=True, divide=without_guarded),
)  # fmt: skip
