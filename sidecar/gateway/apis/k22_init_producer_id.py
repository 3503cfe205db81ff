"""InitProducerId (0-5): to any broker, or to the coordinator of the transactional id (`transactions`)."""

from sidecar.gateway.access.asked import (
    CLUSTER,
    Asked,
    Asking,
    Divided,
    Operation,
    ResourceType,
    error_fields,
    takes,
    whole,
)
from sidecar.gateway.access.cluster import NO_PRODUCER
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule
from sidecar.gateway.transactions import TransactionsApi


def _init_producer_id(asking: Asking) -> Divided | None:
    if asking.fields["transactional_id"] is not None:
        return takes(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, lambda _: NO_PRODUCER)(asking)
    if asking.rights.writes_idempotently():
        return None
    return whole(error_fields(CLUSTER) | NO_PRODUCER, CLUSTER)


SPEC = ApiSpec(
    ApiKey.INIT_PRODUCER_ID,
    (0, 5),
    Route.TRANSACTION,
    Asked(_init_producer_id),
    ShadowRule.UNNAMED,
    cold=lambda _, of: TransactionsApi(of.upstream, of.coordinators, of.resolver, of.sessions).handle_init_producer_id,
    reason="newest known; 6 (two-phase commit, KIP-939) is not offered by Kafka 4.4 yet",
)
