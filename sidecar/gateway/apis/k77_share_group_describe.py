"""ShareGroupDescribe (1): split by the coordinators of the groups, and merged (KIP-932)."""

from sidecar.gateway.access.asked import Asked
from sidecar.gateway.access.groups import ASSIGNED, assigned_topics, described
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule
from sidecar.gateway.coordinators import descriptions

SPEC = ApiSpec(
    ApiKey.SHARE_GROUP_DESCRIBE, (1, 1), Route.GROUPS, Asked(described(topics_of=assigned_topics, said=ASSIGNED)),
    ShadowRule.OWN, descriptions(),
)  # fmt: skip
