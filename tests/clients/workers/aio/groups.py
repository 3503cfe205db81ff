"""aiokafka: being a member of a group."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition

from .. import records
from ..records import Seen
from ..runtime import Cell, check, same, until_async
from .kit import admin, consumer, create_topic, scenarios, seen, take, write


@dataclass
class Member(ConsumerRebalanceListener):
    """A subscribed consumer read from in the background, as an application would; it remembers its rebalances."""

    assigned: list[set[int]] = field(default_factory=list)
    read: list[Seen] = field(default_factory=list)

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Nothing to do: the scenarios commit by hand."""

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.assigned.append({place.partition for place in assigned})

    def holds(self) -> set[int]:
        return {place.partition for place in self.client.assignment()}

    def values(self) -> set[bytes | None]:
        return {record.value for record in self.read}

    async def _read(self) -> None:
        async for record in self.client:
            self.read.append(seen(record))

    async def join(self, cell: Cell, group: str, topic: str, **settings: str) -> Member:
        self.stack = AsyncExitStack()
        self.client: AIOKafkaConsumer = await self.stack.enter_async_context(consumer(cell, group=group, **settings))
        self.client.subscribe([topic], listener=self)
        self.reading = asyncio.create_task(self._read())
        return self

    async def leave(self) -> None:
        self.reading.cancel()
        await asyncio.gather(self.reading, return_exceptions=True)
        await self.stack.aclose()


def both_share(first: Member, second: Member) -> bool:
    return len(first.holds()) == len(second.holds()) == 2 and first.holds() | second.holds() == {0, 1, 2, 3}


async def reaches(what: str, condition) -> None:
    async def look() -> bool:
        return condition()

    await until_async(what, look, within_s=30.0, every_s=0.02)


def spread(start: int) -> list[records.Written]:
    return [
        one for partition in range(4) for one in records.numbered(5, partition=partition, start=start + 5 * partition)
    ]


@scenarios("rebalance")
async def rebalance(cell: Cell) -> None:
    topic, group = await create_topic(cell, partitions=4), cell.name("group")
    first = await Member().join(cell, group, topic)
    await reaches("the first member holds all", lambda: first.holds() == {0, 1, 2, 3})
    second = await Member().join(cell, group, topic)
    await reaches("two members share", lambda: both_share(first, second))
    await write(cell, topic, spread(0))
    await reaches("both read their part", lambda: len(first.values() | second.values()) == 20)
    check(not first.values() & second.values(), "a record was read by both members")
    same({one.partition for one in second.read}, second.holds(), "partitions read by the second member")
    for member in (first, second):
        await member.client.commit()
    await second.leave()
    await reaches("the one that stays holds all", lambda: first.holds() == {0, 1, 2, 3})
    await write(cell, topic, spread(20))
    await reaches("it reads all", lambda: len(first.values() - second.values()) >= 30)
    await first.leave()
    same(len(first.read), len(first.values()), "records read once")


@scenarios("static-membership")
async def static_membership(cell: Cell) -> None:
    topic, group = await create_topic(cell, partitions=4), cell.name("group")
    first = await Member().join(cell, group, topic, group_instance_id="one")
    second = await Member().join(cell, group, topic, group_instance_id="two")
    await reaches("two members share", lambda: both_share(first, second))
    rebalances, held = len(first.assigned), second.holds()
    await second.leave()
    again = await Member().join(cell, group, topic, group_instance_id="two")
    await reaches("the second is back", lambda: again.holds() == held)
    await write(cell, topic, spread(0))
    await reaches("both read their part", lambda: len(first.values() | again.values()) == 20)
    same(len(first.assigned), rebalances, "rebalances of the member that stayed")
    async with admin(cell) as client:
        described = (await client.describe_consumer_groups([group]))[0].groups[0]
    same(len(described[5]), 2, "members described")
    await first.leave()
    await again.leave()


async def resume_behind(cell: Cell, topic: str, group: str) -> None:
    async with consumer(cell, topic, group=group) as client:
        same(records.values(await take(client, 5)), [b"5", b"6", b"7", b"8", b"9"], "values read by the next member")


@scenarios("commit-sync")
async def commit_sync(cell: Cell) -> None:
    topic, group = await create_topic(cell), cell.name("group")
    await write(cell, topic, records.numbered(10, partition=0))
    async with consumer(cell, topic, group=group) as client:
        await take(client, 5)
        await client.commit()
        same(await client.committed(TopicPartition(topic, 0)), 5, "offset committed")
    await resume_behind(cell, topic, group)


@scenarios("commit-async")
async def commit_async(cell: Cell) -> str:
    topic, group = await create_topic(cell), cell.name("group")
    await write(cell, topic, records.numbered(10, partition=0))
    async with consumer(cell, topic, group=group, enable_auto_commit=True, auto_commit_interval_ms=50) as client:
        await take(client, 5)

        async def committed() -> bool:
            return await client.committed(TopicPartition(topic, 0)) == 5

        await until_async("the background commit", committed)
    await resume_behind(cell, topic, group)
    return "auto commit"
