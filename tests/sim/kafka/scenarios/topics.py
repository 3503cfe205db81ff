"""CreateTopics (19), DeleteTopics (20), CreatePartitions (37): what the controller does for clients."""

from __future__ import annotations

from typing import Any

from tests.sim.kafka.scenarios.common import scenario
from tests.sim.kafka.talk import Talk


def _wanted(name: str, partitions: int = 1, replication: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "name": name, "num_partitions": partitions, "replication_factor": replication, "assignments": [], "configs": [],
    } | more  # fmt: skip


def _create(talk: Talk, *topics: dict[str, Any], version: int = 5, validate_only: bool = False) -> list[dict[str, Any]]:
    fields = {"topics": list(topics), "timeout_ms": 10_000, "validate_only": validate_only}
    return talk.ask(None, 19, version, fields)["topics"]


def _codes(talk: Talk, *topics: dict[str, Any], **more: Any) -> list[int]:
    return [row["error_code"] for row in _create(talk, *topics, **more)]


def _delete(talk: Talk, *names: str, version: int = 4) -> list[int]:
    fields: dict[str, Any] = {"timeout_ms": 10_000}
    if version >= 6:
        fields["topics"] = [{"name": name, "topic_id": bytes(16)} for name in names]
    else:
        fields["topic_names"] = list(names)
    return [row["error_code"] for row in talk.ask(None, 20, version, fields)["responses"]]


def _grow(talk: Talk, *topics: dict[str, Any], validate_only: bool = False) -> list[int]:
    fields = {"topics": list(topics), "timeout_ms": 10_000, "validate_only": validate_only}
    return [row["error_code"] for row in talk.ask(None, 37, 2, fields)["results"]]


def _described(talk: Talk, name: str | None = None, topic_id: bytes = bytes(16)) -> dict[str, Any]:
    fields = {"topics": [{"name": name, "topic_id": topic_id}], "allow_auto_topic_creation": False}
    return talk.ask(None, 3, 12, fields)["topics"][0]


def _until_gone(talk: Talk, name: str) -> int:
    for _ in range(200):
        if (found := _described(talk, name)["error_code"]) == 3:
            return found
        talk.pause(0.02)
    return 0


@scenario
def names_that_are_no_topics(talk: Talk) -> list[Any]:
    names = ["", ".", "..", "a b", "a/b", "ä", "x" * 250, "a\0b", "a:b", "a,b"]
    return [_codes(talk, _wanted(name))[0] for name in names]


@scenario
def the_longest_name(talk: Talk) -> list[Any]:
    name = talk.unique("topic")
    return _codes(talk, _wanted(name + "x" * (249 - len(name)))) + _codes(talk, _wanted(name + "x" * (250 - len(name))))


@scenario
def names_that_differ_in_dots_and_underscores(talk: Talk) -> list[Any]:
    name = talk.unique("topic").replace("-", "_")
    return [
        _codes(talk, _wanted(f"{name}.a_b")),
        _codes(talk, _wanted(f"{name}_a.b")),
        _codes(talk, _wanted(f"{name}_a-b")),
    ]


@scenario
def a_name_twice_in_a_request(talk: Talk) -> list[Any]:
    name, other = talk.unique("topic"), talk.unique("other")
    rows = _create(talk, _wanted(name), _wanted(other), _wanted(name))
    return sorted((row["name"] == name, row["error_code"]) for row in rows)


@scenario
def numbers_of_partitions(talk: Talk) -> list[Any]:
    counts = (0, -2, -1, 3)
    rows = [_create(talk, _wanted(talk.unique("topic"), count))[0] for count in counts]
    return [(row["error_code"], row["num_partitions"], row["replication_factor"]) for row in rows]


@scenario
def replication_factors(talk: Talk) -> list[Any]:
    return [_codes(talk, _wanted(talk.unique("topic"), 1, factor))[0] for factor in (0, -2, -1, 1, 99, 32_000)]


@scenario
def assignments_by_hand(talk: Talk) -> list[Any]:
    broker = talk.ask(None, 3, 10, {"topics": [], "allow_auto_topic_creation": False})["brokers"][0]["node_id"]

    def assigned(*rows: tuple[int, list[int]]) -> int:
        given = [{"partition_index": index, "broker_ids": brokers} for index, brokers in rows]
        return _codes(talk, _wanted(talk.unique("topic"), -1, -1, assignments=given))[0]

    return [assigned((0, [broker])), assigned((0, [broker]), (1, [broker])), assigned((0, [])),
            assigned((1, [broker])), assigned((0, [broker, broker])), assigned((0, [broker]), (0, [broker])),
            assigned((0, [broker]), (2, [broker])), assigned((0, [77])), assigned((0, [-1]))]  # fmt: skip


@scenario
def assignments_exclude_numbers(talk: Talk) -> list[Any]:
    given = [{"partition_index": 0, "broker_ids": [1]}]
    pairs = ((1, -1), (-1, 1), (1, 1), (5, 5))
    return [_codes(talk, _wanted(talk.unique("topic"), *pair, assignments=given))[0] for pair in pairs]


@scenario
def configurations_that_make_no_sense(talk: Talk) -> list[Any]:
    configs = [
        ("no.such.thing", "1"), ("retention.ms", "soon"), ("retention.ms", "-2"), ("cleanup.policy", "burn"),
        ("cleanup.policy", "compact, delete"), ("max.message.bytes", "-1"), ("min.insync.replicas", "0"),
        ("message.timestamp.type", "Never"), ("unclean.leader.election.enable", "perhaps"), ("retention.ms", None),
        ("retention.ms", "-1"), ("segment.ms", "0"), ("min.cleanable.dirty.ratio", "1.5"), ("retention.bytes", ""),
        ("compression.type", "brotli"), ("compression.type", "gzip"), ("flush.ms", "5"),
    ]  # fmt: skip
    return [
        (name, value, _codes(talk, _wanted(talk.unique("topic"), configs=[{"name": name, "value": value}]))[0])
        for name, value in configs
    ]


@scenario
def validation_makes_nothing(talk: Talk) -> list[Any]:
    name = talk.unique("topic")
    found: list[Any] = [
        _codes(talk, _wanted(name), validate_only=True), _codes(talk, _wanted(name, 0), validate_only=True),
        _codes(talk, _wanted(".."), validate_only=True), _codes(talk, _wanted(name, 1, 99), validate_only=True),
    ]  # fmt: skip
    return [*found, _described(talk, name)["error_code"], _codes(talk, _wanted(name)),
            _codes(talk, _wanted(name), validate_only=True)]  # fmt: skip


@scenario
def answers_of_each_create_version(talk: Talk) -> list[Any]:
    found: list[Any] = []
    for version in range(2, 8):
        row = _create(talk, _wanted(talk.unique("topic")), version=version)[0]
        given = row.pop("topic_id", None)
        found.append((given is None or given != bytes(16), row["error_code"], row["error_message"],
                      row.get("num_partitions"), row.get("replication_factor")))  # fmt: skip
    return found


@scenario
def several_topics_one_by_one(talk: Talk) -> list[Any]:
    good = talk.unique("topic")
    rows = _create(talk, _wanted(good), _wanted("a b"), _wanted(talk.unique("topic"), 0))
    return [sorted(row["error_code"] for row in rows), _codes(talk, _wanted(good))]


@scenario
def no_topics_at_all(talk: Talk) -> list[Any]:
    return [_create(talk), _delete(talk), _grow(talk)]


@scenario
def topics_that_cannot_be_deleted(talk: Talk) -> list[Any]:
    name = talk.topic()
    return [_delete(talk, talk.unique("none")), _delete(talk, ""), _delete(talk, ".."), _delete(talk, name),
            _until_gone(talk, name), _delete(talk, name)]  # fmt: skip


@scenario
def a_topic_twice_in_a_deletion(talk: Talk) -> list[Any]:
    name = talk.topic()
    return [sorted(_delete(talk, name, name)), _delete(talk, name)]


@scenario
def answers_of_each_delete_version(talk: Talk) -> list[Any]:
    return [_delete(talk, talk.topic(), version=version) for version in range(1, 7)]


@scenario
def deletion_by_id(talk: Talk) -> list[Any]:
    name = talk.topic()
    given = _described(talk, name)["topic_id"]

    def delete(**topic: Any) -> Any:
        fields = {"topics": [{"name": None, "topic_id": bytes(16)} | topic], "timeout_ms": 10_000}
        row = talk.ask(None, 20, 6, fields)["responses"][0]
        return row["error_code"], row["name"] == name, row["topic_id"] == given

    found: list[Any] = [delete(topic_id=bytes(15) + b"\7"), delete(name=name, topic_id=given), delete(topic_id=given)]
    return [*found, _until_gone(talk, name), delete(topic_id=given), delete()]


@scenario
def a_topic_made_again_has_another_id(talk: Talk) -> list[Any]:
    name = talk.topic()
    talk.produce(name, b"v")
    first = _described(talk, name)["topic_id"]
    found: list[Any] = [_delete(talk, name), _until_gone(talk, name), _codes(talk, _wanted(name))]
    for _ in range(200):
        row = _described(talk, name)
        if not row["error_code"] and not row["partitions"][0]["error_code"] and talk.latest(name)[0] == 0:
            break
        talk.pause(0.02)
    found += [row["topic_id"] != first, talk.latest(name), _described(talk, topic_id=first)["error_code"]]
    return [*found, _described(talk, topic_id=row["topic_id"])["name"] == name]


@scenario
def a_deleted_topic_is_unknown_everywhere(talk: Talk) -> list[Any]:
    name, (_, pid, epoch) = talk.topic(), talk.init(None)
    leader = talk.leader_of(name)
    found: list[Any] = [_delete(talk, name), _until_gone(talk, name)]
    talk.pause(0.1)
    found += [talk.produce(name, b"v", broker=leader, pid=pid, epoch=epoch, seq=0), talk.latest(name, broker=leader)]
    return [*found, talk.fetch(name, broker=leader)["error_code"]]


@scenario
def more_partitions(talk: Talk) -> list[Any]:
    name = talk.topic(2)

    def grow(count: int, given: Any = None, topic: str = name) -> int:
        return _grow(talk, {"name": topic, "count": count, "assignments": given})[0]

    found: list[Any] = [grow(2), grow(1), grow(0), grow(-1), grow(3, topic=name + "-none"), grow(3, topic=""), grow(4)]
    one = [{"broker_ids": [1]}]
    return [*found, grow(6, one), grow(5, [{"broker_ids": []}]), grow(5, [{"broker_ids": [88]}]),
            grow(5, [{"broker_ids": [1, 1]}]), grow(4, one)]  # fmt: skip


@scenario
def partitions_that_are_only_validated(talk: Talk) -> list[Any]:
    name = talk.topic()
    wanted = {"name": name, "count": 3, "assignments": None}
    found: list[Any] = [_grow(talk, wanted, validate_only=True), _grow(talk, wanted), _grow(talk, wanted)]
    return [*found, sorted(_grow(talk, wanted | {"count": 5}, wanted | {"count": 7}))]


@scenario
def a_new_partition_is_empty_and_leads(talk: Talk) -> list[Any]:
    name = talk.topic()
    talk.produce(name, b"v")
    found: list[Any] = [_grow(talk, {"name": name, "count": 2, "assignments": None})]
    for _ in range(200):
        rows = _described(talk, name)["partitions"]
        if len(rows) == 2 and not any(row["error_code"] for row in rows) and talk.latest(name, 1)[0] == 0:
            break
        talk.pause(0.02)
    found += [talk.latest(name, 1), talk.latest(name, 0), talk.produce(name, b"v", partition=1)]
    return [*found, sorted((row["partition_index"], row["leader_epoch"]) for row in rows)]


# DescribeTopicPartitions ---------------------------------------------------------------------------------------------


def _page(talk: Talk, names: list[str], limit: int, cursor: tuple[str, int] | None = None) -> list[Any]:
    """The rows of a page about topics by their number in `names`, and where the next one begins."""
    place = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
    fields = {"topics": [{"name": name} for name in names], "response_partition_limit": limit, "cursor": place}
    answer = talk.ask(None, 75, 0, fields)
    rows = [
        (names.index(row["name"]), row["error_code"], row["topic_id"] != bytes(16), row["is_internal"],
         row["topic_authorized_operations"],
         [(each["error_code"], each["partition_index"], each["leader_epoch"], bool(each["isr_nodes"]),
           each["eligible_leader_replicas"], each["last_known_elr"], each["offline_replicas"])
          for each in row["partitions"]])
        for row in answer["topics"]
    ]  # fmt: skip
    further = answer["next_cursor"]
    return [rows, further and (names.index(further["topic_name"]), further["partition_index"])]


@scenario
def topics_page_by_page(talk: Talk) -> list[Any]:
    names = sorted(talk.topic(2) for _ in range(3))  # alike, as their order is chance
    found: list[Any] = [_page(talk, names, limit) for limit in (-1, 0, 1, 2, 3, 4, 5, 6, 7, 2000)]
    found += [_page(talk, names, 2, (name, index)) for name in names for index in (0, 1, 2, 77)]
    return found


@scenario
def pages_of_what_is_not_there(talk: Talk) -> list[Any]:
    names = sorted([talk.topic(2), talk.unique("none"), "a b", "..", "__consumer_offsets-not"])
    found: list[Any] = [_page(talk, names, limit) for limit in (1, 2, 9)]
    found += [_page(talk, names, 1, (name, 0)) for name in names]
    return [*found, _page(talk, names, 1, ("zz-nobody", 0)), _page(talk, names, 1, (names[0], -1))]


@scenario
def pages_of_all_topics(talk: Talk) -> list[Any]:
    name = talk.topic(3)
    place = {"topic_name": name, "partition_index": 1}
    answer = talk.ask(None, 75, 0, {"topics": [], "response_partition_limit": 1, "cursor": place})
    (row,) = answer["topics"]
    further = answer["next_cursor"]
    refused = talk.ask(
        None, 75, 0, {"topics": [], "response_partition_limit": 1, "cursor": place | {"partition_index": -1}}
    )
    return [row["name"] == name, [each["partition_index"] for each in row["partitions"]],
            further["topic_name"] == name, further["partition_index"], refused]  # fmt: skip
