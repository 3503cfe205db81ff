"""AlterClientQuotas (0-1), relayed as it is."""

from collections.abc import Iterator

from sidecar.gateway.access.asked import Asked, Asking, Operation, ResourceType, takes
from sidecar.gateway.access.cluster import NOT_ON_CLUSTER
from sidecar.gateway.apis.audited import Audited, codes
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule
from sidecar.protocol.schema import Values


def _not_altered(asking: Asking) -> Values:
    return {"entries": [NOT_ON_CLUSTER | {"entity": entry["entity"]} for entry in asking.fields["entries"]]}


def _quotas(asked: Values) -> Iterator[str]:
    for entry in asked["entries"]:
        whose = " ".join(f"{part['entity_type']} {part['entity_name'] or 'default'}" for part in entry["entity"])
        yield f"{whose}: {', '.join(op['key'] for op in entry['ops'])}"


SPEC = ApiSpec(
    ApiKey.ALTER_CLIENT_QUOTAS, (0, 1), Route.CONTROLLER,
    Asked(takes(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, _not_altered)), ShadowRule.UNNAMED,
    audit=Audited(_quotas, codes("entries")),
)  # fmt: skip
