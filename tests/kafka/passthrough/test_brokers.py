"""One node in front of three brokers: each partition to its leader, answers merged, no broker waits for another."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests import raw
from tests.kafka.gateway.requests import request
from tests.kafka.passthrough.conftest import leaders_of
from tests.raw import RawClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.local import Kafka
    from tests.kafka.passthrough.conftest import MakeTopic
    from tests.nodes import NodeProcess

Key = tuple[str, int]


@pytest.fixture
def client(node_of_three: NodeProcess) -> Iterator[RawClient]:
    with RawClient(node_of_three.bootstrap) as found:
        found.ask(raw.api_versions())
        yield found


@pytest.fixture
def spread(topic_of_three: MakeTopic, kafka_cluster: Kafka) -> dict[Key, int]:
    """The partitions of a topic that all three brokers lead some of, with their leaders."""
    name = topic_of_three(partitions=6)
    found = {(name, index): leader for index, leader in leaders_of(kafka_cluster.bootstrap, name).items()}
    assert set(found.values()) == {1, 2, 3}
    return found


def direct(kafka: Kafka, broker: int) -> RawClient:
    return RawClient(kafka.address(broker))


def without_throttle(found: Any) -> Any:
    return dataclasses.replace(found, throttle_time=None) if hasattr(found, "throttle_time") else found


@pytest.mark.parametrize("version", [3, 5, 8, 9])
def test_a_produce_request_is_split_by_leader_and_answered_as_the_leaders_did(
    version: int, client: RawClient, spread: dict[Key, int], kafka_cluster: Kafka
) -> None:
    for number in range(3):
        values = {key: b"%d of %d" % (number, key[1]) for key in spread}
        answer = raw.produced(client.ask(raw.produce({key: raw.batch(values[key]) for key in spread}, version=version)))
        assert list(answer) == list(spread), "in the order of the request"
        for key, broker in spread.items():
            assert (raw.code(answer[key]), answer[key].base_offset) == (0, number)
            with direct(kafka_cluster, broker) as leader:
                read = raw.fetched(leader.ask(raw.fetch({key: number})))[key]
                assert (raw.code(read), values[key] in read.records) == (0, True)


def test_what_cannot_be_appended_is_told_beside_what_was(client: RawClient, spread: dict[Key, int]) -> None:
    (name, _), *_ = spread
    parts = {**dict.fromkeys(spread, raw.batch()), (name, 77): raw.batch(), ("no-such-topic", 0): raw.batch()}
    answer = raw.produced(client.ask(raw.produce(parts)))
    assert {key: raw.code(found) for key, found in answer.items()} == {
        **dict.fromkeys(spread, 0),
        (name, 77): 3,
        ("no-such-topic", 0): 3,
    }


def test_acks_0_is_split_too(client: RawClient, spread: dict[Key, int]) -> None:
    client.send(raw.produce(dict.fromkeys(spread, raw.batch()), acks=0), answered=False)
    answer = raw.produced(client.ask(raw.produce(dict.fromkeys(spread, raw.batch()))))
    assert {found.base_offset for found in answer.values()} == {1}


def tables(spread: dict[Key, int], key: int, version: int) -> Any:
    """A request of ListOffsets, DeleteRecords or OffsetForLeaderEpoch for all partitions given."""
    (name, _), *_ = spread or {("none", 0): 0}
    indexes = [index for _, index in spread]
    if key == 2:
        return raw.list_offsets(dict.fromkeys(spread, -1), version=version)
    if key == 21:
        partitions = [{"partition_index": index, "offset": 1} for index in indexes]
        return request(21, version, timeout=10_000, topics=[{"name": name, "partitions": partitions}])
    partitions = [{"partition": index, "leader_epoch": 0, "current_leader_epoch": -1} for index in indexes]
    fields = {"replica_id": -1} if version >= 3 else {}
    return request(23, version, topics=[{"topic": name, "partitions": partitions}], **fields)


def rows(answer: Any) -> dict[int, Any]:
    """Partitions by index of an answer about one topic."""
    (topic,) = answer.topics
    return {getattr(found, "partition_index", getattr(found, "partition", -1)): found for found in topic.partitions}


@pytest.mark.parametrize(
    ("key", "version"), [*((2, v) for v in range(1, 8)), *((21, v) for v in range(3)), *((23, v) for v in range(2, 5))]
)
def test_a_table_of_partitions_is_split_and_merged_field_by_field(
    key: int, version: int, client: RawClient, spread: dict[Key, int], kafka_cluster: Kafka
) -> None:
    client.ask(raw.produce({part: raw.batch(count=1 + part[1]) for part in spread}))
    merged = rows(client.ask(tables(spread, key, version)))
    assert list(merged) == [index for _, index in spread]
    for broker in (1, 2, 3):
        own = {part: leader for part, leader in spread.items() if leader == broker}
        with direct(kafka_cluster, broker) as leader:
            assert rows(leader.ask(tables(own, key, version))) == {index: merged[index] for _, index in own}
    assert {raw.code(found) for found in merged.values()} == {0}


@pytest.mark.parametrize("key", [2, 21, 23])
def test_a_table_tells_what_does_not_exist(key: int, client: RawClient, spread: dict[Key, int]) -> None:
    (name, _), *_ = spread
    merged = rows(client.ask(tables({**spread, (name, 99): 0}, key, 2)))
    assert {index: raw.code(found) for index, found in merged.items()} == {
        **dict.fromkeys(range(6), 0 if key != 21 else 1),
        99: 3,
    }


def test_a_partition_that_is_listed_twice_is_refused_as_a_broker_does(
    client: RawClient, spread: dict[Key, int], kafka_cluster: Kafka
) -> None:
    (name, _), *_ = spread
    twice = [{"partition_index": index, "timestamp": -1} for index in (0, 1, 2, 1)]
    asked = request(2, 1, replica_id=-1, topics=[{"name": name, "partitions": twice}])
    merged = [(found.partition_index, raw.code(found)) for found in client.ask(asked).topics[0].partitions]
    assert merged == [(0, 0), (1, 42), (2, 0), (1, 42)]
    with direct(kafka_cluster, spread[name, 1]) as leader:
        straight = {(found.partition_index, raw.code(found)) for found in leader.ask(asked).topics[0].partitions}
        assert (1, 42) in straight


def read_all(client: RawClient, positions: dict[Key, int], **fields: Any) -> dict[Key, Any]:
    return raw.fetched(client.ask(raw.fetch(positions, **fields)))


@pytest.mark.parametrize("version", [4, 5, 8, 11])
def test_a_fetch_is_split_by_leader_and_brings_what_the_leaders_have(
    version: int, client: RawClient, spread: dict[Key, int], kafka_cluster: Kafka
) -> None:
    client.ask(raw.produce({part: raw.batch(b"%d" % part[1], count=2) for part in spread}))
    got: dict[Key, Any] = {}
    for _ in range(20):
        answer = read_all(client, dict.fromkeys(spread, 0), version=version)
        assert list(answer) == list(spread)
        assert {raw.code(found) for found in answer.values()} == {0}
        got |= {part: found for part, found in answer.items() if found.records}
        if len(got) == len(spread):
            break
    for part, broker in spread.items():
        with direct(kafka_cluster, broker) as leader:
            assert got[part] == read_all(leader, {part: 0}, version=version)[part]


def test_an_idle_broker_never_delays_a_busy_one(client: RawClient, spread: dict[Key, int]) -> None:
    """Two brokers have nothing to say for longer than anybody waits; the third always has something at once."""
    busy = next(part for part, leader in spread.items() if leader == 2)
    positions = dict.fromkeys(spread, 0)
    for number in range(50):
        client.send(raw.produce({busy: raw.batch(b"news %d" % number)}))
        client.send(raw.fetch(positions, max_wait=raw.PARKED_MS))
        assert raw.code(raw.produced(client.receive())[busy]) == 0
        answer = raw.fetched(client.receive())
        assert b"news %d" % number in answer[busy].records
        assert {raw.code(found) for found in answer.values()} == {0}
        assert all(found.high_watermark == 0 for part, found in answer.items() if part != busy)
        positions[busy] = number + 1


def test_with_nothing_to_say_brokers_are_waited_for_together(client: RawClient, spread: dict[Key, int]) -> None:
    read_all(client, dict.fromkeys(spread, 0), max_wait=0)
    waited: list[float] = []
    for _ in range(3):
        begun = time.monotonic()
        answer = read_all(client, dict.fromkeys(spread, 0), max_wait=800)
        waited.append(time.monotonic() - begun)
        assert {(raw.code(found), found.high_watermark) for found in answer.values()} == {(0, 0)}
    assert 0.7 < min(waited) < 3 * 0.8, "one after the other never takes less than the sum"


def test_records_wake_a_parked_fetch_whichever_broker_they_come_to(
    client: RawClient, node_of_three: NodeProcess, spread: dict[Key, int]
) -> None:
    positions = dict.fromkeys(spread, 0)
    read_all(client, positions, max_wait=0)
    with RawClient(node_of_three.bootstrap) as writer:
        for part in spread:
            client.send(raw.fetch(positions, max_wait=raw.PARKED_MS))
            assert client.is_silent(0.02)
            writer.ask(raw.produce({part: raw.batch(b"wake up")}))
            answer = raw.fetched(client.receive())
            assert b"wake up" in answer[part].records
            positions[part] = 1


def test_the_watermark_of_a_partition_that_fell_idle_is_its_last(client: RawClient, spread: dict[Key, int]) -> None:
    """Its poll is parked and says nothing: what is told of it must not be older than what the client has read."""
    parts = list(spread)
    busy = next(part for part, leader in spread.items() if leader == 1)
    positions = dict.fromkeys(parts, 0)
    read_all(client, positions, max_wait=0)
    client.ask(raw.produce({part: raw.batch(count=3) for part in parts}))
    while any(offset < 3 for offset in positions.values()):
        for part, found in read_all(client, positions).items():
            positions[part] = 3 if found.records else positions[part]
    for number in range(3):
        client.ask(raw.produce({busy: raw.batch()}))
        answer = read_all(client, positions, max_wait=5_000)
        assert answer[busy].high_watermark == 4 + number
        idle = [answer[part] for part in parts if part != busy]
        assert {(found.high_watermark, found.last_stable_offset, found.log_start_offset) for found in idle} == {
            (3, 3, 0)
        }
        positions[busy] += 1


def test_a_poll_is_taken_up_only_as_it_was_asked(client: RawClient, spread: dict[Key, int]) -> None:
    """What another poll has brought meanwhile is no answer for a client that now asks in another version."""
    client.ask(raw.produce({part: raw.batch(b"%d" % part[1]) for part in spread}))
    for number in range(60):
        version, isolation = (10, 11)[number % 2], number // 2 % 2
        answer = read_all(client, dict.fromkeys(spread, 0), version=version, isolation_level=isolation)
        for part, found in answer.items():
            assert (raw.code(found), found.high_watermark) == (0, 1)
            assert not found.records or b"%d" % part[1] in found.records


def test_a_client_that_moves_its_positions_all_the_time_is_answered_each_time(
    client: RawClient, spread: dict[Key, int]
) -> None:
    """As Java's consumer does, which leaves out partitions whose records it has not handed out yet."""
    client.ask(raw.produce(dict.fromkeys(spread, raw.batch(count=3))))
    parts = list(spread)
    for number in range(40):
        some = {part: 3 - number % 4 for at, part in enumerate(parts) if (number >> (at % 3)) & 1 or at == number % 6}
        answer = read_all(client, some, max_wait=20)
        assert list(answer) == list(some)
        assert {raw.code(found) for found in answer.values()} == {0}
