"""CreatePartitions (0-3): to the controller (KIP-195)."""

from typing import Any

from sidecar.cluster.resolver import NameResolver
from sidecar.gateway.access.asked import TOPIC, Asked, Asking, Divided, Operation, some
from sidecar.gateway.access.topics import named_twice
from sidecar.gateway.apis.audited import Audited, codes, named
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Change, Route
from sidecar.gateway.client import Client
from sidecar.gateway.topics import ASSIGNED
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.schema import Values

_refused_anyway = named_twice("topics")


def _create_partitions(asking: Asking) -> Divided | None:
    anyway = _refused_anyway(asking.version, asking.fields)

    def refused(topic: Values) -> Values | None:
        may = anyway(topic) or asking.rights.topic(Operation.ALTER, topic["name"])
        return None if may else {"name": topic["name"], "error_code": TOPIC}

    return some(asking.fields, ("topics", "results"), refused, TOPIC)


def _refusal(_resolver: NameResolver, _client: Client, _name: str, topic: Any) -> KafkaError | None:
    return ASSIGNED if topic["assignments"] else None


SPEC = ApiSpec(
    ApiKey.CREATE_PARTITIONS, (0, 3), Route.CONTROLLER, Asked(_create_partitions),
    form=Change("topics", "results", _refusal, _refused_anyway, reroutes=True),
    audit=Audited(named("topics"), codes("results")), for_super_users=True,
)  # fmt: skip
