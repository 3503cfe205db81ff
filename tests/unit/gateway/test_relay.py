"""Logins that brokers check: how many at one time."""

from __future__ import annotations

import asyncio

import pytest

from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway.relay import RelayedLogins
from sidecar.protocol.caller import DisconnectedError
from tests.unit.network.peers import Peer, broker, on_uvloop
from tests.unit.network.test_upstream import until


@on_uvloop
async def test_strangers_make_no_more_connections_to_brokers_than_there_are_places() -> None:
    came: list[Peer] = []

    async def silent(peer: Peer) -> None:
        came.append(peer)
        await asyncio.Event().wait()

    async with broker(silent) as address:
        upstream = KafkaUpstream([address], connect_timeout=5, request_timeout=5)
        logins = RelayedLogins(upstream, ("PLAIN",), "sub", at_once=8)
        begun = [asyncio.create_task(logins.begin("PLAIN", "10.0.0.1")) for _ in range(4)]
        await until(lambda: len(came) == 2, "two connections")
        await asyncio.sleep(0.05)
        assert len(came) == 2
        other = asyncio.create_task(logins.begin("PLAIN", "10.0.0.2"))
        await until(lambda: len(came) == 3, "a client at another address, which does not wait for these")
        came.pop()
        begun[0].cancel()  # its client is gone
        await until(lambda: len(came) == 3, "the next one")
        begun[3].cancel()  # it waits for a place, and takes none with it
        came[1].close()  # the broker hangs up on the second, which asks again in the place that this leaves
        await until(lambda: len(came) == 4, "another try")
        for task in (*begun, other):
            task.cancel()
        for task in (*begun, other):
            with pytest.raises((asyncio.CancelledError, DisconnectedError)):
                await task
        await upstream.close()
