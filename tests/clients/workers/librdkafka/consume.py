"""confluent-kafka: reading without being a member, and finding one's place."""

from __future__ import annotations

import time

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition

from .. import records
from ..records import Written
from ..runtime import Cell, check, same, until
from .kit import WAIT_S, admin, consumer, create_topic, producer, read_to_end, scenarios, seen, send, take, write


@scenarios("auto-create")
def auto_create(cell: Cell) -> None:
    topic = cell.name()
    write(cell, topic, records.numbered(3))
    described = admin(cell).list_topics(topic, timeout=WAIT_S).topics[topic]
    read = read_to_end(cell, topic, partitions=sorted(described.partitions))
    same(sorted(records.values(read)), [b"0", b"1", b"2"], "values read")


@scenarios("seek-ends")
def seek_ends(cell: Cell) -> None:
    topic = create_topic(cell)
    with producer(cell) as writing, consumer(cell) as reading:
        send(writing, topic, records.numbered(5, partition=0))
        reading.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        take(reading, 5)
        reading.seek(TopicPartition(topic, 0, OFFSET_BEGINNING))
        same(records.values(take(reading, 2)), [b"0", b"1"], "values after seeking to the beginning")
        same(reading.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S), (0, 5), "low and high watermark")
        reading.seek(TopicPartition(topic, 0, OFFSET_END))
        # The end is looked up in the background: what is written before that is not the consumer's. So write until it
        # sees one.
        until(
            "a record arrives at the end", lambda: send(writing, topic, [Written(b"at the end")]) and reading.poll(0.2)
        )
        reading.seek(TopicPartition(topic, 0, 3))
        same(records.values(take(reading, 2)), [b"3", b"4"], "values after seeking to an offset")


@scenarios("seek-timestamp")
def seek_timestamp(cell: Cell) -> None:
    topic = create_topic(cell)
    days = records.dated()
    write(cell, topic, days)
    moment = (days[2].timestamp or 0) - 1000
    with consumer(cell) as client:
        found = client.offsets_for_times([TopicPartition(topic, 0, moment)], WAIT_S)
        same([one.offset for one in found], [2], "offset of the third day")
        client.assign([TopicPartition(topic, 0, found[0].offset)])
        same(records.values(take(client, 3)), [b"day 2", b"day 3", b"day 4"], "values from the third day on")
        late = client.offsets_for_times([TopicPartition(topic, 0, (days[4].timestamp or 0) + 1)], WAIT_S)
        same([one.offset for one in late], [OFFSET_END], "offset behind the last day")


@scenarios("pause-resume")
def pause_resume(cell: Cell) -> None:
    topic = create_topic(cell, partitions=2)
    paused, running = TopicPartition(topic, 0, OFFSET_BEGINNING), TopicPartition(topic, 1, OFFSET_BEGINNING)
    with consumer(cell) as client:
        client.assign([paused, running])
        client.pause([paused])
        write(cell, topic, [*records.numbered(10, partition=0), *records.numbered(10, partition=1)])
        same({one.partition for one in take(client, 10)}, {1}, "partitions read while one is paused")
        quiet_until = time.monotonic() + 1.0
        while time.monotonic() < quiet_until:
            message = client.poll(0.1)
            check(message is None, "a paused partition delivered a record")
        client.resume([paused])
        same({one.partition for one in take(client, 10)}, {0}, "partitions read after resuming")


@scenarios("manual-assignment")
def manual_assignment(cell: Cell) -> None:
    topic = create_topic(cell, partitions=3)
    write(cell, topic, [one for partition in range(3) for one in records.numbered(5, partition=partition)])
    with consumer(cell) as client:
        client.assign([TopicPartition(topic, 1, 2), TopicPartition(topic, 2, OFFSET_BEGINNING)])
        read = records.in_partition_order(take(client, 8))
        same(
            [(one.partition, one.offset) for one in read],
            [(1, 2), (1, 3), (1, 4), *((2, n) for n in range(5))],
            "places read",
        )
        same([one.value for one in read[:3]], [b"2", b"3", b"4"], "values of partition 1")


@scenarios("many-partitions")
def many_partitions(cell: Cell) -> None:
    topics = [create_topic(cell, f"{number}", partitions=20) for number in range(3)]
    with producer(cell, linger_ms=20) as writing, consumer(cell) as reading:
        reading.subscribe(topics)
        for topic in topics:
            for partition in range(20):
                for one in records.numbered(10, partition=partition):
                    writing.produce(topic, one.value, partition=partition)
        same(writing.flush(WAIT_S), 0, "records left to send")
        read: list[tuple[str | None, int, int]] = []
        deadline = time.monotonic() + WAIT_S
        while len(read) < 600:
            check(time.monotonic() < deadline, f"{len(read)} of 600 records within {WAIT_S:g} s")
            for message in reading.consume(600, 0.2):
                one = seen(message)
                same(one.value, b"%d" % one.offset, "value")
                read.append((message.topic(), one.partition, one.offset))
    same(len(set(read)), 600, "different places read")
