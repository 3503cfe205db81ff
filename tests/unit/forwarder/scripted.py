"""A broker on a socket that takes Produce requests and answers exactly what the test says, when it says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

from sidecar.cluster.upstream import KafkaUpstream
from sidecar.forwarder.forwarder import Forwarder
from sidecar.forwarder.lane import Lane
from sidecar.forwarder.outcome import Outcome
from sidecar.forwarder.sequences import Append, SequenceSpace
from sidecar.network.listening import close_server
from sidecar.protocol import produce
from sidecar.protocol.batch import BatchHeader, read_header
from sidecar.protocol.calls.admin import ServedVersions
from sidecar.protocol.ids import ClientSequence as Client
from sidecar.protocol.metadata import Broker, ClusterState, PartitionState, TopicState
from sidecar.protocol.primitives import I16, I32
from sidecar.protocol.produce import ProduceResult
from tests.unit.forwarder.paper import STAMP, record_batch

LOOPBACK = "127.0.0.1"


@dataclass
class Request:
    """One ProduceRequest as it arrived. `batches` are (topic, partition, header) in the order of the request."""

    version: int
    correlation_id: int
    client_id: bytes
    acks: int
    timeout_ms: int
    batches: list[tuple[str, int, BatchHeader]]
    writer: asyncio.StreamWriter

    @property
    def keys(self) -> list[str]:
        """`topic-partition:sequence` of every batch."""
        return [f"{topic}-{partition}:{header.base_sequence}" for topic, partition, header in self.batches]

    def answer(self, code: int = 0, *, only: int | None = None) -> None:
        """Answer all partitions (or the first `only` of them) with one code."""
        results = [
            ProduceResult(topic.encode(), partition, code, 7 if code == 0 else -1)
            for topic, partition, _ in self.batches[:only]
        ]
        self.answer_with(results)

    def answer_with(self, results: list[ProduceResult]) -> None:
        """Answer with these results."""
        ids = None if self.version < 13 else {topic.encode(): id_of(topic).bytes for topic, _, _ in self.batches}
        self.write(produce.encode_answer(self.correlation_id, self.version, results, ids=ids))

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    def drop(self) -> None:
        """End the connection without an answer."""
        self.writer.transport.abort()


class ScriptedBroker:
    """Listens until it is stopped; `requests` are those that arrived, over all connections."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[Request] = asyncio.Queue()
        self.connections = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, LOOPBACK, port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Refuse new connections and end the old ones."""
        if self._server is not None:
            await close_server(self._server)
            for writer in self._writers:
                writer.transport.abort()
            await self._server.wait_closed()

    async def next(self) -> Request:
        """The next request. Fails after five seconds."""
        async with asyncio.timeout(5):
            return await self.requests.get()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        try:
            while True:
                frame = bytearray(await reader.readexactly(4))
                frame += await reader.readexactly(I32.unpack(frame)[0])
                self.requests.put_nowait(_read(frame, writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


def _read(frame: bytearray, writer: asyncio.StreamWriter) -> Request:
    version, correlation_id = I16.unpack_from(frame, 6)[0], I32.unpack_from(frame, 8)[0]
    body = 14 + I16.unpack_from(frame, 12)[0]
    request = produce.walk(frame, body, len(frame), version, _NAMES)
    batches = [
        (part.topic.decode(), part.partition, read_header(frame, part.start, part.end)) for part in request.parts
    ]
    return Request(version, correlation_id, bytes(frame[14:body]), request.acks, request.timeout_ms, batches, writer)


_NAMES: dict[bytes, bytes] = {}
"""The topics that tests named, by id."""


def id_of(topic: str) -> UUID:
    found = UUID(int=sum(topic.encode()))
    _NAMES[found.bytes] = topic.encode()
    return found


class KnownUpstream(KafkaUpstream):
    """Knows the brokers and leaders that the test tells; `refreshed` are the topics it was asked to look up."""

    def __init__(self, connect_timeout: float = 5.0) -> None:
        self.versions_asked, self.serve_no_ids_when_asked = 0, False
        super().__init__([(LOOPBACK, 1)], connect_timeout=connect_timeout, request_timeout=5.0)
        self.refreshed: set[bytes] = set()
        self._epoch = 0

    def refresh_soon(self, topics: Iterable[bytes]) -> None:
        self.refreshed.update(topics)

    def ask_versions_soon(self) -> None:
        """`serve_no_ids_when_asked` says what the answer is."""
        self.versions_asked += 1
        if self.serve_no_ids_when_asked:
            self._served = {}

    def serve_ids(self) -> None:
        """Its brokers take topics by id."""
        self._served = {0: ServedVersions(3, 13)}

    def know(self, brokers: dict[int, int], **topics: dict[int, int]) -> None:
        """Brokers (id: port), and each topic's leaders (partition: broker id)."""
        self._epoch += 1
        states = tuple(
            TopicState(
                name,
                0,
                id_of(name),
                False,
                tuple(PartitionState(index, 0, leader, self._epoch) for index, leader in led.items()),
            )
            for name, led in topics.items()
        )
        found = tuple(Broker(number, LOOPBACK, port) for number, port in brokers.items())
        self.view.apply(ClusterState(0, found, "cluster", -1, states))


@asynccontextmanager
async def broker() -> AsyncIterator[ScriptedBroker]:
    found = ScriptedBroker()
    await found.start()
    try:
        yield found
    finally:
        await found.stop()


class Owner:
    def fenced(self, lane: Lane) -> None:
        lane.close(Outcome(6))

    def numbering_lost(self, lane: Lane) -> None:
        lane.close(Outcome(7))


def batch(size: int = 1) -> memoryview:
    return memoryview(record_batch([b"x" * size]))


class Writer:
    """An idempotent session on one partition: counts its sequences, keeps the outcomes."""

    def __init__(self, forwarder: Forwarder, topic: str, partition: int) -> None:
        self.lane: Lane = forwarder.lane(topic.encode(), partition, STAMP, None, Owner(), id_of(topic))
        self.space = SequenceSpace(0, Client(0), Client(0))
        self.outcomes: list[tuple[int, Outcome]] = []
        self._forwarder = forwarder
        self._next = 0

    def send(self, *, size: int = 1, timeout: float = 30.0, timeout_ms: int = 30_000) -> None:
        sequence, self._next = self._next, self._next + 1
        data = batch(size)
        assert self._forwarder.admit(len(data))

        def done(outcome: Outcome) -> None:
            self.outcomes.append((sequence, outcome))

        append = Append(data, 1, asyncio.get_running_loop().time() + timeout, timeout_ms, done)
        append.belongs(self.space, Client(sequence))
        self.lane.append(append)

    @property
    def errors(self) -> list[tuple[int, int]]:
        """(sequence, code) in the order of the answers."""
        return [(sequence, outcome.error) for sequence, outcome in self.outcomes]
