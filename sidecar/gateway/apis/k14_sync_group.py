"""SyncGroup (0-5), which may wait for the group's leader."""

from sidecar.gateway.access.asked import Asked, Asking, Divided, Operation, ResourceType, takes
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, OneKey, Route, ShadowRule, SharedLinks


def _sync_group(asking: Asking) -> Divided | None:
    fields = asking.fields
    if asking.version >= 5 and None in (fields["protocol_type"], fields["protocol_name"]):
        return None  # the coordinator refuses it (23) before it checks rights
    return takes(Operation.READ, ResourceType.GROUP)(asking)


SPEC = ApiSpec(
    ApiKey.SYNC_GROUP, (0, 5), Route.GROUP, Asked(_sync_group), ShadowRule.OWN, OneKey(),
    links=SharedLinks(since=1, waits=True),
)  # fmt: skip
