"""Topics with sequence ids, what is in their logs, and a Redis that forgets."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Sequence

import redis

from sidecar.changelog.records import LoggedBatch, read_batches
from sidecar.protocol.caller import decode_frame, encode_frame
from sidecar.protocol.calls.logs import FetchPartition
from sidecar.protocol.ids import Offset, TopicPartition
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.slow.faults.application import Application
from tests.slow.faults.checker import Attempt, Floors, Key, Logged, Violation, check, summary
from tests.topics import create_topic


def make_topic(bootstrap: str, node: NodeProcess, mode: str, partitions: int = 1, **config: str) -> str:
    """A topic with sequence ids under a policy of a node's."""
    name = create_topic(bootstrap, partitions, **config)
    set_policy(node, name, access_mode=mode, deduplication=True)
    return name


def set_policy(node: NodeProcess, topic: str, **policy: object) -> None:
    status, answer = Rest(node.admin_url).call("PUT", f"/v1/topics/{topic}/policy", policy)
    assert status == 200, answer


def forget_redis(url: str, cluster: str) -> None:
    """Redis loses everything that it had of a cluster of nodes."""
    with redis.Redis.from_url(url) as client:
        for key in client.scan_iter(f"sidecar:{{{cluster}}}:*"):
            client.delete(key)


def read_log(bootstrap: str, topic: str, partitions: int = 1) -> list[Logged]:
    """Every record, straight from Kafka."""
    return [
        Logged(_key(index, record.value or b""), offset)
        for index in range(partitions)
        for batch in _batches(bootstrap, topic, index)
        for offset, record in batch.records
    ]


def _key(partition: int, value: bytes) -> Key:
    name, _, number = value.decode().rstrip(".").rpartition(":")
    return Key(partition, name, int(number))


def _batches(bootstrap: str, topic: str, partition: int) -> Iterable[LoggedBatch]:
    position = 0
    host, port = bootstrap.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=20) as connection, connection.makefile("rb") as stream:
        while True:
            request = FetchPartition(
                TopicPartition(topic, partition), Offset(position), max_wait_ms=10, max_bytes=20_000_000
            )
            connection.sendall(encode_frame(request, 1, "test"))
            frame = stream.read(struct.unpack(">i", stream.read(4))[0])
            batches = list(read_batches(decode_frame(request, 1, frame, 0, len(frame)).records))
            if not batches:
                return
            yield from (batch for batch in batches if not batch.is_control)
            position = batches[-1].next_offset


def judge(
    bootstrap: str,
    topic: str,
    applications: Sequence[Application],
    floors: Floors,
    *,
    faults: int = 0,
    partitions: int = 1,
    since: int = 0,
) -> list[Violation]:
    """What the checker finds wrong with a topic and its writers."""
    histories = {id(each.history): each.history for each in applications}
    history: list[Attempt] = [attempt for found in histories.values() for attempt in found]
    unfinished = [key for each in applications for key in each.unfinished]
    log = read_log(bootstrap, topic, partitions)
    return check(log, history, floors, faults=faults, unfinished=unfinished, since=since)


def assert_once(violations: list[Violation]) -> None:
    assert not violations, summary(violations)
