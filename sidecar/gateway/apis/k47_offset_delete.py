"""OffsetDelete (0), relayed without cursors that the client may not touch (`guarded_cursors`)."""

from functools import partial

from sidecar.gateway.access.asked import Asked, Operation, ResourceType, takes
from sidecar.gateway.access.groups import readable
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, OneKey, Route, ShadowRule
from sidecar.gateway.groups import without_guarded

_READABLE = partial(readable, empty_goes_on=True)  # whether there is the group the coordinator says
SPEC = ApiSpec(
    ApiKey.OFFSET_DELETE, (0, 0), Route.GROUP, Asked(takes(Operation.DELETE, ResourceType.GROUP, then=_READABLE)),
    ShadowRule.OWN, OneKey(divide=without_guarded),
)  # fmt: skip
