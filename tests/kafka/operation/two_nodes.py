"""Two nodes in the test's own process, on the real Kafka and Redis, so that what one of them hears can be held back.

Their leases are a minute long: neither hears of the other by a heartbeat that happens to come.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from sidecar.admin.server import AdminServer
from sidecar.changelog.tailer import Tailer
from sidecar.local.ports import HOST, free_ports
from sidecar.node.node import Node
from sidecar.node.parts import Rooms
from sidecar.settings import load
from sidecar.settings.loaded import LoadedSettings
from tests.rest import Rest
from tests.services import Services


class HeldTailer:
    """What a node reads of the ownership topic from here on waits until `go_on`; `asked` once somebody waits for it."""

    def __init__(self, tailer: Tailer) -> None:
        self.asked = asyncio.Event()
        self._open = asyncio.Event()
        take, read_to_end = tailer._take, tailer.read_to_end

        async def held(fetched: Any) -> None:
            await self._open.wait()
            await take(fetched)

        async def heard(timeout: float) -> Any:
            self.asked.set()
            return await read_to_end(timeout)

        tailer._take, tailer.read_to_end = held, heard  # type: ignore[method-assign]

    def go_on(self) -> None:
        self._open.set()

    async def once_asked(self) -> None:
        """Go on when somebody waits for it."""
        await self.asked.wait()
        self.go_on()

    async def meets(self, answer: Awaitable[Any]) -> Any:
        """The answer to a question that was asked while the tailer was held; it goes on when that is waited for, or
        answered.
        """
        answering, asked = asyncio.ensure_future(answer), asyncio.ensure_future(self.asked.wait())
        await asyncio.wait({answering, asked}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        self.go_on()
        return await answering


class RunningNode:
    """One node, and how it is asked."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.bootstrap = str(node.settings.listen)
        self.rest = Rest(f"http://{node.settings.admin_listen}")

    @property
    def rooms(self) -> Rooms:
        assert self.node.rooms is not None
        return self.node.rooms

    def hold(self) -> HeldTailer:
        """Hold back what it reads."""
        return HeldTailer(self.rooms.changelog.tailer)

    async def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Its REST interface, asked in a thread."""
        return await asyncio.to_thread(self.rest.call, method, path, body)


@asynccontextmanager
async def running(
    services: Services,
    cluster: str,
    number: int,
    *,
    prepared: Callable[[Node], None] = lambda node: None,
    **settings: Any,
) -> AsyncIterator[RunningNode]:
    """A node that serves; `prepared` is given it before it starts."""
    client, admin = free_ports(2)
    told = load(
        {
            "bootstrap_servers": services.kafka_bootstrap,
            "redis_url": services.redis_url,
            "cluster": cluster,
            "node_id": number,
            "listen": f"{HOST}:{client}",
            "admin_listen": f"{HOST}:{admin}",
            "lease_ms": 60_000,
            **settings,
        }
    )
    node = Node(LoadedSettings(told), AdminServer)
    prepared(node)
    try:
        await node.start()
        yield RunningNode(node)
    finally:
        await node.stop()
