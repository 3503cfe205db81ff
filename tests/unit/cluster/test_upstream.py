"""The node's own calls to a broker that is silent."""

import asyncio

import pytest

from sidecar.cluster.upstream import KafkaUpstream
from sidecar.protocol.api import api_name
from sidecar.protocol.caller import CallTimeoutError
from sidecar.protocol.calls import ApiVersions


async def test_a_broker_that_is_silent_is_told_with_the_name_of_what_was_asked():
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    upstream = KafkaUpstream([("127.0.0.1", port)], connect_timeout=5, request_timeout=0.05)
    async with server:
        with pytest.raises(CallTimeoutError, match=rf"127\.0\.0\.1:{port} did not answer ApiVersions within 0\.05 s"):
            await upstream.call(None, ApiVersions())
        await upstream.close()


def test_an_api_that_nobody_serves_is_named_by_its_key():
    assert [api_name(key) for key in (1, 1000, 32)] == ["Fetch", "Own", "DescribeConfigs"]
    assert api_name(999) == "api key 999"
