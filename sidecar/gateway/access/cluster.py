"""Rights on the cluster and on transactional ids, for idempotent writes, and to find coordinators. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from sidecar.gateway.access.asked import (
    CLUSTER,
    GROUP,
    NO_ID,
    TOPIC,
    TRANSACTIONAL_ID,
    Asked,
    Asking,
    Divided,
    each_takes,
    error_fields,
    refused_topic,
    shown_by,
    some,
    takes,
    whole,
    with_cluster_operations,
)
from sidecar.gateway.rights import KAFKAS_OWN
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.messages import admin, cluster, security, transactions
from sidecar.protocol.schema import Values
from sidecar.security.acls import Operation, ResourceType

_REFUSED: Final = error_fields(CLUSTER)


def _each(asked: str, answered: str) -> Callable[[Asking], Values]:
    """An answer in which each element of the request has the error."""
    return lambda asking: {answered: [_REFUSED] * len(asking.fields[asked] or ())}  # one object for thousands


def _topics(asked: str, answered: str, error: Values, *names: str) -> Callable[[Asking], Values]:
    """An answer in which each partition of the request has the error. `names`: see `refused_topic`."""
    return lambda asking: {answered: [refused_topic(each, error, *names) for each in asking.fields[asked] or ()]}


def _quotas_not_altered(asking: Asking) -> Values:
    return {"entries": [_REFUSED | {"entity": entry["entity"]} for entry in asking.fields["entries"]]}


def _scram_not_altered(asking: Asking) -> Values:
    users = dict.fromkeys(each["name"] for each in (*asking.fields["deletions"], *asking.fields["upsertions"]))
    return {"results": [{"user": user} | _REFUSED for user in users]}


def _describe_cluster(asking: Asking) -> Divided | None:
    if not asking.fields["include_cluster_authorized_operations"]:
        return None
    return Divided(asking.fields, lambda answer: with_cluster_operations(asking.rights, answer))


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


# Transactions ---------------------------------------------------------------------------------------------------------


def no_producer(_asking: Asking) -> Values:
    """The answer to a refused InitProducerId."""
    return {"producer_id": NO_ID, "producer_epoch": NO_ID}


def _init_producer_id(asking: Asking) -> Divided | None:
    if asking.fields["transactional_id"] is not None:
        return takes(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, no_producer)(asking)
    if asking.rights.writes_idempotently():
        return None
    return whole(error_fields(CLUSTER) | no_producer(asking), CLUSTER)


def not_added(topics: Iterable[Values], code_of: Callable[[str, int], int]) -> Values:
    """The answer to AddPartitionsToTxn if nothing was added; `code_of` returns the code for a topic and partition."""
    return {
        "results_by_topic": [
            {
                "name": topic["name"],
                "results_by_partition": [
                    {"partition_index": index, "partition_error_code": code_of(topic["name"], index)}
                    for index in topic["partitions"]
                ],
            }
            for topic in topics
        ]
    }


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


def _describe_transactions(asking: Asking) -> Divided:
    name, kind = "transaction_states", ResourceType.TRANSACTIONAL_ID
    lists = ("transactional_ids", name)
    divided = each_takes(Operation.DESCRIBE, kind, lists, "transactional_id")(asking)

    def shown(state: Values) -> Values:
        topics: list[Values] = state.get("topics", [])
        may = asking.rights.topic
        return state | {"topics": [each for each in topics if may(Operation.DESCRIBE, each["topic"])]}

    return shown_by(asking, divided, lambda answer: answer | {name: [*map(shown, answer[name])]})


def _list_transactions(asking: Asking) -> Divided | None:
    def may(state: Values) -> bool:
        return asking.rights.transactional_id(Operation.DESCRIBE, state["transactional_id"])

    name = "transaction_states"
    return Divided(asking.fields, lambda answer: answer | {name: [each for each in answer[name] if may(each)]})


_CLUSTER: Final = ResourceType.CLUSTER
_ID: Final = ResourceType.TRANSACTIONAL_ID
ROWS: Final = (
    Asked(cluster.FIND_COORDINATOR, _find_coordinator),
    Asked(security.DESCRIBE_ACLS, takes(Operation.DESCRIBE, _CLUSTER)),
    Asked(security.CREATE_ACLS, takes(Operation.ALTER, _CLUSTER, _each("creations", "results"))),
    Asked(security.DELETE_ACLS, takes(Operation.ALTER, _CLUSTER, _each("filters", "filter_results"))),
    Asked(admin.DESCRIBE_LOG_DIRS, takes(Operation.DESCRIBE, _CLUSTER)),
    Asked(
        admin.ELECT_LEADERS,
        takes(
            Operation.ALTER,
            _CLUSTER,
            _topics("topic_partitions", "replica_election_results", _REFUSED, "partition_result", "partition_id"),
        ),
    ),
    Asked(
        admin.ALTER_PARTITION_REASSIGNMENTS,
        takes(Operation.ALTER, _CLUSTER, _topics("topics", "responses", _REFUSED)),
    ),
    Asked(admin.LIST_PARTITION_REASSIGNMENTS, takes(Operation.DESCRIBE, _CLUSTER, _topics("topics", "topics", {}))),
    Asked(security.DESCRIBE_CLIENT_QUOTAS, takes(Operation.DESCRIBE_CONFIGS, _CLUSTER, lambda _: {"entries": None})),
    Asked(security.ALTER_CLIENT_QUOTAS, takes(Operation.ALTER_CONFIGS, _CLUSTER, _quotas_not_altered)),
    Asked(security.DESCRIBE_USER_SCRAM_CREDENTIALS, takes(Operation.DESCRIBE, _CLUSTER, _each("users", "results"))),
    Asked(security.ALTER_USER_SCRAM_CREDENTIALS, takes(Operation.ALTER, _CLUSTER, _scram_not_altered)),
    Asked(cluster.DESCRIBE_CLUSTER, _describe_cluster),
    Asked(admin.LIST_CONFIG_RESOURCES, takes(Operation.DESCRIBE_CONFIGS, _CLUSTER)),
    Asked(transactions.INIT_PRODUCER_ID, _init_producer_id),
    Asked(
        transactions.ADD_PARTITIONS_TO_TXN,
        takes(
            Operation.WRITE,
            _ID,
            lambda asking: not_added(asking.fields["topics"], lambda *_: TRANSACTIONAL_ID),
            _add_partitions,
        ),
        _added_beside,
    ),
    Asked(
        transactions.ADD_OFFSETS_TO_TXN,
        takes(Operation.WRITE, _ID, then=takes(Operation.READ, ResourceType.GROUP)),
    ),
    Asked(transactions.END_TXN, takes(Operation.WRITE, _ID, no_producer)),
    Asked(transactions.DESCRIBE_TRANSACTIONS, _describe_transactions),
    Asked(transactions.LIST_TRANSACTIONS, _list_transactions),
)
