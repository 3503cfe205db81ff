"""ApiVersions (18), Metadata (3), and the APIs that the controller carries out: CreateTopics (19), DeleteTopics (20),
CreatePartitions (37), DescribeConfigs (32), IncrementalAlterConfigs (44). Also DescribeClientQuotas (48).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from sidecar.protocol.messages.cluster import API_VERSIONS
from sidecar.protocol.schema import Values
from tests.sim.kafka import configs, errors
from tests.sim.kafka.broker import HANDLERS, Broker, serves
from tests.sim.kafka.channel import Request
from tests.sim.kafka.controller import CONTROLLER, is_legal
from tests.sim.kafka.errors import RefusedError
from tests.sim.kafka.tables import served
from tests.sim.kafka.topics import INTERNAL, PartitionImage, TopicImage

_NO_OPERATIONS: Final = -(2**31)
_NO_ID: Final = bytes(16)
_FIRST_WITHOUT_NAME: Final = 12
_TOPIC, _BROKER = 2, 4
_SET, _DELETE, _APPEND, _SUBTRACT = 0, 1, 2, 3


@serves(18)
def api_versions(broker: Broker, request: Request) -> None:
    """The header of the answer is always version 0; an unknown version is answered in version 0 with 35 (KIP-511)."""
    version = request.version
    spans = served(broker.cluster.settings.version)
    first, last = spans[18]
    known = first <= version <= last
    told = sorted((key, *span) for key, span in spans.items() if key in HANDLERS and (known or key == 18))
    keys = [
        {"api_key": key, "min_version": 0 if key == 0 else first, "max_version": last}  # KAFKA-18659
        for key, first, last in told
    ]
    values = {"error_code": 0 if known else errors.UNSUPPORTED_VERSION, "api_keys": keys}
    request.answer_bytes(API_VERSIONS.encode_answer(version if known else 0, request.correlation, values))


# Metadata ----------------------------------------------------------------------------------------------------------


@serves(3)
def metadata(broker: Broker, request: Request) -> None:
    """From the broker's own image, however old. Creates a topic only where auto.create.topics.enable says so. What
    finds all topics is encoded once for an image.
    """
    image, asked = broker.image, (request.version, request.frame[request.body :])
    frames = image.answers.get(asked)
    rows = _rows(broker, request) if frames is None else []
    if frames is None and not any(row["error_code"] for row in rows):
        frames = image.answers[asked] = {}
    live = sorted(image.live)
    controller = broker.cluster.scheduler.rng.choice(live) if live else -1  # KRaft: any live broker
    if frames is None or request.override or request.throttle_ms:
        request.answer(_told(broker, live, controller, rows or _rows(broker, request)))
        return
    if controller not in frames:
        frames[controller] = request.encoded(_told(broker, live, controller, rows or _rows(broker, request)))
    request.answer_again(frames[controller])


def _rows(broker: Broker, request: Request) -> list[Values]:
    wanted = request.values["topics"]
    image = broker.image
    if wanted is None or (request.version == 0 and not wanted):
        return [_described(broker, topic) for topic in image.topics.values()]
    rows: list[Values] = []
    for each in _each_once(wanted) if wanted else ():
        name, topic_id = each.get("name"), each.get("topic_id", _NO_ID)
        by_id = name is None
        topic = image.by_id.get(topic_id) if by_id else image.topics.get(name)
        if topic is None:
            code = errors.UNKNOWN_TOPIC_ID if by_id else _missing(broker, request, name)
            rows.append(_unknown(code, name if request.version >= _FIRST_WITHOUT_NAME else name or "", topic_id))
        else:
            rows.append(_described(broker, topic))
    return rows


def _told(broker: Broker, live: list[int], controller: int, rows: list[Values]) -> Values:
    brokers = broker.cluster.brokers
    return {
        "brokers": [
            {"node_id": each, "host": brokers[each].address[0], "port": brokers[each].address[1], "rack": None}
            for each in live
        ],
        "cluster_id": broker.cluster.settings.cluster_id, "controller_id": controller, "topics": rows,
        "cluster_authorized_operations": _NO_OPERATIONS,
    }  # fmt: skip


def _each_once(wanted: list[Values]) -> list[Values]:
    return list({(each.get("name"), each.get("topic_id", _NO_ID)): each for each in wanted}.values())


def _missing(broker: Broker, request: Request, name: str) -> int:
    cluster = broker.cluster
    if not is_legal(name):
        return errors.INVALID_TOPIC_EXCEPTION
    if not (cluster.settings.auto_create and request.values.get("allow_auto_topic_creation", True)):
        return errors.UNKNOWN_TOPIC_OR_PARTITION
    try:
        if name not in cluster.controller.topics:
            cluster.controller.create(name, -1, -1, {})
    except RefusedError as error:
        return error.code
    return errors.UNKNOWN_TOPIC_OR_PARTITION


def _unknown(code: int, name: str | None, topic_id: bytes) -> Values:
    return {
        "error_code": code, "name": name, "topic_id": topic_id, "is_internal": False, "partitions": [],
        "topic_authorized_operations": _NO_OPERATIONS,
    }  # fmt: skip


def _described(broker: Broker, topic: TopicImage) -> Values:
    live = broker.image.live
    return {
        "error_code": 0, "name": topic.name, "topic_id": topic.id, "is_internal": topic.name in INTERNAL,
        "partitions": [  # a real broker's order is that of a hash table
            partition_row(index, each, live, broker.cluster.settings.version)
            for index, each in reversed(tuple(enumerate(topic.partitions)))
        ],
        "topic_authorized_operations": _NO_OPERATIONS,
    }  # fmt: skip


def partition_row(index: int, image: PartitionImage, live: frozenset[int], version: tuple[int, int]) -> Values:
    """`MetadataCache.getPartitionMetadata`: 5 where the leader is not there. Since 4.1 the last replica leaves the ISR
    as well; it stays an eligible leader (KIP-966).
    """
    isr = () if image.leader < 0 and version >= (4, 1) else image.isr
    leads = image.leader in live
    return {
        "error_code": 0 if leads else errors.LEADER_NOT_AVAILABLE, "partition_index": index,
        "leader_id": image.leader if leads else -1, "leader_epoch": image.epoch, "replica_nodes": list(image.replicas),
        "isr_nodes": list(isr), "offline_replicas": [each for each in image.replicas if each not in live],
    }  # fmt: skip


# Changes -----------------------------------------------------------------------------------------------------------


def _at_controller(broker: Broker, request: Request, work: Callable[[], Values]) -> None:
    """Forwarded to the controller, carried out there at once, answered when it is committed (KIP-590)."""
    cluster = broker.cluster

    def carry_out() -> None:
        answer = work()
        cluster.scheduler.call_later(cluster.delay(cluster.settings.commit), back, answer)

    def back(answer: Values) -> None:
        cluster.post(CONTROLLER, broker.id, request.answer, answer)

    cluster.post(broker.id, CONTROLLER, carry_out)


@serves(19)
def create_topics(broker: Broker, request: Request) -> None:
    def work() -> Values:
        rows = [
            _create(broker, each, request.values["validate_only"])
            for each in request.values["topics"]
            if named[each["name"]] == 1
        ]
        twice = [each for each, count in named.items() if count > 1]
        return {"topics": rows + [_not_made(each, errors.INVALID_REQUEST, "Duplicate topic name.") for each in twice]}

    named = Counter(each["name"] for each in request.values["topics"])
    _at_controller(broker, request, work)


def _not_made(name: str, error: int, why: str) -> Values:
    return {
        "name": name, "error_code": error, "error_message": why, "configs": [], "num_partitions": -1,
        "replication_factor": -1,
    }  # fmt: skip


def _create(broker: Broker, wanted: Values, validate_only: bool) -> Values:
    assignment = {each["partition_index"]: each["broker_ids"] for each in wanted["assignments"]}
    controller = broker.cluster.controller
    try:
        if len(assignment) < len(wanted["assignments"]):
            raise RefusedError(errors.INVALID_REPLICA_ASSIGNMENT, "a partition twice")
        if assignment and (wanted["num_partitions"], wanted["replication_factor"]) != (-1, -1):
            raise RefusedError(errors.INVALID_REQUEST, "an assignment beside a number of partitions or replicas")
        make = controller.draft if validate_only else controller.create
        topic = make(
            wanted["name"], wanted["num_partitions"], wanted["replication_factor"],
            {each["name"]: each["value"] for each in wanted["configs"]}, assignment or None,
        )  # fmt: skip
    except RefusedError as error:
        return _not_made(wanted["name"], error.code, error.why)
    return {
        "name": wanted["name"], "error_code": 0, "error_message": None,
        "configs": _listed(topic.config.values, topic.config.own, None), "topic_id": topic.id,
        "num_partitions": len(topic.partitions), "replication_factor": len(topic.partitions[0].replicas),
    }  # fmt: skip


@serves(20)
def delete_topics(broker: Broker, request: Request) -> None:
    """By name, or by id from version 6 on (KIP-516)."""
    controller = broker.cluster.controller
    named: list[Values] = request.values.get("topics", [])
    named = named or [{"name": each} for each in request.values.get("topic_names", ())]
    pairs = [(each["name"], each.get("topic_id", _NO_ID)) for each in named]

    def delete(name: str | None, topic_id: bytes) -> Values:
        row: Values = {"name": name, "topic_id": topic_id, "error_code": 0, "error_message": None}
        if (name is None) == (topic_id == _NO_ID) or pairs.count((name, topic_id)) > 1:
            return row | {"error_code": errors.INVALID_REQUEST}
        if name is None:
            found = next((each.name for each in controller.topics.values() if each.id == topic_id), None)
            if found is None:
                return row | {"error_code": errors.UNKNOWN_TOPIC_ID}
            name = found
        try:
            return row | {"name": name, "topic_id": controller.delete(name).id}
        except RefusedError as error:
            return row | {"error_code": error.code}

    _at_controller(broker, request, lambda: {"responses": [delete(*each) for each in dict.fromkeys(pairs)]})


@serves(37)
def create_partitions(broker: Broker, request: Request) -> None:
    named = Counter(each["name"] for each in request.values["topics"])

    def grow(wanted: Values) -> Values:
        row: Values = {"name": wanted["name"], "error_code": 0, "error_message": None}
        given = wanted["assignments"]
        assignment = None if given is None else dict(enumerate(each["broker_ids"] for each in given))
        try:
            if named[wanted["name"]] > 1:
                raise RefusedError(errors.INVALID_REQUEST, "Duplicate topic name.")
            dry = request.values["validate_only"]
            broker.cluster.controller.grow(wanted["name"], wanted["count"], assignment, dry=dry)
        except RefusedError as error:
            return row | {"error_code": error.code, "error_message": error.why}
        return row

    def work() -> Values:
        each_once = {each["name"]: each for each in request.values["topics"]}
        return {"results": [grow(each) for each in each_once.values()]}

    _at_controller(broker, request, work)


# Configurations ----------------------------------------------------------------------------------------------------


def _broker_configs(broker: Broker) -> dict[str, str]:
    settings = broker.cluster.settings
    return {
        "auto.create.topics.enable": str(settings.auto_create).lower(), "broker.id": str(broker.id),
        "default.replication.factor": str(settings.replication), "num.partitions": str(settings.partitions),
        "log.retention.ms": settings.topic_defaults.get("retention.ms", "604800000"),
        "producer.id.expiration.ms": str(settings.producer_expiration_ms),
        "transaction.max.timeout.ms": str(settings.max_transaction_timeout_ms),
        "transactional.id.expiration.ms": str(settings.transactional_id_expiration_ms),
    }  # fmt: skip


@serves(32)
def describe_configs(broker: Broker, request: Request) -> None:
    """A topic's from this broker's image; a broker's from that broker alone (42 elsewhere, `ConfigHelper`)."""
    request.answer({"results": [_configs(broker, each) for each in request.values["resources"]]})


def _configs(broker: Broker, resource: Values) -> Values:
    kind, name, keys = resource["resource_type"], resource["resource_name"], resource["configuration_keys"]
    row: Values = {"error_code": 0, "error_message": None, "resource_type": kind, "resource_name": name, "configs": []}
    if kind == _TOPIC:
        topic = broker.image.topics.get(name)
        if topic is None:
            code = errors.UNKNOWN_TOPIC_OR_PARTITION if is_legal(name) else errors.INVALID_TOPIC_EXCEPTION
            return row | {"error_code": code, "error_message": "no such topic"}
        values, own = topic.config.values, topic.config.own
    elif kind == _BROKER and name in ("", str(broker.id)):
        values, own = _broker_configs(broker), {}
    else:
        return row | {"error_code": errors.INVALID_REQUEST, "error_message": f"resource {kind} {name}"}
    row["configs"] = _listed(values, own, keys)
    return row


def _listed(values: Mapping[str, str], own: Mapping[str, str], keys: list[str] | None) -> list[Values]:
    return [
        {
            "name": each, "value": value, "read_only": False, "is_default": each not in own,
            "config_source": 1 if each in own else 5, "is_sensitive": False, "synonyms": [], "config_type": 0,
            "documentation": None,
        }
        for each, value in values.items()
        if keys is None or each in keys
    ]  # fmt: skip


@serves(44)
def alter_configs(broker: Broker, request: Request) -> None:
    """Set, remove, append and subtract (KIP-339); topics only. What a resource may not have changes nothing of it."""
    wanted = request.values["resources"]
    named = Counter((each["resource_type"], each["resource_name"]) for each in wanted)

    def alter(resource: Values) -> Values:
        kind, name = resource["resource_type"], resource["resource_name"]
        row: Values = {"error_code": 0, "error_message": None, "resource_type": kind, "resource_name": name}
        controller = broker.cluster.controller
        try:
            if kind != _TOPIC or not name or named[kind, name] > 1:
                raise RefusedError(errors.INVALID_REQUEST)
            keys = [each["name"] for each in resource["configs"]]
            nulls = [each for each in resource["configs"] if each["value"] is None]
            if len(set(keys)) < len(keys) or any(each["config_operation"] != _DELETE for each in nulls):
                raise RefusedError(errors.INVALID_REQUEST, "a setting twice, or without a value")
            topic = controller.topics.get(name)
            values = broker.cluster.settings.defaults() if topic is None else topic.config.values
            changes = _changes(values, resource["configs"])
            if topic is None:  # the existence is checked behind the values (`validateAlterConfig`)
                configs.check({each: value for each, value in changes.items() if value is not None})
                raise RefusedError(errors.UNKNOWN_TOPIC_OR_PARTITION)
            controller.configure(name, changes, dry=request.values["validate_only"])
        except RefusedError as error:
            row |= {"error_code": error.code, "error_message": error.why}
        return row

    _at_controller(broker, request, lambda: {"responses": [alter(each) for each in wanted]})


@serves(48)
def describe_client_quotas(broker: Broker, request: Request) -> None:
    """All of them; nodes ask without a filter. The simulated brokers enforce none: a test has them throttle."""
    if broker.cluster.client_quotas is None:
        denied = errors.CLUSTER_AUTHORIZATION_FAILED
        request.answer({"error_code": denied, "error_message": "Cluster authorization failed.", "entries": None})
        return
    entries = [
        {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
            "values": [{"key": key, "value": value} for key, value in values.items()],
        }
        for entity, values in broker.cluster.client_quotas.items()
    ]
    request.answer({"error_code": 0, "error_message": None, "entries": entries})


def _changes(values: Mapping[str, str], wanted: list[Values]) -> dict[str, str | None]:
    """`ConfigurationControlManager.incrementalAlterConfigResource`."""
    changes: dict[str, str | None] = {}
    for each in wanted:
        name, operation, value = each["name"], each["config_operation"], each["value"]
        if operation not in (_SET, _DELETE, _APPEND, _SUBTRACT):
            raise RefusedError(errors.UNKNOWN_SERVER_ERROR, f"operation {operation}")
        if operation in (_APPEND, _SUBTRACT):
            if not configs.is_list(name):
                raise RefusedError(errors.INVALID_CONFIG, f"{name} is no list")
            now, given = configs.items(values.get(name, "")), configs.items(value)
            if operation == _APPEND:
                value = ",".join([*now, *(one for one in given if one not in now)])
            else:
                value = ",".join(one for one in now if one not in given)
        changes[name] = None if operation == _DELETE else value
    return changes
