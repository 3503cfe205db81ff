"""StreamsGroupTopologyDescriptionUpdate (0) (KIP-1331): a member describes its topology, when a heartbeat asked for it.

Brokers ask for READ on the group and for no right on topics. A description that names a topic which the member's
heartbeat may not name is refused with 29 TOPIC_AUTHORIZATION_FAILED, as the heartbeat is: a shadow that its allow list
hides, and a shadow or a topic of the sidecar's own that it would write to.
"""

from sidecar.gateway.access.asked import Asked
from sidecar.gateway.access.groups import described_topics, heartbeat, sinks
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule, SharedLinks
from sidecar.gateway.groups import HeartbeatApi

SPEC = ApiSpec(
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE, (0, 0), Route.GROUP, Asked(lambda asking: heartbeat(asking, ())),
    ShadowRule.OWN, links=SharedLinks(since=0),
    cold=lambda row, of: (
        HeartbeatApi(
            of.upstream,
            of.coordinators,
            of.resolver,
            row.message,
            row.shadow,
            lambda fields: described_topics(fields["topology_description"]),
            lambda fields: sinks(fields["topology_description"]),
        ).handle
    ),
)  # fmt: skip
