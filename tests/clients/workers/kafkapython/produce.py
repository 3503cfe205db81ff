"""kafka-python: producing."""

from __future__ import annotations

from kafka import TopicPartition
from kafka.errors import MessageSizeTooLargeError

from .. import records
from ..records import Written
from ..runtime import Cell, check, same
from .kit import consumer, create_topic, producer, read_to_end, scenarios, send, take, write


@scenarios("acks-0", "acks-1", "acks-all")
def acks(cell: Cell) -> None:
    topic, level = create_topic(cell), cell.argument()
    wanted = records.numbered(20, partition=0)
    # Idempotence is this library's default, and only acks=all goes with it.
    settings = {} if level == "all" else {"acks": int(level), "enable_idempotence": False}
    offsets = write(cell, topic, wanted, **settings)
    if level != "0":
        same(offsets, list(range(20)), "offsets reported")
    with consumer(cell) as client:
        client.assign([TopicPartition(topic, 0)])
        same(records.values(take(client, 20)), [record.value for record in wanted], "values read")


@scenarios("compression-none", "compression-gzip", "compression-snappy", "compression-lz4", "compression-zstd")
def compression(cell: Cell) -> None:
    topic, codec = create_topic(cell), cell.argument()
    wanted = records.compressible()
    write(cell, topic, wanted, compression_type=None if codec == "none" else codec, linger_ms=100)
    read = read_to_end(cell, topic)
    same([(one.key, one.value) for one in read], [(one.key, one.value) for one in wanted], "keys and values")


@scenarios("idempotent")
def idempotent(cell: Cell) -> None:
    topic = create_topic(cell, partitions=3)
    with producer(cell, batch_size=300) as client:
        send(client, topic, [Written(b"%d" % number, partition=number % 3) for number in range(900)])
    for partition in range(3):
        read = records.values(read_to_end(cell, topic, partitions=[partition]))
        same(
            read,
            [b"%d" % number for number in range(900) if number % 3 == partition],
            f"values of partition {partition}",
        )


@scenarios("large-900k")
def large(cell: Cell) -> None:
    topic = create_topic(cell)
    value = bytes(range(256)) * 3600
    write(cell, topic, [Written(value)])
    check(records.values(read_to_end(cell, topic)) == [value], "the value read is not the one written")


@scenarios("large-5m")
def very_large(cell: Cell) -> None:
    topic = create_topic(cell, "allowed", max_message_bytes="6000000")
    value = bytes(range(256)) * 20_480
    write(cell, topic, [Written(value)], max_request_size=6_000_000)
    check(records.values(read_to_end(cell, topic)) == [value], "the value read is not the one written")
    small = create_topic(cell, "refused")
    try:
        write(cell, small, [Written(value)], max_request_size=6_000_000)
    except MessageSizeTooLargeError:
        return
    check(False, "5 MB were accepted on a topic that allows 1 MB")


@scenarios("headers-tombstones")
def headers_and_tombstones(cell: Cell) -> None:
    topic = create_topic(cell)
    wanted = records.curious(null_header=False)
    write(cell, topic, wanted)
    same(records.undated(one.content() for one in read_to_end(cell, topic)), records.undated(wanted), "records")


@scenarios("timestamps")
def timestamps(cell: Cell) -> None:
    topic = create_topic(cell)
    write(cell, topic, records.dated())
    same([one.content() for one in read_to_end(cell, topic)], records.plain(records.dated()), "records")
