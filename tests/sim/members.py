"""Consumers of groups: they join, or commit without joining, read from what was committed, and commit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tests.sim import flexible, wire
from tests.sim.clients import UNKNOWN_TOPIC_ID
from tests.sim.ledger import Read, Resumed
from tests.sim.wire import LostError, Reader, Writer

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from tests.sim.ledger import Ledger

_SESSION_MS: Final = 6_000
_OUT_OF_RANGE: Final = 1
_BY_NAME: Final = 4
"""The version of Fetch that members send unless another one is said."""
_FIRST_BY_ID: Final = 13


class Member:
    """One consumer of a group, with one topic or shadow. What it is told and given is in the ledger."""

    def __init__(
        self, group: str, client_id: str, addresses: Sequence[tuple[str, int]], topic: str, partitions: int,
        ledger: Ledger, rng: random.Random, *, joins: bool, version: int = 4,
    ) -> None:  # fmt: skip
        """`version`: of Fetch, by topic id from 13 on."""
        self.group = group
        self.topic = topic
        self.closed = False
        self._client_id = client_id
        self._addresses = addresses
        self._partitions = range(partitions)
        self._ledger = ledger
        self._rng = rng
        self._joins = joins
        self._version = version
        self._topic_id: bytes | None = None
        self._generation, self._member = -1, ""
        self._positions: dict[int, int] = {}
        self._begins: dict[int, int] = {}
        self._runs = 0
        self._wire: wire.Wire | None = None

    async def run(self, is_over: Callable[[], bool], slow: float) -> None:
        """Until closed or over."""
        place = self._rng.randrange(len(self._addresses))
        while not self.closed and not is_over():
            try:
                self._wire = await wire.Wire.open(self._addresses[place], self._client_id)
                await self._serve(self._wire, is_over, slow)
            except LostError:
                pass
            if self._wire is not None:
                self._wire.close()
            place = (place + 1) % len(self._addresses)
            await asyncio.sleep(0.2)

    async def _serve(self, to: wire.Wire, is_over: Callable[[], bool], slow: float) -> None:
        """On one connection, until something goes wrong with it. Raises `LostError`."""
        await to.call(wire.FIND_COORDINATOR, Writer().text(self.group).done(), 3.0)
        if self._joins and not await self._join(to):
            return
        if not await self._begin(to):
            return
        while not self.closed and not is_over():
            if not await self._read(to):
                return
            await asyncio.sleep(slow * self._rng.random())
            if not await self._commit(to):
                return
        if self._joins and self._rng.random() < 0.5:
            await to.call(wire.LEAVE_GROUP, Writer().text(self.group).text(self._member).done(), 3.0)

    async def _join(self, to: wire.Wire) -> bool:
        body = Writer().text(self.group).i32(_SESSION_MS).i32(_SESSION_MS).text(self._member).text("consumer")
        answer = Reader(await to.call(wire.JOIN_GROUP, body.i32(1).text("range").data(b"").done(), 10.0))
        answer.i32()
        error, self._generation = answer.i16(), answer.i32()
        answer.text()
        leader, member = answer.text(), answer.text() or ""
        self._member = member if error in (0, 79) else ""
        if error:
            return False
        body = Writer().text(self.group).i32(self._generation).text(member)
        body = body.i32(1).text(member).data(b"all") if leader == member else body.i32(0)
        answer = Reader(await to.call(wire.SYNC_GROUP, body.done(), 10.0))
        answer.i32()
        return not answer.i16()

    async def _begin(self, to: wire.Wire) -> bool:
        """From where the group stands."""
        body = Writer().text(self.group).i32(1).text(self.topic).i32(len(self._partitions))
        for index in self._partitions:
            body.i32(index)
        answer = Reader(await to.call(wire.OFFSET_FETCH, body.done(), 8.0))
        for _ in answer.count():
            answer.text()
            for _ in answer.count():
                index, offset = answer.i32(), answer.i64()
                answer.text()
                if answer.i16():
                    return False
                if offset > 0:
                    self._ledger.resumed.append(Resumed(self.group, self.topic, index, offset, self._now()))
                self._positions[index] = max(0, offset)
        self._begins = dict(self._positions)
        self._runs += 1
        return not answer.i16()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _read(self, to: wire.Wire) -> bool:
        offsets = {index: self._positions.get(index, 0) for index in self._partitions}
        found = await self._fetched(to, offsets)
        if found is None:
            return False
        for index, part in found.items():
            if part.error == _OUT_OF_RANGE:
                start = wire.listed(await to.call(wire.LIST_OFFSETS, wire.earliest(self.topic, index), 5.0))
                if start is None:
                    return False
                self._positions[index] = self._begins[index] = start
                self._runs += 1
            elif part.error:
                return False
            elif (end := wire.end_of(part.records)) is not None:
                self._take(index, part.records)
                self._positions[index] = max(self._positions.get(index, 0), end)
        return True

    async def _fetched(self, to: wire.Wire, offsets: dict[int, int]) -> dict[int, wire.Fetched] | None:
        """None where the topic's id is not known."""
        if self._version == _BY_NAME:
            return wire.fetched(await to.call(wire.FETCH, wire.fetch(self.topic, offsets, 200), 5.0))
        topic: str | bytes | None = self.topic
        if self._version >= _FIRST_BY_ID:
            topic = self._topic_id = self._topic_id or await _id_of(to, self.topic)
        if topic is None:
            return None
        places = {partition: flexible.Place(offset) for partition, offset in offsets.items()}
        body = flexible.fetch(self._version, topic, places, 200)
        rows = flexible.fetched(self._version, await to.call(wire.FETCH, body, 5.0, version=self._version))
        if any(row.error == UNKNOWN_TOPIC_ID for row in rows.values()):
            self._topic_id = None
        return {index: wire.Fetched(row.error, row.high_watermark, row.records) for index, row in rows.items()}

    def _take(self, index: int, records: bytes) -> None:
        position, reader = self._positions.get(index, 0), f"{self._client_id}.{self._runs}"
        for record in wire.records_of(records):
            if record.offset >= position:
                begin = self._begins.get(index, 0)
                self._ledger.read.append(
                    Read(self.topic, index, record.offset, record.value, self._now(), reader, begin)
                )

    async def _commit(self, to: wire.Wire) -> bool:
        body = Writer().text(self.group).i32(self._generation).text(self._member).i32(1).text(self.topic)
        body.i32(len(self._positions))
        for index, offset in sorted(self._positions.items()):
            body.i32(index).i64(offset).text("")
            self._ledger.committed.add((self.group, self.topic, index, offset))
        answer, fine = Reader(await to.call(wire.OFFSET_COMMIT, body.done(), 8.0)), True
        answer.i32()
        for _ in answer.count():
            answer.text()
            for _ in answer.count():
                _, error = answer.i32(), answer.i16()
                fine = fine and not error
        return fine

    def close(self) -> None:
        """As a process that ends."""
        self.closed = True
        if self._wire is not None:
            self._wire.close()


async def _id_of(to: wire.Wire, topic: str) -> bytes | None:
    """What a node says is the topic's id. Raises `LostError`."""
    data = await to.call(wire.METADATA, flexible.metadata([topic]), 5.0, version=flexible.METADATA_VERSION)
    return flexible.ids(data).get(topic)
