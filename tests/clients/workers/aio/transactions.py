"""aiokafka: transactions."""

from __future__ import annotations

from aiokafka import TopicPartition

from .. import records
from ..runtime import Cell, same, until_async
from .kit import consumer, create_topic, producer, read_to_end, scenarios, send, take, write


async def visible(cell: Cell, topic: str, isolation: str) -> list[bytes | None]:
    return records.values(await read_to_end(cell, topic, isolation=isolation))


async def until_seen(cell: Cell, topic: str, values: list[bytes | None]) -> None:
    """The answer to EndTxn precedes the markers: a moment later they are there, and nothing else."""

    async def seen() -> bool:
        return await visible(cell, topic, "read_committed") == values

    await until_async("the committed values", seen)


@scenarios("txn-commit")
async def commit(cell: Cell) -> None:
    topic = await create_topic(cell)
    async with producer(cell, transactional_id=cell.name("txn")) as client:
        for start in (0, 3):
            await client.begin_transaction()
            await send(client, topic, records.numbered(3, partition=0, start=start))
            same(len(await visible(cell, topic, "read_uncommitted")), start + 3, "records seen uncommitted")
            same(len(await visible(cell, topic, "read_committed")), start, "records seen committed, before the commit")
            await client.commit_transaction()
            await until_seen(cell, topic, [b"%d" % number for number in range(start + 3)])


@scenarios("txn-abort")
async def abort(cell: Cell) -> None:
    topic = await create_topic(cell)
    async with producer(cell, transactional_id=cell.name("txn")) as client:
        await client.begin_transaction()
        await send(client, topic, records.numbered(3, partition=0))
        await client.abort_transaction()
        async with client.transaction():
            await send(client, topic, records.numbered(2, partition=0, start=3))
    same(await visible(cell, topic, "read_uncommitted"), [b"0", b"1", b"2", b"3", b"4"], "values seen uncommitted")
    await until_seen(cell, topic, [b"3", b"4"])


@scenarios("txn-offsets")
async def offsets(cell: Cell) -> None:
    source, target = await create_topic(cell, "in"), await create_topic(cell, "out")
    group, place = cell.name("group"), TopicPartition(source, 0)
    await write(cell, source, records.numbered(5, partition=0))
    async with (
        producer(cell, transactional_id=cell.name("txn")) as writing,
        consumer(cell, source, group=group, isolation_level="read_committed") as reading,
    ):

        async def committed() -> bool:
            # The answer to EndTxn precedes the markers, and aiokafka cannot ask for stable offsets (KIP-447): it sees
            # none meanwhile.
            return await reading.committed(place) == 3

        for count, finish in ((3, writing.commit_transaction), (2, writing.abort_transaction)):
            await writing.begin_transaction()
            await send(writing, target, [one.content() for one in await take(reading, count)])
            await writing.send_offsets_to_transaction({place: await reading.position(place)}, group)
            await finish()
            await until_async("the offset of the group", committed)
    same(await visible(cell, target, "read_committed"), [b"0", b"1", b"2"], "values copied")
    async with consumer(cell, source, group=group) as after:
        same(records.values(await take(after, 2)), [b"3", b"4"], "values read by the next member")
