"""ListGroups (0-5): each node lists the groups for which FindCoordinator names it (KIP-518)."""

from sidecar.gateway.access.asked import Asked, Asking, Divided, Operation
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Listed, Route, ShadowRule
from sidecar.protocol.schema import Values


def _list_groups(asking: Asking) -> Divided | None:
    rights = asking.rights
    if rights.cluster(Operation.DESCRIBE):
        return None

    def may(group: Values) -> bool:
        return rights.group(Operation.DESCRIBE, group["group_id"])

    return Divided(asking.fields, lambda answer: answer | {"groups": [each for each in answer["groups"] if may(each)]})


SPEC = ApiSpec(
    ApiKey.LIST_GROUPS, (0, 5), Route.ALL_BROKERS, Asked(_list_groups), ShadowRule.UNNAMED,
    Listed("groups", "group_id"), reason="newest known; 5 has group types, which kafka-groups shows",
)  # fmt: skip
