"""A node on paper over real sockets: Metadata, Own, Release and Watch of one resource, for tests of who claims it.

It grants in the order of asking, ends a claim with its connection, and does on demand what a real one does seldom: it
is silent, severs, deposes, refuses, or sends elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sidecar.network.listening import close_server
from sidecar.protocol import metadata
from sidecar.protocol.metadata import Broker, ClusterState
from sidecar.protocol.primitives import at_once
from sidecar.v1 import control_pb2 as control

HOST = "127.0.0.1"
FENCING_BASE = 1_767_225_000_000_000
METADATA, OWN, RELEASE, WATCH = 3, 1000, 1001, 1004


@dataclass(eq=False)
class Line:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    keys: list[int] = field(default_factory=list)
    """The APIs that were asked on it."""


@dataclass(eq=False)
class Place:
    """A claim or a place in the queue."""

    token: bytes
    name: str
    line: Line
    generation: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)
    deposed: str = ""


class PaperClaims:
    """See the module. `refusals` are given to the next Owns, one each; `told` are all that were asked."""

    def __init__(self) -> None:
        self.port = 0
        self.nodes: dict[int, int] = {}
        self.silent = False
        self.hang_up = 0
        """At so many Owns, instead of an answer."""
        self.generation = 0
        self.queue: list[Place] = []
        """The first one owns it."""
        self.losers: list[Place] = []
        self.refusals: list[control.OwnResponse] = []
        self.told: list[control.OwnRequest] = []
        self.lines: set[Line] = set()
        self.changed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # What tests do ----------------------------------------------------------------------------------------------------

    @property
    def owner(self) -> Place | None:
        return self.queue[0] if self.queue else None

    async def until(self, condition: object) -> None:
        """Until `condition()` is true."""
        assert callable(condition)
        while not condition():
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), 10)

    def depose(self, message: str) -> None:
        """The owner loses the claim and is told."""
        place = self.queue.pop(0)
        place.deposed = message
        self.losers.append(place)
        place.news.set()
        self._promote()

    def sever(self) -> None:
        """The owner's connection is closed, as the wiki says."""
        assert self.owner is not None
        self.owner.line.writer.close()

    def cut(self) -> None:
        """Every connection ends, as where the node dies."""
        for line in list(self.lines):
            line.writer.transport.abort()

    # The node ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, HOST, self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        self.nodes = self.nodes or {1: self.port}

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await close_server(self._server)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(Line(reader, writer)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, line: Line) -> None:
        self._note(self.lines.add(line))
        answering: asyncio.Task[None] | None = None
        try:
            while True:
                size = int.from_bytes(await line.reader.readexactly(4), "big")
                frame = await line.reader.readexactly(size)
                key = int.from_bytes(frame[:2], "big")
                line.keys.append(key)
                body = frame[10 + int.from_bytes(frame[8:10], "big") :]
                answering = asyncio.ensure_future(self._answer(line, key, frame[4:8], body, answering))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            if answering is not None:
                answering.cancel()
                await asyncio.gather(answering, return_exceptions=True)
            line.writer.close()
            self.queue = [each for each in self.queue if each.line is not line]
            self._promote()
            self._note(self.lines.discard(line))

    async def _answer(
        self, line: Line, key: int, correlation: bytes, body: bytes, before: asyncio.Task[None] | None
    ) -> None:
        if before is not None:
            await before
        if self.silent:
            await asyncio.Event().wait()
        if key == METADATA:
            brokers = tuple(Broker(number, HOST, port) for number, port in self.nodes.items())
            found = at_once(
                metadata.answer_steps(int.from_bytes(correlation, "big"), 10, ClusterState(0, brokers, "c", 1, ()))
            )
            line.writer.write(found)
            return
        if key == OWN and self.hang_up:
            self.hang_up -= 1
            line.writer.close()
            return
        if key == OWN:
            said = (await self._own(line, control.OwnRequest.FromString(body))).SerializeToString()
        elif key == WATCH:
            said = (await self._watch(control.WatchRequest.FromString(body))).SerializeToString()
        else:
            token = control.ReleaseRequest.FromString(body).token
            self.queue = [each for each in self.queue if each.token != token]
            self._promote()
            said = control.ReleaseResponse().SerializeToString()
        if self.silent:
            await asyncio.Event().wait()
        line.writer.write((4 + len(said)).to_bytes(4, "big") + correlation + said)

    async def _own(self, line: Line, asked: control.OwnRequest) -> control.OwnResponse:
        self._note(self.told.append(asked))
        if self.refusals:
            return self.refusals.pop(0)
        if asked.mode == control.EXCLUSIVE_WITH_FENCING:
            while self.queue:
                self.depose(f"{asked.producer_name} took it")
        place = next((each for each in self.queue if each.token == asked.token), None)
        if place is None:
            if self.queue and asked.mode == control.EXCLUSIVE:
                return _refusal(control.HELD, f"{self.queue[0].name} owns it", self.queue[0].name)
            place = Place(asked.token, asked.producer_name, line)
            self.queue.append(place)
            self._promote()
        if place is not self.owner:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(place.news.wait(), asked.wait_ms / 1000)
        if place.deposed:
            return _refusal(control.DEPOSED, place.deposed)
        if place is not self.owner:
            return _refusal(control.TIMED_OUT, "")
        found = control.Ownership(generation=place.generation, fencing_token=FENCING_BASE + place.generation)
        return control.OwnResponse(ownerships=[found])

    async def _watch(self, asked: control.WatchRequest) -> control.WatchResponse:
        place = next((each for each in self.queue + self.losers if each.token == asked.token), None)
        if place is None:
            return control.WatchResponse(error=control.INVALID_REQUEST, message="nobody knows this token")
        if not place.deposed:
            place.news.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(place.news.wait(), asked.wait_ms / 1000)
        if place.deposed:
            return control.WatchResponse(changed=[control.Ownership(error=control.DEPOSED, message=place.deposed)])
        return control.WatchResponse()

    def _promote(self) -> None:
        if self.owner is not None and not self.owner.generation:
            self.generation += 1
            self.owner.generation = self.generation
            self.owner.news.set()
        self.changed.set()

    def _note(self, _: None) -> None:
        self.changed.set()


def _refusal(error: control.Error, message: str, owner: str = "") -> control.OwnResponse:
    found = control.Ownership(error=error, message=message, owner_name=owner)
    return control.OwnResponse(error=error, message=message, ownerships=[found])


def elsewhere(node: int) -> control.OwnResponse:
    """Ask that one."""
    found = control.Ownership(error=control.NOT_SERVING, serving_node=node)
    return control.OwnResponse(error=control.NOT_SERVING, message="another node has it", ownerships=[found])


@asynccontextmanager
async def paper_claims() -> AsyncIterator[PaperClaims]:
    """One that listens for as long as the block runs; every connection has to be gone by then."""
    found = PaperClaims()
    await found.start()
    try:
        yield found
    finally:
        await found.stop()
