"""DescribeProducers (0): split by leader and merged (KIP-664, `merged`)."""

from sidecar.cluster.resolver import is_legal
from sidecar.gateway.access.asked import TOPIC, Asked, Asking, Divided, Operation, error_fields, refused_topic, some
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule
from sidecar.protocol.schema import Values


def _describe_producers(asking: Asking) -> Divided | None:
    def refused(topic: Values) -> Values | None:
        may = not is_legal(topic["name"].encode()) or asking.rights.topic(Operation.READ, topic["name"])
        return None if may else refused_topic(topic, error_fields(TOPIC))

    return some(asking.fields, ("topics", "topics"), refused, TOPIC)


SPEC = ApiSpec(
    ApiKey.DESCRIBE_PRODUCERS,
    (0, 0),
    Route.LEADERS,
    Asked(_describe_producers),
    ShadowRule.OWN,
    cold=lambda _, of: of.merged.handle_describe_producers,
)
