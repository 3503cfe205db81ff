"""FindCoordinator (0-6): answered with the node that stands for the coordinator (`metadata`)."""

from sidecar.gateway.access.asked import (
    GROUP,
    NO_ID,
    TRANSACTIONAL_ID,
    Asked,
    Asking,
    Divided,
    Operation,
    error_fields,
    some,
    whole,
)
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule
from sidecar.protocol.schema import Values


def _find_coordinator(asking: Asking) -> Divided | None:
    kind, rights, nowhere = asking.fields.get("key_type", 0), asking.rights, {"node_id": NO_ID, "port": NO_ID}
    code = GROUP if kind == 0 else TRANSACTIONAL_ID

    def may(key: str) -> bool:
        if kind == 0:
            return rights.group(Operation.DESCRIBE, key)
        return kind != 1 or rights.transactional_id(Operation.DESCRIBE, key)

    def refused(key: str) -> Values | None:
        return None if may(key) else {"key": key, "error_code": code} | nowhere

    if asking.version >= 4:
        return some(asking.fields, ("coordinator_keys", "coordinators"), refused, code)
    return None if may(asking.fields["key"]) else whole(error_fields(code) | nowhere, code)


SPEC = ApiSpec(
    ApiKey.FIND_COORDINATOR,
    (0, 6),
    Route.LOCAL,
    Asked(_find_coordinator),
    ShadowRule.UNNAMED,
    cold=lambda _, of: of.cluster.handle_find_coordinator,
    reason="newest known; share coordinators, for which 6 can ask, are for brokers alone: INVALID_REQUEST (42)",
)
