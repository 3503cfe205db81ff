"""aiokafka: producing."""

from __future__ import annotations

from aiokafka import TopicPartition
from aiokafka.errors import MessageSizeTooLargeError

from .. import records
from ..records import Written
from ..runtime import Cell, check, same
from .kit import consumer, create_topic, producer, read_to_end, scenarios, send, take, write


@scenarios("acks-0", "acks-1", "acks-all")
async def acks(cell: Cell) -> None:
    topic, level = await create_topic(cell), cell.argument()
    wanted = records.numbered(20, partition=0)
    reports = await write(cell, topic, wanted, acks=level if level == "all" else int(level))
    if level != "0":
        same([report.offset for report in reports], list(range(20)), "offsets reported")
    async with consumer(cell) as client:
        client.assign([TopicPartition(topic, 0)])
        same(records.values(await take(client, 20)), [record.value for record in wanted], "values read")


@scenarios("compression-none", "compression-gzip", "compression-snappy", "compression-lz4", "compression-zstd")
async def compression(cell: Cell) -> None:
    topic, codec = await create_topic(cell), cell.argument()
    wanted = records.compressible()
    await write(cell, topic, wanted, compression_type=None if codec == "none" else codec, linger_ms=100)
    read = await read_to_end(cell, topic)
    same([(one.key, one.value) for one in read], [(one.key, one.value) for one in wanted], "keys and values")


@scenarios("idempotent")
async def idempotent(cell: Cell) -> None:
    topic = await create_topic(cell, partitions=3)
    async with producer(cell, enable_idempotence=True, max_batch_size=300) as client:
        await send(client, topic, [Written(b"%d" % number, partition=number % 3) for number in range(900)])
    for partition in range(3):
        read = records.values(await read_to_end(cell, topic, partitions=[partition]))
        same(
            read,
            [b"%d" % number for number in range(900) if number % 3 == partition],
            f"values of partition {partition}",
        )


@scenarios("large-900k")
async def large(cell: Cell) -> None:
    topic = await create_topic(cell)
    value = bytes(range(256)) * 3600
    await write(cell, topic, [Written(value)])
    check(records.values(await read_to_end(cell, topic)) == [value], "the value read is not the one written")


@scenarios("large-5m")
async def very_large(cell: Cell) -> None:
    topic = await create_topic(cell, "allowed", max_message_bytes="6000000")
    value = bytes(range(256)) * 20_480
    await write(cell, topic, [Written(value)], max_request_size=6_000_000)
    check(records.values(await read_to_end(cell, topic)) == [value], "the value read is not the one written")
    small = await create_topic(cell, "refused")
    try:
        await write(cell, small, [Written(value)], max_request_size=6_000_000)
    except MessageSizeTooLargeError:
        return
    check(False, "5 MB were accepted on a topic that allows 1 MB")


@scenarios("headers-tombstones")
async def headers_and_tombstones(cell: Cell) -> None:
    topic = await create_topic(cell)
    await write(cell, topic, records.curious())
    read = [one.content() for one in await read_to_end(cell, topic)]
    same(records.undated(read), records.undated(records.curious()), "records")


@scenarios("timestamps")
async def timestamps(cell: Cell) -> None:
    topic = await create_topic(cell)
    await write(cell, topic, records.dated())
    same([one.content() for one in await read_to_end(cell, topic)], records.plain(records.dated()), "records")
