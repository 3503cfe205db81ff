"""DescribeTransactions (0): split by the coordinators of the transactional ids, and merged (KIP-664)."""

from sidecar.gateway.access.asked import Asked, Asking, Divided, Operation, ResourceType, each_takes, shown_by
from sidecar.gateway.access.cluster import NO_PRODUCER
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Keyed, Route, ShadowRule
from sidecar.gateway.write_rights import refused_transaction
from sidecar.protocol.schema import Values


def _describe_transactions(asking: Asking) -> Divided:
    name, kind = "transaction_states", ResourceType.TRANSACTIONAL_ID
    lists = ("transactional_ids", name)
    divided = each_takes(Operation.DESCRIBE, kind, lists, "transactional_id")(asking)

    def shown(state: Values) -> Values:
        topics: list[Values] = state.get("topics", [])
        may = asking.rights.topic
        return state | {"topics": [each for each in topics if may(Operation.DESCRIBE, each["topic"])]}

    return shown_by(asking, divided, lambda answer: answer | {name: [*map(shown, answer[name])]})


SPEC = ApiSpec(
    ApiKey.DESCRIBE_TRANSACTIONS, (0, 0), Route.TRANSACTIONS, Asked(_describe_transactions), ShadowRule.OWN,
    Keyed(
        "transactional_ids",
        "transaction_states",
        "transactional_id",
        NO_PRODUCER,
        may_name=lambda _claims, _client, key: refused_transaction(key),
    ),
)  # fmt: skip
