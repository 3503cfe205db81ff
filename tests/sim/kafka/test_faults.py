"""Faults take effect, are counted, and end."""

from struct import Struct

import pytest

from sidecar.protocol.calls.admin import ApiVersions
from sidecar.protocol.primitives import Reader
from tests.sim import wire
from tests.sim.kafka.harness import Connection, Simulated, fetch_fields
from tests.sim.kafka.tables import MESSAGES


def test_a_frozen_broker_answers_nothing_until_it_goes_on():
    s = Simulated()
    topic = s.topic()
    leader = s.cluster.leader(topic, 0)
    broker = s.cluster.brokers[leader]
    broker.freeze()
    waiting = s.begin(leader, 0, 8, s.produce_fields(topic, [b"a"]))
    s.pause(5)
    assert waiting.answer is None
    broker.thaw()
    assert s.finish(waiting)["responses"][0]["partition_responses"][0]["error_code"] == 0
    assert s.cluster.effects["broker_frozen"] == s.cluster.effects["broker_thawed"] == 1


def test_a_broker_that_is_frozen_for_longer_than_its_session_is_deposed_and_learns_of_it_late():
    s = Simulated()
    topic = s.topic()
    leader = s.cluster.leader(topic, 0)
    broker = s.cluster.brokers[leader]
    broker.freeze()
    s.pause(12)
    assert s.cluster.leader(topic, 0) != leader
    assert s.produce(topic, b"b") == (0, 0)
    waiting = s.begin(leader, 0, 8, s.produce_fields(topic, [b"zombie"], timeout_ms=3000))
    broker.thaw()
    row = s.finish(waiting)["responses"][0]["partition_responses"][0]
    assert row["error_code"] in (6, 7)
    s.pause(5)
    assert s.latest(topic) == (0, 1)
    assert leader in s.cluster.controller.topics[topic].partitions[0].isr


def test_a_killed_broker_closes_its_connections_and_refuses_new_ones():
    s = Simulated()
    connection = Connection(s.cluster, 1)
    s.cluster.brokers[1].kill()
    assert connection.ended
    with pytest.raises(ConnectionRefusedError):
        Connection(s.cluster, 1)


def test_a_refusal_before_the_append_leaves_the_log_alone_and_one_after_it_does_not():
    s = Simulated()
    topic = s.topic()
    broker = s.cluster.brokers[s.cluster.leader(topic, 0)]
    broker.refuse(0, 6)
    assert s.produce(topic, b"a") == (6, -1)
    assert s.latest(topic) == (0, 0)
    broker.refuse(0, 7, times=2, after_append=True)
    assert s.produce(topic, b"a") == (7, -1)
    assert s.produce(topic, b"b") == (7, -1)
    assert s.produce(topic, b"c") == (0, 2)
    assert (s.cluster.effects["refused"], s.cluster.effects["refused_after"]) == (1, 2)


@pytest.mark.parametrize("key", [2, 3, 10, 22, 24, 26, 61, 1, 32])
def test_every_api_of_a_node_can_be_refused(key: int):
    s = Simulated()
    topic = s.topic()
    for broker in s.cluster.brokers.values():
        broker.refuse(key, 15, times=1)
    fields = {
        1: (11, fetch_fields(topic)),
        2: (5, {"topics": [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]}),
        3: (10, {"topics": [{"name": topic}]}),
        10: (1, {"key": "a", "key_type": 1}),
        22: (4, {"transactional_id": "a", "transaction_timeout_ms": 1, "producer_id": -1, "producer_epoch": -1}),
        24: (3, {"transactional_id": "a", "topics": [{"name": topic, "partitions": [0]}]}),
        26: (3, {"transactional_id": "a"}),
        32: (1, {"resources": [{"resource_type": 2, "resource_name": topic, "configuration_keys": None}]}),
        61: (0, {"topics": [{"name": topic, "partition_indexes": [0]}]}),
    }
    version, values = fields[key]
    answer = s.ask(1, key, version, values)
    assert "15" in str([value for name, value in _flat(answer) if "error_code" in name])
    assert s.cluster.effects["refused"] == 1


def _flat(value: object) -> list[tuple[str, object]]:
    if isinstance(value, dict):
        return [pair for name, each in value.items() for pair in ((name, each), *_flat(each))]
    return [pair for each in value for pair in _flat(each)] if isinstance(value, list) else []


def test_an_injected_empty_fetch_has_no_records_and_the_next_one_has():
    s = Simulated()
    topic = s.topic()
    s.produce(topic, b"a")
    s.cluster.brokers[s.cluster.leader(topic, 0)].empty_fetches(1)
    assert s.fetch(topic)["records"] == b""
    assert s.fetch(topic)["records"]
    assert s.cluster.effects["empty_fetch"] == 1


def test_a_throttled_fetch_has_no_partitions_and_its_connection_is_muted():
    s = Simulated()
    topic = s.topic()
    leader = s.cluster.leader(topic, 0)
    s.cluster.brokers[leader].throttle(1, 2000)
    before = s.heap.now()
    answer = s.ask(leader, 1, 11, fetch_fields(topic))
    assert (answer["throttle_time_ms"], answer["responses"]) == (2000, [])
    assert s.heap.now() - before < 1
    s.ask(leader, 1, 11, fetch_fields(topic))
    assert s.heap.now() - before >= 2


def test_a_cut_link_delays_messages_until_it_is_healed():
    s = Simulated()
    topic = s.topic()
    s.cluster.cut(1, 2)
    s.cluster.cut(2, 3)
    s.cluster.cut(1, 3)
    leader = s.cluster.leader(topic, 0)
    waiting = s.begin(leader, 0, 8, s.produce_fields(topic, [b"a"], timeout_ms=20_000))
    s.pause(3)
    assert waiting.answer is None
    s.cluster.heal_all()
    assert s.finish(waiting)["responses"][0]["partition_responses"][0]["error_code"] == 0


def test_a_broker_that_hears_late_of_an_election_still_calls_itself_leader():
    s = Simulated()
    topic = s.topic()
    leader = s.cluster.leader(topic, 0)
    s.cluster.brokers[leader].metadata_lag(20)
    other = next(each for each in s.cluster.brokers if each != leader)
    assert s.cluster.elect(topic, 0, other)
    s.pause(1)
    assert s.produce(topic, b"lost", broker=leader, acks=1) == (0, 0)
    assert s.produce(topic, b"kept", acks=1) == (0, 0)
    assert s.latest(topic) == (0, 0)  # the old leader is in sync, and does not fetch yet
    s.pause(30)
    assert s.latest(topic) == (0, 1)
    assert s.produce(topic, b"no", broker=leader) == (6, -1)
    replica = s.cluster.replica(topic, 0, leader)
    assert replica is not None
    assert replica.log.end == 1


def test_requests_of_one_connection_are_answered_in_their_order_however_the_bytes_are_cut():
    s = Simulated()
    topic = s.topic()
    connection = Connection(s.cluster, s.cluster.leader(topic, 0))
    stream = b"".join(
        MESSAGES[key].encode_request(version, number, b"", fields)
        for number, (key, version, fields) in enumerate(
            [
                (1, 11, fetch_fields(topic, max_wait_ms=500)),
                (0, 8, s.produce_fields(topic, [b"a"])),
                (10, 1, {"key": "a", "key_type": 0}),
            ]
        )
    )
    for at in range(len(stream)):
        connection.channel.received(stream[at : at + 1])
    s.pause(5)
    assert [Struct(">i").unpack_from(answer, 4)[0] for answer in connection.answers] == [0, 1, 2]


def test_an_api_or_a_version_that_is_not_served_ends_the_connection():
    s = Simulated()
    for head in (Struct(">ihhih").pack(10, 999, 0, 1, 0), Struct(">ihhih").pack(10, 0, 99, 1, 0), b"\xff\xff\xff\xff"):
        connection = Connection(s.cluster, 1)
        connection.channel.received(head)
        s.pause(1)
        assert connection.ended
        assert not connection.answers


def test_api_versions_are_told_in_a_header_without_tags_and_an_unknown_version_gets_35():
    s = Simulated()
    connection = Connection(s.cluster, 1)
    connection.channel.received(Struct(">ihhih").pack(10, 18, 0, 5, 0))
    connection.channel.received(Struct(">ihhihBBBB").pack(14, 18, 3, 6, 0, 0, 1, 1, 0))
    connection.channel.received(Struct(">ihhih").pack(10, 18, 9, 7, 0))
    s.pause(1)
    found = ApiVersions().decode(Reader(connection.answers[0], 8))
    assert found[0] == (0, 13)
    assert found[1] == (4, 18)
    assert Struct(">ih").unpack_from(connection.answers[1], 4) == (6, 0)
    assert Struct(">ih").unpack_from(connection.answers[2], 4) == (7, 35)


def test_epochs_of_a_transactional_id_come_to_their_end_and_the_next_is_another_producers():
    s = Simulated()
    _, pid, epoch = s.init("slot")
    assert s.cluster.raise_epoch("slot", 32_766)
    s.pause(1)
    error, other, first = s.init("slot")
    assert (error, first) == (0, 0)
    assert other != pid
    assert not s.cluster.raise_epoch("slot", epoch)
    assert not s.cluster.raise_epoch("nobody", 5)


def test_records_that_cannot_be_decompressed_are_refused_and_leave_nothing():
    s = Simulated()
    topic = s.topic()
    batch = bytearray(wire.batch_of([wire.Writable(b"a" * 50)], s.wall_ms(), compressed=True))
    batch[75:] = bytes(len(batch) - 75)
    fields = s.produce_fields(topic, [b"a"])
    fields["topic_data"][0]["partition_data"][0]["records"] = wire.with_crc(bytes(batch))
    row = s.ask(s.cluster.leader(topic, 0), 0, 8, fields)["responses"][0]["partition_responses"][0]
    assert row["error_code"] == -1
    assert s.latest(topic) == (0, 0)
