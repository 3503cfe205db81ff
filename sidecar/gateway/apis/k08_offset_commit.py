"""OffsetCommit (2-10), relayed without cursors that the client may not touch (`guarded_cursors`)."""

from sidecar.gateway.access.asked import Asked, ids_in
from sidecar.gateway.access.groups import offset_commit
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, OneKey, Route, ShadowRule, SharedLinks
from sidecar.gateway.groups import without_guarded

SPEC = ApiSpec(
    ApiKey.OFFSET_COMMIT, (2, 10), Route.GROUP, Asked(offset_commit, ids=lambda fields: ids_in(fields["topics"])),
    ShadowRule.OWN, OneKey(by_partition=True, divide=without_guarded), links=SharedLinks(since=3),
)  # fmt: skip
