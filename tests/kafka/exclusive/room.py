"""The room `exclusive` in the test's own process, on the real Kafka and Redis (`tests/kafka/gates.py`)."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableSequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

import pytest

from metadata.ownership import AccessMode
from sidecar.changelog import Clock
from sidecar.cluster.resolver import NameResolver
from sidecar.exclusive.environment import Environment
from sidecar.exclusive.governed_topics import GovernedTopics
from sidecar.exclusive.producing import ProducingState
from sidecar.exclusive.topic import GovernedTopic
from sidecar.forwarder import forwarder as links
from sidecar.forwarder import gathered
from sidecar.forwarder.forwarder import Forwarder
from sidecar.forwarder.outcome import Outcome
from sidecar.forwarder.sequences import EPOCH_RECORDS
from sidecar.network.aside import Allowance
from sidecar.network.framing import Frame
from sidecar.policy import identity
from sidecar.policy.policies import PolicyFields
from sidecar.protocol import produce_upstream
from sidecar.protocol.batch import Numbers
from sidecar.protocol.primitives import Octets
from sidecar.protocol.produce import ProducePart, ProduceResult, walk
from sidecar.protocol.produce_upstream import decode_answer
from sidecar.protocol.session import Caller, Session
from sidecar.writing.upkeep import Cause
from tests.kafka.exclusive.producers import batch_of, id_headers
from tests.kafka.gates import Gates, Parts, opened
from tests.wait import wait_for_async

_VERSION = 8


class HeldAnswers:
    """Answers of leaders that came and are not told yet."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self._held: list[Callable[[], None]] = []
        for kind in (gathered.GatheredReply, links.WholeReply):
            monkeypatch.setattr(kind, "answer_received", self._holding(kind.answer_received))

    def _holding(self, told: Callable[[Any, Frame], None]) -> Callable[[Any, Frame], None]:
        def hold(reply: Any, frame: Frame) -> None:
            kept = frame.own()
            self._held.append(lambda: told(reply, kept))

        return hold

    async def came(self, number: int) -> None:
        async def enough() -> bool:
            return len(self._held) >= number

        await wait_for_async(enough, f"{number} answers")

    def end(self) -> None:
        """What comes from here on is told at once."""
        self._patch.undo()

    def tell(self) -> None:
        for tell in self._held:
            tell()
        self._held.clear()


@dataclass
class Told:
    """What the room tells the node. As `OwnershipReports`."""

    takeovers: list[tuple[str, int, str | None]] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)
    released_sessions: list[str] = field(default_factory=list)
    duplicates: int = 0
    depositions: list[tuple[str, tuple[str, ...], Caller]] = field(default_factory=list)
    """What was taken, from whom, by whom."""
    recovered: list[int] = field(default_factory=list)
    """Records read, by recovery."""
    lost: list[str] = field(default_factory=list)
    snapshots: list[int] = field(default_factory=list)
    """Names in each."""

    def governed_produce(self, topic: str, records: int, size: int) -> None: ...
    def fenced(self, topic: str, reason: str) -> None: ...
    def owner_changed(self, topic: str, generation: int, name: str | None, mode: str | None) -> None: ...

    def takeover(
        self, topic: str, mode: str, seconds: float, session: str, generation: int, deposed: str | None
    ) -> None:
        self.takeovers.append((session, generation, deposed))

    def deposed(self, resource: str, lost: tuple[str, ...], by: Caller, client: str) -> None:
        self.depositions.append((resource, lost, by))

    def topic_forgotten(self, topic: str) -> None: ...
    def fence_renewed(self, topic: str, cause: Cause | None) -> None: ...
    def topic_gone(self, topic: str, generation: int) -> None: ...
    def compaction_lag_raised(self, topic: str, before_ms: int, after_ms: int) -> None: ...
    def compaction_lag_low(self, topic: str, problem: str) -> None: ...

    def released(self, topic: str, session: str, generation: int) -> None:
        self.released_sessions.append(session)

    def operation_failed(self, topic: str, error: BaseException) -> None:
        self.failures.append(error)

    def duplicates_dropped(self, topic: str, records: int) -> None:
        self.duplicates += records

    def ids_unknown(self, topic: str) -> None:
        pass

    def ids_read(self, topic: str, records: int) -> None:
        pass

    def ids_recovered(self, topic: str, records: int, seconds: float) -> None:
        self.recovered.append(records)

    def ids_lost(self, topic: str, reason: str) -> None:
        self.lost.append(reason)

    def snapshot_written(self, topic: str, names: int, size: int) -> None:
        self.snapshots.append(names)

    def names_forgotten(self, topic: str, names: int) -> None:
        pass


class Asker:
    """A party's place for an answer. Implements `sidecar.forwarder.forwarder.Asker`."""

    correlation_id = 1
    version = _VERSION

    def __init__(self, done: Callable[[ProduceResult], None]) -> None:
        self._done = done

    def answer_frame(self, frame: Frame) -> None:
        ((result,), _) = decode_answer(frame.buffer, frame.start, frame.end, _VERSION)
        self._done(result)

    def settle_outcome(self, part: ProducePart, numbers: Numbers, outcome: Outcome) -> None:
        self._done(ProduceResult(part.topic, part.partition, *outcome))


class Party:
    """A client connection. Implements `sidecar.exclusive.producing.Producing`."""

    def __init__(self, room: Room, connection: int, client_id: str, producer_id: int) -> None:
        self.governed = ProducingState()
        self.carries_ordinary = True  # refusals are told at once
        self.connection_id = connection
        self.session = Session.by_connection(room.governed.env.node_id, room.boot, connection)
        self.address = f"party {connection}"
        self.producer_id = producer_id
        self.sequence = 0
        self.answers: list[ProduceResult] = []
        self._room = room
        self._identity = identity.parse(client_id.encode())
        self._alive = True
        self.principal = "User:app"
        self.allowance = Allowance()

    def is_alive(self) -> bool:
        return self._alive

    def sever(self) -> None:
        self.close()

    @property
    def caller(self) -> Caller:
        return Caller(self.principal, self._identity.shown)

    @property
    def producer(self) -> tuple[str, bool, AccessMode | None, int | None]:
        found = self._identity
        return found.shown, found.is_named, found.mode, found.generation

    def close(self) -> None:
        self._alive = False
        self._room.governed.producers.connection_closed(self.connection_id)

    def begin(
        self,
        topic: str,
        value: bytes = b"v",
        *,
        partition: int = 0,
        sequence: int | None = None,
        epoch: int = 0,
        ids: list[int | bytes | None] | None = None,
        name: bytes | None = None,
        codec: int = 0,
        timeout_ms: int = 10_000,
        timestamp_ms: int | None = None,
        claimed_ms: int | None = None,
        attributes: int = 0,
    ) -> asyncio.Future[ProduceResult]:
        """Send one batch; the sequence counts on by itself. `ids`: a record each, with this sequence id. `claimed_ms`:
        the newest time by the header, whatever the records have; `attributes`: more bits of the header.
        """
        values = [value] if ids is None else [b"%s" % (b"-" if each is None else str(each).encode()) for each in ids]
        if sequence is None:
            sequence = self.sequence
            self.sequence += len(values)
        plain = self.producer_id < 0
        headers = None if ids is None else [id_headers(each, name) for each in ids]
        batch = batch_of(
            values,
            self.producer_id,
            -1 if plain else epoch,
            -1 if plain else sequence,
            headers=headers,
            codec=codec,
            timestamp_ms=self._room.wall_ms() if timestamp_ms is None else timestamp_ms,
            claimed_ms=claimed_ms,
            attributes=attributes,
        )
        records: list[tuple[bytes, int, Octets]] = [(topic.encode(), partition, batch)]
        data = bytearray(b"".join(produce_upstream.encode_request(1, b"party", _VERSION, -1, timeout_ms, records)))
        frame, body = Frame(data, 0, len(data), True), 14 + len(b"party")
        request = walk(data, body, len(data), _VERSION)
        answer: asyncio.Future[ProduceResult] = asyncio.get_running_loop().create_future()

        def done(result: ProduceResult) -> None:
            assert not answer.done(), "answered twice"
            self.answers.append(result)
            answer.set_result(result)

        (part,) = request.parts
        governed = self._room.governed
        self._room.sent.append(answer)
        if not governed.producers.append_whole(self, request, frame, body, 0, Asker(done)):
            governed.producers.append(self, part, frame.view(part.start, part.end), timeout_ms, done)
        return answer

    async def send_ids(self, topic: str, ids: list[int | bytes | None], **options: Any) -> int:
        """The error code of one batch with a record for each sequence id."""
        async with asyncio.timeout(20):
            return (await self.begin(topic, ids=ids, **options)).error

    async def send(self, topic: str, value: bytes = b"v", **options: Any) -> int:
        """The error code of one batch."""
        async with asyncio.timeout(20):
            return (await self.begin(topic, value, **options)).error


class Room:
    """One node's room. Everything sent is answered once; nothing is held when it ends; no exception is unexpected."""

    def __init__(self, governed: GovernedTopics, gates: Gates, told: Told, boot: str) -> None:
        self.governed = governed
        self.gates = gates
        self.told = told
        self.boot = boot
        self.is_dead = False
        self.wall_ms: Callable[[], int] = lambda: int(time.time() * 1000)
        """The time of its clients' records."""
        self.unexpected: list[BaseException] = []
        self.sent: MutableSequence[asyncio.Future[ProduceResult]] = []
        self._connections = count(1)
        self._producer_ids = count(1_000_000 + secrets.randbelow(10**9))

    def connect(self, client_id: str, *, plain: bool = False, producer_id: int | None = None) -> Party:
        """A new connection, with a producer id of its own unless it is plain."""
        if producer_id is None:
            producer_id = -1 if plain else next(self._producer_ids)
        return Party(self, next(self._connections), client_id, producer_id)

    def topic(self, name: str) -> GovernedTopic:
        found = self.governed.topic(name)
        assert isinstance(found, GovernedTopic)
        return found

    async def govern(self, topic: str, mode: AccessMode = AccessMode.EXCLUSIVE) -> None:
        await self.governed.env.catalog.set(topic, PolicyFields(mode))

    def crash(self) -> None:
        """Nothing is handed back when the room ends."""
        self.is_dead = True

    async def gives_up(self, topic: str) -> None:
        """The right to serve a topic goes to whoever asks first, and this node does not know it yet."""
        self.governed.topic(topic).serving = False  # else its next heartbeat takes it again
        await self.governed.env.services.store.hand_over(topic, self.governed.env.node_id, self.boot)

    async def idle(self, topic: str) -> GovernedTopic:
        """The topic once nothing is under way."""
        found = self.topic(topic)
        async with asyncio.timeout(20):
            await found.over()
        return found


@asynccontextmanager
async def open_room(
    kafka: str,
    redis: str,
    cluster: str,
    *,
    node_id: int = 1,
    lease_ms: int = 3000,
    clock: Clock | None = None,
    **settings: Any,
) -> AsyncIterator[Room]:
    """A room as a node composes it (sidecar/node/rooms.py); `clock`: of a machine whose own ones are wrong. `settings`:
    of `composed`.
    """
    async with (
        opened(kafka, redis, cluster, node_id=node_id, lease_ms=lease_ms, clock=clock) as parts,
        composed(parts, **settings) as room,
    ):
        yield room


@asynccontextmanager
async def composed(
    parts: Parts, *, grace: float = 0.3, disconnect_grace: float = 0.0, epoch_records: int = EPOCH_RECORDS
) -> AsyncIterator[Room]:
    """The room of these parts, until the end: then everything sent was answered, and nothing unexpected was raised."""
    forwarder, told = Forwarder(parts.upstream, linger=0, buffer_bytes=64 * 1024 * 1024), Told()
    environment = Environment(
        parts.node_services(epoch_records), forwarder, parts.tasks, cast(Any, told), NameResolver(), parts.nodes,
        reconnect_grace=grace, disconnect_grace=disconnect_grace, queue_limit=100,
    )  # fmt: skip
    governed = GovernedTopics(environment)
    governed.start()
    membership = parts.membership(governed, lambda: governed.env.catalog.version)
    governed.env.catalog.beat = membership.beat_now
    await membership.join()
    parts.tasks.start(governed.keep_ids())
    room = Room(governed, parts.gates, told, parts.boot)
    room.unexpected = parts.unexpected
    try:
        yield room
        await _at_rest(room, forwarder)
    finally:
        await parts.tasks.cancel()
        if not room.is_dead:
            await membership.leave()
        elif membership._task is not None:
            membership._task.cancel()
        parts.upstream.is_closed = True
        forwarder.close()


async def _at_rest(room: Room, forwarder: Forwarder) -> None:
    deadline = time.monotonic() + 60
    while not all(answer.done() for answer in room.sent) or forwarder.held_bytes:
        assert time.monotonic() < deadline, f"unanswered, {forwarder.held_bytes} bytes held"
        await asyncio.sleep(0.01)
    for error in room.unexpected:
        raise AssertionError("nobody expected this") from error


async def until(send: Callable[[], Awaitable[int]], code: int = 0) -> None:
    """Try again until the answer is `code`, as clients do with retriable ones."""

    async def answered() -> bool:
        return await send() == code

    await wait_for_async(answered, f"an answer {code}")


async def free(room: Room, topic: str) -> None:
    """Nobody owns the topic, as far as anybody asks."""

    async def gone() -> bool:
        return (await room.idle(topic)).current is None

    await wait_for_async(gone, "the owner to be gone")
