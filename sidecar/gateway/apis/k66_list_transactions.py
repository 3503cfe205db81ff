"""ListTransactions (0-2): each node lists the transactional ids for which FindCoordinator names it (KIP-664)."""

from sidecar.gateway.access.asked import Asked, Asking, Divided, Operation
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Listed, Route, ShadowRule
from sidecar.protocol.schema import Values


def _list_transactions(asking: Asking) -> Divided | None:
    def may(state: Values) -> bool:
        return asking.rights.transactional_id(Operation.DESCRIBE, state["transactional_id"])

    name = "transaction_states"
    return Divided(asking.fields, lambda answer: answer | {name: [each for each in answer[name] if may(each)]})


def _unknown_states(answers: list[Values]) -> Values:
    unknown = dict.fromkeys(name for answer in answers for name in answer["unknown_state_filters"])
    return {"unknown_state_filters": list(unknown)}


SPEC = ApiSpec(
    ApiKey.LIST_TRANSACTIONS, (0, 2), Route.ALL_BROKERS, Asked(_list_transactions), ShadowRule.OWN,
    Listed("transaction_states", "transactional_id", _unknown_states),
)  # fmt: skip
