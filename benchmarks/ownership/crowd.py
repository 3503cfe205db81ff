"""Many topics, each owned by a client of its own, lose their node at once.

Clients here try again after 100 ms, Kafka's default of `retry.backoff.ms`: hundreds that try every few milliseconds
would measure themselves.
"""

from __future__ import annotations

import asyncio
import struct
import time
from typing import TYPE_CHECKING, Final

from benchmarks.measures import Target
from benchmarks.ownership.writers import PATIENCE_S, VALUE_BYTES, check_log
from benchmarks.raw_client import PASSING, Connection, IdempotentProducer, RefusedError, new_producer
from sidecar.local.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.arena import Arena

_BACKOFF_S: Final = 0.1
_AT_ONCE: Final = 20
"""Topics that are claimed at the same time beforehand."""


class Member:
    """One session, its connection and its topic."""

    def __init__(self, producer: IdempotentProducer, topic: str) -> None:
        self.topic = topic
        self.acknowledged = 0
        self._producer = producer
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def connect(self, port: int) -> None:
        """Leave the connection there was for one to this port. Raises OSError."""
        self.close()
        self._streams = await asyncio.open_connection(HOST, port)

    async def write(self) -> float:
        """Try until the batch is acknowledged; time.perf_counter() then. Raises RefusedError, OSError."""
        assert self._streams is not None
        reader, writer = self._streams
        deadline = time.monotonic() + 2 * PATIENCE_S
        while True:
            writer.write(bytes(self._producer.prepare()))
            size = await reader.readexactly(4)
            answer = bytearray(size + await reader.readexactly(struct.unpack(">i", size)[0]))
            try:
                self._producer.check(answer)
            except RefusedError as error:
                if error.code not in PASSING or time.monotonic() > deadline:
                    raise
                await asyncio.sleep(_BACKOFF_S)
            else:
                self.acknowledged += 1
                return time.perf_counter()

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()


def crowd(arena: Arena, size: int, tell: Callable[[str], None]) -> list[float]:
    """How long after the kill of node 1 each session wrote again through node 2, in milliseconds."""
    topics = [arena.topic(Target.EXCLUSIVE, f"crowd-{number}") for number in range(size)]
    arena.create_all(topics, 1)
    tell(f"{size} topics are there")
    with Connection(arena.node_port(1), "a") as connection:
        members = [
            Member(IdempotentProducer(new_producer(connection), topic, VALUE_BYTES, "a"), topic) for topic in topics
        ]
    found = asyncio.run(_fail_over(arena, members, tell))
    for member in members:
        check_log(arena.port(Target.DIRECT), member.topic, member.acknowledged)
    arena.start_node(1)
    arena.check_addresses()
    return found


async def _fail_over(arena: Arena, members: list[Member], tell: Callable[[str], None]) -> list[float]:
    began = time.perf_counter()
    limit = asyncio.Semaphore(_AT_ONCE)

    async def claim(member: Member) -> None:
        async with limit:
            await member.connect(arena.node_port(1))
            await member.write()

    await asyncio.gather(*map(claim, members))
    tell(f"all are owned after {time.perf_counter() - began:.1f} s")
    killed = arena.kill_node(1)

    async def go_on(member: Member) -> float:
        await member.connect(arena.node_port(2))
        return (await member.write() - killed) * 1000

    try:
        return await asyncio.gather(*map(go_on, members))
    finally:
        for member in members:
            member.close()
