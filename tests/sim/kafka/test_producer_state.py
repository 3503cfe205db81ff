"""What a partition remembers of producer ids (`ProducerStateManager`, `ProducerAppendInfo`)."""

from tests.sim.kafka.batches import LAST_SEQUENCE, TRANSACTIONAL, encode
from tests.sim.kafka.harness import Simulated

DAY = 86_400_000


def test_a_batch_with_a_lower_epoch_than_one_seen_is_refused_with_47():
    s = Simulated()
    topic = s.topic()
    assert s.produce(topic, b"a", pid=7, epoch=1, seq=0) == (0, 0)
    assert s.produce(topic, b"b", pid=7, epoch=0, seq=0) == (47, -1)


def test_a_higher_epoch_begins_with_sequence_0_or_is_refused_with_45():
    s = Simulated()
    topic = s.topic()
    assert s.produce(topic, b"a", pid=7, epoch=0, seq=0) == (0, 0)
    assert s.produce(topic, b"b", pid=7, epoch=1, seq=1) == (45, -1)
    assert s.produce(topic, b"b", pid=7, epoch=1, seq=0) == (0, 1)


def test_a_gap_in_the_sequences_is_refused_with_45():
    s = Simulated()
    topic = s.topic()
    assert s.produce(topic, b"a", b"b", pid=7, epoch=0, seq=0) == (0, 0)
    assert s.produce(topic, b"d", pid=7, epoch=0, seq=3) == (45, -1)
    assert s.produce(topic, b"c", pid=7, epoch=0, seq=2) == (0, 2)


def test_a_repeat_of_one_of_the_last_five_batches_gets_its_first_offset_and_an_older_one_45():
    s = Simulated()
    topic = s.topic()
    for number in range(6):
        assert s.produce(topic, b"a", pid=7, epoch=0, seq=number) == (0, number)
    assert s.produce(topic, b"a", pid=7, epoch=0, seq=1) == (0, 1)
    assert s.produce(topic, b"a", pid=7, epoch=0, seq=5) == (0, 5)
    assert s.produce(topic, b"a", pid=7, epoch=0, seq=0) == (45, -1)
    assert s.latest(topic) == (0, 6)


def test_a_repeat_with_other_bounds_is_no_repeat():
    s = Simulated()
    topic = s.topic()
    assert s.produce(topic, b"a", b"b", pid=7, epoch=0, seq=0) == (0, 0)
    assert s.produce(topic, b"a", pid=7, epoch=0, seq=0) == (45, -1)


def test_a_stale_batch_is_no_repeat_of_what_a_newer_epoch_wrote():
    s = Simulated()
    topic = s.topic()
    assert s.produce(topic, b"a", pid=7, epoch=0, seq=0) == (0, 0)
    assert s.produce(topic, b"b", pid=7, epoch=1, seq=0) == (0, 1)
    assert s.produce(topic, b"a", pid=7, epoch=0, seq=0) == (47, -1)


def test_a_producer_that_nobody_knows_may_begin_with_any_sequence():
    s = Simulated()
    topic = s.topic()
    assert s.produce(topic, b"a", pid=7, epoch=3, seq=41) == (0, 0)
    assert s.produce(topic, b"b", pid=7, epoch=3, seq=42) == (0, 1)


def test_sequences_wrap_to_0_behind_the_largest_integer():
    s = Simulated()
    topic = s.topic()
    assert s.produce(topic, b"a", b"b", pid=7, epoch=0, seq=LAST_SEQUENCE - 1) == (0, 0)
    assert s.produce(topic, b"c", pid=7, epoch=0, seq=0) == (0, 2)
    assert s.produce(topic, b"d", b"e", pid=8, epoch=0, seq=LAST_SEQUENCE) == (0, 3)
    assert s.produce(topic, b"f", pid=8, epoch=0, seq=1) == (0, 5)
    assert s.producers(topic)[8]["last_sequence"] == 1


def test_a_marker_of_the_same_epoch_keeps_the_running_sequence():
    s = Simulated()
    topic = s.topic()
    pid, epoch = s.fence("slot", topic)
    assert s.produce(topic, b"a", pid=pid, epoch=epoch, seq=0)[0] == 0
    assert s.add("slot", pid, epoch, topic) == 0
    assert s.end("slot", pid, epoch) == 0
    s.pause(1)
    assert s.producers(topic)[pid]["last_sequence"] == 0
    assert s.produce(topic, b"b", pid=pid, epoch=epoch, seq=1)[0] == 0


def test_a_marker_of_a_higher_epoch_forgets_the_sequence_and_fences_the_lower_one():
    s = Simulated()
    topic = s.topic()
    pid, epoch = s.fence("slot", topic)
    assert s.produce(topic, b"a", b"b", pid=pid, epoch=epoch, seq=0)[0] == 0
    assert s.fence("slot", topic) == (pid, epoch + 1)
    assert s.producers(topic)[pid]["last_sequence"] == -1
    assert s.produce(topic, b"c", pid=pid, epoch=epoch, seq=2) == (47, -1)
    assert s.produce(topic, b"c", pid=pid, epoch=epoch + 1, seq=2) == (45, -1)
    assert s.produce(topic, b"c", pid=pid, epoch=epoch + 1, seq=0)[0] == 0


def test_a_marker_makes_an_entry_for_a_producer_that_never_wrote():
    s = Simulated()
    topic = s.topic(2)
    pid, epoch = s.fence("slot", topic, 0, 1)
    for partition in (0, 1):
        entry = s.producers(topic, partition)[pid]
        assert (entry["producer_epoch"], entry["last_sequence"]) == (epoch, -1)


def test_what_a_partition_remembers_ends_by_the_time_of_its_records():
    s = Simulated()
    topic = s.topic()
    assert s.produce(topic, b"a", pid=7, epoch=1, seq=0, timestamp=s.wall_ms() - DAY - 1)[0] == 0
    assert s.produce(topic, b"b", pid=8, epoch=1, seq=0)[0] == 0
    assert s.produce(topic, b"c", pid=7, epoch=0, seq=0) == (47, -1)
    s.cluster.expire_producers()
    assert list(s.producers(topic)) == [8]
    assert s.produce(topic, b"c", pid=7, epoch=0, seq=9)[0] == 0
    assert s.cluster.effects["producer_expired"] == 3


def test_what_a_partition_remembers_is_scanned_every_ten_minutes():
    s = Simulated()
    topic = s.topic()
    assert s.produce(topic, b"a", pid=7, epoch=1, seq=0, timestamp=s.wall_ms() - DAY - 1)[0] == 0
    s.pause(601)
    assert not s.producers(topic)


def test_with_log_append_time_the_brokers_clock_counts():
    s = Simulated()
    topic = s.topic(message_timestamp_type="LogAppendTime")
    assert s.produce(topic, b"a", pid=7, epoch=1, seq=0, timestamp=1)[0] == 0
    assert s.producers(topic)[7]["last_timestamp"] > 1_000_000
    s.cluster.expire_producers()
    assert 7 in s.producers(topic)


def test_a_restarted_replica_remembers_what_its_log_says():
    s = Simulated()
    topic = s.topic()
    pid, epoch = s.fence("slot", topic)
    for number in range(7):
        assert s.produce(topic, b"a", pid=pid, epoch=epoch, seq=number)[0] == 0
    broker = s.cluster.brokers[s.cluster.leader(topic, 0)]
    broker.kill()
    s.pause(12)
    broker.start()
    s.pause(12)
    entry = s.producers(topic, broker=broker.id)[pid]
    assert (entry["producer_epoch"], entry["last_sequence"]) == (epoch, 6)


def test_a_snapshot_keeps_the_last_batch_alone():
    s = Simulated()
    topic = s.topic()
    for number in range(3):
        assert s.produce(topic, b"a", pid=7, epoch=0, seq=number)[0] == 0
    s.pause(6)
    broker = s.cluster.brokers[s.cluster.leader(topic, 0)]
    broker.stop()
    s.pause(1)
    broker.start()
    s.pause(5)
    assert s.cluster.elect(topic, 0, broker.id)
    s.pause(1)
    assert s.produce(topic, b"a", pid=7, epoch=0, seq=2, broker=broker.id) == (0, 2)
    assert s.produce(topic, b"a", pid=7, epoch=0, seq=1, broker=broker.id) == (45, -1)


def test_a_batch_outside_of_a_transaction_is_refused_with_48_while_its_producer_has_data_in_one():
    s = Simulated()
    topic = s.topic()
    _, pid, epoch = s.init("app")
    assert s.add("app", pid, epoch, topic) == 0
    written = s.produce(topic, b"a", pid=pid, epoch=epoch, seq=0, attributes=TRANSACTIONAL, transactional_id="app")
    assert written == (0, 0)
    assert s.produce(topic, b"b", pid=pid, epoch=epoch, seq=1) == (48, -1)


def test_a_batch_outside_of_a_transaction_passes_while_the_transaction_is_empty():
    s = Simulated()
    topic = s.topic()
    _, pid, epoch = s.init("slot")
    assert s.add("slot", pid, epoch, topic) == 0
    assert s.produce(topic, b"a", pid=pid, epoch=epoch, seq=0) == (0, 0)


def test_a_transactional_batch_without_its_partition_in_the_transaction_is_refused():
    s = Simulated()
    topic = s.topic()
    _, pid, epoch = s.init("app")
    written = s.produce(topic, b"a", pid=pid, epoch=epoch, seq=0, attributes=TRANSACTIONAL, transactional_id="app")
    assert written == (48, -1)


def test_a_client_may_write_no_markers_and_no_bad_batches():
    s = Simulated()
    topic = s.topic()
    assert s.produce(topic, b"a", attributes=0x20) == (87, -1)
    good = encode([(None, b"a")], s.wall_ms())
    bad = good[:-1] + bytes((good[-1] ^ 1,))
    fields = s.produce_fields(topic, [b"a"])
    for records, error in ((bad, 2), (good + good, 87), (good[:-3], 87), (b"", 87)):
        fields["topic_data"][0]["partition_data"][0]["records"] = records
        answer = s.ask(s.cluster.leader(topic, 0), 0, 8, fields)
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == error


def test_a_batch_that_is_too_large_or_too_far_ahead_of_the_clock_is_refused():
    s = Simulated()
    topic = s.topic(max_message_bytes="200")
    assert s.produce(topic, b"a" * 200) == (10, -1)
    assert s.produce(topic, b"a", timestamp=s.wall_ms() + 3_700_000) == (32, -1)
    assert s.produce(topic, b"a", timestamp=s.wall_ms() + 3_500_000) == (0, 0)
