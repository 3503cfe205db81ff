"""Which batches a leader takes from any producer: Produce (0), its acks, versions and limits."""

from __future__ import annotations

from typing import Any

from tests.sim.kafka.batches import TRANSACTIONAL, encode
from tests.sim.kafka.scenarios.common import (
    DAY,
    compressed,
    listed,
    of_one_broker,
    patched,
    produced,
    scenario,
    seen,
    timed,
)
from tests.sim.kafka.talk import Talk


def _good(talk: Talk, value: bytes = b"abc") -> bytes:
    return encode([(None, value)], talk.wall_ms())


@scenario
def null_records_are_never_answered(talk: Talk) -> list[Any]:
    topic = talk.topic()
    fields = talk.produce_fields(topic, [b"v"])
    fields["topic_data"][0]["partition_data"][0]["records"] = None
    return [talk.outcome(talk.begin(talk.leader_of(topic), 0, 8, fields), 0.3), talk.latest(topic)]


@scenario
def count_that_differs_from_the_records(talk: Talk) -> list[Any]:
    topic, batch = talk.topic(), encode([(None, b"a"), (None, b"b")], talk.wall_ms())
    broken = [patched(batch, 57, ">i", 1), patched(batch, 57, ">i", 3), patched(batch, 57, ">i", 0),
              patched(batch, 23, ">i", 5), patched(batch, 23, ">i", 0), patched(batch, 57, ">i", -1)]  # fmt: skip
    return [produced(talk, topic, each)["error_code"] for each in broken]


@scenario
def count_and_last_offset_that_both_differ_from_the_records(talk: Talk) -> list[Any]:
    topic, batch = talk.topic(), encode([(None, b"a"), (None, b"b")], talk.wall_ms())
    more = patched(patched(batch, 57, ">i", 3), 23, ">i", 2)
    less = patched(patched(batch, 57, ">i", 1), 23, ">i", 0)
    return [produced(talk, topic, each)["error_code"] for each in (more, less)]


@scenario
def base_offset_and_leader_epoch_of_a_client_do_not_count(talk: Talk) -> list[Any]:
    topic = talk.topic()
    batch = _good(talk)
    moved = (77).to_bytes(8, "big") + batch[8:12] + (9).to_bytes(4, "big") + batch[16:]
    return [produced(talk, topic, moved)["base_offset"], seen(talk, topic)]


@scenario
def a_batch_of_max_message_bytes_fits(talk: Talk) -> list[Any]:
    batch = _good(talk, b"v" * 400)
    topic = talk.topic(max_message_bytes=str(len(batch)))
    return [produced(talk, topic, batch)["error_code"], produced(talk, topic, _good(talk, b"v" * 401))["error_code"]]


@scenario
def a_record_older_than_before_max_is_refused(talk: Talk) -> list[Any]:
    topic, now = talk.topic(message_timestamp_before_max_ms="60000"), talk.wall_ms()
    return [talk.produce(topic, b"v", timestamp=now - back) for back in (0, 30_000, 90_000, DAY)]


@scenario
def a_record_younger_than_after_max_is_refused(talk: Talk) -> list[Any]:
    topic, now = talk.topic(message_timestamp_after_max_ms="60000"), talk.wall_ms()
    return [talk.produce(topic, b"v", timestamp=now + ahead) for ahead in (0, 30_000, 90_000, DAY)]


@scenario
def log_append_time_takes_any_timestamp(talk: Talk) -> list[Any]:
    topic = talk.topic(message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms="1000",
                       message_timestamp_after_max_ms="1000")  # fmt: skip
    return [talk.produce(topic, b"v", timestamp=each) for each in (0, -1, talk.wall_ms() + DAY, talk.wall_ms())]


@scenario
def records_without_timestamps(talk: Talk) -> list[Any]:
    topic = talk.topic()
    return [talk.produce(topic, b"v", timestamp=-1), listed(talk, topic, 0), seen(talk, topic)]


@scenario
def one_late_record_refuses_its_batch(talk: Talk) -> list[Any]:
    topic, now = talk.topic(message_timestamp_before_max_ms="60000"), talk.wall_ms()
    return [produced(talk, topic, timed([now, now - DAY, now]))["error_code"], talk.latest(topic)]


@scenario
def the_newest_timestamp_of_a_batch_is_computed_anew(talk: Talk) -> list[Any]:
    topic, now = talk.topic(), talk.wall_ms()
    wrong = patched(timed([now - 3000, now - 1000, now - 2000]), 35, ">q", now - 5000)
    found: list[Any] = [produced(talk, topic, wrong)["error_code"], listed(talk, topic, now - 1500)]
    data = talk.fetch(topic)["records"]
    return [*found, int.from_bytes(data[35:43], "big") - now, int.from_bytes(data[27:35], "big") - now]


@scenario
def compressed_batches(talk: Talk) -> list[Any]:
    topic, batch = talk.topic(), encode([(None, b"a" * 50), (b"k", b"b" * 50)], talk.wall_ms())
    found = [produced(talk, topic, compressed(batch, codec)) for codec in (1, 2, 3, 4)]
    last = [each[:4] for each in seen(talk, topic)[5]]
    return [[row["error_code"], row["base_offset"]] for row in found] + last


@scenario
def zstd_wants_version_7(talk: Talk) -> list[Any]:
    topic, batch = talk.topic(), compressed(_good(talk), 4)
    return [produced(talk, topic, batch, version)["error_code"] for version in (3, 6, 7)]


@scenario
def compressed_batch_with_broken_records(talk: Talk) -> list[Any]:
    topic = talk.topic()
    batch = _good(talk)
    broken = [patched(patched(batch[:61] + b"\0" * 30, 8, ">i", 79), 21, ">h", codec) for codec in (1, 2, 3, 4)]
    return [*(produced(talk, topic, each)["error_code"] for each in broken), talk.latest(topic)]


@scenario
def bytes_behind_the_records(talk: Talk) -> list[Any]:
    topic, batch = talk.topic(), encode([(None, b"a"), (None, b"b")], talk.wall_ms())
    longer = patched(batch + b"zz", 8, ">i", len(batch) - 10)
    broken = (longer, patched(batch, 61, ">b", 40), patched(batch, 66, ">b", 60))
    return [produced(talk, topic, each)["error_code"] for each in broken]


@scenario
def which_errors_tell_the_log_start(talk: Talk) -> list[Any]:
    topic, (_, pid, epoch) = talk.topic(max_message_bytes="500"), talk.init(None)
    talk.produce(topic, b"v", pid=pid, epoch=epoch + 1, seq=0)
    now = talk.wall_ms()
    wrong = [
        _good(talk)[:-1] + b"x", _good(talk, b"v" * 600), _good(talk) * 2, encode([(None, b"v")], now, pid, epoch, 1),
        encode([(None, b"v")], now, pid, epoch + 1, 5), patched(_good(talk), 57, ">i", 4),
    ]  # fmt: skip
    rows = [produced(talk, topic, each) for each in wrong]
    return [(row["error_code"], row["base_offset"], row["log_append_time_ms"], row["log_start_offset"]) for row in rows]


@scenario
def unknown_before_broken_before_wrong_acks(talk: Talk) -> list[Any]:
    topic = talk.topic()
    leader = talk.leader_of(topic)
    found: list[Any] = []
    for partition, records in ((7, b""), (0, b""), (0, _good(talk)[:-1] + b"x")):
        data = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
        fields = {"transactional_id": None, "acks": 9, "timeout_ms": 5000, "topic_data": data}
        row = talk.ask(leader, 0, 8, fields)["responses"][0]["partition_responses"][0]
        found.append(row["error_code"])
    return found


@of_one_broker
def a_transactional_batch_wants_a_transactional_id(talk: Talk) -> list[Any]:
    topic, (_, pid, epoch) = talk.topic(2), talk.init(None)
    now = talk.wall_ms()
    parts = [
        {"index": 0, "records": encode([(None, b"v")], now)},
        {"index": 1, "records": encode([(None, b"v")], now, pid, epoch, 0, TRANSACTIONAL)},
    ]
    fields = {"transactional_id": None, "acks": -1, "timeout_ms": 5000,
              "topic_data": [{"name": topic, "partition_data": parts}]}  # fmt: skip
    rows = talk.ask(talk.leader_of(topic), 0, 8, fields)["responses"][0]["partition_responses"]
    return [sorted((row["index"], row["error_code"]) for row in rows), talk.latest(topic)]


@scenario
def codec_that_nobody_knows(talk: Talk) -> list[Any]:
    topic = talk.topic()
    return [produced(talk, topic, patched(_good(talk), 21, ">h", codec))["error_code"] for codec in (5, 7)]


@scenario
def compacted_topic_wants_a_key_of_each_record(talk: Talk) -> list[Any]:
    topic, now = talk.topic(cleanup_policy="compact,delete"), talk.wall_ms()
    mixed, keyed = encode([(b"k", b"a"), (None, b"b")], now), encode([(b"k", b"a"), (b"l", None)], now)
    return [produced(talk, topic, mixed)["error_code"], produced(talk, topic, keyed)["error_code"], talk.latest(topic)]


@of_one_broker
def one_bad_partition_leaves_the_others_alone(talk: Talk) -> list[Any]:
    topic, good = talk.topic(2), _good(talk)
    parts = [{"index": 0, "records": good}, {"index": 9, "records": good}, {"index": 1, "records": good[:-1] + b"x"}]
    data = [{"name": topic, "partition_data": parts}, {"name": "none", "partition_data": parts[:1]}]
    fields = {"transactional_id": None, "acks": -1, "timeout_ms": 5000, "topic_data": data}
    answer = talk.ask(talk.leader_of(topic), 0, 8, fields)
    rows = {
        (each["name"] == topic, row["index"]): (row["error_code"], row["base_offset"])
        for each in answer["responses"]
        for row in each["partition_responses"]
    }
    return sorted(rows.items())


@scenario
def acks_0_is_not_answered(talk: Talk) -> list[Any]:
    topic = talk.topic()
    fields = talk.produce_fields(topic, [b"v"], acks=0)
    pending = talk.begin(talk.leader_of(topic), 0, 8, fields)
    return [talk.outcome(pending, 0.2), talk.latest(topic)]


@scenario
def acks_0_that_fails_ends_the_connection(talk: Talk) -> list[Any]:
    topic = talk.topic()
    fields = talk.produce_fields(topic, [b"v"], acks=0, partition=5)
    return [talk.outcome(talk.begin(talk.leader_of(topic), 0, 8, fields)), talk.latest(topic)]


@of_one_broker
def acks_1(talk: Talk) -> list[Any]:
    topic = talk.topic()
    return [talk.produce(topic, b"v", acks=1), talk.produce(topic, b"v", b"w", acks=1), talk.latest(topic)]


@scenario
def wrong_acks_append_nothing(talk: Talk) -> list[Any]:
    topic = talk.topic()
    rows = [produced(talk, topic, _good(talk), acks=acks) for acks in (2, -2, 7)]
    return [*([row["error_code"], row["base_offset"], row["log_start_offset"]] for row in rows), talk.latest(topic)]


@of_one_broker
def no_timeout_is_enough_for_one_replica(talk: Talk) -> list[Any]:
    topic = talk.topic()
    return [talk.produce(topic, b"v", timeout_ms=0), talk.produce(topic, b"v", timeout_ms=-1)]


@scenario
def order_of_checks(talk: Talk) -> list[Any]:
    """Size before CRC, what is in the batch before what is known of its producer."""
    topic, (_, pid, epoch) = talk.topic(max_message_bytes="500", cleanup_policy="compact"), talk.init(None)
    now = talk.wall_ms()
    talk.produce(topic, b"v", key=b"k", pid=pid, epoch=epoch + 1, seq=0)
    large = encode([(b"k", b"v" * 600)], now, pid, epoch, 5)
    broken = large[:-1] + b"x"
    keyless = encode([(None, b"v")], now, pid, epoch, 5)
    unkeyed_broken = keyless[:-2] + b"xx"
    ahead = encode([(b"k", b"v")], now + 2 * DAY, pid, epoch, 5)
    foreign = encode([(None, b"v")], now, pid, epoch + 1, 9, TRANSACTIONAL)
    return [produced(talk, topic, each)["error_code"] for each in
            (large, broken, keyless, unkeyed_broken, ahead, foreign)]  # fmt: skip


@scenario
def messages_with_an_error_have_no_offsets(talk: Talk) -> list[Any]:
    topic = talk.topic(max_message_bytes="500")
    talk.produce(topic, b"v")
    row = produced(talk, topic, _good(talk, b"v" * 600))
    return [row[name] for name in ("error_code", "base_offset", "log_append_time_ms", "log_start_offset")]


@scenario
def an_offset_of_a_deleted_start_is_told(talk: Talk) -> list[Any]:
    topic = talk.topic()
    for _ in range(3):
        talk.produce(topic, b"v")
    fields = {"topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": 2}]}], "timeout_ms": 5000}
    talk.ask(talk.leader_of(topic), 21, 1, fields)
    row = produced(talk, topic, _good(talk))
    return [row["error_code"], row["base_offset"], row["log_start_offset"]]


@scenario
def nothing_to_produce(talk: Talk) -> list[Any]:
    topic = talk.topic()
    fields = {"transactional_id": None, "acks": -1, "timeout_ms": 5000, "topic_data": []}
    found: list[Any] = [talk.ask(talk.leader_of(topic), 0, 8, fields)["responses"]]
    fields["topic_data"] = [{"name": topic, "partition_data": []}]
    rows = talk.ask(talk.leader_of(topic), 0, 8, fields)["responses"]
    return [*found, [each["partition_responses"] for each in rows]]


@scenario
def broken_batches(talk: Talk) -> list[Any]:
    topic = talk.topic()
    good = encode([(None, b"abc")], talk.wall_ms())
    broken = [
        good[:-1] + bytes((good[-1] ^ 1,)), good + good, b"", encode([(None, b"a")], talk.wall_ms(), attributes=0x20),
        encode([(None, b"a")], talk.wall_ms(), 5, 0, -1), good[:-3], good[:20], good[:16] + b"\1" + good[17:],
    ]  # fmt: skip
    return [*(produced(talk, topic, each)["error_code"] for each in broken), produced(talk, topic, good)["base_offset"]]


@scenario
def required_acks(talk: Talk) -> list[Any]:
    topic = talk.topic()
    good = encode([(None, b"abc")], talk.wall_ms())
    return [produced(talk, topic, good, acks=acks)["error_code"] for acks in (1, -1, 2, -2)]


@of_one_broker
def unknown_places(talk: Talk) -> list[Any]:
    topic = talk.topic()
    leader = talk.leader_of(topic)
    found: list[Any] = [
        talk.produce(topic, b"v", partition=3, broker=leader), talk.produce(topic + "-none", b"v", broker=leader)
    ]  # fmt: skip
    found.append(talk.fetch(topic, partition=3, broker=leader)["error_code"])
    found.append(talk.latest(topic, 3, broker=leader))
    return found


@scenario
def too_large_too_young_too_old(talk: Talk) -> list[Any]:
    topic, now = talk.topic(max_message_bytes="500"), talk.wall_ms()
    return [
        talk.produce(topic, b"v" * 500), talk.produce(topic, b"v", timestamp=now + 2 * DAY),
        talk.produce(topic, b"v", timestamp=now - 30 * DAY), talk.produce(topic, b"v", timestamp=1),
    ]  # fmt: skip


@scenario
def compacted_topic_wants_keys(talk: Talk) -> list[Any]:
    topic = talk.topic(cleanup_policy="compact")
    return [talk.produce(topic, b"v"), talk.produce(topic, b"v", key=b"k")]


@scenario
def answers_of_each_produce_version(talk: Talk) -> list[Any]:
    topic = talk.topic()
    good = encode([(None, b"abc")], talk.wall_ms())
    found = [produced(talk, topic, good, version) for version in range(3, 10)]
    return [{name: value for name, value in row.items() if name != "error_message"} for row in found]
