"""Leaders, followers, the high watermark and elections (KIP-101, KIP-207, KIP-497, KAFKA-15583)."""

from tests.sim.kafka import CONTROLLER
from tests.sim.kafka.harness import Simulated, fetch_fields
from tests.sim.kafka.log import valid_crc


def _others(s: Simulated, topic: str) -> tuple[int, list[int]]:
    leader = s.cluster.leader(topic, 0)
    return leader, [each for each in s.cluster.brokers if each != leader]


def test_all_replicas_have_the_same_bytes_with_a_valid_crc():
    s = Simulated()
    topic = s.topic()
    for number in range(5):
        assert s.produce(topic, b"a", b"b", pid=1, epoch=0, seq=2 * number)[0] == 0
    s.pause(1)
    logs = [s.at(topic, 0, each) for each in s.cluster.brokers]
    data = {b"".join(batch.data for batch in each.log.batches) for each in logs}
    assert len(logs) == 3
    assert len(data) == 1
    assert all(
        valid_crc(batch) and int.from_bytes(batch.data[:8], "big") == batch.base for batch in logs[0].log.batches
    )
    assert {each.high_watermark for each in logs} == {10}


def test_acks_all_waits_for_the_in_sync_replicas_and_acks_1_does_not():
    s = Simulated()
    topic = s.topic()
    leader, (one, _) = _others(s, topic)
    s.cluster.cut(leader, one)
    waiting = s.begin(leader, 0, 8, s.produce_fields(topic, [b"a"], timeout_ms=2000))
    s.pause(1)
    assert waiting.answer is None
    assert s.produce(topic, b"b", acks=1) == (0, 1)
    assert s.latest(topic) == (0, 0)
    row = s.finish(waiting)["responses"][0]["partition_responses"][0]
    assert row["error_code"] == 7
    s.cluster.heal(leader, one)
    s.pause(1)
    assert s.latest(topic) == (0, 2)
    assert s.cluster.effects["cut"]


def test_acks_0_is_not_answered_and_an_error_ends_the_connection():
    s = Simulated()
    topic = s.topic()
    leader, (other, _) = _others(s, topic)
    first = s.begin(leader, 0, 8, s.produce_fields(topic, [b"a"], acks=0))
    wrong = s.begin(other, 0, 8, s.produce_fields(topic, [b"a"], acks=0))
    s.pause(1)
    assert first.answer is None
    assert not first._connection.ended
    assert wrong._connection.ended
    assert s.latest(topic) == (0, 1)


def test_a_follower_serves_readers_alone_and_a_stranger_answers_3():
    s = Simulated()
    topic = s.topic()
    _, (other, _) = _others(s, topic)
    assert s.produce(topic, b"a", broker=other) == (6, -1)
    assert s.produce("nothing", b"a", broker=other) == (3, -1)
    older = s.ask(other, 1, 10, fetch_fields(topic))["responses"][0]["partitions"][0]
    assert (older["error_code"], s.fetch(topic, broker=other)["error_code"]) == (6, 0)  # KIP-392: since version 11


def test_a_replica_that_is_late_leaves_the_isr_and_comes_back():
    s = Simulated()
    topic = s.topic()
    leader, (one, two) = _others(s, topic)
    s.cluster.cut(leader, one)
    assert s.produce(topic, b"a", acks=1) == (0, 0)
    s.pause(60)
    assert sorted(s.cluster.controller.topics[topic].partitions[0].isr) == sorted((leader, two))
    assert s.latest(topic) == (0, 1)
    s.cluster.heal(leader, one)
    s.pause(2)
    assert len(s.cluster.controller.topics[topic].partitions[0].isr) == 3
    assert s.cluster.effects["isr_shrunk"] == s.cluster.effects["isr_expanded"] == 1


def test_with_too_few_in_sync_replicas_acks_all_is_refused_with_19_and_nothing_is_committed():
    s = Simulated()
    topic = s.topic(min_insync_replicas="2")
    _, others = _others(s, topic)
    for each in others:
        s.cluster.brokers[each].kill()
    s.pause(15)
    assert s.produce(topic, b"a") == (19, -1)
    assert s.produce(topic, b"a", acks=1) == (0, 0)
    s.pause(1)
    assert s.latest(topic) == (0, 0)
    s.cluster.brokers[others[0]].start()
    s.pause(5)
    assert s.latest(topic) == (0, 1)


def test_an_isr_that_shrinks_while_a_batch_waits_is_answered_with_20_or_a_timeout():
    s = Simulated()
    topic = s.topic(min_insync_replicas="3")
    leader, (one, _) = _others(s, topic)
    s.cluster.cut(leader, one)
    waiting = s.begin(leader, 0, 8, s.produce_fields(topic, [b"a"], timeout_ms=600_000))
    s.pause(70)
    assert waiting.answer is None  # the high watermark does not move below min.insync.replicas
    s.cluster.elect(
        topic, 0, next(each for each in s.cluster.controller.topics[topic].partitions[0].isr if each != leader)
    )
    assert s.finish(waiting)["responses"][0]["partition_responses"][0]["error_code"] == 6


def test_a_clean_election_loses_nothing_that_was_acknowledged():
    for seed in range(20):
        s = Simulated(seed)
        topic = s.topic(min_insync_replicas="2")
        acknowledged = 0
        for round_ in range(4):
            assert s.produce(topic, b"%d" % round_, pid=1, epoch=0, seq=round_)[0] == 0
            acknowledged += 1
            _, others = _others(s, topic)
            s.cluster.elect(topic, 0, others[round_ % 2])
            s.pause(2)
        assert s.latest(topic) == (0, acknowledged)


def test_what_a_deposed_leader_appended_alone_is_cut_off():
    s = Simulated()
    topic = s.topic()
    leader, (one, two) = _others(s, topic)
    assert s.produce(topic, b"a", pid=1, epoch=0, seq=0) == (0, 0)
    s.cluster.cut(leader, one)
    s.cluster.cut(leader, two)
    s.cluster.cut(leader, CONTROLLER)
    assert s.produce(topic, b"lost", pid=2, epoch=0, seq=0, acks=1) == (0, 1)
    s.pause(12)
    new = s.cluster.leader(topic, 0)
    assert new != leader
    # It does not know: it acts as a leader, and nothing that it appends is committed
    assert s.produce(topic, b"lost too", pid=2, epoch=0, seq=1, acks=1, broker=leader) == (0, 2)
    assert s.produce(topic, b"never", broker=leader, timeout_ms=1000) == (7, 3)
    assert 2 in s.producers(topic, broker=leader)
    assert s.fetch(topic, broker=leader)["high_watermark"] == 1
    assert s.produce(topic, b"b", pid=1, epoch=0, seq=1) == (0, 1)
    s.cluster.heal_all()
    s.pause(5)
    assert s.produce(topic, b"c", broker=leader) == (6, -1)
    assert 2 not in s.producers(topic, broker=leader)
    replica = s.cluster.replica(topic, 0, leader)
    assert replica is not None
    assert replica.log.end == 2
    assert s.cluster.effects["truncated"] == 1


def test_whoever_waits_at_a_leader_that_is_deposed_is_answered_with_6():
    s = Simulated()
    topic = s.topic()
    leader, (one, two) = _others(s, topic)
    s.cluster.cut(leader, one)
    waiting = s.begin(leader, 0, 8, s.produce_fields(topic, [b"a"]))
    s.pause(0.5)
    assert s.cluster.elect(topic, 0, two)
    assert s.finish(waiting)["responses"][0]["partition_responses"][0]["error_code"] == 6


def test_an_unclean_election_loses_what_the_new_leader_had_not():
    s = Simulated()
    topic = s.topic()
    leader, (one, two) = _others(s, topic)
    s.cluster.cut(leader, one)
    s.cluster.cut(one, two)
    assert s.produce(topic, b"a", acks=1) == (0, 0)
    s.pause(60)
    assert s.latest(topic) == (0, 1)
    assert not s.cluster.elect(topic, 0, one)
    assert s.cluster.elect(topic, 0, one, unclean=True)
    s.pause(1)
    s.cluster.heal_all()
    s.pause(3)
    assert s.latest(topic) == (0, 0)
    assert s.cluster.effects["elected_unclean"] == 1
    assert s.produce(topic, b"b") == (0, 0)


def test_without_a_live_replica_in_sync_there_is_no_leader_unless_that_is_allowed():
    for allowed, leads in (("false", False), ("true", True)):
        s = Simulated()
        topic = s.topic(unclean_leader_election_enable=allowed)
        leader, (one, two) = _others(s, topic)
        for each in (one, two):
            s.cluster.brokers[each].kill()
        s.pause(15)
        assert s.cluster.leader(topic, 0) == leader
        s.cluster.brokers[leader].kill()
        s.pause(1)
        s.cluster.brokers[one].start()
        s.pause(20)
        assert (s.cluster.leader(topic, 0) == one) is leads


def test_a_new_leader_answers_78_for_its_end_until_its_high_watermark_is_there():
    s = Simulated()
    topic = s.topic()
    leader, (one, two) = _others(s, topic)
    s.pause(1)
    assert s.produce(topic, b"a") == (0, 0)
    s.cluster.cut(one, two)  # the new leader hears from nobody
    s.cluster.cut(leader, one)
    assert s.cluster.elect(topic, 0, one)
    s.pause(0.3)
    replica = s.cluster.replica(topic, 0, one)
    assert replica is not None
    if replica.high_watermark < 1:
        assert s.latest(topic, broker=one) == (78, -1)
        assert s.latest(topic, broker=one, version=4) == (5, -1)
    s.cluster.heal_all()
    s.pause(2)
    assert s.latest(topic, broker=one) == (0, 1)


def test_a_request_that_knows_another_leader_epoch_is_refused_with_74_or_75():
    s = Simulated()
    topic = s.topic()
    _, (one, _) = _others(s, topic)
    assert s.cluster.elect(topic, 0, one)
    s.pause(1)
    assert s.fetch(topic, epoch=0)["error_code"] == 74
    assert s.fetch(topic, epoch=1)["error_code"] == 0
    assert s.fetch(topic, epoch=2)["error_code"] == 75


def test_the_leader_epoch_of_each_append_stands_in_its_batch():
    s = Simulated()
    topic = s.topic()
    assert s.produce(topic, b"a") == (0, 0)
    _, (one, _) = _others(s, topic)
    assert s.cluster.elect(topic, 0, one)
    s.pause(1)
    assert s.produce(topic, b"b") == (0, 1)
    assert [batch.epoch for batch in s.cluster.committed(topic, 0)] == [0, 1]
    assert [int.from_bytes(batch.data[12:16], "big") for batch in s.cluster.committed(topic, 0)] == [0, 1]


def test_a_killed_broker_keeps_its_log_and_catches_up():
    s = Simulated()
    topic = s.topic()
    leader, others = _others(s, topic)
    assert s.produce(topic, b"a") == (0, 0)
    s.cluster.brokers[leader].kill()
    s.pause(12)
    assert s.cluster.leader(topic, 0) in others
    assert s.produce(topic, b"b") == (0, 1)
    s.cluster.brokers[leader].start()
    s.pause(5)
    replica = s.cluster.replica(topic, 0, leader)
    assert replica is not None
    assert replica.log.end == 2
    assert leader in s.cluster.controller.topics[topic].partitions[0].isr


def test_a_broker_that_restarts_at_once_serves_only_when_its_old_session_has_ended():
    s = Simulated()
    topic = s.topic()
    leader, _ = _others(s, topic)
    broker = s.cluster.brokers[leader]
    broker.kill()
    broker.start()
    s.pause(3)
    assert not broker.listening
    s.pause(10)
    assert broker.listening
    assert leader in s.cluster.controller.live


def test_the_same_seed_gives_the_same_run_and_another_seed_another_one():
    def run(seed: int) -> list[tuple[float, str]]:
        s = Simulated(seed)
        told: list[tuple[float, str]] = []
        s.cluster.trace = lambda at, line: told.append((at, line))
        topic = s.topic(2)
        s.fence("slot", topic, 0, 1)
        s.produce(topic, b"a")
        s.cluster.move_coordinator("slot")
        s.pause(3)
        return told

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_an_epoch_in_which_a_leader_appended_nothing_is_forgotten_by_it_as_a_follower():
    s = Simulated()
    topic = s.topic()
    _, (one, two) = _others(s, topic)
    assert s.produce(topic, b"a") == (0, 0)
    s.cluster.brokers[two].metadata_lag(3)
    assert s.cluster.elect(topic, 0, two)
    assert s.cluster.elect(topic, 0, one)  # while the other one still is about to lead
    s.pause(10)
    assert s.produce(topic, b"b") == (0, 1)
    s.pause(1)
    assert {s.at(topic, 0, each).log.end for each in s.cluster.brokers} == {2}
    assert {tuple(s.at(topic, 0, each).log.epochs) for each in s.cluster.brokers} == {((0, 0), (2, 1))}
