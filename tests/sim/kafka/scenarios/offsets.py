"""ListOffsets (2), DeleteRecords (21), OffsetForLeaderEpoch (23), DescribeProducers (61)."""

from __future__ import annotations

from typing import Any

from tests.sim.kafka.batches import TRANSACTIONAL
from tests.sim.kafka.scenarios.common import (
    compressed,
    deleted,
    end_of_epoch,
    finish,
    init_once,
    known,
    list_fields,
    listed,
    produced,
    scenario,
    seen,
    timed,
)
from tests.sim.kafka.talk import Talk


@scenario
def the_record_of_a_time_within_a_batch(talk: Talk) -> list[Any]:
    topic, now = talk.topic(), talk.wall_ms() - 10_000
    produced(talk, topic, timed([now, now + 10, now + 20]))
    return [listed(talk, topic, now + each) for each in (-5, 0, 1, 10, 15, 20, 21)]


@scenario
def the_record_of_a_time_within_a_compressed_batch(talk: Talk) -> list[Any]:
    topic, now = talk.topic(), talk.wall_ms() - 10_000
    produced(talk, topic, compressed(timed([now, now + 10, now + 20]), 1))
    return [listed(talk, topic, now + each) for each in (-5, 0, 1, 10, 15, 20, 21)]


@scenario
def times_that_go_back(talk: Talk) -> list[Any]:
    topic, now = talk.topic(), talk.wall_ms() - 10_000
    for at in (50, 20, 90, 70):
        produced(talk, topic, timed([now + at, now + at - 15]))
    return [listed(talk, topic, now + each) for each in (0, 5, 20, 36, 51, 71, 90, 91)]


@scenario
def the_newest_timestamp(talk: Talk) -> list[Any]:
    topic, now = talk.topic(), talk.wall_ms() - 10_000
    found: list[Any] = [listed(talk, topic, -3, version=7)]
    for times in ([now, now + 90, now + 20], [now + 30], [now + 90]):
        produced(talk, topic, timed(times))
        found.append(listed(talk, topic, -3, version=7))
    return found


@scenario
def the_newest_timestamp_with_log_append_time(talk: Talk) -> list[Any]:
    topic = talk.topic(message_timestamp_type="LogAppendTime")
    for _ in range(2):
        talk.produce(topic, b"a", b"b", timestamp=5)
        talk.pause(0.01)
    fields = list_fields(topic, -3)
    row = talk.ask(talk.leader_of(topic), 2, 7, fields)["topics"][0]["partitions"][0]
    return [row["error_code"], row["offset"], row["timestamp"] > 10**12]


@scenario
def the_newest_timestamp_wants_version_7(talk: Talk) -> list[Any]:
    topic = talk.topic()
    talk.produce(topic, b"a")
    return [listed(talk, topic, -3, version=version) for version in (1, 4, 5, 6, 7)]


@scenario
def log_append_time_finds_the_batch(talk: Talk) -> list[Any]:
    topic = talk.topic(message_timestamp_type="LogAppendTime")
    talk.produce(topic, b"a", b"b", timestamp=5)
    return [listed(talk, topic, each) for each in (0, 6, talk.wall_ms() + 60_000)]


@scenario
def timestamps_that_nobody_defined(talk: Talk) -> list[Any]:
    topic = talk.topic()
    talk.produce(topic, b"a")
    return [listed(talk, topic, each, version=7) for each in (-4, -5, -6, -100, -(2**63), 2**63 - 1)]


@scenario
def places_without_offsets(talk: Talk) -> list[Any]:
    topic = talk.topic()
    leader = talk.leader_of(topic)
    found: list[Any] = []
    for name, partition in ((topic, 3), (topic, -1), (topic + "-none", 0)):
        row = talk.ask(leader, 2, 5, list_fields(name, -1, partition=partition))["topics"][0]["partitions"][0]
        found.append((row["error_code"], row["timestamp"], row["offset"], row["leader_epoch"]))
    return found


@scenario
def the_timestamp_of_an_answer(talk: Talk) -> list[Any]:
    topic, now = talk.topic(), talk.wall_ms() - 10_000
    produced(talk, topic, timed([now, now + 10]))
    found: list[Any] = []
    for timestamp in (-1, -2, -3, now + 5, now + 11):
        answer = talk.ask(talk.leader_of(topic), 2, 7, list_fields(topic, timestamp))
        row = answer["topics"][0]["partitions"][0]
        found.append((row["timestamp"] - now if row["timestamp"] >= 0 else row["timestamp"], row["offset"]))
    return found


@scenario
def a_partition_twice_in_a_list(talk: Talk) -> list[Any]:
    topic = talk.topic()
    talk.produce(topic, b"a")
    fields = list_fields(topic, -1)
    fields["topics"][0]["partitions"] *= 2
    rows = talk.ask(talk.leader_of(topic), 2, 5, fields)["topics"][0]["partitions"]
    return [(row["error_code"], row["offset"]) for row in rows]


@scenario
def times_above_the_last_stable_offset(talk: Talk) -> list[Any]:
    topic, name, now = talk.topic(), talk.unique("app"), talk.wall_ms() - 10_000
    _, pid, epoch = talk.init(name)
    talk.produce(topic, b"a", timestamp=now)
    talk.add(name, pid, epoch, topic)
    talk.produce(topic, b"b", timestamp=now + 10, pid=pid, epoch=epoch, seq=0, attributes=TRANSACTIONAL,
                 transactional_id=name)  # fmt: skip
    talk.produce(topic, b"c", timestamp=now + 20)
    asked = (-1, -2, now, now + 5, now + 15)
    found: list[Any] = [[listed(talk, topic, each, isolation=level) for each in asked] for level in (0, 1)]
    finish(talk, name, pid, epoch)
    return [*found, [listed(talk, topic, each, isolation=1) for each in asked]]


@scenario
def times_in_front_of_the_log_start(talk: Talk) -> list[Any]:
    topic, now = talk.topic(), talk.wall_ms() - 10_000
    produced(talk, topic, timed([now, now + 10, now + 20]))
    deleted(talk, topic, 2)
    return [listed(talk, topic, each, version=7) for each in (now, now + 10, now + 20, -2, -3)]


@scenario
def a_marker_has_a_time_too(talk: Talk) -> list[Any]:
    topic, name, now = talk.topic(), talk.unique("app"), talk.wall_ms() - 100_000
    _, pid, epoch = talk.init(name)
    talk.produce(topic, b"a", timestamp=now)
    talk.add(name, pid, epoch, topic)
    finish(talk, name, pid, epoch, commit=False)
    return [listed(talk, topic, now + 1), listed(talk, topic, -3, version=7)]


@scenario
def epochs_that_nobody_knows(talk: Talk) -> list[Any]:
    topic = talk.topic()
    found: list[Any] = [end_of_epoch(talk, topic, each) for each in (0, -1, 3)]
    talk.produce(topic, b"v")
    found += [end_of_epoch(talk, topic, each) for each in (0, -1, -7, 3)]
    found += [end_of_epoch(talk, topic, 0, current=each) for each in (0, 1, -1)]
    return [*found, [end_of_epoch(talk, topic, 0, version=each) for each in (2, 3, 4)]]


@scenario
def the_end_of_an_epoch_in_no_partition(talk: Talk) -> list[Any]:
    topic = talk.topic()
    leader = talk.leader_of(topic)
    found: list[Any] = []
    for name, partition in ((topic, 9), (topic + "-none", 0)):
        part = {"partition": partition, "current_leader_epoch": -1, "leader_epoch": 0}
        fields = {"replica_id": -1, "topics": [{"topic": name, "partitions": [part]}]}
        row = talk.ask(leader, 23, 3, fields)["topics"][0]["partitions"][0]
        found.append((row["error_code"], row["leader_epoch"], row["end_offset"]))
    return found


@scenario
def records_deleted_nowhere(talk: Talk) -> list[Any]:
    topic = talk.topic()
    leader = talk.leader_of(topic)
    talk.produce(topic, b"v")
    return [deleted(talk, topic, 0, partition=9, broker=leader), deleted(talk, topic + "-none", 0, broker=leader),
            deleted(talk, topic, -2), deleted(talk, topic, 2), deleted(talk, topic, 0)]  # fmt: skip


@scenario
def a_compacted_topic_keeps_its_records(talk: Talk) -> list[Any]:
    topic, both = talk.topic(cleanup_policy="compact"), talk.topic(cleanup_policy="compact,delete")
    for each in (topic, both):
        talk.produce(each, b"v", key=b"k")
    return [deleted(talk, topic, 1), deleted(talk, both, 1), listed(talk, topic, -2), listed(talk, both, -2)]


@scenario
def records_deleted_within_a_batch(talk: Talk) -> list[Any]:
    topic = talk.topic()
    talk.produce(topic, b"a", b"b", b"c")
    return [deleted(talk, topic, 1), *(seen(talk, topic, each) for each in (0, 1, 2)), listed(talk, topic, -2),
            end_of_epoch(talk, topic, 0)]  # fmt: skip


@scenario
def an_open_transaction_does_not_keep_records(talk: Talk) -> list[Any]:
    topic, name = talk.topic(), talk.unique("app")
    _, pid, epoch = talk.init(name)
    talk.add(name, pid, epoch, topic)
    for seq in (0, 1):
        talk.produce(topic, b"b", pid=pid, epoch=epoch, seq=seq, attributes=TRANSACTIONAL, transactional_id=name)
    found: list[Any] = [deleted(talk, topic, -1), seen(talk, topic, 2, isolation=1), known(talk, topic, pid, epoch)]
    return [*found, finish(talk, name, pid, epoch), seen(talk, topic, 2, isolation=1)]


@scenario
def producers_of_nowhere(talk: Talk) -> list[Any]:
    topic = talk.topic()
    leader = talk.leader_of(topic)
    found: list[Any] = []
    for name, partition in ((topic, 9), (topic + "-none", 0), (topic, -1)):
        fields = {"topics": [{"name": name, "partition_indexes": [partition]}]}
        row = talk.ask(leader, 61, 0, fields)["topics"][0]["partitions"][0]
        found.append((row["error_code"], row["active_producers"]))
    return found


@scenario
def a_producer_without_id_is_not_described(talk: Talk) -> list[Any]:
    topic = talk.topic()
    talk.produce(topic, b"v")
    return [talk.producers(topic)]


@scenario
def an_open_transaction_is_described(talk: Talk) -> list[Any]:
    topic, name = talk.topic(), talk.unique("app")
    _, pid, epoch = talk.init(name)
    talk.produce(topic, b"x", b"y")
    found: list[Any] = [talk.add(name, pid, epoch, topic), known(talk, topic, pid, epoch)]
    talk.produce(topic, b"b", pid=pid, epoch=epoch, seq=0, attributes=TRANSACTIONAL, transactional_id=name)
    found += [known(talk, topic, pid, epoch), finish(talk, name, pid, epoch), known(talk, topic, pid, epoch)]
    return [*found, init_once(talk, name)[2] - epoch, known(talk, topic, pid, epoch)]


@scenario
def a_fence_makes_a_producer_known(talk: Talk) -> list[Any]:
    topic, name = talk.topic(), talk.unique("slot")
    pid, epoch = talk.fence(name, topic)
    row = talk.producers(topic)[pid]
    return [known(talk, topic, pid, epoch), row["last_timestamp"] > 10**12]


@scenario
def leader_epochs(talk: Talk) -> list[Any]:
    topic = talk.topic()
    talk.produce(topic, b"v")
    found: list[Any] = [seen(talk, topic, epoch=epoch)[0] for epoch in (0, 1)]
    found += [listed(talk, topic, -1, epoch=epoch) for epoch in (0, 1)]
    for epoch in (0, 1, 5):
        part = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}
        fields = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [part]}]}
        row = talk.ask(talk.leader_of(topic), 23, 3, fields)["topics"][0]["partitions"][0]
        found.append((row["error_code"], row["leader_epoch"], row["end_offset"]))
    return found


@scenario
def offsets_by_time(talk: Talk) -> list[Any]:
    topic, now = talk.topic(), talk.wall_ms()
    for time in (now - 3000, now - 2000, now - 1000):
        talk.produce(topic, b"a", b"b", timestamp=time)
    times = (-2, -1, 0, now - 3000, now - 2500, now - 1000, now - 999, now + 5000)
    return [listed(talk, topic, each) for each in times]


@scenario
def list_offsets_versions(talk: Talk) -> list[Any]:
    topic = talk.topic()
    talk.produce(topic, b"a")
    return [listed(talk, topic, -1, version=version) for version in range(1, 8)]


@scenario
def deleted_records(talk: Talk) -> list[Any]:
    topic, (_, pid, epoch) = talk.topic(), talk.init(None)
    for seq in range(4):
        talk.produce(topic, b"a", pid=pid, epoch=epoch, seq=seq)

    found: list[Any] = [
        talk.delete(topic, 2),
        seen(talk, topic, 1),
        seen(talk, topic, 2),
        listed(talk, topic, -2),
        talk.delete(topic, 9),
    ]
    found += [
        talk.delete(topic, 1),
        talk.delete(topic, -1),
        listed(talk, topic, -2),
        talk.produce(topic, b"a", pid=pid, epoch=epoch, seq=1),
    ]
    return [*found, talk.produce(topic, b"a", pid=pid, epoch=epoch, seq=4), known(talk, topic, pid, epoch)]


@scenario
def producers_of_a_partition(talk: Talk) -> list[Any]:
    topic = talk.topic()
    found: list[Any] = [sorted(talk.producers(topic))]
    _, pid, epoch = talk.init(None)
    time = talk.wall_ms() - 5000
    talk.produce(topic, b"a", b"b", pid=pid, epoch=epoch, seq=0, timestamp=time)
    talk.produce(topic, b"a")
    row = dict(talk.producers(topic)[pid])
    row["last_timestamp"] -= time
    del row["producer_id"]
    fields = {"topics": [{"name": topic, "partition_indexes": [5]}]}
    missing = talk.ask(talk.leader_of(topic), 61, 0, fields)["topics"][0]["partitions"][0]["error_code"]
    return [*found, row, missing]
