"""Fetch, ListOffsets, DeleteRecords, OffsetForLeaderEpoch (KIP-74, KIP-101, KIP-219, KIP-227)."""

from tests.sim.kafka.harness import Simulated, fetch_fields
from tests.sim.kafka.log import valid_crc


def _list(s: Simulated, topic: str, timestamp: int) -> tuple[int, int, int]:
    part = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
    fields = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic, "partitions": [part]}]}
    row = s.ask(s.cluster.leader(topic, 0), 2, 5, fields)["topics"][0]["partitions"][0]
    return row["error_code"], row["offset"], row["leader_epoch"]


def test_a_fetch_waits_for_its_first_byte_and_is_woken_when_it_is_committed():
    s = Simulated()
    topic = s.topic()
    leader = s.cluster.leader(topic, 0)
    waiting = s.begin(leader, 1, 11, fetch_fields(topic, max_wait_ms=5000))
    s.pause(1)
    assert waiting.answer is None
    before = s.heap.now()
    s.produce(topic, b"a")
    assert s.finish(waiting)["responses"][0]["partitions"][0]["records"]
    assert s.heap.now() - before < 1


def test_a_fetch_that_waits_in_vain_is_answered_empty():
    s = Simulated()
    topic = s.topic()
    before = s.heap.now()
    row = s.fetch(topic, max_wait_ms=2000)
    assert row["records"] == b""
    assert 2 <= s.heap.now() - before < 2.1


def test_the_first_batch_comes_whole_however_large_and_the_last_one_may_be_cut_off():
    s = Simulated()
    topic = s.topic()
    for _ in range(3):
        s.produce(topic, b"a" * 100)
    size = s.cluster.committed(topic, 0)[0].size
    assert len(s.fetch(topic, partition_max_bytes=10)["records"]) == size
    assert len(s.fetch(topic, partition_max_bytes=size + 30)["records"]) == size + 30
    assert len(s.fetch(topic, max_bytes=1)["records"]) == size


def test_a_fetch_within_a_batch_gets_the_whole_batch():
    s = Simulated()
    topic = s.topic()
    s.produce(topic, b"a", b"b", b"c")
    assert int.from_bytes(s.fetch(topic, 2)["records"][:8], "big") == 0


def test_a_fetch_stays_in_one_segment():
    s = Simulated()
    topic = s.topic()
    s.produce(topic, b"a")
    s.cluster.roll(topic)
    s.produce(topic, b"b")
    size = s.cluster.committed(topic, 0)[0].size
    assert len(s.fetch(topic)["records"]) == size
    assert len(s.fetch(topic, 1)["records"]) == size


def test_an_offset_outside_of_the_log_is_refused_with_1():
    s = Simulated()
    topic = s.topic()
    s.produce(topic, b"a", b"b")
    assert s.fetch(topic, 3)["error_code"] == 1
    assert s.fetch(topic, 2)["error_code"] == 0
    deleted = {"topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": 2}]}], "timeout_ms": 1000}
    assert s.ask(s.cluster.leader(topic, 0), 21, 2, deleted)["topics"][0]["partitions"][0]["low_watermark"] == 2
    assert s.fetch(topic, 1)["error_code"] == 1
    assert _list(s, topic, -2) == (0, 2, 0)
    s.pause(1)
    assert {s.at(topic, 0, each).log.start for each in s.cluster.brokers} == {2}


def test_what_is_above_the_high_watermark_is_not_given_to_readers():
    s = Simulated()
    topic = s.topic()
    leader = s.cluster.leader(topic, 0)
    s.cluster.cut(leader, next(each for each in s.cluster.brokers if each != leader))
    s.produce(topic, b"a", acks=1)
    row = s.fetch(topic)
    assert (row["error_code"], row["high_watermark"], row["records"]) == (0, 0, b"")
    assert s.fetch(topic, 1)["error_code"] == 0


def test_list_offsets_finds_the_first_record_that_is_not_older():
    s = Simulated()
    topic = s.topic()
    for time in (1000, 2000, 3000):
        s.produce(topic, b"a", b"b", timestamp=time)
    assert _list(s, topic, 1500) == (0, 2, 0)
    assert _list(s, topic, 3000) == (0, 4, 0)
    assert _list(s, topic, 3001) == (0, -1, -1)
    assert _list(s, topic, -1) == (0, 6, 0)
    assert _list(s, topic, -2) == (0, 0, 0)


def test_the_end_of_a_leader_epoch_is_where_the_next_one_begins():
    s = Simulated()
    topic = s.topic()
    s.produce(topic, b"a", b"b")
    assert s.cluster.elect(topic, 0, next(each for each in s.cluster.brokers if each != s.cluster.leader(topic, 0)))
    s.pause(1)
    s.produce(topic, b"c")

    def end(epoch: int) -> tuple[int, int]:
        part = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}
        fields = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [part]}]}
        row = s.ask(s.cluster.leader(topic, 0), 23, 3, fields)["topics"][0]["partitions"][0]
        return row["leader_epoch"], row["end_offset"]

    assert end(0) == (0, 2)
    assert end(1) == (1, 3)
    assert end(2) == (-1, -1)


def test_fetch_sessions_are_declined():
    s = Simulated()
    topic = s.topic()
    fields = fetch_fields(topic) | {"session_id": 0, "session_epoch": 0}
    assert s.ask(s.cluster.leader(topic, 0), 1, 11, fields)["session_id"] == 0
    fields |= {"session_id": 9, "session_epoch": 1}
    assert s.ask(s.cluster.leader(topic, 0), 1, 11, fields)["error_code"] == 70


def test_log_append_time_stands_in_the_batch_and_in_the_answer_and_the_crc_fits():
    s = Simulated()
    topic = s.topic(message_timestamp_type="LogAppendTime")
    answer = s.ask(s.cluster.leader(topic, 0), 0, 8, s.produce_fields(topic, [b"a"], timestamp=5))
    time = answer["responses"][0]["partition_responses"][0]["log_append_time_ms"]
    batch = s.cluster.committed(topic, 0)[0]
    assert time == batch.max_ts > 1_000_000
    assert batch.attributes & 0x08
    assert valid_crc(batch)
