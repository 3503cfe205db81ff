"""ConsumerGroupDescribe (0-1): split by the coordinators of the groups, and merged (KIP-848).

A group with a shadow that an allow list hides from the client is described only by 29 TOPIC_AUTHORIZATION_FAILED, as
one with a topic that it may not DESCRIBE.
"""

from sidecar.gateway.access.asked import Asked
from sidecar.gateway.access.groups import ASSIGNED, assigned_topics, described
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule
from sidecar.gateway.coordinators import descriptions

SPEC = ApiSpec(
    ApiKey.CONSUMER_GROUP_DESCRIBE, (0, 1), Route.GROUPS, Asked(described(topics_of=assigned_topics, said=ASSIGNED)),
    ShadowRule.OWN, descriptions(topics_of=assigned_topics, said=ASSIGNED),
)  # fmt: skip
