"""CreateTopics (2-7): to the controller (KIP-4).

- The name of a shadow: 36 TOPIC_ALREADY_EXISTS.
- Configurations that list replicas by broker: 40 INVALID_CONFIG.
"""

from typing import Any, Final

from sidecar.cluster.resolver import NameResolver
from sidecar.gateway.access.asked import NO_ID, TOPIC, Asked, Asking, Divided, Operation, shown_by, some
from sidecar.gateway.access.topics import named_twice
from sidecar.gateway.apis.audited import Audited, codes, named
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Change, Route, ShadowRule
from sidecar.gateway.client import Client
from sidecar.gateway.configs import refused_configs
from sidecar.gateway.topics import ASSIGNED
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.schema import TAGS, Values

_CONFIGS_HIDDEN: Final = b"\x01\x00\x02\x00\x1d"
"""The tagged field `topicConfigErrorCode` of CreateTopics: 29 (KIP-525)."""
_refused_anyway = named_twice("topics")


def _create_topics(asking: Asking) -> Divided | None:
    rights, topics = asking.rights, asking.fields["topics"]
    anywhere = rights.cluster(Operation.CREATE)
    anyway = _refused_anyway(asking.version, asking.fields)

    def refused(topic: Values) -> Values | None:
        name: str = topic["name"]
        if anywhere or anyway(topic) or rights.topic(Operation.CREATE, name):
            return None
        layout: Values = {"num_partitions": NO_ID, "replication_factor": NO_ID}
        return {"name": name, "error_code": TOPIC, "error_message": "Authorization failed."} | layout

    divided = some(asking.fields, ("topics", "topics"), refused, TOPIC)
    seen = (topic["name"] for topic in topics if not anyway(topic))
    hidden = {name for name in seen if not rights.topic(Operation.DESCRIBE_CONFIGS, name)}
    if not hidden:
        return divided

    def hide(topic: Values) -> Values:
        if topic["error_code"] or topic["name"] not in hidden:
            return topic
        return topic | {"num_partitions": NO_ID, "replication_factor": NO_ID, "configs": [], TAGS: _CONFIGS_HIDDEN}

    return shown_by(asking, divided, lambda answer: answer | {"topics": [*map(hide, answer["topics"])]})


def _refusal(_resolver: NameResolver, _client: Client, _name: str, topic: Any) -> KafkaError | None:
    return ASSIGNED if topic["assignments"] else refused_configs(topic["configs"])


SPEC = ApiSpec(
    ApiKey.CREATE_TOPICS, (2, 7), Route.CONTROLLER, Asked(_create_topics), ShadowRule.TAKEN,
    Change("topics", "topics", _refusal, _refused_anyway), Audited(named("topics"), codes("topics")),
)  # fmt: skip
