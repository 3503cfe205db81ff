"""Fetch (1): what of a log a consumer is given, and when."""

from __future__ import annotations

from typing import Any

from tests.sim.kafka.scenarios.common import finish, listed, of_one_broker, read_row, scenario, seen, versions
from tests.sim.kafka.talk import Talk, fetch_fields


def _rows(answer: Any) -> list[dict[str, Any]]:
    return [row for topic in answer["responses"] for row in topic["partitions"]]


@scenario
def edges_of_the_log(talk: Talk) -> list[Any]:
    topic = talk.topic()
    found: list[Any] = [seen(talk, topic), listed(talk, topic, -1), listed(talk, topic, -2)]
    for count in (1, 3, 2):
        talk.produce(topic, *[b"v"] * count)
    return [*found, *(seen(talk, topic, offset) for offset in (0, 2, 5, 6, 7))]


@scenario
def sizes_of_a_fetch(talk: Talk) -> list[Any]:
    topic = talk.topic()
    for _ in range(3):
        talk.produce(topic, b"v" * 100)
    sizes = [(1, 1 << 20), (1 << 20, 1), (250, 1 << 20), (400, 1 << 20), (1 << 20, 400), (0, 1 << 20)]
    return [seen(talk, topic, partition_max_bytes=part, max_bytes=whole) for part, whole in sizes]


@of_one_broker
def two_partitions_in_one_fetch(talk: Talk) -> list[Any]:
    topic = talk.topic(2)
    for partition in (0, 1):
        talk.produce(topic, b"v" * 100, partition=partition)
    found: list[Any] = []
    for whole, most in ((1, 1000), (200, 1000), (1000, 1000), (1000, 1), (1000, 0)):
        fields = fetch_fields(topic, max_bytes=whole, isolation=1)
        part = fields["topics"][0]["partitions"][0]
        fields["topics"][0]["partitions"] = [part, part | {"partition": 1, "partition_max_bytes": most}]
        rows = talk.ask(talk.leader_of(topic), 1, 11, fields)["responses"][0]["partitions"]
        found.append(sorted((len(row["records"] or b""), str(row["aborted_transactions"])) for row in rows))
    return found


@scenario
def fetch_sessions(talk: Talk) -> list[Any]:
    topic = talk.topic()
    fields = fetch_fields(topic) | {"session_id": 987_654, "session_epoch": 1}
    return [talk.ask(talk.leader_of(topic), 1, 11, fields)["error_code"]]


@scenario
def a_fetch_waits_for_min_bytes(talk: Talk) -> list[Any]:
    topic = talk.topic()
    leader = talk.leader_of(topic)
    waiting = talk.begin(leader, 1, 11, fetch_fields(topic, max_wait_ms=8000))
    found: list[Any] = [talk.outcome(waiting, 0.1)]
    talk.produce(topic, b"v")
    return [*found, read_row(_rows(talk.outcome(waiting))[0])]


@scenario
def a_fetch_that_waits_in_vain_is_empty(talk: Talk) -> list[Any]:
    topic = talk.topic()
    talk.produce(topic, b"v")
    return [seen(talk, topic, 1, max_wait_ms=100), seen(talk, topic, 0, max_wait_ms=100, min_bytes=10_000)]


@of_one_broker
def min_bytes_count_over_all_partitions(talk: Talk) -> list[Any]:
    topic = talk.topic(2)
    for partition in (0, 1):
        talk.produce(topic, b"v" * 100, partition=partition)
    row = fetch_fields(topic)["topics"][0]["partitions"][0]
    fields = fetch_fields(topic, max_wait_ms=8000, min_bytes=300)
    fields["topics"][0]["partitions"] = [row, row | {"partition": 1}]
    return [len(each["records"]) for each in _rows(talk.ask(talk.leader_of(topic), 1, 11, fields))]


@of_one_broker
def an_unknown_partition_does_not_hurry_the_others(talk: Talk) -> list[Any]:
    topic = talk.topic()
    fields = fetch_fields(topic, max_wait_ms=400)
    row = fields["topics"][0]["partitions"][0]
    fields["topics"][0]["partitions"] = [row, row | {"partition": 4}]
    waiting = talk.begin(talk.leader_of(topic), 1, 11, fields)
    found: list[Any] = [talk.outcome(waiting, 0.1)]
    return found + sorted((row["partition_index"], row["error_code"]) for row in _rows(talk.outcome(waiting)))


@scenario
def an_unknown_partition_alone_is_answered_at_once(talk: Talk) -> list[Any]:
    topic = talk.topic()
    waiting = talk.begin(talk.leader_of(topic), 1, 11, fetch_fields(topic, max_wait_ms=8000, partition=4))
    return [row["error_code"] for row in _rows(talk.outcome(waiting, 2.0))]


@of_one_broker
def an_offset_out_of_range_is_answered_at_once(talk: Talk) -> list[Any]:
    topic = talk.topic(2)
    fields = fetch_fields(topic, max_wait_ms=8000)
    row = fields["topics"][0]["partitions"][0]
    fields["topics"][0]["partitions"] = [row, row | {"partition": 1, "fetch_offset": 9}]
    answer = talk.outcome(talk.begin(talk.leader_of(topic), 1, 11, fields), 2.0)
    return sorted((row["partition_index"], row["error_code"]) for row in _rows(answer))


@scenario
def rows_of_a_refused_fetch(talk: Talk) -> list[Any]:
    topic = talk.topic()
    leader = talk.leader_of(topic)
    talk.produce(topic, b"v")
    found = [
        talk.fetch(topic, 9), talk.fetch(topic, -1), talk.fetch(topic, epoch=7),
        talk.fetch(topic, partition=6, broker=leader), talk.fetch(topic, 9, isolation=1),
    ]  # fmt: skip
    return [*(read_row(row) for row in found), [row["preferred_read_replica"] for row in found]]


@scenario
def answers_of_each_fetch_version(talk: Talk) -> list[Any]:
    topic = talk.topic()
    talk.produce(topic, b"v", b"w")
    return [read_row(_rows(talk.ask(talk.leader_of(topic), 1, each, fetch_fields(topic)))[0]) for each in range(4, 13)]


@scenario
def a_fetch_begins_with_the_batch_that_holds_its_offset(talk: Talk) -> list[Any]:
    topic = talk.topic()
    talk.produce(topic, b"a", b"b", b"c")
    talk.produce(topic, b"d")
    return [[each[0] for each in seen(talk, topic, offset)[5]] for offset in range(5)]


@scenario
def an_unknown_topic_beside_a_known_one(talk: Talk) -> list[Any]:
    topic = talk.topic()
    talk.produce(topic, b"v")
    fields = fetch_fields(topic)
    fields["topics"].append({"topic": talk.unique("none"), "partitions": fields["topics"][0]["partitions"]})
    answer = talk.ask(talk.leader_of(topic), 1, 11, fields)["responses"]
    return sorted((each["topic"] == topic, each["partitions"][0]["error_code"]) for each in answer)


@scenario
def nothing_to_fetch(talk: Talk) -> list[Any]:
    topic = talk.topic()
    fields = fetch_fields(topic, max_wait_ms=100) | {"topics": []}
    answer = talk.ask(talk.leader_of(topic), 1, 11, fields)
    return [answer["error_code"], answer["responses"], answer["session_id"]]


@scenario
def sessions_that_are_not_there(talk: Talk) -> list[Any]:
    topic = talk.topic()
    found: list[Any] = []
    for session, epoch in ((5, 3), (987_654, -1), (0, 4)):
        fields = fetch_fields(topic) | {"session_id": session, "session_epoch": epoch}
        answer = talk.ask(talk.leader_of(topic), 1, 11, fields)
        found.append((answer["error_code"], answer["session_id"], len(answer["responses"])))
    return found


@scenario
def max_bytes_of_0_still_brings_a_batch(talk: Talk) -> list[Any]:
    topic = talk.topic()
    talk.produce(topic, b"v" * 100)
    found = [seen(talk, topic, max_bytes=whole, partition_max_bytes=part) for whole, part in
             ((0, 0), (0, 1000), (1000, 0), (-1, 1000), (1000, -1))]  # fmt: skip
    return [(each[0], len(each[5]), each[1:4]) for each in found]


# Every version -------------------------------------------------------------------------------------------------------


def _asked(talk: Talk, version: int, topic: str, offset: int = 0, *, by: bytes = b"", **more: Any) -> list[Any]:
    """The rows of an answer; from version 13 on the topic is named by its id, or by the id that is given."""
    fields = fetch_fields(topic, offset, **more)
    (named,) = fields["topics"]
    if version >= 13:
        asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        topic_id = by or talk.ask(None, 3, 12, asked)["topics"][0]["topic_id"]
        fields["topics"] = [{"topic_id": topic_id, "partitions": named["partitions"]}]
    answer = talk.ask(talk.leader_of(topic), 1, version, fields)
    for each in answer["responses"]:
        assert each.get("topic", topic) == topic
        assert "topic_id" not in each or each["topic_id"] == fields["topics"][0]["topic_id"]
    return [answer.get("error_code"), [read_row(row) for row in _rows(answer)]]


@scenario
def every_version_reads_the_same(talk: Talk) -> list[Any]:
    topic = talk.topic()
    for count in (1, 3, 2):
        talk.produce(topic, *[b"v"] * count)
    _, offered, _ = versions(talk, 3)
    last = offered[1][1]
    return [last, *(_asked(talk, version, topic, offset) for version in range(4, last + 1) for offset in (0, 4, 6, 7))]


@scenario
def topics_that_no_id_names_are_not_read(talk: Talk) -> list[Any]:
    topic = talk.topic()
    talk.produce(topic, b"v")
    _, offered, _ = versions(talk, 3)
    found: list[Any] = []
    for version in range(13, offered[1][1] + 1):
        found += [_asked(talk, version, topic, by=each) for each in (b"nobody's id 1234", bytes(16))]
        found += [_asked(talk, version, topic, partition=9), _asked(talk, version, topic, epoch=7)]
    return found


@scenario
def aborted_records_are_told_by_id(talk: Talk) -> list[Any]:
    topic, name = talk.topic(), talk.unique("txn")
    _, pid, epoch = talk.init(name)
    for commit in (False, True, False):
        talk.add(name, pid, epoch, topic)
        talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=0, attributes=0x10, transactional_id=name)
        finish(talk, name, pid, epoch, commit=commit)
        _, pid, epoch = talk.init(name)
    talk.produce(topic, b"v")
    return [_asked(talk, 13, topic, offset, isolation=isolation) for offset in range(8) for isolation in (0, 1)]
