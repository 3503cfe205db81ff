"""How a request that names a shadow topic is handled (PIP-180; docs/use/shadow-topics.md). Every API's row has such a
rule, and whether a topic is refused to its clients is decided here.
"""

from enum import Enum
from typing import Final

from sidecar.cluster.resolver import HIDDEN, NameResolver, TopicKind
from sidecar.gateway.rights import Limited, may_see
from sidecar.protocol.errors import ErrorCode, KafkaError

_TAKEN: Final = KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, "there is a shadow topic of this name")


class ShadowRule(Enum):
    """What an API does with a shadow."""

    REFUSED = "refused: TOPIC_AUTHORIZATION_FAILED (29)"
    READ = "answered from the source's log"
    SHOWN = "shown with the partitions and leader epochs of the source"
    TAKEN = "the name is taken: TOPIC_ALREADY_EXISTS (36)"
    OWN = "Kafka's own: the shadow is a topic like any other"
    UNNAMED = "names no topics"

    def refused(self, kind: TopicKind) -> KafkaError | None:
        """The error of an API with this rule for all topics of a kind; None if it serves them. The sidecar's own topics
        are refused by every API that changes topics.
        """
        if self in _READING or (kind is TopicKind.SHADOW and self is not ShadowRule.REFUSED):
            return None
        return kind.change_refused

    def refusal(self, resolver: NameResolver, topic: str, client: Limited) -> KafkaError | None:
        """The error for a topic, to a client that Kafka's ACLs allow the request. A shadow that its allow list hides
        from the client is refused in Kafka's words, so it looks like any other topic.
        """
        name = topic.encode()
        kind = resolver.kind(name)
        if self is ShadowRule.TAKEN and kind is TopicKind.SHADOW:
            # To a client that may not see it: a controller's answer for a name that is taken.
            there = KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic}' already exists.")
            return _TAKEN if may_see(client, resolver, topic) else there
        error = self.refused(kind)
        return HIDDEN if error is not None and resolver.hides(name, client.principal) else error


_READING: Final = frozenset({ShadowRule.READ, ShadowRule.SHOWN})
