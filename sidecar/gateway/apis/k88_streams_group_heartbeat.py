"""StreamsGroupHeartbeat (0-1) (KIP-1071).

An application is refused with 29 TOPIC_AUTHORIZATION_FAILED if its internal topics would have the name of a sidecar's
topic (`__sidecar_*`) or of a shadow: the coordinator creates them with the node's rights.
"""

from sidecar.gateway.access.asked import TOPIC, Asked, Asking, Divided, Operation, whole
from sidecar.gateway.access.groups import heartbeat, made_topics, not_beaten, streams_topics
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule, SharedLinks
from sidecar.gateway.groups import HeartbeatApi
from sidecar.gateway.rights import KAFKAS_OWN


def _missing(asking: Asking) -> list[str]:
    """The topics that the coordinator would create, and the client may not."""
    rights = asking.rights
    if rights.cluster(Operation.CREATE):
        return []
    return [name for name in made_topics(asking.fields["topology"]) if not rights.topic(Operation.CREATE, name)]


def _streams_heartbeat(asking: Asking) -> Divided | None:
    names = [*streams_topics(asking.fields["topology"])]
    if not KAFKAS_OWN.isdisjoint(names):
        return heartbeat(asking, ())  # the coordinator refuses it
    if (refused := heartbeat(asking, names)) is not None:
        return refused
    missing = sorted({name for name in _missing(asking) if not asking.has(name, None)})
    if missing:
        return whole(not_beaten(TOPIC, f"Unauthorized to CREATE on topics {', '.join(missing)}."), TOPIC)
    return None


SPEC = ApiSpec(
    ApiKey.STREAMS_GROUP_HEARTBEAT, (0, 1), Route.GROUP, Asked(_streams_heartbeat, _missing), ShadowRule.OWN,
    links=SharedLinks(since=0),
    cold=lambda row, of: (
        HeartbeatApi(
            of.upstream,
            of.coordinators,
            of.resolver,
            row.message,
            row.shadow,
            lambda fields: streams_topics(fields["topology"]),
            lambda fields: made_topics(fields["topology"]),
        ).handle
    ),
)  # fmt: skip
