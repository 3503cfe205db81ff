"""StreamsGroupDescribe (0-1): split by the coordinators of the groups, and merged (KIP-1071).

A group is described only by 29 TOPIC_AUTHORIZATION_FAILED if the client may not DESCRIBE a topic of its topology, or
if an allow list hides one from it. Members write their descriptions of a topology themselves (KIP-1331): they may name
other topics, about which brokers ask for no right.
"""

from collections.abc import Iterable
from typing import Final

from sidecar.gateway.access.asked import Asked
from sidecar.gateway.access.groups import described, described_topics, streams_topics
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule
from sidecar.gateway.coordinators import descriptions
from sidecar.protocol.schema import Values

_USED: Final = "The described group uses topics that the client is not authorized to describe."


def _topics(group: Values) -> Iterable[str]:
    return streams_topics(group["topology"])


def _shown(group: Values) -> Iterable[str]:
    yield from _topics(group)
    yield from described_topics(group.get("topology_description"))


SPEC = ApiSpec(
    ApiKey.STREAMS_GROUP_DESCRIBE, (0, 1), Route.GROUPS, Asked(described(topics_of=_topics, said=_USED)),
    ShadowRule.OWN, descriptions(topics_of=_shown, said=_USED),
)  # fmt: skip
