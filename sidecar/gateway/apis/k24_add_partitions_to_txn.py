"""AddPartitionsToTxn (0-3): all or nothing (`transactions`)."""

from functools import partial

from sidecar.gateway.access.asked import (
    TOPIC,
    TRANSACTIONAL_ID,
    Asked,
    Asking,
    Divided,
    Operation,
    ResourceType,
    takes,
    whole,
)
from sidecar.gateway.access.cluster import not_added
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route
from sidecar.gateway.rights import KAFKAS_OWN
from sidecar.gateway.transactions import TransactionsApi
from sidecar.protocol.errors import ErrorCode


def _writable(asking: Asking, name: str) -> bool:
    return name not in KAFKAS_OWN and asking.rights.topic(Operation.WRITE, name)


def _added_beside(asking: Asking) -> list[str]:
    """The topics to look up: if one topic is refused nothing is added, and missing topics get a code of their own."""
    names: list[str] = [topic["name"] for topic in asking.fields["topics"]]
    writable = [name for name in names if _writable(asking, name)]
    return writable if len(writable) != len(names) else []


def _add_partitions(asking: Asking) -> Divided | None:
    refused = {topic["name"] for topic in asking.fields["topics"] if not _writable(asking, topic["name"])}
    if not refused:
        return None

    def code_of(name: str, index: int) -> int:
        if name in refused:
            return TOPIC
        there = asking.has(name, index)
        return ErrorCode.OPERATION_NOT_ATTEMPTED if there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    return whole(not_added(asking.fields["topics"], code_of), TOPIC)


SPEC = ApiSpec(
    ApiKey.ADD_PARTITIONS_TO_TXN,
    (0, 3),
    Route.TRANSACTION,
    Asked(
        takes(
            Operation.WRITE,
            ResourceType.TRANSACTIONAL_ID,
            lambda asking: not_added(asking.fields["topics"], lambda *_: TRANSACTIONAL_ID),
            _add_partitions,
        ),
        _added_beside,
    ),
    cold=lambda row, of: partial(
        TransactionsApi(of.upstream, of.coordinators, of.resolver, of.sessions).handle_add_partitions, row.shadow
    ),
    reason="4 and 5 are for brokers: they name many transactions (KIP-890)",
    newest=5,
)
