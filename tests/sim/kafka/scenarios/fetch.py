"""Fetch (1): what of a log a consumer is given, and when."""

from __future__ import annotations

from typing import Any

from tests.sim.kafka.scenarios.common import listed, of_one_broker, read_row, scenario, seen
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
    for whole in (1, 200, 1000):
        fields = fetch_fields(topic, max_bytes=whole)
        part = fields["topics"][0]["partitions"][0]
        fields["topics"][0]["partitions"] = [part, part | {"partition": 1}]
        rows = talk.ask(talk.leader_of(topic), 1, 11, fields)["responses"][0]["partitions"]
        found.append(sorted(len(row["records"] or b"") for row in rows))
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
