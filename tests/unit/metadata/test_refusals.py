"""Servers that take no command from here, by their own words. A loopback server stands for them: to loopback clients a
real one in protected mode is open, and one whose INFO is renamed cannot be seen to be ready.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from metadata import (
    MetadataError,
    MetadataMisconfigured,
    MetadataProtocolError,
    MetadataStore,
    MetadataUnavailable,
    Reason,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

# The beginnings of what Redis 8.0.2 and Valkey 8.1 say.
REDIS_PROTECTED = (
    b"-DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the"
    b" default user. In this mode connections are only accepted from the loopback interface. If you want to connect"
    b" from external computers to Redis you may adopt one of the following solutions: 1)\r\n"
)
VALKEY_PROTECTED = (
    b"-DENIED Running in protected mode because protected mode is enabled and no password is set for the default user."
    b" In this mode connections are only accepted from the loopback interface.\r\n"
)


@asynccontextmanager
async def server_that_says(answer: bytes) -> AsyncIterator[MetadataStore]:
    """A store whose server answers whatever it is asked with `answer`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(4096):
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, MetadataStore(f"redis://127.0.0.1:{port}/0", "default", command_timeout_ms=10_000) as store:
        yield store


@pytest.mark.parametrize("answer", [REDIS_PROTECTED, VALKEY_PROTECTED])
async def test_protected_mode_is_a_denial_that_says_what_to_do(answer: bytes):
    async with server_that_says(answer) as store:
        for ask in (store.check_server, store.ping, store.policies):
            with pytest.raises(MetadataUnavailable) as refused:
                await ask()
            assert (refused.value.reason, refused.value.maybe_applied) == (Reason.DENIED, False)
            assert str(refused.value).startswith(f"Redis at {store.address}: it is in protected mode and takes ")
            assert "give it a password" in str(refused.value)


@pytest.mark.parametrize("what", [b"multibulk length", b"bulk length"])
async def test_a_long_command_before_a_login_is_a_denial_too(what: bytes):
    async with server_that_says(b"-ERR Protocol error: unauthenticated " + what + b"\r\n") as store:
        with pytest.raises(MetadataUnavailable) as refused:
            await store.policies()
    assert (refused.value.reason, refused.value.maybe_applied) == (Reason.DENIED, False)
    assert "it needs a password: put it into the URL" in str(refused.value)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"-NOPERM User narrow has no permissions to run the 'info' command\r\n", MetadataMisconfigured),
        (b"-ERR unknown command 'INFO', with args beginning with: \r\n", MetadataMisconfigured),
        (b"-ERR no upstream host\r\n", MetadataProtocolError),
        (b":1\r\n", MetadataProtocolError),
    ],
)
async def test_info_that_is_withheld_is_told_from_an_answer_that_is_none_of_redis(
    answer: bytes, kind: type[MetadataError]
):
    async with server_that_says(answer) as store:
        with pytest.raises(kind) as refused:
            await store.check_server()
    assert type(refused.value) is kind
    assert ("refuses INFO (" in str(refused.value)) is (kind is MetadataMisconfigured)
