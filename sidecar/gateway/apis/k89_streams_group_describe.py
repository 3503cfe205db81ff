"""StreamsGroupDescribe (0): split by the coordinators of the groups, and merged (KIP-1071)."""

from collections.abc import Iterable
from typing import Final

from sidecar.gateway.access.asked import Asked
from sidecar.gateway.access.groups import described, streams_topics
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule
from sidecar.gateway.coordinators import descriptions
from sidecar.protocol.schema import Values

_USED: Final = "The described group uses topics that the client is not authorized to describe."


def _topics(group: Values) -> Iterable[str]:
    return streams_topics(group["topology"])


SPEC = ApiSpec(
    ApiKey.STREAMS_GROUP_DESCRIBE, (0, 0), Route.GROUPS, Asked(described(topics_of=_topics, said=_USED)),
    ShadowRule.OWN, descriptions(topics_of=_topics, said=_USED),
    reason="1 shows the descriptions of topologies, which nodes do not pass on yet", newest=1,
)  # fmt: skip
