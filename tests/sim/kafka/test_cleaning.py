"""Retention and compaction (`LogCleaner`, `UnifiedLog.deleteOldSegments`)."""

from tests.sim.kafka import ClusterSettings
from tests.sim.kafka.batches import TRANSACTIONAL
from tests.sim.kafka.harness import Simulated
from tests.sim.kafka.log import valid_crc
from tests.sim.kafka.records import parse
from tests.sim.kafka.topics import CONSUMER_OFFSETS, TRANSACTION_STATE


def _keys(s: Simulated, topic: str) -> list[tuple[int, bytes | None]]:
    return [
        (batch.base + delta, key)
        for batch in s.cluster.committed(topic, 0)
        if not batch.control
        for delta, _, key, _, _ in parse(batch)
    ]


def _compact(s: Simulated, topic: str) -> None:
    """With something new: there is no cleaning without."""
    s.produce(topic, b"new", key=b"new")
    s.cluster.roll(topic)
    s.cluster.compact(topic)


def test_retention_drops_whole_segments_and_moves_the_log_start():
    s = Simulated()
    topic = s.topic(retention_ms="1000")
    s.produce(topic, b"a")
    s.cluster.roll(topic)
    s.pause(2)
    s.produce(topic, b"b")
    s.cluster.retain(topic)
    assert s.fetch(topic, 1)["log_start_offset"] == 1
    assert s.fetch(topic, 0)["error_code"] == 1
    assert s.cluster.effects["retention"] == 3


def test_retention_by_size_keeps_the_newest_segments():
    s = Simulated()
    topic = s.topic(retention_bytes="300", segment_bytes="200")
    for _ in range(10):
        s.produce(topic, b"a" * 50)
    s.cluster.retain(topic)
    replica = s.cluster.replica(topic, 0)
    assert replica is not None
    assert 0 < replica.log.start < 10
    assert s.latest(topic) == (0, 10)


def test_a_leader_still_knows_a_producer_whose_records_are_gone_and_a_new_replica_does_not():
    s = Simulated()
    s.cluster.create_topic("t", 1, 2, configs={"retention.ms": "1000"}, assignment={0: [1, 2]})
    s.pause(1)
    pid, _epoch = s.fence("slot", "t")
    s.cluster.roll("t")
    s.pause(5)
    s.cluster.retain("t")
    assert pid in s.producers("t", broker=1)
    broker = s.cluster.brokers[2]
    broker.kill()
    broker.disks.clear()
    s.pause(12)
    broker.start()
    s.pause(5)
    assert pid not in s.producers("t", broker=2)


def test_compaction_keeps_the_last_record_of_each_key_and_leaves_the_active_segment_alone():
    s = Simulated()
    topic = s.topic(cleanup_policy="compact")
    for number in range(4):
        s.produce(topic, b"a%d" % number, key=b"k%d" % (number % 2))
    s.cluster.compact(topic)
    assert len(_keys(s, topic)) == 4
    s.cluster.roll(topic)
    s.produce(topic, b"b", key=b"k0")
    s.cluster.compact(topic)
    assert _keys(s, topic) == [(2, b"k0"), (3, b"k1"), (4, b"k0")]
    assert all(valid_crc(batch) for batch in s.cluster.committed(topic, 0))
    assert s.fetch(topic, 0)["error_code"] == 0
    assert s.cluster.effects["compacted"] == 3


def test_compaction_keeps_the_last_batch_of_a_producer_empty():
    s = Simulated()
    topic = s.topic(cleanup_policy="compact")
    s.produce(topic, b"a", key=b"k", pid=1, epoch=2, seq=0)
    s.produce(topic, b"a", key=b"k", pid=1, epoch=2, seq=1)
    s.produce(topic, b"b", key=b"k")
    s.cluster.roll(topic)
    s.cluster.compact(topic)
    assert [(batch.base, batch.count) for batch in s.cluster.committed(topic, 0)] == [(1, 0), (2, 1)]
    broker = s.cluster.brokers[s.cluster.leader(topic, 0)]
    broker.kill()
    s.pause(12)
    broker.start()
    s.pause(3)
    assert s.producers(topic, broker=broker.id)[1]["last_sequence"] == 1


def test_a_marker_that_compaction_has_emptied_fences_nobody_on_a_replica_that_reads_its_log_again():
    s = Simulated()
    topic = s.topic(cleanup_policy="compact", delete_retention_ms="1000")
    pid, epoch = s.fence("slot", topic)
    s.fence("slot", topic)
    _compact(s, topic)
    s.pause(5)
    _compact(s, topic)
    assert s.produce(topic, b"a", key=b"k", pid=pid, epoch=epoch, seq=0)[0] == 47
    leader = s.cluster.leader(topic, 0)
    other = next(each for each in s.cluster.brokers if each != leader)
    s.cluster.brokers[other].kill()
    s.cluster.brokers[other].disks.clear()
    s.pause(12)
    s.cluster.brokers[other].start()
    s.pause(12)
    assert s.cluster.elect(topic, 0, other)
    s.pause(2)
    assert s.produce(topic, b"a", key=b"k", pid=pid, epoch=epoch, seq=0)[0] == 0


def test_a_record_without_a_key_is_refused_on_a_compacted_topic():
    s = Simulated()
    topic = s.topic(cleanup_policy="compact")
    assert s.produce(topic, b"a") == (87, -1)
    assert s.produce(topic, b"a", key=b"k") == (0, 0)


def test_a_topic_of_somebody_whose_name_begins_as_those_of_kafka_is_compacted_and_retained():
    s = Simulated()
    for name, policy in (("__mine", "compact"), ("__events", "delete")):
        s.cluster.create_topic(name, configs={"cleanup.policy": policy, "retention.ms": "1000"})
    s.pause(1)
    for name in ("__mine", "__events"):
        s.produce(name, b"a", key=b"k")
        s.produce(name, b"b", key=b"k")
        s.cluster.roll(name)
    s.pause(5)
    s.produce("__events", b"c", key=b"k")
    s.cluster.compact("__mine")
    s.cluster.retain("__events")
    assert _keys(s, "__mine") == [(1, b"k")]
    assert _keys(s, "__events") == [(2, b"k")]


def test_the_topics_of_kafka_itself_are_left_alone():
    s = Simulated()
    s.fence("slot", s.topic())
    for name in (CONSUMER_OFFSETS, TRANSACTION_STATE):
        s.cluster.roll(name)
        s.cluster.compact(name)
        s.cluster.retain(name)
    assert not s.cluster.effects["compacted"]


def test_a_compaction_that_finds_nothing_takes_no_effect():
    s = Simulated()
    topic = s.topic(cleanup_policy="compact")
    s.produce(topic, b"a", key=b"a")
    s.produce(topic, b"b", key=b"b")
    s.cluster.compact(topic)
    s.cluster.roll(topic)
    s.cluster.compact(topic)
    assert not s.cluster.effects["compacted"]
    assert s.cluster.history(topic, 0) == s.cluster.committed(topic, 0)


def test_compaction_leaves_segments_alone_from_the_first_young_one_on():
    """KIP-58."""
    s = Simulated()
    topic = s.topic(cleanup_policy="compact", min_compaction_lag_ms="1000")
    s.produce(topic, b"a", key=b"k")
    s.cluster.roll(topic)
    s.produce(topic, b"b", key=b"k")
    s.cluster.roll(topic)
    s.cluster.compact(topic)
    assert not s.cluster.effects["compacted"]
    s.pause(1.5)
    s.cluster.compact(topic)
    assert _keys(s, topic) == [(1, b"k")]


def test_a_tombstone_stays_for_delete_retention_from_its_first_cleaning():
    s = Simulated()
    topic = s.topic(cleanup_policy="compact", delete_retention_ms="1000")
    s.produce(topic, b"a", key=b"k")
    s.produce(topic, None, key=b"k")
    s.produce(topic, b"b", key=b"l")
    s.cluster.roll(topic)
    s.pause(5)  # old already, and no cleaning has seen it
    s.cluster.compact(topic)
    assert _keys(s, topic) == [(1, b"k"), (2, b"l")]
    (batch, _) = s.cluster.committed(topic, 0)
    assert valid_crc(batch)
    assert batch.delete_horizon is not None
    assert [record.time for record in parse(batch)] == [batch.max_ts]
    s.pause(2)
    s.cluster.compact(topic)
    assert _keys(s, topic) == [(1, b"k"), (2, b"l")]
    _compact(s, topic)
    assert _keys(s, topic) == [(2, b"l"), (3, b"new")]


def test_a_marker_stays_for_delete_retention_from_its_first_cleaning():
    s = Simulated()
    topic = s.topic(cleanup_policy="compact", delete_retention_ms="1000")
    s.fence("slot", topic)
    s.cluster.roll(topic)
    s.pause(5)
    s.cluster.compact(topic)
    (marker,) = s.cluster.committed(topic, 0)
    assert marker.count == 1
    s.pause(2)
    _compact(s, topic)
    (marker, _) = s.cluster.committed(topic, 0)
    assert (marker.count, marker.marker, valid_crc(marker)) == (0, -1, True)


def test_what_compaction_took_is_in_the_history_of_a_log():
    s = Simulated()
    topic = s.topic(cleanup_policy="compact")
    for value in (b"a", b"b", b"c"):
        s.produce(topic, value, key=b"k")
        s.cluster.roll(topic)
        s.cluster.compact(topic)
    assert [batch.base for batch in s.cluster.committed(topic, 0)] == [2]
    assert [(batch.base, batch.count) for batch in s.cluster.history(topic, 0)] == [(0, 1), (1, 1), (2, 1)]


def test_records_of_an_aborted_transaction_go_and_its_marker_stays_as_long_as_its_last_batch():
    s = Simulated()
    topic = s.topic(cleanup_policy="compact", delete_retention_ms="1000")
    s.produce(topic, b"a", key=b"k")
    _, pid, epoch = s.init("app")
    assert s.add("app", pid, epoch, topic) == 0
    more = {"pid": pid, "epoch": epoch, "attributes": TRANSACTIONAL, "transactional_id": "app"}
    for number in range(2):
        assert s.produce(topic, b"b", key=b"k", seq=number, **more) == (0, 1 + number)
    assert s.end("app", pid, epoch) == 0
    s.pause(1)
    for _ in range(3):
        _compact(s, topic)
        assert s.at(topic, 0).log.aborted
        s.pause(2)
    kept = [(0, 1), (2, 0), (3, 1), (6, 1)]
    assert [(batch.base, batch.count) for batch in s.cluster.committed(topic, 0)] == kept
    s.cluster.expire_producers()
    s.pause(86_400)
    s.cluster.expire_producers()
    _compact(s, topic)  # nobody needs the empty batch
    assert [batch.base for batch in s.cluster.committed(topic, 0)] == [0, 3, 7]
    assert s.at(topic, 0).log.aborted
    _compact(s, topic)
    assert not s.at(topic, 0).log.aborted


def test_the_last_batch_of_a_cleaning_stays_empty_since_kafka_4():
    """KAFKA-17076: else a replica that reads the log again would end in front of where it ended."""
    for version, kept in (((3, 9), [1]), ((4, 1), [0, 1])):
        s = Simulated(settings=ClusterSettings(version=version))
        topic = s.topic(cleanup_policy="compact")
        s.cluster.controller.configure(topic, {"cleanup.policy": "delete"})
        s.pause(1)
        s.produce(topic, b"a")
        s.cluster.roll(topic)
        s.produce(topic, b"b")
        s.cluster.controller.configure(topic, {"cleanup.policy": "compact"})
        s.pause(1)
        s.cluster.compact(topic)
        assert [batch.base for batch in s.cluster.committed(topic, 0)] == kept


def test_a_segment_with_the_last_stable_offset_is_not_cleaned():
    s = Simulated()
    topic = s.topic(cleanup_policy="compact")
    s.produce(topic, b"a", key=b"k")
    s.produce(topic, b"a", key=b"k")
    _, pid, epoch = s.init("app")
    assert s.add("app", pid, epoch, topic) == 0
    assert s.produce(topic, b"b", key=b"k", seq=0, pid=pid, epoch=epoch, attributes=TRANSACTIONAL,
                     transactional_id="app") == (0, 2)  # fmt: skip
    s.cluster.roll(topic)
    s.produce(topic, b"c", key=b"k")
    s.cluster.compact(topic)
    assert [key[0] for key in _keys(s, topic)] == [0, 1, 2, 3]


def test_a_cleaner_that_is_not_asked_waits_until_half_of_the_log_is_dirty():
    s = Simulated()
    topic = s.topic(cleanup_policy="compact", segment_bytes="100")
    for number in range(8):
        s.produce(topic, b"a" * 40, key=b"k%d" % number)
    s.pause(16)
    assert s.at(topic, 0).log.cleaned_to == 7
    s.produce(topic, b"a" * 40, key=b"k0")
    s.produce(topic, b"a" * 40, key=b"k1")
    s.pause(16)
    assert s.at(topic, 0).log.cleaned_to == 7
    s.cluster.controller.configure(topic, {"min.cleanable.dirty.ratio": "0.1"})
    s.pause(16)
    assert s.at(topic, 0).log.cleaned_to == 9
    assert [key[0] for key in _keys(s, topic)] == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_a_restarted_replica_does_not_know_a_producer_whose_records_were_deleted():
    """Its snapshots are none behind the log's start (`ProducerStateManager.truncateAndReload`)."""
    s = Simulated()
    topic = s.topic()
    pid, _ = s.fence("slot", topic)
    s.produce(topic, b"a", pid=7, epoch=0, seq=0)
    assert s.delete(topic, 2) == (0, 2)
    leader = s.cluster.leader(topic, 0)
    assert set(s.producers(topic)) == {pid, 7}
    for broker in s.cluster.brokers.values():
        if broker.id != leader:
            broker.stop()
            s.pause(12)
            broker.start()
            s.pause(12)
            assert s.at(topic, 0, broker.id).producers.entries == {}
    assert s.cluster.elect(topic, 0, next(each for each in s.cluster.brokers if each != leader))
    s.pause(1)
    assert s.produce(topic, b"b", pid=7, epoch=0, seq=5) == (0, 2)


def test_delete_records_is_answered_when_all_replicas_that_live_begin_there():
    s = Simulated()
    topic = s.topic()
    s.produce(topic, b"a")
    s.produce(topic, b"b")
    leader = s.cluster.leader(topic, 0)
    others = [broker for broker in s.cluster.brokers.values() if broker.id != leader]
    assert s.delete(topic, 1) == (0, 1)
    assert all(s.at(topic, 0, broker.id).log.start == 1 for broker in others)
    others[0].freeze()
    assert s.delete(topic, 2, timeout_ms=500) == (7, -1)
    assert s.at(topic, 0).log.start == 2
    others[0].thaw()
    s.pause(2)
    assert s.at(topic, 0, others[0].id).log.start == 2


def test_a_killed_broker_may_begin_where_its_log_began_a_minute_ago():
    s = Simulated()
    topic = s.topic()
    for value in (b"a", b"b", b"c"):
        s.produce(topic, value)
    for offset, kept in ((1, 0), (2, 2)):
        assert s.delete(topic, offset) == (0, offset)
        s.pause(1 if kept == 0 else 61)
        broker = s.cluster.brokers[s.cluster.leader(topic, 0)]
        disk = next(disk for key, disk in broker.disks.items() if key[0] == s.at(topic, 0).topic.id)
        broker.kill()
        assert max(disk.start, disk.log.rolls[0]) == kept
        s.pause(12)
        broker.start()
        s.pause(12)
        assert s.at(topic, 0, broker.id).log.start == offset  # its leader says so
        assert s.cluster.elect(topic, 0, broker.id)
        s.pause(1)
