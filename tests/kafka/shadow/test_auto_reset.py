"""Cursors that fall too far behind are reset to the end of the log when their group asks for them."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from sidecar.protocol.messages import groups as messages
from tests.conftest import OwnKafka, StartNode, Unique
from tests.kafka.gateway.requests import request
from tests.kafka.shadow.groups import (
    commit,
    committed,
    consumer,
    member,
    shadow_of,
    write,
    write_transactions,
)
from tests.logs import read_log
from tests.nodes import NodeProcess
from tests.raw import RawClient
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic, delete_records
from tests.wait import wait_for

NOTHING = -1001
LIMIT = 20


@pytest.fixture
def source(services: Services) -> str:
    return create_topic(services.kafka_bootstrap, 2)


@pytest.fixture
def shadow(rest: Rest, source: str, unique: Unique) -> str:
    return shadow_of(rest, source, unique("audit"), auto_reset_backlog_entries=LIMIT)


def told_of(node: NodeProcess, topic: str) -> list[dict[str, Any]]:
    """The events of a topic that speak of a reset."""
    asked = urllib.request.Request(f"{node.admin_url}/v1/events?from=0&topic={topic}")
    found: list[dict[str, Any]] = []
    with urllib.request.urlopen(asked, timeout=20) as answer:
        for line in answer:
            if line.startswith(b"data: "):
                event = json.loads(line[6:])
                if "reset" in event["detail"]:
                    found.append(event)
            elif line == b": \n" and found:
                return found
    return found


def metric(node: NodeProcess, name: str, shadow: str) -> float | None:
    with urllib.request.urlopen(f"{node.admin_url}/metrics", timeout=20) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(f'{name}{{shadow="{shadow}"}}'):
                return float(line.rsplit(" ", 1)[1])
    return None


def test_a_cursor_is_reset_once_more_records_than_the_limit_lie_behind_it(
    node: NodeProcess, services: Services, rest: Rest, source: str, shadow: str, unique: Unique
) -> None:
    group, other = unique("group"), unique("other")
    write(services.kafka_bootstrap, source, 30)
    commit(node.bootstrap, group, shadow, {0: 10, 1: 0})
    commit(node.bootstrap, other, shadow, {0: 11})
    commit(node.bootstrap, group, source, {0: 0})
    assert rest.call("GET", f"/v1/shadows/{shadow}")[1]["auto_reset_backlog_entries"] == LIMIT
    assert committed(node.bootstrap, group, shadow, 2) == [10, 0]  # exactly as many as the limit
    write(services.kafka_bootstrap, source, 1)
    for _ in range(2):
        assert committed(node.bootstrap, group, shadow, 2) == [31, 0]
    assert committed(node.bootstrap, other, shadow) == [11]
    assert committed(node.bootstrap, group, source) == [0]
    assert committed(services.kafka_bootstrap, group, shadow) == [10]  # Kafka keeps it until the group commits
    wait_for(lambda: group in node.log, "the log line", 5)
    [event] = told_of(node, shadow)
    moved = {"0": {"before": 10, "after": 31}}
    assert event["details"] == {"reset": {"group": group, "limit": LIMIT, "partitions": moved}}
    assert event["detail"] == (
        f"cursor of group {group} reset to the end: more than {LIMIT} records lay behind it (partition 0: 10 to 31)"
    )
    assert metric(node, "sidecar_shadow_cursor_resets_total", shadow) == 1


def test_a_group_that_was_reset_reads_what_comes_next(
    node: NodeProcess, services: Services, source: str, shadow: str, unique: Unique
) -> None:
    """As it has read nothing it commits nothing: it stands where it was reset to, until too much lies behind that."""
    group = unique("group")
    commit(node.bootstrap, group, shadow, {0: 0})
    write(services.kafka_bootstrap, source, LIMIT + 1)
    assert committed(node.bootstrap, group, shadow) == [LIMIT + 1]
    for _ in range(2):
        write(services.kafka_bootstrap, source, LIMIT // 2)
        assert committed(node.bootstrap, group, shadow) == [LIMIT + 1]
    write(services.kafka_bootstrap, source, LIMIT)
    end = LIMIT + 1 + 2 * (LIMIT // 2) + LIMIT
    assert committed(node.bootstrap, group, shadow) == [end]
    assert [event["detail"].rpartition("partition ")[2] for event in told_of(node, shadow)] == [
        f"0: 0 to {LIMIT + 1})",
        f"0: 0 to {end})",
    ]


def test_markers_are_no_records(node: NodeProcess, services: Services, rest: Rest, source: str, unique: Unique) -> None:
    """60 transactions of one record are 120 offsets and 60 records, aborted ones among them."""
    patient = shadow_of(rest, source, unique("audit"), auto_reset_backlog_entries=60)
    strict = shadow_of(rest, source, unique("audit"), auto_reset_backlog_entries=59)
    group = unique("group")
    write_transactions(services.kafka_bootstrap, source, 60)
    for name in (patient, strict):
        commit(node.bootstrap, group, name, {0: 0})
    assert committed(node.bootstrap, group, patient) == [0]
    assert committed(node.bootstrap, group, strict) == [120]


def test_a_cursor_within_a_batch_has_what_is_left_of_it_behind_it(
    node: NodeProcess, services: Services, source: str, shadow: str, unique: Unique
) -> None:
    """One compressed batch of 40 records, then markers that make up the difference of offsets."""
    settings = {"compression.type": "zstd", "linger.ms": 500, "batch.num.messages": 40}
    write(services.kafka_bootstrap, source, 40, **settings)
    write_transactions(services.kafka_bootstrap, source, 5)
    for group, offset, expected in ((unique("a"), 25, 25), (unique("b"), 24, 50)):
        commit(node.bootstrap, group, shadow, {0: offset})  # 15 + 5 records in 25 offsets; 16 + 5
        assert committed(node.bootstrap, group, shadow) == [expected]


def test_what_retention_took_is_no_backlog(
    node: NodeProcess, services: Services, source: str, shadow: str, unique: Unique
) -> None:
    group = unique("group")
    write(services.kafka_bootstrap, source, 100)
    commit(node.bootstrap, group, shadow, {0: 10})
    delete_records(services.kafka_bootstrap, source)
    write(services.kafka_bootstrap, source, 5)
    assert committed(node.bootstrap, group, shadow) == [10]


@pytest.mark.parametrize("version", range(1, 10))
def test_every_version_of_offset_fetch_is_told_the_end(
    node: NodeProcess, services: Services, source: str, shadow: str, unique: Unique, version: int
) -> None:
    """Named or among all topics; the rest of the answer is Kafka's."""
    group = unique("group")
    write(services.kafka_bootstrap, source, 50)
    reader = consumer(node.bootstrap, group)
    reader.commit(offsets=[TopicPartition(shadow, 0, 10, metadata="note")], asynchronous=False)
    reader.commit(offsets=[TopicPartition(source, 0, 10, metadata="note")], asynchronous=False)
    reader.close()
    topics = [{"name": name, "partition_indexes": [0, 1]} for name in (source, shadow)]
    for asked in (topics, None) if version >= 2 else (topics,):
        fields = {"group_id": group, "topics": asked}
        with RawClient(node.bootstrap) as wire:
            question = request(messages.OFFSET_FETCH.key, version, **fields, groups=[fields])
            answer = wire.ask_values(messages.OFFSET_FETCH, question)
        if version >= 8:
            (answer,) = answer["groups"]
        assert answer.get("error_code", 0) == 0
        found: dict[tuple[str, int], dict[str, Any]] = {
            (topic["name"], each["partition_index"]): each for topic in answer["topics"] for each in topic["partitions"]
        }
        assert (found[source, 0]["committed_offset"], found[source, 0]["metadata"].rstrip("\0")) == (10, "note")
        assert (found[shadow, 0]["committed_offset"], found[shadow, 0]["metadata"]) == (50, "")
        assert found[shadow, 0].get("committed_leader_epoch", -1) == -1
        assert all(each["error_code"] == 0 for each in found.values())
        if asked:
            assert found[shadow, 1]["committed_offset"] == -1


def test_a_live_group_goes_on_from_the_end_and_commits_there(
    node: NodeProcess, services: Services, source: str, shadow: str, unique: Unique
) -> None:
    group = unique("group")
    write(services.kafka_bootstrap, source, 50)
    commit(node.bootstrap, group, shadow, {0: 3, 1: 0})
    with member(node.bootstrap, group, shadow) as reader:
        assert reader.poll(1) is None
        write(services.kafka_bootstrap, source, 1)
        message = reader.poll(20)
        assert message is not None
        assert message.offset() == 50
        reader.commit(asynchronous=False)
    assert committed(services.kafka_bootstrap, group, shadow) == [51]


def test_what_compaction_took_is_no_backlog(
    own_kafka: OwnKafka, services: Services, node_process: StartNode, unique: Unique
) -> None:
    """Of a batch of 40 records every other one is left, and 20 behind it that took the others' keys."""
    kafka = own_kafka(overrides={"log.cleaner.backoff.ms": "200"}).bootstrap
    node = node_process(kafka=kafka, redis=services.redis_url)
    rest, group = Rest(node.admin_url), unique("group")
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001", "segment.ms": "1"}
    source = create_topic(kafka, 1, **settings)
    write(kafka, source, 40, keys=40, **{"linger.ms": 500})
    for number in range(20):
        write(kafka, source, 1, keys=1, first_key=2 * number + 1)
    write(kafka, source, 1, keys=1, first_key=1_000)  # the newest segment is never compacted
    wait_for(lambda: len(read_log(kafka, source)) == 41, "the log to be compacted", 60)
    for offset, left in ((0, 41), (21, 30)):  # of the batch, in the second case, those at 22, 24, …, 38
        for limit, expected in ((left, offset), (left - 1, 61)):
            shadow = shadow_of(rest, source, unique("audit"), auto_reset_backlog_entries=limit)
            commit(node.bootstrap, group, shadow, {0: offset})
            assert committed(node.bootstrap, group, shadow) == [expected]
