"""Requests of an owner that may go on whole, or may not: on real Kafka, from what a client really sends to the log."""

from __future__ import annotations

import asyncio
import random
import struct
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from sidecar.forwarder.outcome import Outcome
from sidecar.local import Kafka
from sidecar.network.framing import Frame
from sidecar.protocol import produce_upstream
from sidecar.protocol.batch import Numbers
from sidecar.protocol.primitives import I16, I32, Octets
from sidecar.protocol.produce import ProducePart, ProduceResult, walk
from sidecar.protocol.produce_upstream import decode_answer
from tests.cluster import is_whole
from tests.conftest import OwnValkey, Unique
from tests.kafka.exclusive.producers import batch_of
from tests.kafka.exclusive.room import Party, Room, open_room
from tests.logs import read_log
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for, wait_for_async

OK = 0
CLIENT = b"billing"
BODY = 14 + len(CLIENT)


@dataclass
class Answer:
    """Who asked, and what it was told by partition. `whole`: the leader's own answer came."""

    version: int
    correlation_id: int = 77
    errors: dict[int, int] = field(default_factory=dict[int, int])
    offsets: dict[int, int] = field(default_factory=dict[int, int])
    whole: bool = False

    def answer_frame(self, frame: Frame) -> None:
        self.whole = True
        for result in decode_answer(frame.buffer, frame.start, frame.end, self.version)[0]:
            self.settle(result)

    def settle_outcome(self, part: ProducePart, numbers: Numbers, outcome: Outcome) -> None:
        self.settle(ProduceResult(part.topic, part.partition, *outcome))

    def settle(self, result: ProduceResult) -> None:
        assert result.partition not in self.errors, "told twice"
        self.errors[result.partition] = result.error
        self.offsets[result.partition] = result.base_offset


def frame_of(version: int, body: bytes) -> Frame:
    head = struct.pack(">hhih", 0, version, 77, len(CLIENT)) + CLIENT
    data = bytearray(I32.pack(len(head) + len(body)) + head + body)
    return Frame(data, 0, len(data), True)


def ordinary(version: int, topic: str, batches: dict[int, bytearray], timeout_ms: int = 10_000) -> Frame:
    records: list[tuple[bytes, int, Octets]] = [(topic.encode(), index, batch) for index, batch in batches.items()]
    data = bytearray(b"".join(produce_upstream.encode_request(77, CLIENT, version, -1, timeout_ms, records)))
    return Frame(data, 0, len(data), True)


def send(room: Room, party: Party, frame: Frame, version: int, timeout_ms: int = 10_000) -> Answer:
    """As the gateway does: whole, or batch by batch."""
    request = walk(frame.buffer, BODY, frame.end, version)
    answer = Answer(version)
    if not room.governed.producers.append_whole(party, request, frame, BODY, 0, answer):
        for part in request.parts:
            room.governed.producers.append(party, part, frame.view(part.start, part.end), timeout_ms, answer.settle)
    return answer


async def told(answer: Answer, partitions: int = 1) -> dict[int, int]:
    async def whole() -> bool:
        return len(answer.errors) == partitions

    await wait_for_async(whole, "an answer", 120)
    return answer.errors


# What a broker would not understand ---------------------------------------------------------------------------------


def with_a_null_topic(topic: bytes, batch: bytes) -> Frame:
    body = struct.pack(">hhii", -1, -1, 10_000, 2) + I16.pack(len(topic)) + topic
    body += struct.pack(">iii", 1, 0, len(batch)) + batch + struct.pack(">h1si", 1, b"x", -1)
    return frame_of(8, body)


@pytest.mark.parametrize(("version", "make"), [(8, with_a_null_topic)])
async def test_what_stands_beside_the_batches_reaches_no_broker(
    room: Room, services: Services, version: int, make: Callable[[bytes, bytes], Frame]
) -> None:
    """Kafka hangs up on a request that it cannot read, and many clients share the connection."""
    topic = await asyncio.to_thread(create_topic, services.kafka_bootstrap, 1)
    await room.govern(topic)
    owner = room.connect("billing")
    assert await owner.send(topic, b"0") == OK
    before = links(room)
    answer = send(room, owner, make(topic.encode(), bytes(batch_of([b"1"], owner.producer_id, 0, 1))), version)
    assert await told(answer) == {0: OK}
    assert not answer.whole
    assert links(room) == before
    plain = send(room, owner, ordinary(version, topic, {0: batch_of([b"2"], owner.producer_id, 0, 2)}), version)
    assert await told(plain) == {0: OK}
    assert plain.whole
    assert read_log(services.kafka_bootstrap, topic) == [b"0", b"1", b"2"]


def links(room: Room) -> list[Any]:
    return [link._connection for link in room.governed.env.forwarder._links.values()]


# Who owns, and when it ends -----------------------------------------------------------------------------------------


async def test_an_owner_that_came_before_its_topic_gives_it_up_with_its_connection(
    room: Room, services: Services, unique: Unique
) -> None:
    """Both produce before Kafka knows the topic, so it is forgotten; the second makes it known anew."""
    name = unique("late")
    await room.govern("late-*")
    early, other = room.connect("early"), room.connect("other")
    for party in (early, other):
        assert await party.send(name, sequence=0) != OK
    admin = AdminClient({"bootstrap.servers": services.kafka_bootstrap})
    await asyncio.to_thread(admin.create_topics([NewTopic(name, 1, 1)])[name].result, 20)
    await until(lambda: other.send(name, sequence=0))
    other.close()
    await until(lambda: early.send(name, sequence=0))
    early.close()
    await until(lambda: room.connect("third").send(name, sequence=0))


async def until(send: Callable[[], Awaitable[int]]) -> None:
    async def done() -> bool:
        return await send() == OK

    await wait_for_async(done, "an append")


# Several brokers ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [1, 2])
async def test_no_record_is_lost_doubled_or_misordered_while_leaders_die_and_freeze(
    kafka_cluster: Kafka, own_valkey: OwnValkey, unique: Unique, seed: int
) -> None:
    """Two owners, one of them plain, have requests for several partitions in flight; brokers die and freeze."""
    rng = random.Random(seed)
    async with open_room(kafka_cluster.bootstrap, own_valkey().url, unique("w")) as room:
        topics = [unique("orders") for _ in range(2)]
        admin = AdminClient({"bootstrap.servers": kafka_cluster.bootstrap})
        new = [NewTopic(topic, 3, 3, config={"min.insync.replicas": "2"}) for topic in topics]
        for made in admin.create_topics(new).values():
            await asyncio.to_thread(made.result, 20)
        over = time.monotonic() + 30
        writers = [
            Writer(room, topic, random.Random(seed + number), plain=number % 2 == 1)
            for number, topic in enumerate(topics)
        ]
        running = [asyncio.create_task(writer.run(over)) for writer in writers]
        while time.monotonic() < over - 8:
            await asyncio.sleep(1 + rng.random() * 2)
            await asyncio.to_thread(_break, kafka_cluster, rng)
        await asyncio.gather(*running)
        await asyncio.to_thread(wait_for, lambda: is_whole(kafka_cluster), "all brokers and replicas", 60)
        for writer in writers:
            assert writer.whole, "nothing went whole"
            for partition, values in writer.sent.items():
                log = await asyncio.to_thread(read_log, kafka_cluster.bootstrap, writer.topic, partition)
                there = {*log}  # an error leaves open whether a record is in the log
                assert log == [value for value, error in values if error == OK or value in there], (
                    writer.topic,
                    partition,
                )


def _break(cluster: Kafka, rng: random.Random) -> None:
    broker = rng.choice([1, 2, 3])
    if rng.random() < 0.5:
        cluster.kill(broker)
        time.sleep(rng.random() * 2)
        cluster.restart(broker)
    else:
        cluster.pause(broker)
        time.sleep(1 + rng.random() * 4)
        cluster.resume(broker)


class Writer:
    """An owner that keeps some requests for up to three partitions under way, and knows what became of each record."""

    def __init__(self, room: Room, topic: str, rng: random.Random, *, plain: bool) -> None:
        self.topic = topic
        self.sent: dict[int, list[tuple[bytes, int]]] = {0: [], 1: [], 2: []}
        self.whole = 0
        self._room = room
        self._rng = rng
        self._plain = plain
        self._next = dict.fromkeys(self.sent, 0)
        self._party = room.connect("owner", plain=plain)
        self._window = asyncio.Semaphore(3)

    async def run(self, over: float) -> None:
        await self._room.govern(self.topic)
        await until(lambda: self._party.send(self.topic, b"first", sequence=0))
        self.sent[0].append((b"first", OK))
        self._next[0] = 1
        under_way: set[asyncio.Task[None]] = set()
        while time.monotonic() < over:
            await self._window.acquire()
            partitions = self._rng.sample(list(self.sent), self._rng.choice([1, 2, 3]))
            version = self._rng.choice([5, 8, 9])
            answer, values = self._send(partitions, version)
            task = asyncio.create_task(self._told(answer, values))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        await asyncio.gather(*under_way)

    def _send(self, partitions: list[int], version: int) -> tuple[Answer, dict[int, int]]:
        batches: dict[int, bytearray] = {}
        places: dict[int, int] = {}
        for partition in partitions:
            sequence = self._next[partition]
            self._next[partition] += 1
            value = b"%d-%d" % (partition, sequence)
            numbers = (-1, -1, -1) if self._plain else (self._party.producer_id, 0, sequence)
            batches[partition] = batch_of([value], *numbers)
            places[partition] = len(self.sent[partition])
            self.sent[partition].append((value, -2))
        return send(self._room, self._party, ordinary(version, self.topic, batches, 30_000), version, 30_000), places

    async def _told(self, answer: Answer, places: dict[int, int]) -> None:
        try:
            for partition, error in (await told(answer, len(places))).items():
                value, _ = self.sent[partition][places[partition]]
                self.sent[partition][places[partition]] = value, error
            self.whole += answer.whole
        finally:
            self._window.release()
