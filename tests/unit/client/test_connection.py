"""The SDK's own connection against servers that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from sidecar.client import SidecarUnavailableError
from sidecar.client.connection import connect
from sidecar.local.ports import free_ports
from sidecar.protocol.addresses import addresses
from sidecar.protocol.calls.admin import ApiVersions
from sidecar.protocol.own import LastSequence
from sidecar.v1 import control_pb2 as control

ASKED = LastSequence(control.LastSequenceRequest(topic="orders", producer_name="billing"))
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(answer: Answer) -> AsyncIterator[tuple[str, int]]:
    """Listens and leaves each connection to `answer`."""
    ended: list[asyncio.Task[None]] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        ended.append(task)
        try:
            await answer(reader, writer)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield "127.0.0.1", listening.sockets[0].getsockname()[1]
    finally:
        listening.close()
        for task in ended:
            task.cancel()
        await asyncio.gather(*ended, return_exceptions=True)


async def request(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


def frame(correlation: int, body: bytes) -> bytes:
    return (4 + len(body)).to_bytes(4, "big") + correlation.to_bytes(4, "big") + body


async def test_calls_made_at_once_are_answered_each() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            asked = await request(reader)
            correlation = int.from_bytes(asked[4:8], "big")
            told = control.LastSequenceResponse(last_sequence_id=correlation)
            writer.write(frame(correlation, told.SerializeToString()))

    async with server(answer) as address:
        connection = await connect(address, "billing", 5)
        found = await asyncio.gather(*[connection.call(ASKED, 5) for _ in range(5)])
        assert [each.last_sequence_id for each in found] == [1, 2, 3, 4, 5]
        await connection.close()
        assert not connection.is_open


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await request(reader)


async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def answer_another(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await request(reader)
    writer.write(frame(77, b""))
    await reader.read()


async def announce_too_much(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await request(reader)
    writer.write(b"\x7f\xff\xff\xff")
    await reader.read()


async def answer_half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await request(reader)
    writer.write(frame(1, b"\0\0\0")[:-1])
    await writer.drain()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (hang_up, "the connection ended while LastSequence was asked: only a node"),
        (say_nothing, "no answer within 0.05 s"),
        (answer_another, "correlation id 77"),
        (announce_too_much, "an answer of 2147483647 bytes"),
        (answer_half, "the connection ended while LastSequence was asked"),
    ],
)
async def test_a_call_without_an_answer_ends_the_connection(answer: Answer, told: str) -> None:
    async with server(answer) as address:
        connection = await connect(address, "billing", 5)
        with pytest.raises(SidecarUnavailableError, match=told) as failed:
            await connection.call(ASKED, 0.05 if answer is say_nothing else 5)
        assert (failed.value.code, failed.value.retryable) == (13, True)
        assert not connection.is_open
        with pytest.raises(SidecarUnavailableError):
            await connection.call(ASKED, 5)
        await connection.close()


async def test_who_has_no_tls_and_no_login_is_told_what_may_be_missing() -> None:
    async with server(hang_up) as address:
        connection = await connect(address, "billing", 5)
        with pytest.raises(SidecarUnavailableError, match=r"while ApiVersions was asked: .* set security_protocol"):
            await connection.call(ApiVersions(), 5)
        await connection.close()


async def test_a_call_that_is_cancelled_takes_the_connection_with_it() -> None:
    asked = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        asked.set()
        await reader.read()

    async with server(answer) as address:
        connection = await connect(address, "billing", 5)
        call = asyncio.create_task(connection.call(ASKED, 5))
        await asked.wait()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert not connection.is_open
        await connection.close()


async def test_nobody_at_the_address_is_told() -> None:
    port = free_ports(1)[0]
    with pytest.raises(SidecarUnavailableError, match=f"127.0.0.1:{port} cannot be reached"):
        await connect(("127.0.0.1", port), "billing", 5)


@pytest.mark.parametrize(
    ("bootstrap", "found"),
    [
        ("host:19092", (("host", 19092),)),
        ("a:1, b:2", (("a", 1), ("b", 2))),
        (["a:1", "[::1]:2"], (("a", 1), ("::1", 2))),
        ("host", (("host", 9092),)),
        ("[::1]", (("::1", 9092),)),
    ],
)
def test_addresses(bootstrap: str | list[str], found: tuple[tuple[str, int], ...]) -> None:
    assert addresses(bootstrap) == found


@pytest.mark.parametrize("bootstrap", ["", " , ", "host:", "host:x", "host:0", "host:65536", []])
def test_what_is_no_address_is_refused(bootstrap: str | list[str]) -> None:
    with pytest.raises(ValueError, match=r"no (address|host:port)"):
        addresses(bootstrap)
