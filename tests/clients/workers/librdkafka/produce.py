"""confluent-kafka: producing."""

from __future__ import annotations

from confluent_kafka import TopicPartition
from confluent_kafka.error import KafkaError, KafkaException

from .. import records
from ..records import Written
from ..runtime import Cell, check, same
from .kit import consumer, create_topic, producer, read_to_end, scenarios, send, take, write


@scenarios("acks-0", "acks-1", "acks-all")
def acks(cell: Cell) -> None:
    topic = create_topic(cell)
    wanted = records.numbered(20)
    reports = write(cell, topic, wanted, acks=cell.argument(), linger_ms=0)
    if cell.argument() != "0":
        same([report.offset() for report in reports], list(range(20)), "offsets reported")
    with consumer(cell) as client:
        client.assign([TopicPartition(topic, 0, 0)])
        same(records.values(take(client, 20)), [record.value for record in wanted], "values read")


@scenarios("compression-none", "compression-gzip", "compression-snappy", "compression-lz4", "compression-zstd")
def compression(cell: Cell) -> None:
    topic = create_topic(cell)
    wanted = records.compressible()
    write(cell, topic, wanted, compression_type=cell.argument(), linger_ms=100)
    same([one.key for one in read_to_end(cell, topic)], [one.key for one in wanted], "keys")
    same(records.values(read_to_end(cell, topic)), [one.value for one in wanted], "values")


@scenarios("idempotent")
def idempotent(cell: Cell) -> None:
    topic = create_topic(cell, partitions=3)
    with producer(cell, enable_idempotence=True, batch_num_messages=7, linger_ms=1) as client:
        send(client, topic, (Written(b"%d" % number, partition=number % 3) for number in range(900)))
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
    write(cell, topic, [Written(value)], message_max_bytes=6_000_000)
    check(records.values(read_to_end(cell, topic)) == [value], "the value read is not the one written")
    small = create_topic(cell, "refused")
    try:
        write(cell, small, [Written(value)], message_max_bytes=6_000_000)
    except KafkaException as error:
        same(error.args[0].code(), KafkaError.MSG_SIZE_TOO_LARGE, "error code")
    else:
        check(False, "5 MB were accepted on a topic that allows 1 MB")


@scenarios("headers-tombstones")
def headers_and_tombstones(cell: Cell) -> None:
    topic = create_topic(cell)
    write(cell, topic, records.curious())
    read = [one.content() for one in read_to_end(cell, topic)]
    same(records.undated(read), records.undated(records.curious()), "records")


@scenarios("timestamps")
def timestamps(cell: Cell) -> None:
    topic = create_topic(cell)
    write(cell, topic, records.dated())
    same([one.content() for one in read_to_end(cell, topic)], records.plain(records.dated()), "records")
