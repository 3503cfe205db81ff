"""Rights on transactional ids, and on writing idempotently. Pure."""

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
    shown_by,
    some,
    whole,
)
from sidecar.gateway.rights import KAFKAS_OWN
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.messages import transactions
from sidecar.protocol.schema import Values
from sidecar.security.acls import Operation


def _init_producer_id(asking: Asking) -> Divided | None:
    name = asking.fields["transactional_id"]
    if name is None:
        code = None if asking.rights.writes_idempotently() else CLUSTER
    else:
        code = None if asking.rights.transactional_id(Operation.WRITE, name) else TRANSACTIONAL_ID
    if code is None:
        return None
    return whole({"error_code": code, "producer_id": NO_ID, "producer_epoch": NO_ID}, code)


def not_added(topics: Iterable[Values], code_of: Callable[[str, int], int]) -> Values:
    """The answer to AddPartitionsToTxn where nothing was added; `code_of` a topic and a partition."""
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
    """Where one topic is refused nothing is added, and missing topics get another code than existing ones."""
    names: list[str] = [topic["name"] for topic in asking.fields["topics"]]
    writable = [name for name in names if _writable(asking, name)]
    return writable if len(writable) != len(names) else []


def _add_partitions(asking: Asking) -> Divided | None:
    if not asking.rights.transactional_id(Operation.WRITE, asking.fields["transactional_id"]):
        return whole(not_added(asking.fields["topics"], lambda *_: TRANSACTIONAL_ID), TRANSACTIONAL_ID)
    refused = {topic["name"] for topic in asking.fields["topics"] if not _writable(asking, topic["name"])}
    if not refused:
        return None

    def code_of(name: str, index: int) -> int:
        if name in refused:
            return TOPIC
        there = asking.has(name, index)
        return ErrorCode.OPERATION_NOT_ATTEMPTED if there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    return whole(not_added(asking.fields["topics"], code_of), TOPIC)


def _add_offsets(asking: Asking) -> Divided | None:
    fields, rights = asking.fields, asking.rights
    if not rights.transactional_id(Operation.WRITE, fields["transactional_id"]):
        return whole({"error_code": TRANSACTIONAL_ID}, TRANSACTIONAL_ID)
    if not rights.group(Operation.READ, fields["group_id"]):
        return whole({"error_code": GROUP}, GROUP)
    return None


def _end_txn(asking: Asking) -> Divided | None:
    if asking.rights.transactional_id(Operation.WRITE, asking.fields["transactional_id"]):
        return None
    return whole({"error_code": TRANSACTIONAL_ID, "producer_id": NO_ID, "producer_epoch": NO_ID}, TRANSACTIONAL_ID)


def _describe_transactions(asking: Asking) -> Divided | None:
    rights = asking.rights

    def refusal(name: str) -> Values:
        return {"transactional_id": name, "error_code": TRANSACTIONAL_ID}

    divided = some(
        asking,
        ("transactional_ids", "transaction_states"),
        lambda name: rights.transactional_id(Operation.DESCRIBE, name),
        refusal,
        TRANSACTIONAL_ID,
    )

    def shown(state: Values) -> Values:
        topics: list[Values] = state.get("topics", [])
        return state | {"topics": [each for each in topics if rights.topic(Operation.DESCRIBE, each["topic"])]}

    name = "transaction_states"
    return shown_by(asking, divided, lambda answer: answer | {name: [*map(shown, answer[name])]})


def _list_transactions(asking: Asking) -> Divided | None:
    def may(state: Values) -> bool:
        return asking.rights.transactional_id(Operation.DESCRIBE, state["transactional_id"])

    name = "transaction_states"
    return Divided(asking.fields, lambda answer: answer | {name: [each for each in answer[name] if may(each)]})


ROWS: Final = (
    Asked(transactions.INIT_PRODUCER_ID, _init_producer_id),
    Asked(transactions.ADD_PARTITIONS_TO_TXN, _add_partitions, _added_beside),
    Asked(transactions.ADD_OFFSETS_TO_TXN, _add_offsets),
    Asked(transactions.END_TXN, _end_txn),
    Asked(transactions.DESCRIBE_TRANSACTIONS, _describe_transactions),
    Asked(transactions.LIST_TRANSACTIONS, _list_transactions),
)
