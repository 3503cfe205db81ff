"""The transaction coordinator (`TransactionCoordinator`, KIP-360)."""

from tests.sim.kafka import ClusterSettings
from tests.sim.kafka.batches import TRANSACTIONAL
from tests.sim.kafka.harness import Simulated


def _init(s: Simulated, name: str, pid: int = -1, epoch: int = -1, version: int = 4) -> tuple[int, int]:
    """(error, epoch), without trying again."""
    fields = {"transactional_id": name, "transaction_timeout_ms": 60_000, "producer_id": pid, "producer_epoch": epoch}
    answer = s.ask(s.coordinator(name), 22, version, fields)
    return answer["error_code"], answer["producer_epoch"]


def _describe(s: Simulated, name: str) -> str:
    answer = s.ask(s.coordinator(name), 65, 0, {"transactional_ids": [name]})
    return answer["transaction_states"][0]["transaction_state"]


def test_a_broker_without_a_block_of_producer_ids_answers_14_first():
    s = Simulated()
    assert _init(s, "slot")[0] == 14
    s.pause(1)
    assert _init(s, "slot") == (0, 0)


def test_each_init_raises_the_epoch_and_keeps_the_producer_id():
    s = Simulated()
    _, pid, first = s.init("slot")
    assert s.init("slot") == (0, pid, first + 1)
    assert s.init("other")[1] != pid


def test_an_init_alone_fences_nothing_at_the_partitions():
    s = Simulated()
    topic = s.topic()
    pid, epoch = s.fence("slot", topic)
    s.init("slot")
    assert s.produce(topic, b"a", pid=pid, epoch=epoch, seq=0)[0] == 0


def test_an_empty_aborted_transaction_fences_partitions_that_were_never_written():
    s = Simulated()
    topic = s.topic(3)
    pid, epoch = s.fence("slot", topic, 0, 1, 2)
    s.fence("slot", topic, 0, 1, 2)
    for partition in range(3):
        assert s.produce(topic, b"a", partition=partition, pid=pid, epoch=epoch, seq=0)[0] == 47


def test_without_an_id_everybody_gets_an_id_of_its_own():
    s = Simulated()
    assert len({s.init(None)[1] for _ in range(5)}) == 5


def test_a_stale_stamp_is_refused_with_90_and_a_strange_id_with_49():
    s = Simulated()
    topic = s.topic()
    _, pid, epoch = s.init("slot")
    s.init("slot")
    assert s.add("slot", pid, epoch, topic) == 90
    assert s.end("slot", pid, epoch) == 90
    assert s.add("slot", pid + 1, epoch, topic) == 49
    assert s.end("nobody", pid, epoch) == 49
    fields = {"transactional_id": "slot", "producer_id": pid, "producer_epoch": epoch, "committed": False}
    assert s.ask(s.coordinator("slot"), 26, 1, fields)["error_code"] == 47


def test_an_init_that_names_the_present_stamp_raises_it_and_one_that_names_an_older_one_is_refused():
    s = Simulated()
    _, pid, epoch = s.init("slot")
    assert _init(s, "slot", pid, epoch) == (0, epoch + 1)
    assert _init(s, "slot", pid, epoch) == (0, epoch + 1)  # a retry: the answer was lost
    assert _init(s, "slot", pid, epoch + 1) == (0, epoch + 2)
    assert _init(s, "slot", pid, epoch)[0] == 90
    assert _init(s, "slot", pid, epoch, version=3)[0] == 47
    assert _init(s, "slot", pid + 1, epoch + 2)[0] == 90


def test_a_takeover_without_a_name_ends_the_retry_of_a_raise():
    s = Simulated()
    _, pid, epoch = s.init("slot")
    s.init("slot")
    assert _init(s, "slot", pid, epoch)[0] == 90


def test_the_first_answer_to_an_abort_does_not_mean_that_the_markers_are_there_and_the_second_does():
    s = Simulated()
    topic = s.topic(2)
    _, pid, epoch = s.init("slot")
    assert s.add("slot", pid, epoch, topic, 0, 1) == 0
    s.cluster.hold_markers(lambda topic, partition, name: partition == 1)
    assert s.end("slot", pid, epoch) == 0
    s.pause(5)
    assert s.end("slot", pid, epoch) == 51
    assert _describe(s, "slot") == "PrepareAbort"
    assert _init(s, "slot")[0] == 51
    assert pid in s.producers(topic, 0)
    assert pid not in s.producers(topic, 1)
    s.cluster.release()
    s.pause(1)
    assert s.end("slot", pid, epoch) == 0
    assert _describe(s, "slot") == "CompleteAbort"
    assert pid in s.producers(topic, 1)
    assert s.cluster.effects["marker_held"] == 1


def test_an_empty_transaction_cannot_be_ended():
    s = Simulated()
    _, pid, epoch = s.init("slot")
    assert s.end("slot", pid, epoch) == 48


def test_one_unknown_partition_keeps_all_out_of_the_transaction():
    s = Simulated()
    topic = s.topic()
    _, pid, epoch = s.init("slot")
    fields = {
        "transactional_id": "slot", "producer_id": pid, "producer_epoch": epoch,
        "topics": [{"name": topic, "partitions": [0, 9]}],
    }  # fmt: skip
    rows = s.ask(s.coordinator("slot"), 24, 3, fields)["results_by_topic"][0]["results_by_partition"]
    assert [row["partition_error_code"] for row in rows] == [55, 3]


def test_an_init_during_an_open_transaction_aborts_it_and_answers_51_meanwhile():
    s = Simulated()
    topic = s.topic()
    _, pid, epoch = s.init("slot")
    assert s.add("slot", pid, epoch, topic) == 0
    assert _init(s, "slot")[0] == 51
    error, same, newer = s.init("slot")
    assert (error, same) == (0, pid)
    assert newer > epoch + 1
    assert s.produce(topic, b"a", pid=pid, epoch=epoch, seq=0)[0] == 47


def test_an_open_transaction_is_aborted_after_its_timeout_and_fences_its_owner():
    s = Simulated()
    topic = s.topic()
    _, pid, epoch = s.init("slot", timeout_ms=5000)
    assert s.add("slot", pid, epoch, topic) == 0
    s.pause(20)
    assert s.cluster.effects["transaction_timed_out"] == 1
    assert s.produce(topic, b"a", pid=pid, epoch=epoch, seq=0)[0] == 47
    assert s.end("slot", pid, epoch) == 90


def test_exhausted_epochs_give_a_new_producer_id_and_no_marker():
    s = Simulated()
    topic = s.topic()
    pid, _epoch = s.fence("slot", topic)
    _, transaction = s.cluster.brokers[s.coordinator("slot")].transactions.find("slot")
    assert transaction is not None
    transaction.facts = transaction.facts._replace(epoch=32_766)
    error, new, first = s.init("slot")
    assert (error, first) == (0, 0)
    assert new != pid
    assert new not in s.producers(topic)


def test_a_coordinator_that_moves_knows_what_was_committed_and_goes_on_with_the_markers():
    s = Simulated()
    topic = s.topic()
    _, pid, epoch = s.init("slot")
    assert s.add("slot", pid, epoch, topic) == 0
    s.cluster.hold_markers()
    assert s.end("slot", pid, epoch) == 0
    old = s.coordinator("slot")
    assert s.cluster.move_coordinator("slot")
    s.pause(0.5)
    assert s.coordinator("slot") != old
    fields = {"transactional_id": "slot", "producer_id": pid, "producer_epoch": epoch, "committed": False}
    assert s.ask(old, 26, 3, fields)["error_code"] == 16
    s.cluster.release()
    s.pause(2)
    assert s.end("slot", pid, epoch) == 0
    assert s.producers(topic)[pid]["coordinator_epoch"] == 1
    assert s.init("slot") == (0, pid, epoch + 1)


def test_a_new_coordinator_answers_14_while_it_loads():
    s = Simulated(settings=ClusterSettings(load=(5.0, 5.0)))
    _, pid, _ = s.init("slot")
    assert s.cluster.move_coordinator("slot")
    s.pause(1)
    assert _init(s, "slot")[0] == 14
    s.pause(6)
    assert s.init("slot")[1] == pid


def test_a_marker_of_an_older_coordinator_is_refused_with_52():
    s = Simulated()
    topic = s.topic()

    def write(epoch: int, coordinator_epoch: int) -> int:
        marker = {
            "producer_id": 5, "producer_epoch": epoch, "transaction_result": False,
            "coordinator_epoch": coordinator_epoch,
            "topics": [{"name": topic, "partition_indexes": [0]}],
        }  # fmt: skip
        answer = s.ask(s.cluster.leader(topic, 0), 27, 1, {"markers": [marker]})
        return answer["markers"][0]["topics"][0]["partitions"][0]["error_code"]

    assert write(3, 7) == 0
    assert write(3, 6) == 52
    assert write(2, 7) == 47
    assert write(3, 7) == 0
    assert s.producers(topic)[5]["producer_epoch"] == 3


def test_a_partition_above_the_coordinators_epoch_keeps_the_transaction_prepared_for_ever():
    s = Simulated()
    topic = s.topic()
    _, pid, epoch = s.init("slot")
    assert s.produce(topic, b"a", pid=pid, epoch=epoch + 5, seq=0)[0] == 0
    assert s.add("slot", pid, epoch, topic) == 0
    assert s.end("slot", pid, epoch) == 0
    s.pause(60)
    assert s.end("slot", pid, epoch) == 51
    assert s.cluster.effects["markers_cancelled"] == 1


def test_a_partition_without_a_leader_keeps_the_transaction_prepared_until_it_has_one():
    s = Simulated()
    s.cluster.create_topic("alone", 1, assignment={0: [3]})
    s.pause(1)
    _, pid, epoch = s.init("slot")
    assert s.add("slot", pid, epoch, "alone") == 0
    s.cluster.brokers[3].kill()
    s.pause(12)
    s.end("slot", pid, epoch)
    s.pause(5)
    assert s.end("slot", pid, epoch) == 51
    s.cluster.brokers[3].start()
    s.pause(20)
    assert s.end("slot", pid, epoch) == 0


def test_a_transactional_id_is_forgotten_after_a_week_and_its_next_producer_id_is_another():
    s = Simulated(settings=ClusterSettings(transactional_id_expiration_ms=1000))
    _, pid, _ = s.init("slot")
    s.pause(2)
    s.cluster.expire_producers()
    s.pause(1)
    assert s.init("slot")[1] != pid
    assert s.cluster.effects["transactional_id_expired"] == 1


def test_readers_of_committed_records_wait_for_the_end_of_a_transaction_with_data():
    s = Simulated()
    topic = s.topic()
    _, pid, epoch = s.init("app")
    assert s.add("app", pid, epoch, topic) == 0
    more = {"pid": pid, "epoch": epoch, "attributes": TRANSACTIONAL, "transactional_id": "app"}
    assert s.produce(topic, b"a", seq=0, **more) == (0, 0)
    assert s.produce(topic, b"b") == (0, 1)
    seen = s.fetch(topic, isolation=1)
    assert (seen["high_watermark"], seen["last_stable_offset"], seen["records"]) == (2, 0, b"")
    assert s.end("app", pid, epoch) == 0
    s.pause(1)
    seen = s.fetch(topic, isolation=1)
    assert (seen["high_watermark"], seen["last_stable_offset"]) == (3, 3)
    assert seen["aborted_transactions"] == [{"producer_id": pid, "first_offset": 0}]
    assert s.fetch(topic)["aborted_transactions"] is None


def test_an_empty_transaction_holds_no_reader_back():
    s = Simulated()
    topic = s.topic()
    _, pid, epoch = s.init("slot")
    assert s.add("slot", pid, epoch, topic) == 0
    assert s.produce(topic, b"a", pid=pid, epoch=epoch, seq=0) == (0, 0)
    assert s.fetch(topic, isolation=1)["last_stable_offset"] == 1


def test_a_coordinator_with_too_few_replicas_answers_15():
    s = Simulated()
    s.init("slot")
    coordinator = s.coordinator("slot")
    for each in s.cluster.brokers.values():
        if each.id != coordinator:
            each.kill()
    s.pause(15)
    assert _init(s, "slot")[0] == 15


def test_the_end_of_a_transaction_is_stable_only_when_its_marker_is_committed():
    s = Simulated()
    topic = s.topic()
    _, pid, epoch = s.init("app")
    assert s.add("app", pid, epoch, topic) == 0
    more = {"pid": pid, "epoch": epoch, "attributes": TRANSACTIONAL, "transactional_id": "app"}
    assert s.produce(topic, b"a", seq=0, **more) == (0, 0)
    leader = s.cluster.leader(topic, 0)
    marker = {
        "producer_id": pid,
        "producer_epoch": epoch,
        "transaction_result": True,
        "coordinator_epoch": 0,
        "topics": [{"name": topic, "partition_indexes": [0]}],
    }
    s.cluster.cut(leader, next(each for each in s.cluster.brokers if each != leader))
    writing = s.begin(leader, 27, 1, {"markers": [marker]})
    s.pause(1)
    assert writing.answer is None
    seen = s.fetch(topic, isolation=1)
    assert (seen["high_watermark"], seen["last_stable_offset"], seen["records"]) == (1, 0, b"")
    s.cluster.heal_all()
    s.finish(writing)
    assert s.fetch(topic, isolation=1)["last_stable_offset"] == 2


def test_a_partition_cannot_be_added_while_markers_are_under_way():
    s = Simulated()
    topic = s.topic()
    _, pid, epoch = s.init("slot")
    assert s.add("slot", pid, epoch, topic) == 0
    s.cluster.hold_markers()
    assert s.end("slot", pid, epoch) == 0
    s.pause(1)
    assert s.add("slot", pid, epoch, topic) == 51
    s.cluster.release()
    s.pause(1)
    assert s.add("slot", pid, epoch, topic) == 0
