"""What a leader makes of producer ids, epochs and sequences: Produce (0) of idempotent producers."""

from __future__ import annotations

from typing import Any

from tests.sim.kafka.batches import LAST_SEQUENCE, encode
from tests.sim.kafka.scenarios.common import deleted, known, produced, scenario, seen
from tests.sim.kafka.talk import Talk


@scenario
def sequences(talk: Talk) -> list[Any]:
    topic, (_, pid, epoch) = talk.topic(), talk.init(None)
    steps = [(0, 2), (2, 1), (4, 1), (3, 1), (3, 1), (2, 1), (0, 2), (0, 1), (1, 1), (4, 3)]
    return [talk.produce(topic, *[b"v"] * count, pid=pid, epoch=epoch, seq=first) for first, count in steps]


@scenario
def window_of_five(talk: Talk) -> list[Any]:
    topic, (_, pid, epoch) = talk.topic(), talk.init(None)
    steps = [*range(7), 2, 3, 6, 1, 0, 7, 2, 3]
    return [talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=each) for each in steps]


@scenario
def unknown_producer_begins_anywhere(talk: Talk) -> list[Any]:
    topic, (_, pid, epoch) = talk.topic(), talk.init(None)
    return [talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=each) for each in (9, 10, 12, 9, 8)]


@scenario
def epochs_of_data(talk: Talk) -> list[Any]:
    topic, (_, pid, _) = talk.topic(), talk.init(None)
    steps = [(0, 0), (0, 1), (1, 2), (1, 0), (0, 2), (0, 1), (1, 1), (3, 1), (3, 0), (2, 0)]
    found: list[Any] = [talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=seq) for epoch, seq in steps]
    return [*found, known(talk, topic, pid, 0)]


@scenario
def wrap_of_sequences(talk: Talk) -> list[Any]:
    topic, (_, pid, epoch) = talk.topic(), talk.init(None)
    steps = [(LAST_SEQUENCE - 1, 2), (0, 1), (1, 1), (LAST_SEQUENCE - 1, 2), (0, 1)]
    found: list[Any] = [talk.produce(topic, *[b"v"] * count, pid=pid, epoch=epoch, seq=seq) for seq, count in steps]
    return [*found, known(talk, topic, pid, epoch)]


@scenario
def batch_over_the_wrap(talk: Talk) -> list[Any]:
    topic, (_, pid, epoch) = talk.topic(), talk.init(None)
    found: list[Any] = [
        talk.produce(topic, *[b"v"] * count, pid=pid, epoch=epoch, seq=seq)
        for seq, count in [(LAST_SEQUENCE, 3), (2, 1), (LAST_SEQUENCE, 3), (1, 1)]
    ]
    return [*found, known(talk, topic, pid, epoch)]


@scenario
def log_append_time(talk: Talk) -> list[Any]:
    topic, (_, pid, epoch) = talk.topic(message_timestamp_type="LogAppendTime"), talk.init(None)
    batch = encode([(None, b"v")], 5, pid, epoch, 0)
    first, repeat = produced(talk, topic, batch), produced(talk, topic, batch)
    same = first["log_append_time_ms"] == repeat["log_append_time_ms"] > 10**12
    return [same, first["base_offset"], repeat["base_offset"], seen(talk, topic)]


@scenario
def create_time(talk: Talk) -> list[Any]:
    topic, (_, pid, epoch) = talk.topic(), talk.init(None)
    now = talk.wall_ms()
    batch = encode([(None, b"v")], now, pid, epoch, 0)
    first, repeat = produced(talk, topic, batch), produced(talk, topic, batch)
    return [first["log_append_time_ms"], repeat["log_append_time_ms"] - now]


@scenario
def repeat_with_another_size_is_out_of_order(talk: Talk) -> list[Any]:
    topic, (_, pid, epoch) = talk.topic(), talk.init(None)
    steps = [(0, 3), (0, 2), (1, 2), (0, 4), (2, 1), (0, 3), (3, 1)]
    return [talk.produce(topic, *[b"v"] * count, pid=pid, epoch=epoch, seq=first) for first, count in steps]


@scenario
def repeat_with_other_content_is_a_repeat(talk: Talk) -> list[Any]:
    topic, (_, pid, epoch) = talk.topic(), talk.init(None)
    values = (b"first", b"another one")
    return [*(talk.produce(topic, each, pid=pid, epoch=epoch, seq=0) for each in values), seen(talk, topic)]


@scenario
def a_new_epoch_forgets_the_window(talk: Talk) -> list[Any]:
    topic, (_, pid, _) = talk.topic(), talk.init(None)
    steps = [(0, 0), (0, 1), (1, 0), (0, 1), (1, 0), (0, 0), (1, 1)]
    return [talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=seq) for epoch, seq in steps]


@scenario
def a_new_epoch_begins_with_0(talk: Talk) -> list[Any]:
    topic, (_, pid, _) = talk.topic(), talk.init(None)
    steps = [(0, 0), (5, 1), (5, 2**31 - 1), (5, 0), (5, 1)]
    return [talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=seq) for epoch, seq in steps]


@scenario
def the_last_epoch(talk: Talk) -> list[Any]:
    topic, (_, pid, _) = talk.topic(), talk.init(None)
    steps = [(32_766, 0), (32_767, 0), (32_767, 1), (0, 0), (32_766, 1)]
    return [talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=seq) for epoch, seq in steps]


@scenario
def producers_do_not_know_of_each_other(talk: Talk) -> list[Any]:
    topic, (_, pid, _), (_, other, _) = talk.topic(), talk.init(None), talk.init(None)
    steps = [(pid, 0), (other, 0), (pid, 1), (other, 2), (other, 1), (pid, 0)]
    return [pid != other, *(talk.produce(topic, b"v", pid=each, epoch=0, seq=seq) for each, seq in steps)]


@scenario
def partitions_count_sequences_by_themselves(talk: Talk) -> list[Any]:
    topic, (_, pid, _) = talk.topic(2), talk.init(None)
    steps = [(0, 0), (1, 5), (0, 1), (1, 1), (1, 6)]
    return [talk.produce(topic, b"v", partition=part, pid=pid, epoch=0, seq=seq) for part, seq in steps]


@scenario
def a_refused_batch_leaves_a_gap(talk: Talk) -> list[Any]:
    topic, (_, pid, epoch) = talk.topic(max_message_bytes="500"), talk.init(None)
    steps = [(0, 1), (1, 600), (2, 1), (1, 1), (2, 1)]
    return [talk.produce(topic, b"v" * size, pid=pid, epoch=epoch, seq=seq) for seq, size in steps]


@scenario
def half_a_stamp(talk: Talk) -> list[Any]:
    topic, (_, pid, _), now = talk.topic(), talk.init(None), talk.wall_ms()
    stamps = [(-1, -1, 5), (-1, 3, -1), (-1, 3, 4), (pid, 0, -1), (pid, 0, -5)]
    return [produced(talk, topic, encode([(None, b"v")], now, *stamp))["error_code"] for stamp in stamps]


@scenario
def a_producer_id_that_was_never_given(talk: Talk) -> list[Any]:
    topic, (_, pid, _) = talk.topic(), talk.init(None)
    return [talk.produce(topic, b"v", pid=pid + 10**9, epoch=7, seq=3), known(talk, topic, pid + 10**9, 0)]


@scenario
def several_batches_of_a_window_keep_their_offsets(talk: Talk) -> list[Any]:
    topic, (_, pid, epoch) = talk.topic(), talk.init(None)
    found: list[Any] = []
    at = 0
    for count in (3, 1, 4, 2, 2, 1):
        talk.produce(topic, *[b"v"] * count, pid=pid, epoch=epoch, seq=at)
        talk.produce(topic, b"between")
        at += count
    for first, count in ((0, 3), (3, 1), (4, 4), (8, 2), (10, 2), (12, 1)):
        found.append(talk.produce(topic, *[b"v"] * count, pid=pid, epoch=epoch, seq=first))
    return found


@scenario
def wrap_in_the_middle_of_the_window(talk: Talk) -> list[Any]:
    topic, (_, pid, epoch) = talk.topic(), talk.init(None)
    steps = [
        (LAST_SEQUENCE - 2, 1),
        (LAST_SEQUENCE - 1, 4),
        (2, 2),
        (0, 1),
        (LAST_SEQUENCE - 1, 4),
        (2, 2),
        (3, 1),
        (4, 1),
    ]
    return [talk.produce(topic, *[b"v"] * count, pid=pid, epoch=epoch, seq=seq) for seq, count in steps]


@scenario
def sequence_0_behind_the_middle_is_no_wrap(talk: Talk) -> list[Any]:
    topic, (_, pid, epoch) = talk.topic(), talk.init(None)
    steps = [LAST_SEQUENCE - 1, 0, LAST_SEQUENCE, 1, 0, 1]
    return [talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=seq) for seq in steps]


@scenario
def deleted_records_are_still_repeats(talk: Talk) -> list[Any]:
    topic, (_, pid, epoch) = talk.topic(), talk.init(None)
    for seq in range(3):
        talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=seq)
    found: list[Any] = [deleted(talk, topic, -1)]
    return found + [talk.produce(topic, b"v", pid=pid, epoch=epoch, seq=seq) for seq in (0, 2, 4, 3)]


@scenario
def a_repeat_with_log_append_time_is_told_its_time(talk: Talk) -> list[Any]:
    topic, (_, pid, epoch) = talk.topic(message_timestamp_type="LogAppendTime"), talk.init(None)
    batch = encode([(None, b"v")], 5, pid, epoch, 0)
    first = produced(talk, topic, batch)
    talk.pause(0.02)
    return [produced(talk, topic, batch)["log_append_time_ms"] == first["log_append_time_ms"]]


@scenario
def a_new_topic_knows_no_producer(talk: Talk) -> list[Any]:
    topic, (_, pid, epoch) = talk.topic(), talk.init(None)
    talk.produce(topic, b"v", pid=pid, epoch=epoch + 1, seq=0)
    other = talk.topic()
    return [talk.produce(other, b"v", pid=pid, epoch=epoch, seq=4), known(talk, other, pid, epoch)]
