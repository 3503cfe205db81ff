"""A whole node in a world of simulated brokers and Redis, and one client that sends it bytes.

It takes over its process (`tests.sim.virtual`), and what inputs leave behind in it, topics and claims, stays: a process
plays some thousands of them and ends.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from tests.fuzz.calls import CALLS
from tests.sim.host import Host
from tests.sim.world import Shape, World

if TYPE_CHECKING:
    from collections.abc import Iterator

_CLIENT_IDS: Final = (
    b"c", b"", b"billing;mode=exclusive", b"billing;mode=wait_for_exclusive", b"rival;mode=exclusive_with_fencing",
    b"billing;generation=7", b"rdkafka", b"x;mode=no", b"\xff\xfe;mode=shared", b"sidecar-sdk",
)  # fmt: skip
_RAW: Final = 0xFFFF
_WITHIN_S: Final = 0.04
"""Of virtual time, for the answers to one input."""
_FRAMES: Final = 20
_CALM: Final = (("lease_ms", 60_000), ("reconnect_grace_ms", 100))
"""Nodes that seldom speak to Redis: the time of a run is for inputs."""


class _Wire(asyncio.Protocol):
    def __init__(self) -> None:
        self.transport: Any = None
        self.ended = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True


class NodeUnderFire:
    """One node, and the outcome of inputs: `send` raises AssertionError where one makes a node raise or hang."""

    def __init__(self, **settings: Any) -> None:
        shape = Shape(nodes=1, brokers=3, settings=(*_CALM, *settings.items()))
        self.world = World(0, shape)
        self.world.start()
        self.world.begin(0)
        self.world.run(self.world.now + 0.5)
        self._host = Host("stranger")
        self._world_crashes()

    def send(self, data: bytes) -> None:
        """Connect, send all of it, wait for what comes of it, and go."""
        world = self.world
        loop = world.loop
        wire = loop.finish(self._connect(), self._host, 5.0)
        with loop.on(self._host):
            for frame in frames(data):
                wire.transport.write(frame)
        world.run(world.now + _WITHIN_S, lambda: wire.ended)
        with loop.on(self._host):
            wire.transport.abort()
        world.run(world.now + _WITHIN_S / 4)
        self._world_crashes()
        node: Any = world.nodes[1].node
        assert world.serving(1), "the node has ended"
        left = node.rooms.gateway.clients
        assert not left, f"{len(left)} connections are left of clients that have gone"
        self._host.tasks.clear()
        world.nodes[1].host.tasks = [task for task in world.nodes[1].host.tasks if not task.done()]
        world.events.clear()

    async def _connect(self) -> _Wire:
        _, protocol = await self.world.loop.create_connection(_Wire, *self.world.address(1))
        return protocol

    def _world_crashes(self) -> None:
        crashes = self.world.loop.crashes
        if crashes:
            told = "\n".join(crashes)
            crashes.clear()
            raise AssertionError(told)


def frames(data: bytes) -> Iterator[bytes]:
    """What is sent for an input: requests, each as its call (two bytes), client id (one), length of the body (two), and
    body; behind call 65535 the bytes as they are.
    """
    for number in range(_FRAMES):
        if len(data) < 5:
            return
        call, name, size = int.from_bytes(data[:2], "big"), data[2], int.from_bytes(data[3:5], "big")
        body, data = data[5 : 5 + size], data[5 + size :]
        if call == _RAW:
            yield body
            continue
        key, version = CALLS[call % len(CALLS)]
        client_id = _CLIENT_IDS[name % len(_CLIENT_IDS)]
        head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + number.to_bytes(4, "big")
        head += len(client_id).to_bytes(2, "big") + client_id
        yield (len(head) + len(body)).to_bytes(4, "big") + head + body


def framed(call: int, body: bytes, name: int = 0) -> bytes:
    """The input for one request."""
    return call.to_bytes(2, "big") + bytes((name,)) + len(body).to_bytes(2, "big") + body
