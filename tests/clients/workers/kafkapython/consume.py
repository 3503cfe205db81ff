"""kafka-python: reading without being a member, and finding one's place."""

from __future__ import annotations

import time

from kafka import TopicPartition

from .. import records
from ..records import Written
from ..runtime import Cell, check, same
from .kit import JOINING_MS, WAIT_S, admin, consumer, create_topic, producer, read_to_end, scenarios, send, take, write


@scenarios("auto-create")
def auto_create(cell: Cell) -> None:
    topic = cell.name()
    write(cell, topic, records.numbered(3))
    with admin(cell) as client:
        [described] = client.describe_topics([topic])
    read = read_to_end(cell, topic, partitions=sorted(one["partition_index"] for one in described["partitions"]))
    same(sorted(records.values(read)), [b"0", b"1", b"2"], "values read")


@scenarios("seek-ends")
def seek_ends(cell: Cell) -> None:
    topic = create_topic(cell)
    place = TopicPartition(topic, 0)
    with producer(cell) as writing, consumer(cell) as reading:
        send(writing, topic, records.numbered(5, partition=0))
        reading.assign([place])
        take(reading, 5)
        reading.seek_to_beginning(place)
        same(records.values(take(reading, 2)), [b"0", b"1"], "values after seeking to the beginning")
        same((reading.beginning_offsets([place]), reading.end_offsets([place])), ({place: 0}, {place: 5}), "ends")
        reading.seek_to_end(place)
        same(reading.position(place), 5, "position after seeking to the end")
        send(writing, topic, [Written(b"at the end", partition=0)])
        same(records.values(take(reading, 1)), [b"at the end"], "values after seeking to the end")
        reading.seek(place, 3)
        same(records.values(take(reading, 2)), [b"3", b"4"], "values after seeking to an offset")


@scenarios("seek-timestamp")
def seek_timestamp(cell: Cell) -> None:
    topic = create_topic(cell)
    place, days = TopicPartition(topic, 0), records.dated()
    write(cell, topic, days)
    with consumer(cell) as client:
        client.assign([place])
        found = client.offsets_for_times({place: (days[2].timestamp or 0) - 1000})[place]
        same((found.offset, found.timestamp), (2, days[2].timestamp), "offset and time of the third day")
        client.seek(place, found.offset)
        same(records.values(take(client, 3)), [b"day 2", b"day 3", b"day 4"], "values from the third day on")
        late = client.offsets_for_times({place: (days[4].timestamp or 0) + 1})
        same(late, {place: None}, "offset behind the last day")


@scenarios("pause-resume")
def pause_resume(cell: Cell) -> None:
    topic = create_topic(cell, partitions=2)
    paused, running = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with consumer(cell) as client:
        client.assign([paused, running])
        client.pause(paused)
        write(cell, topic, [*records.numbered(10, partition=0), *records.numbered(10, partition=1)])
        same({one.partition for one in take(client, 10)}, {1}, "partitions read while one is paused")
        same(client.poll(timeout_ms=1000), {}, "what a paused partition delivered")
        client.resume(paused)
        same({one.partition for one in take(client, 10)}, {0}, "partitions read after resuming")


@scenarios("manual-assignment")
def manual_assignment(cell: Cell) -> None:
    topic = create_topic(cell, partitions=3)
    write(cell, topic, [one for partition in range(3) for one in records.numbered(5, partition=partition)])
    with consumer(cell) as client:
        client.assign([TopicPartition(topic, 1), TopicPartition(topic, 2)])
        client.seek(TopicPartition(topic, 1), 2)
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
    with producer(cell, linger_ms=20) as writing, consumer(cell, *topics, group=cell.name("group")) as reading:
        for topic in topics:
            send(writing, topic, [one for part in range(20) for one in records.numbered(10, partition=part)])
        places: set[tuple[str, int, int]] = set()
        deadline = time.monotonic() + WAIT_S
        while len(places) < 600:
            check(time.monotonic() < deadline, f"{len(places)} of 600 records within {WAIT_S:g} s")
            for batch in reading.poll(timeout_ms=JOINING_MS).values():
                for one in batch:
                    same(one.value, b"%d" % one.offset, "value")
                    check((one.topic, one.partition, one.offset) not in places, "a record was read twice")
                    places.add((one.topic, one.partition, one.offset))
