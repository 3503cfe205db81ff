"""What each API takes of Kafka's rights, and how a broker answers where they are missing: one row for each API. Pure.

The facts are those of `KafkaApis`, `ControllerApis`, `AclApis` and `ConfigHelper` (Kafka 3.9 and 4.1). A request is
refused as a whole, or goes on without what its client may not have: `Divided` says what is left of it, and how the
answer to that becomes the client's. Hot APIs ask for themselves, by the operation in their row.

Where a broker's answer depends on whether a topic exists (to delete it, to create it by a mere look, to add it to a
transaction), the row names the topics in doubt, and the caller looks them up before it asks.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sidecar.cluster.resolver import is_legal
from sidecar.gateway.rights import KAFKAS_OWN
from sidecar.protocol.api import LOGIN_APIS
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.messages import admin, cluster, groups, security, transactions
from sidecar.protocol.metadata import NO_OPERATIONS
from sidecar.protocol.schema import TAGS
from sidecar.security.acls import Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sidecar.gateway.rights import Rights
    from sidecar.protocol.schema import Message, Values

_TOPIC: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_GROUP: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
_CLUSTER: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_TRANSACTIONAL_ID: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
MESSAGES: Final = {
    _TOPIC: "Topic authorization failed.",
    _GROUP: "Group authorization failed.",
    _CLUSTER: "Cluster authorization failed.",
    _TRANSACTIONAL_ID: "Transactional Id authorization failed.",
}
"""`Errors.message()` of Kafka."""
_NO_ID: Final = -1
_NO_TOPIC: Final = "."
"""No topic can have this name. Version 0 of Metadata asks for all topics where it names none."""
_CONFIGS_HIDDEN: Final = b"\x01\x00\x02\x00\x1d"
"""The tagged field `topicConfigErrorCode` of CreateTopics: 29 (KIP-525)."""
_RESOURCES: Final = {
    2: (ResourceType.TOPIC, _TOPIC),
    4: (ResourceType.CLUSTER, _CLUSTER),
    8: (ResourceType.CLUSTER, _CLUSTER),
    16: (ResourceType.CLUSTER, _CLUSTER),
    32: (ResourceType.GROUP, _GROUP),
}
"""`ConfigResource.Type`, as far as the authorizer knows it: topic, broker, broker logger, client metrics, group."""


class Asking(NamedTuple):
    """A request with who asks. `has`: whether there is a topic, or a partition of it; `creates`: whether brokers make
    topics that Metadata asks for (`auto.create.topics.enable`).
    """

    rights: Rights
    fields: Values
    version: int
    has: Callable[[str, int | None], bool] = lambda _topic, _partition: True
    creates: bool = True


@dataclass(frozen=True, slots=True)
class Divided:
    """What goes on of a request (None: nothing), what the client is answered (given the answer, {} where nothing went
    on), and the code of what was refused (0: nothing was, there is only something to hide in the answer).
    """

    fields: Values | None
    amend: Callable[[Values], Values]
    code: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """An API whose requests are taken apart before its module runs. `check` gives None where the request goes on as it
    is, and its answer goes back as it is; `in_doubt` names the topics that have to be looked up before.
    """

    message: Message
    check: Callable[[Asking], Divided | None]
    in_doubt: Callable[[Asking], Iterable[str]] | None = None


@dataclass(frozen=True, slots=True)
class PerTopic:
    """An API whose module refuses topics by itself: what it takes on each. `instead`: on the cluster it does, too."""

    operation: Operation
    instead: Operation | None = None


@dataclass(frozen=True, slots=True)
class Open:
    """An API that takes no right, and why."""

    reason: str


def _whole(values: Values, code: int) -> Divided:
    return Divided(None, lambda _: values, code)


def _told(code: ErrorCode) -> Values:
    return {"error_code": code, "error_message": MESSAGES[code]}


def _some(
    asking: Asking,
    elements: tuple[str, str],
    may: Callable[[Any], bool],
    refusal: Callable[[Any], Values],
    code: int,
    *,
    empty_goes_on: bool = False,
) -> Divided | None:
    """A request without the elements that are refused. `elements`: the lists in request and answer."""
    asked, answered = elements
    kept: list[Any] = []
    refused: list[Values] = []
    for each in asking.fields[asked] or ():
        if may(each):
            kept.append(each)
        else:
            refused.append(refusal(each))
    if not refused:
        return None

    def amend(answer: Values) -> Values:
        if answer.get("error_code"):  # what went on was refused as a whole, and so is the rest
            return answer
        return answer | {answered: [*answer.get(answered, ()), *refused]}

    return Divided(asking.fields | {asked: kept} if kept or empty_goes_on else None, amend, code)


# The cluster ----------------------------------------------------------------------------------------------------------


def _on_cluster(operation: Operation, refusal: Callable[[Values], Values]) -> Callable[[Asking], Divided | None]:
    """One right on the cluster for the whole request; `refusal` makes the answer without it from the request."""

    def check(asking: Asking) -> Divided | None:
        if asking.rights.cluster(operation):
            return None
        return _whole(_told(_CLUSTER) | refusal(asking.fields), _CLUSTER)

    return check


def _nothing(_fields: Values) -> Values:
    return {}


def _each(asked: str, answered: str) -> Callable[[Values], Values]:
    """An answer in which each element of the request has the error."""
    return lambda fields: {answered: [_told(_CLUSTER) for _ in fields[asked]]}


def _quotas_not_altered(fields: Values) -> Values:
    return {"entries": [_told(_CLUSTER) | {"entity": entry["entity"]} for entry in fields["entries"]]}


def _scram_not_described(fields: Values) -> Values:
    """An error for each user, without its name."""
    return {"results": [_told(_CLUSTER) for _ in fields["users"] or ()]}


def _scram_not_altered(fields: Values) -> Values:
    users = dict.fromkeys(each["name"] for each in (*fields["deletions"], *fields["upsertions"]))
    return {"results": [{"user": user} | _told(_CLUSTER) for user in users]}


def _not_elected(fields: Values) -> Values:
    def refused(index: int) -> Values:
        return {"partition_id": index} | _told(_CLUSTER)

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
                    {"partition_index": each["partition_index"]} | _told(_CLUSTER) for each in topic["partitions"]
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
    return Divided(asking.fields, lambda answer: _with_cluster_operations(asking.rights, answer))


def _with_cluster_operations(rights: Rights, answer: Values) -> Values:
    name = "cluster_authorized_operations"
    return answer | {name: rights.cluster_operations(answer[name])}


def _find_coordinator(asking: Asking) -> Divided | None:
    key, kind = asking.fields["key"], asking.fields.get("key_type", 0)
    rights = asking.rights
    if kind == 0 and not rights.group(Operation.DESCRIBE, key):
        code = _GROUP
    elif kind == 1 and not rights.transactional_id(Operation.DESCRIBE, key):
        code = _TRANSACTIONAL_ID
    else:
        return None
    return _whole(_told(code) | {"node_id": _NO_ID, "port": _NO_ID}, code)


# Topics ---------------------------------------------------------------------------------------------------------------


def _names_all(asking: Asking) -> bool:
    topics = asking.fields["topics"]
    return topics is None or (asking.version == 0 and not topics)


def _uncreatable(asking: Asking) -> list[str]:
    """The topics that a look would create, were they not there, and that the client may not create."""
    fields, rights = asking.fields, asking.rights
    if _names_all(asking) or not asking.creates or not fields.get("allow_auto_topic_creation", True):
        return []
    if rights.cluster(Operation.CREATE):
        return []
    names = (topic["name"] for topic in fields["topics"])
    return [
        name for name in names if rights.topic(Operation.DESCRIBE, name) and not rights.topic(Operation.CREATE, name)
    ]


def _metadata(asking: Asking) -> Divided | None:
    fields, rights = asking.fields, asking.rights
    of_topics = bool(fields.get("include_topic_authorized_operations"))
    of_cluster = bool(fields.get("include_cluster_authorized_operations"))
    refused: dict[str, None] = {}
    going_on = fields
    if not _names_all(asking):
        uncreatable = {name for name in _uncreatable(asking) if not asking.has(name, None)}
        names: list[str] = [topic["name"] for topic in fields["topics"]]
        refused = dict.fromkeys(
            name for name in names if name in uncreatable or not rights.topic(Operation.DESCRIBE, name)
        )
        if not refused and not of_topics and not of_cluster:
            return None
        if refused:
            kept = [topic for topic in fields["topics"] if topic["name"] not in refused]
            if not kept and asking.version == 0:
                kept = [{"name": _NO_TOPIC}]
            going_on = fields | {"topics": kept}

    def amend(answer: Values) -> Values:
        told: list[Values] = []
        for topic in answer["topics"]:
            bits = rights.allowed(ResourceType.TOPIC, topic["name"])
            if not bits >> Operation.DESCRIBE & 1 or topic["name"] == _NO_TOPIC:
                continue
            name = "topic_authorized_operations"
            told.append(topic | {name: topic[name] & bits} if of_topics else topic)
        hidden = {"error_code": _TOPIC, "topic_authorized_operations": NO_OPERATIONS}
        answer = answer | {"topics": [*told, *(hidden | {"name": name} for name in refused)]}
        return _with_cluster_operations(rights, answer) if of_cluster else answer

    return Divided(going_on, amend, _TOPIC if refused else 0)


def _once(names: Iterable[str]) -> frozenset[str]:
    """Those that a request names once: a controller refuses the others (42) before it looks at rights."""
    return frozenset(name for name, count in Counter(names).items() if count == 1)


def _create_topics(asking: Asking) -> Divided | None:
    rights, topics = asking.rights, asking.fields["topics"]
    anywhere = rights.cluster(Operation.CREATE)
    once = _once(topic["name"] for topic in topics)

    def may(topic: Values) -> bool:
        name: str = topic["name"]
        return anywhere or name not in once or rights.topic(Operation.CREATE, name)

    def refusal(topic: Values) -> Values:
        layout: Values = {"num_partitions": _NO_ID, "replication_factor": _NO_ID}
        return {"name": topic["name"], "error_code": _TOPIC, "error_message": "Authorization failed."} | layout

    divided = _some(asking, ("topics", "topics"), may, refusal, _TOPIC)
    hidden = {name for name in once if not rights.topic(Operation.DESCRIBE_CONFIGS, name)}
    if asking.version < 5 or not hidden:
        return divided

    def hide(topic: Values) -> Values:
        if topic["error_code"] or topic["name"] not in hidden:
            return topic
        return topic | {"num_partitions": _NO_ID, "replication_factor": _NO_ID, "configs": [], TAGS: _CONFIGS_HIDDEN}

    def amend(answer: Values) -> Values:
        answer = divided.amend(answer) if divided else answer
        return answer | {"topics": [hide(topic) for topic in answer["topics"]]}

    return Divided(divided.fields if divided else asking.fields, amend, divided.code if divided else 0)


def _deletable(asking: Asking, name: str) -> bool:
    return asking.rights.cluster(Operation.DELETE) or asking.rights.topic(Operation.DELETE, name)


def _undeletable(asking: Asking) -> list[str]:
    """The topics of DeleteTopics that the client sees and may not delete: 29 where they are there, else 3."""
    return [
        name
        for name in asking.fields["topic_names"]
        if not _deletable(asking, name) and asking.rights.topic(Operation.DESCRIBE, name)
    ]


def _delete_topics(asking: Asking) -> Divided | None:
    once = _once(asking.fields["topic_names"])
    seen = set(_undeletable(asking))

    def may(name: str) -> bool:
        if name not in once or _deletable(asking, name):
            return True
        return name in seen and not asking.has(name, None)  # the controller says that it is not there

    def refusal(name: str) -> Values:
        return {"name": name} | _told(_TOPIC)

    return _some(asking, ("topic_names", "responses"), may, refusal, _TOPIC)


def _create_partitions(asking: Asking) -> Divided | None:
    once = _once(topic["name"] for topic in asking.fields["topics"])

    def may(topic: Values) -> bool:
        return topic["name"] not in once or asking.rights.topic(Operation.ALTER, topic["name"])

    return _some(
        asking, ("topics", "results"), may, lambda topic: {"name": topic["name"], "error_code": _TOPIC}, _TOPIC
    )


def _configs(operation: Operation, answered: str) -> Callable[[Asking], Divided | None]:
    def may(asking: Asking, resource: Values) -> bool:
        kind, _ = _RESOURCES.get(resource["resource_type"], (None, 0))
        if kind is None:
            return True  # brokers know no such thing either
        if kind == ResourceType.CLUSTER:
            return asking.rights.cluster(operation)
        return asking.rights.may(operation, kind, resource["resource_name"])

    def refusal(resource: Values) -> Values:
        kind, name = resource["resource_type"], resource["resource_name"]
        return _told(_RESOURCES[kind][1]) | {"resource_type": kind, "resource_name": name}

    def check(asking: Asking) -> Divided | None:
        refused = next((each for each in asking.fields["resources"] if not may(asking, each)), None)
        if refused is None:
            return None
        code = _RESOURCES[refused["resource_type"]][1]
        return _some(asking, ("resources", answered), lambda each: may(asking, each), refusal, code)

    return check


def _describe_producers(asking: Asking) -> Divided | None:
    def may(topic: Values) -> bool:
        name: str = topic["name"]
        return not is_legal(name.encode()) or asking.rights.topic(Operation.READ, name)

    def refusal(topic: Values) -> Values:
        indexes = topic["partition_indexes"]
        return {
            "name": topic["name"],
            "partitions": [{"partition_index": index} | _told(_TOPIC) for index in indexes],
        }

    return _some(asking, ("topics", "topics"), may, refusal, _TOPIC)


# Groups ---------------------------------------------------------------------------------------------------------------


def _sync_group(asking: Asking) -> Divided | None:
    fields = asking.fields
    if asking.version >= 5 and None in (fields["protocol_type"], fields["protocol_name"]):
        return None  # the coordinator refuses it (23) before it looks at rights
    return _member(asking)


def _member(asking: Asking) -> Divided | None:
    """SyncGroup, Heartbeat, LeaveGroup."""
    if asking.rights.group(Operation.READ, asking.fields["group_id"]):
        return None
    return _whole({"error_code": _GROUP}, _GROUP)


def _join_group(asking: Asking) -> Divided | None:
    if asking.rights.group(Operation.READ, asking.fields["group_id"]):
        return None
    name = None if asking.version >= 7 else ""
    return _whole({"error_code": _GROUP, "generation_id": _NO_ID, "protocol_name": name}, _GROUP)


def _committed(topic: Values, code: int) -> Values:
    """A topic of OffsetCommit, TxnOffsetCommit or OffsetDelete of which nothing was written."""
    partitions = [{"partition_index": each["partition_index"], "error_code": code} for each in topic["partitions"]]
    return {"name": topic["name"], "partitions": partitions}


def _all_refused(asking: Asking, code: int) -> Divided:
    return _whole({"topics": [_committed(topic, code) for topic in asking.fields["topics"]]}, code)


def _readable(asking: Asking, *, empty_goes_on: bool = False) -> Divided | None:
    """The topics of a commit that the client may read go on."""
    return _some(
        asking,
        ("topics", "topics"),
        lambda topic: asking.rights.topic(Operation.READ, topic["name"]),
        lambda topic: _committed(topic, _TOPIC),
        _TOPIC,
        empty_goes_on=empty_goes_on,
    )


def _offset_commit(asking: Asking) -> Divided | None:
    if not asking.rights.group(Operation.READ, asking.fields["group_id"]):
        return _all_refused(asking, _GROUP)
    return _readable(asking)


def _txn_offset_commit(asking: Asking) -> Divided | None:
    if not asking.rights.transactional_id(Operation.WRITE, asking.fields["transactional_id"]):
        return _all_refused(asking, _TRANSACTIONAL_ID)
    return _offset_commit(asking)


def _offset_delete(asking: Asking) -> Divided | None:
    if not asking.rights.group(Operation.DELETE, asking.fields["group_id"]):
        return _whole({"error_code": _GROUP}, _GROUP)
    return _readable(asking, empty_goes_on=True)  # whether there is the group the coordinator says


def _fetched(topic: Values, code: int) -> Values:
    def refused(index: int) -> Values:
        offset = {"committed_offset": _NO_ID, "committed_leader_epoch": _NO_ID, "metadata": ""}
        return {"partition_index": index, "error_code": code} | offset

    return {"name": topic["name"], "partitions": [refused(index) for index in topic["partition_indexes"]]}


def _offset_fetch(asking: Asking) -> Divided | None:
    fields, rights = asking.fields, asking.rights
    topics: list[Values] | None = fields["topics"]
    if not rights.group(Operation.DESCRIBE, fields["group_id"]):
        told = [_fetched(topic, _GROUP) for topic in topics or ()] if asking.version < 2 else []
        return _whole({"error_code": _GROUP, "topics": told}, _GROUP)

    def may(topic: Values) -> bool:
        return rights.topic(Operation.DESCRIBE, topic["name"])

    if topics is None:
        return Divided(fields, lambda answer: answer | {"topics": [each for each in answer["topics"] if may(each)]})
    return _some(asking, ("topics", "topics"), may, lambda topic: _fetched(topic, _TOPIC), _TOPIC, empty_goes_on=True)


def _describe_groups(asking: Asking) -> Divided | None:
    rights, version = asking.rights, asking.version

    def refusal(name: str) -> Values:
        message = {"error_message": None} if version >= 6 else {}
        return {"group_id": name, "error_code": _GROUP, "authorized_operations": NO_OPERATIONS} | message

    divided = _some(asking, ("groups", "groups"), lambda name: rights.group(Operation.DESCRIBE, name), refusal, _GROUP)
    if not asking.fields.get("include_authorized_operations"):
        return divided

    def shown(group: Values) -> Values:
        name = "authorized_operations"
        if group["error_code"]:
            return group
        return group | {name: group[name] & rights.allowed(ResourceType.GROUP, group["group_id"])}

    def amend(answer: Values) -> Values:
        answer = divided.amend(answer) if divided else answer
        return answer | {"groups": [shown(group) for group in answer["groups"]]}

    return Divided(divided.fields if divided else asking.fields, amend, divided.code if divided else 0)


def _delete_groups(asking: Asking) -> Divided | None:
    return _some(
        asking,
        ("groups_names", "results"),
        lambda name: asking.rights.group(Operation.DELETE, name),
        lambda name: {"group_id": name, "error_code": _GROUP},
        _GROUP,
    )


def _list_groups(asking: Asking) -> Divided | None:
    rights = asking.rights
    if rights.cluster(Operation.DESCRIBE):
        return None

    def may(group: Values) -> bool:
        return rights.group(Operation.DESCRIBE, group["group_id"])

    return Divided(asking.fields, lambda answer: answer | {"groups": [each for each in answer["groups"] if may(each)]})


# Transactions ---------------------------------------------------------------------------------------------------------


def _init_producer_id(asking: Asking) -> Divided | None:
    name = asking.fields["transactional_id"]
    if name is None:
        code = None if asking.rights.writes_idempotently() else _CLUSTER
    else:
        code = None if asking.rights.transactional_id(Operation.WRITE, name) else _TRANSACTIONAL_ID
    if code is None:
        return None
    return _whole({"error_code": code, "producer_id": _NO_ID, "producer_epoch": _NO_ID}, code)


def _not_added(asking: Asking, code_of: Callable[[str, int], int], code: int) -> Divided:
    def told(topic: Values) -> Values:
        name: str = topic["name"]
        codes = [
            {"partition_index": index, "partition_error_code": code_of(name, index)} for index in topic["partitions"]
        ]
        return {"name": name, "results_by_partition": codes}

    return _whole({"results_by_topic": [told(topic) for topic in asking.fields["topics"]]}, code)


def _writable(asking: Asking, name: str) -> bool:
    return name not in KAFKAS_OWN and asking.rights.topic(Operation.WRITE, name)


def _added_beside(asking: Asking) -> list[str]:
    """Where one topic is refused nothing is added, and those that are not there are told from those that are."""
    names: list[str] = [topic["name"] for topic in asking.fields["topics"]]
    writable = [name for name in names if _writable(asking, name)]
    return writable if len(writable) != len(names) else []


def _add_partitions(asking: Asking) -> Divided | None:
    if not asking.rights.transactional_id(Operation.WRITE, asking.fields["transactional_id"]):
        return _not_added(asking, lambda _name, _index: _TRANSACTIONAL_ID, _TRANSACTIONAL_ID)
    refused = {topic["name"] for topic in asking.fields["topics"] if not _writable(asking, topic["name"])}
    if not refused:
        return None

    def code_of(name: str, index: int) -> int:
        if name in refused:
            return _TOPIC
        there = asking.has(name, index)
        return ErrorCode.OPERATION_NOT_ATTEMPTED if there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    return _not_added(asking, code_of, _TOPIC)


def _add_offsets(asking: Asking) -> Divided | None:
    fields, rights = asking.fields, asking.rights
    if not rights.transactional_id(Operation.WRITE, fields["transactional_id"]):
        return _whole({"error_code": _TRANSACTIONAL_ID}, _TRANSACTIONAL_ID)
    if not rights.group(Operation.READ, fields["group_id"]):
        return _whole({"error_code": _GROUP}, _GROUP)
    return None


def _end_txn(asking: Asking) -> Divided | None:
    if asking.rights.transactional_id(Operation.WRITE, asking.fields["transactional_id"]):
        return None
    return _whole({"error_code": _TRANSACTIONAL_ID}, _TRANSACTIONAL_ID)


def _describe_transactions(asking: Asking) -> Divided | None:
    rights = asking.rights

    def refusal(name: str) -> Values:
        return {"transactional_id": name, "error_code": _TRANSACTIONAL_ID}

    divided = _some(
        asking,
        ("transactional_ids", "transaction_states"),
        lambda name: rights.transactional_id(Operation.DESCRIBE, name),
        refusal,
        _TRANSACTIONAL_ID,
    )

    def shown(state: Values) -> Values:
        topics: list[Values] = state.get("topics", [])
        return state | {"topics": [each for each in topics if rights.topic(Operation.DESCRIBE, each["topic"])]}

    def amend(answer: Values) -> Values:
        answer = divided.amend(answer) if divided else answer
        return answer | {"transaction_states": [shown(state) for state in answer["transaction_states"]]}

    return Divided(divided.fields if divided else asking.fields, amend, divided.code if divided else 0)


def _list_transactions(asking: Asking) -> Divided | None:
    def may(state: Values) -> bool:
        return asking.rights.transactional_id(Operation.DESCRIBE, state["transactional_id"])

    name = "transaction_states"
    return Divided(asking.fields, lambda answer: answer | {name: [each for each in answer[name] if may(each)]})


_OWN: Final = Open("a request of the sidecar's own: its module asks for the rights on what it names")

_ROWS: Final = (
    Asked(cluster.METADATA, _metadata, _uncreatable),
    Asked(groups.OFFSET_COMMIT, _offset_commit),
    Asked(groups.OFFSET_FETCH, _offset_fetch),
    Asked(cluster.FIND_COORDINATOR, _find_coordinator),
    Asked(groups.JOIN_GROUP, _join_group),
    Asked(groups.HEARTBEAT, _member),
    Asked(groups.LEAVE_GROUP, _member),
    Asked(groups.SYNC_GROUP, _sync_group),
    Asked(groups.DESCRIBE_GROUPS, _describe_groups),
    Asked(groups.LIST_GROUPS, _list_groups),
    Asked(admin.CREATE_TOPICS, _create_topics),
    Asked(admin.DELETE_TOPICS, _delete_topics, _undeletable),
    Asked(transactions.INIT_PRODUCER_ID, _init_producer_id),
    Asked(transactions.ADD_PARTITIONS_TO_TXN, _add_partitions, _added_beside),
    Asked(transactions.ADD_OFFSETS_TO_TXN, _add_offsets),
    Asked(transactions.END_TXN, _end_txn),
    Asked(groups.TXN_OFFSET_COMMIT, _txn_offset_commit),
    Asked(security.DESCRIBE_ACLS, _on_cluster(Operation.DESCRIBE, _nothing)),
    Asked(security.CREATE_ACLS, _on_cluster(Operation.ALTER, _each("creations", "results"))),
    Asked(security.DELETE_ACLS, _on_cluster(Operation.ALTER, _each("filters", "filter_results"))),
    Asked(admin.DESCRIBE_CONFIGS, _configs(Operation.DESCRIBE_CONFIGS, "results")),
    Asked(admin.ALTER_CONFIGS, _configs(Operation.ALTER_CONFIGS, "responses")),
    Asked(admin.DESCRIBE_LOG_DIRS, _on_cluster(Operation.DESCRIBE, _nothing)),
    Asked(admin.CREATE_PARTITIONS, _create_partitions),
    Asked(groups.DELETE_GROUPS, _delete_groups),
    Asked(admin.ELECT_LEADERS, _on_cluster(Operation.ALTER, _not_elected)),
    Asked(admin.INCREMENTAL_ALTER_CONFIGS, _configs(Operation.ALTER_CONFIGS, "responses")),
    Asked(admin.ALTER_PARTITION_REASSIGNMENTS, _on_cluster(Operation.ALTER, _not_reassigned)),
    Asked(admin.LIST_PARTITION_REASSIGNMENTS, _on_cluster(Operation.DESCRIBE, _no_reassignments)),
    Asked(groups.OFFSET_DELETE, _offset_delete),
    Asked(security.DESCRIBE_CLIENT_QUOTAS, _on_cluster(Operation.DESCRIBE_CONFIGS, lambda _: {"entries": None})),
    Asked(security.ALTER_CLIENT_QUOTAS, _on_cluster(Operation.ALTER_CONFIGS, _quotas_not_altered)),
    Asked(security.DESCRIBE_USER_SCRAM_CREDENTIALS, _on_cluster(Operation.DESCRIBE, _scram_not_described)),
    Asked(security.ALTER_USER_SCRAM_CREDENTIALS, _on_cluster(Operation.ALTER, _scram_not_altered)),
    Asked(cluster.DESCRIBE_CLUSTER, _describe_cluster),
    Asked(transactions.DESCRIBE_PRODUCERS, _describe_producers),
    Asked(transactions.DESCRIBE_TRANSACTIONS, _describe_transactions),
    Asked(transactions.LIST_TRANSACTIONS, _list_transactions),
)

ACCESS: Final[Mapping[int, Asked | PerTopic | Open]] = {
    0: PerTopic(Operation.WRITE),
    1: PerTopic(Operation.READ),
    2: PerTopic(Operation.DESCRIBE),
    18: Open("a client asks for it before it has logged in"),
    **dict.fromkeys(LOGIN_APIS, Open("what a client logs in with")),
    21: PerTopic(Operation.DELETE),
    23: PerTopic(Operation.DESCRIBE, instead=Operation.CLUSTER_ACTION),
    68: Open("always answered with 35, whoever asks"),
    **{row.message.key: row for row in _ROWS},
    **dict.fromkeys(range(1000, 1005), _OWN),
}
"""By API key: every row of `sidecar.protocol.api` has one here, and so have the two of a login."""
