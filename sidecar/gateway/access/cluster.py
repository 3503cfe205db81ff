"""Rights on the cluster, and where coordinators are. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sidecar.gateway.access.asked import (
    CLUSTER,
    GROUP,
    NO_ID,
    TRANSACTIONAL_ID,
    Asked,
    Asking,
    Divided,
    error_fields,
    some,
    whole,
    with_cluster_operations,
)
from sidecar.protocol.messages import admin, cluster, security
from sidecar.protocol.schema import Values
from sidecar.security.acls import Operation


def _on_cluster(operation: Operation, refusal: Callable[[Values], Values]) -> Callable[[Asking], Divided | None]:
    """One right on the cluster for the whole request; `refusal` makes the answer without it from the request."""

    def check(asking: Asking) -> Divided | None:
        if asking.rights.cluster(operation):
            return None
        return whole(error_fields(CLUSTER) | refusal(asking.fields), CLUSTER)

    return check


def _nothing(_fields: Values) -> Values:
    return {}


def _each(asked: str, answered: str) -> Callable[[Values], Values]:
    """An answer in which each element of the request has the error."""
    return lambda fields: {answered: [error_fields(CLUSTER)] * len(fields[asked])}  # one object for thousands


def _quotas_not_altered(fields: Values) -> Values:
    return {"entries": [error_fields(CLUSTER) | {"entity": entry["entity"]} for entry in fields["entries"]]}


def _scram_not_described(fields: Values) -> Values:
    """An error for each user, without its name."""
    return {"results": [error_fields(CLUSTER) for _ in fields["users"] or ()]}


def _scram_not_altered(fields: Values) -> Values:
    users = dict.fromkeys(each["name"] for each in (*fields["deletions"], *fields["upsertions"]))
    return {"results": [{"user": user} | error_fields(CLUSTER) for user in users]}


def _not_elected(fields: Values) -> Values:
    def refused(index: int) -> Values:
        return {"partition_id": index} | error_fields(CLUSTER)

    asked: list[Values] = fields["topic_partitions"] or []
    return {
        "replica_election_results": [
            {"topic": each["topic"], "partition_result": [refused(index) for index in each["partitions"]]}
            for each in asked
        ]
    }


def _not_reassigned(fields: Values) -> Values:
    return {
        "responses": [
            {
                "name": topic["name"],
                "partitions": [
                    {"partition_index": each["partition_index"]} | error_fields(CLUSTER) for each in topic["partitions"]
                ],
            }
            for topic in fields["topics"]
        ]
    }


def _no_reassignments(fields: Values) -> Values:
    return {
        "topics": [
            {"name": topic["name"], "partitions": [{"partition_index": index} for index in topic["partition_indexes"]]}
            for topic in fields["topics"] or ()
        ]
    }


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

    if asking.version >= 4:
        named = ("coordinator_keys", "coordinators")
        return some(asking, named, may, lambda key: {"key": key, "error_code": code} | nowhere, code)
    return None if may(asking.fields["key"]) else whole(error_fields(code) | nowhere, code)


def _list_config_resources(asking: Asking) -> Divided | None:
    if asking.rights.cluster(Operation.DESCRIBE_CONFIGS):
        return None
    return whole({"error_code": CLUSTER}, CLUSTER)


ROWS: Final = (
    Asked(cluster.FIND_COORDINATOR, _find_coordinator),
    Asked(security.DESCRIBE_ACLS, _on_cluster(Operation.DESCRIBE, _nothing)),
    Asked(security.CREATE_ACLS, _on_cluster(Operation.ALTER, _each("creations", "results"))),
    Asked(security.DELETE_ACLS, _on_cluster(Operation.ALTER, _each("filters", "filter_results"))),
    Asked(admin.DESCRIBE_LOG_DIRS, _on_cluster(Operation.DESCRIBE, _nothing)),
    Asked(admin.ELECT_LEADERS, _on_cluster(Operation.ALTER, _not_elected)),
    Asked(admin.ALTER_PARTITION_REASSIGNMENTS, _on_cluster(Operation.ALTER, _not_reassigned)),
    Asked(admin.LIST_PARTITION_REASSIGNMENTS, _on_cluster(Operation.DESCRIBE, _no_reassignments)),
    Asked(security.DESCRIBE_CLIENT_QUOTAS, _on_cluster(Operation.DESCRIBE_CONFIGS, lambda _: {"entries": None})),
    Asked(security.ALTER_CLIENT_QUOTAS, _on_cluster(Operation.ALTER_CONFIGS, _quotas_not_altered)),
    Asked(security.DESCRIBE_USER_SCRAM_CREDENTIALS, _on_cluster(Operation.DESCRIBE, _scram_not_described)),
    Asked(security.ALTER_USER_SCRAM_CREDENTIALS, _on_cluster(Operation.ALTER, _scram_not_altered)),
    Asked(cluster.DESCRIBE_CLUSTER, _describe_cluster),
    Asked(admin.LIST_CONFIG_RESOURCES, _list_config_resources),
)
