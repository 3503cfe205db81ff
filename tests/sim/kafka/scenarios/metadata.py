"""ApiVersions (18), Metadata (3), DescribeConfigs (32), IncrementalAlterConfigs (44)."""

from __future__ import annotations

from struct import Struct
from typing import Any

from tests.sim.kafka.scenarios.common import scenario, versions
from tests.sim.kafka.tables import SERVED
from tests.sim.kafka.talk import Talk

_TOPIC, _BROKER = 2, 4
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


# ApiVersions ---------------------------------------------------------------------------------------------------------


@scenario
def every_version_that_is_told_is_served(talk: Talk) -> list[Any]:
    """A real broker serves more; none of what the simulation serves may be missing."""
    _, found, _ = versions(talk, 3)
    return [
        key for key, (first, last) in SERVED.items() if not (found[key][0] <= first or not key) or found[key][1] < last
    ] + [found[0][0]]


@scenario
def answers_of_each_version_of_apiversions(talk: Talk) -> list[Any]:
    found = [versions(talk, version) for version in range(5)]
    return [(error, set(SERVED) <= set(rows), rest if version < 3 else rest > 0)
            for version, (error, rows, rest) in enumerate(found)]  # fmt: skip


@scenario
def a_version_of_api_versions_that_nobody_knows(talk: Talk) -> list[Any]:
    error, rows, rest = versions(talk, 99)
    return [error, list(rows), rest]


@scenario
def a_request_that_makes_no_sense_ends_its_connection(talk: Talk) -> list[Any]:
    """An unknown API, an unknown version, a body that is cut off."""
    frames = [Struct(">hhih").pack(key, version, 7, 0) for key, version in ((999, 0), (3, 99), (1, 0), (0, 8))]
    return [talk.exchange(None, Struct(">i").pack(len(frame)) + frame) for frame in frames]


# Metadata ------------------------------------------------------------------------------------------------------------


def _described(talk: Talk, *topics: str, version: int = 9, create: bool = False) -> list[dict[str, Any]]:
    named = [{"name": name, "topic_id": bytes(16)} for name in topics]
    return talk.ask(None, 3, version, {"topics": named, "allow_auto_topic_creation": create})["topics"]


@scenario
def a_topic_of_two_partitions(talk: Talk) -> list[Any]:
    row = _described(talk, talk.topic(2))[0]
    parts = sorted(row["partitions"], key=lambda each: each["partition_index"])
    return [row["error_code"], row["is_internal"], [
        (part["error_code"], part["partition_index"], part["leader_epoch"], part["offline_replicas"],
         part["replica_nodes"][0] == part["leader_id"], sorted(part["replica_nodes"]) == sorted(part["isr_nodes"]))
        for part in parts
    ]]  # fmt: skip


@scenario
def topics_that_nobody_has(talk: Talk) -> list[Any]:
    rows = [_described(talk, name)[0] for name in (talk.unique("none"), "a b", "", "..", "x" * 250)]
    return [(row["error_code"], row["is_internal"], row["partitions"]) for row in rows]


@scenario
def a_topic_by_its_id(talk: Talk) -> list[Any]:
    name = talk.topic()
    given = _described(talk, name, version=12)[0]["topic_id"]

    def by_id(topic_id: bytes) -> Any:
        fields = {"topics": [{"name": None, "topic_id": topic_id}], "allow_auto_topic_creation": False}
        row = talk.ask(None, 3, 12, fields)["topics"][0]
        return row["error_code"], row["name"] == name, row["topic_id"] == given, len(row["partitions"])

    return [given != bytes(16), by_id(given), by_id(b"\7" * 16)]


@scenario
def answers_of_each_metadata_version(talk: Talk) -> list[Any]:
    name = talk.topic()
    found: list[Any] = []
    for version in range(13):
        row = _described(talk, name, version=version)[0]
        found.append((row["error_code"], row["name"] == name, row.get("is_internal"),
                      row.get("topic_authorized_operations"), row["partitions"][0].get("leader_epoch")))  # fmt: skip
    return found


@scenario
def all_topics_and_none(talk: Talk) -> list[Any]:
    name = talk.topic()
    found: list[Any] = []
    for version, wanted in ((0, []), (1, []), (1, None), (9, None), (12, None), (12, [])):
        answer = talk.ask(None, 3, version, {"topics": wanted, "allow_auto_topic_creation": False})
        found.append((name in {row["name"] for row in answer["topics"]}, len(answer["brokers"]) > 0))
    return found


@scenario
def a_topic_twice_in_a_question(talk: Talk) -> list[Any]:
    name = talk.topic()
    return [[row["error_code"] for row in _described(talk, name, name)]]


@scenario
def a_topic_is_made_by_asking_for_it(talk: Talk) -> list[Any]:
    """auto.create.topics.enable: unknown first, there soon; never a name that is not allowed."""
    name = talk.unique("made")
    found: list[Any] = [_described(talk, name)[0]["error_code"], _described(talk, name, create=True)[0]["error_code"]]
    for _ in range(200):
        row = _described(talk, name)[0]
        if not row["error_code"]:
            break
        talk.pause(0.02)
    return [*found, row["error_code"], len(row["partitions"]), _described(talk, "a b", create=True)[0]["error_code"]]


# Configurations ------------------------------------------------------------------------------------------------------


def _configs(talk: Talk, name: str, *keys: str, kind: int = _TOPIC, version: int = 4) -> tuple[int, list[Any]]:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": list(keys) or None}
    fields = {"resources": [resource], "include_synonyms": False, "include_documentation": False}
    row = talk.ask(None, 32, version, fields)["results"][0]
    found = [(each["name"], each["value"], each["config_source"], each["read_only"], each["is_sensitive"])
             for each in row["configs"]]  # fmt: skip
    return row["error_code"], sorted(found)


def _alter(
    talk: Talk, name: str, *changes: tuple[str, int, str | None], kind: int = _TOPIC, validate_only: bool = False
) -> int:
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    fields = {"resources": [resource], "validate_only": validate_only}
    return talk.ask(None, 44, 1, fields)["responses"][0]["error_code"]


def _until(talk: Talk, name: str, key: str, value: str | None) -> Any:
    for _ in range(200):
        found = _configs(talk, name, key)[1]
        if found and found[0][1] == value:
            return found
        talk.pause(0.02)
    return "never"


@scenario
def what_a_topic_was_given(talk: Talk) -> list[Any]:
    name = talk.topic(retention_ms="77777", cleanup_policy="compact")
    return [_configs(talk, name, "retention.ms", "cleanup.policy")]


@scenario
def defaults_of_a_topic(talk: Talk) -> list[Any]:
    return [_configs(talk, talk.topic(), "retention.ms", "cleanup.policy", "max.message.bytes", "delete.retention.ms",
                     "message.timestamp.type", "message.timestamp.after.max.ms", "message.timestamp.before.max.ms",
                     "segment.ms", "segment.bytes", "unclean.leader.election.enable",
                     "compression.type", "retention.bytes", "min.cleanable.dirty.ratio")]  # fmt: skip


@scenario
def keys_that_a_topic_does_not_have(talk: Talk) -> list[Any]:
    name = talk.topic(retention_ms="77777")
    return [_configs(talk, name, "no.such.thing"), _configs(talk, name, "retention.ms", "no.such.thing")]


@scenario
def resources_that_nobody_has(talk: Talk) -> list[Any]:
    pairs = ((_TOPIC, talk.unique("none")), (_TOPIC, ""), (_TOPIC, "a b"), (_BROKER, "777"), (_BROKER, "one"), (1, "x"),
             (99, "x"))  # fmt: skip
    return [_configs(talk, name, kind=kind) for kind, name in pairs]


@scenario
def settings_of_a_broker(talk: Talk) -> list[Any]:
    broker = talk.ask(None, 3, 10, {"topics": [], "allow_auto_topic_creation": False})["brokers"][0]["node_id"]
    keys = ("auto.create.topics.enable", "num.partitions", "transaction.max.timeout.ms", "producer.id.expiration.ms",
            "transactional.id.expiration.ms")  # fmt: skip
    fields = {
        "resources": [{"resource_type": _BROKER, "resource_name": str(broker), "configuration_keys": list(keys)}],
        "include_synonyms": False, "include_documentation": False,
    }  # fmt: skip
    row = talk.ask(broker, 32, 4, fields)["results"][0]
    return [row["error_code"], sorted((each["name"], each["value"]) for each in row["configs"])]


@scenario
def a_setting_changes_and_goes(talk: Talk) -> list[Any]:
    name = talk.topic(retention_ms="77777")
    found: list[Any] = [
        _alter(talk, name, ("retention.ms", _SET, "88888")),
        _until(talk, name, "retention.ms", "88888"),
    ]
    found += [_alter(talk, name, ("retention.ms", _DELETE, None)), _until(talk, name, "retention.ms", "604800000")]
    return [*found, _alter(talk, name, ("retention.ms", _DELETE, None))]


@scenario
def items_of_a_list_come_and_go(talk: Talk) -> list[Any]:
    name = talk.topic(cleanup_policy="delete")
    found: list[Any] = [_alter(talk, name, ("cleanup.policy", _APPEND, "compact")),
                        _until(talk, name, "cleanup.policy", "delete,compact")]  # fmt: skip
    found.append(_alter(talk, name, ("cleanup.policy", _APPEND, "compact")))
    found.append(_alter(talk, name, ("cleanup.policy", _SUBTRACT, "delete")))
    found.append(_until(talk, name, "cleanup.policy", "compact"))
    return [
        *found,
        _alter(talk, name, ("retention.ms", _APPEND, "1")),
        _alter(talk, name, ("retention.ms", _SUBTRACT, "1")),
    ]


@scenario
def changes_that_make_no_sense(talk: Talk) -> list[Any]:
    name = talk.topic(retention_ms="77777")
    changes: list[tuple[str, int, str | None]] = [
        ("retention.ms", _SET, "soon"), ("no.such.thing", _SET, "1"), ("retention.ms", _SET, None),
        ("cleanup.policy", _SET, "burn"), ("no.such.thing", _DELETE, None),
        ("min.insync.replicas", _SET, "0"),
    ]  # fmt: skip
    found: list[Any] = [_alter(talk, name, each) for each in changes]
    both = ("retention.ms", _SET, "1"), ("cleanup.policy", _SET, "burn")
    return [
        *found,
        _alter(talk, name, *both),
        _alter(talk, name, both[0], both[0]),
        _configs(talk, name, "retention.ms"),
    ]


@scenario
def changes_of_nothing(talk: Talk) -> list[Any]:
    good = ("retention.ms", _SET, "1")
    return [_alter(talk, talk.unique("none"), good), _alter(talk, "", good), _alter(talk, talk.topic()),
            _alter(talk, "x", good, kind=99)]  # fmt: skip


@scenario
def changes_that_are_only_validated(talk: Talk) -> list[Any]:
    name = talk.topic(retention_ms="77777")
    found = [_alter(talk, name, ("retention.ms", _SET, value), validate_only=True) for value in ("5", "soon")]
    return [*found, _configs(talk, name, "retention.ms")]


@scenario
def a_resource_twice_in_a_change(talk: Talk) -> list[Any]:
    name = talk.topic()
    configs = [{"name": "retention.ms", "config_operation": _SET, "value": "5"}]
    fields = {
        "resources": [{"resource_type": _TOPIC, "resource_name": name, "configs": configs}] * 2,
        "validate_only": False,
    }
    return [[row["error_code"] for row in talk.ask(None, 44, 1, fields)["responses"]]]


@scenario
def a_smaller_max_message_bytes_counts_at_once(talk: Talk) -> list[Any]:
    name = talk.topic()
    found: list[Any] = [talk.produce(name, b"v" * 600), _alter(talk, name, ("max.message.bytes", _SET, "500"))]
    for _ in range(200):
        error, _ = talk.produce(name, b"v" * 600)
        if error:
            break
        talk.pause(0.02)
    return [*found, error, talk.produce(name, b"v")[0]]


@scenario
def a_batch_in_the_log_that_comes_again_is_too_large_for_a_smaller_limit(talk: Talk) -> list[Any]:
    """Its size counts before it is recognised: the refusal says nothing of the first try."""
    name, (_, pid, epoch) = talk.topic(), talk.init(None)
    large = {"pid": pid, "epoch": epoch, "seq": 0}
    found: list[Any] = [talk.produce(name, b"v" * 600, **large) for _ in range(2)]
    found.append(_alter(talk, name, ("max.message.bytes", _SET, "500")))
    for _ in range(200):
        error, _ = talk.produce(name, b"v" * 600, **large)
        if error:
            break
        talk.pause(0.02)
    return [*found, error, talk.latest(name)]
