"""The sockets of a node's listeners, made of its settings."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from sidecar.node.connecting import ClientSockets
from sidecar.node.limits import bound_clients
from sidecar.protocol.limits import BOUNDS
from sidecar.settings import Address, load
from sidecar.telemetry.hooks import NodeMetrics
from tests.unit.network.peers import LOOPBACK, on_uvloop
from tests.wait import wait_for_async

if TYPE_CHECKING:
    import ssl


class Told:
    def __init__(self) -> None:
        self.failed: list[str] = []

    def handshake_done(self) -> None:
        raise AssertionError("nobody said a word")

    def handshake_failed(self, peer: str, reason: str) -> None:
        assert peer.startswith(LOOPBACK)
        self.failed.append(reason)


def never() -> ssl.SSLContext:
    raise AssertionError("nobody said a word")


@on_uvloop
async def test_the_setting_bounds_handshakes_and_a_gauge_shows_how_many_are_not_finished() -> None:
    listener: Any = SimpleNamespace(tls=SimpleNamespace(context=never), logins=None)
    settings = replace(load(), max_unfinished_handshakes=3, listen=Address(LOOPBACK, 0))
    gateway: Any = SimpleNamespace(new_connection=asyncio.Protocol, admission=None)
    told, metrics = Told(), NodeMetrics({}, "test")
    sockets = ClientSockets(settings, [listener], told)  # pyright: ignore[reportArgumentType]
    bound_clients(sockets, settings, metrics)
    BOUNDS.move()
    (port,) = await sockets.bind(gateway)
    await sockets.start()
    unfinished = metrics.gauges["tls_handshakes_unfinished"]
    silent: list[asyncio.StreamWriter] = []
    for index in range(4):
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        silent.append(writer)
        if not index:
            oldest = reader
        await wait_for_async(lambda: _accepted(unfinished() == min(len(silent), 3)), "it is accepted")
    assert await asyncio.wait_for(oldest.read(), 5) == b""
    assert unfinished() == 3
    assert told.failed == ["too many without a finished handshake"]
    await sockets.close()
    for writer in silent:
        writer.close()


async def _accepted(now: bool) -> bool:
    return now
