"""Servers that answer in pieces, out of turn, or not in Redis' language: no answer ever reaches the wrong call."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from metadata import (
    Generation,
    MetadataProtocolError,
    MetadataStore,
    MetadataUnavailable,
    Ownership,
    Policies,
    Policy,
    Reason,
    new_token,
)
from tests.wait import wait_for_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.integration.metadata.servers import OwnServer, RedisSide

    Conversation = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(conversation: Conversation) -> AsyncIterator[str]:
    """A server of our own behind a URL, for what no real one does."""
    writers: list[asyncio.StreamWriter] = []
    conversations: list[asyncio.Task[object] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        conversations.append(asyncio.current_task())
        with suppress(ConnectionError, asyncio.CancelledError):
            await conversation(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*(task for task in conversations if task is not None))
        await server.wait_closed()


async def test_answers_that_come_byte_by_byte_are_whole(redis_side: RedisSide, cluster: str):
    async def dribble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_in, server_out = await asyncio.open_connection(*redis_side.address)

        async def replies() -> None:
            while data := await server_in.read(65536):
                for position in range(len(data)):
                    writer.write(data[position : position + 1])
                    await writer.drain()
                    await asyncio.sleep(0)

        answering = asyncio.ensure_future(replies())
        try:
            while data := await reader.read(7):
                server_out.write(data)
        finally:
            answering.cancel()
            server_out.transport.abort()

    async with serving(dribble) as url, MetadataStore(url, cluster, command_timeout_ms=20_000) as store:
        known = Policies(40, {f"topic-{number}": Policy("ž" * number, number) for number in range(1, 41)})
        await store.refill_policies(known)
        assert await store.policies() == known


async def test_a_large_answer_and_a_large_request_pass(store: MetadataStore):
    record = Ownership("orders", Generation(1), 1, "pid:1", name="n" * 3_000_000)
    assert (await store.publish(record)).current == record


@pytest.mark.parametrize(
    ("banner", "complaint"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak RESP"),
        (b"-DENIED protected mode is enabled\r\n", "protected mode"),
    ],
)
async def test_a_server_that_speaks_first_is_not_believed(banner: bytes, complaint: str, cluster: str):
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(banner)
        await reader.read()

    async with serving(speak) as url, MetadataStore(url, cluster, command_timeout_ms=10_000) as store:

        async def refused() -> bool:
            # Whether the banner is there before the first command is up to the network.
            with pytest.raises((MetadataUnavailable, MetadataProtocolError)) as failure:
                await store.ping()
            return complaint in str(failure.value)

        await wait_for_async(refused, "the banner is recognised")


async def test_one_answer_too_many_ends_the_connection(cluster: str):
    connections: list[int] = []

    async def stutter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(0)
        while await reader.read(65536):
            connections[-1] += 1
            writer.write(b"+PONG\r\n+STALE\r\n" if len(connections) == 1 else b"+PONG\r\n")

    async with serving(stutter) as url, MetadataStore(url, cluster, command_timeout_ms=10_000) as store:
        with suppress(MetadataUnavailable):
            await store.ping()

        async def answered() -> bool:
            with suppress(MetadataUnavailable):
                await store.ping()  # raises MetadataProtocolError were STALE taken for its answer
            return len(connections) == 2 and connections[1] > 0

        await wait_for_async(answered, "a new connection is used")
        assert connections[0] <= 2


async def test_a_server_that_takes_no_more_clients_is_away(own: OwnServer, cluster: str):
    with own.client() as client:
        client.config_set("maxclients", "1")
        async with MetadataStore(own.url, cluster, command_timeout_ms=10_000) as store:
            with pytest.raises(MetadataUnavailable) as failure:
                await store.ping()
            assert failure.value.reason is Reason.AWAY
            client.config_set("maxclients", "100")
            assert await store.set_policy("orders", "{}", Policies(0, {}), new_token()) == 1


async def test_a_login_that_the_server_does_not_want_is_denied(own: OwnServer, cluster: str):
    for url in (own.url.replace("redis://", "redis://:password@"), own.url.replace("/0", "/99")):
        async with MetadataStore(url, cluster, command_timeout_ms=10_000) as store:
            with pytest.raises(MetadataUnavailable) as failure:
                await store.ping()
        assert (failure.value.reason, failure.value.maybe_applied) == (Reason.DENIED, False)
