"""A client's request that goes on whole: what leaves, what its client is told, and when it may not go whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

import pytest

from sidecar.changelog import Position
from sidecar.dedup.reply import Reply
from sidecar.forwarder.forwarder import Forwarder, WholeRequest
from sidecar.forwarder.lane import MAX_IN_FLIGHT, Lane
from sidecar.forwarder.outcome import Outcome
from sidecar.network.framing import Frame
from sidecar.protocol import produce, produce_upstream
from sidecar.protocol.batch import Numbers, crc_matches, read_header, read_numbers, stamp
from sidecar.protocol.ids import ClientSequence
from sidecar.protocol.primitives import I32, Octets
from sidecar.protocol.produce import ProducePart, ProduceResult
from sidecar.protocol.session import Session as SessionId
from sidecar.takeover.slots import SlotScope, TakenSlot
from sidecar.takeover.succession import NOTHING
from sidecar.v1 import state_pb2 as state
from sidecar.writing.epoch import SlotEpoch
from tests.unit.forwarder.paper import STAMP, record_batch
from tests.unit.forwarder.scripted import KnownUpstream, Owner, Request, ScriptedBroker, broker, id_of
from tests.wait import wait_for_async

PARTITIONS: tuple[int, ...] = (0, 1, 2)
VERSIONS = range(7, 14)
TOPIC_ID = id_of("orders").bytes
CORRELATION = 0x01020304
OK, UNKNOWN_TOPIC, NOT_LEADER, TOO_LARGE, OUT_OF_ORDER, UNKNOWN_TOPIC_ID = 0, 3, 6, 10, 45, 100


def ids_in(version: int) -> dict[bytes, bytes] | None:
    return None if version < 13 else {b"orders": TOPIC_ID}


@dataclass
class Client:
    """Who asks; keeps the answer as it came, or what it was told of each partition."""

    version: int
    correlation_id: int = CORRELATION
    frames: list[bytes] = field(default_factory=list[bytes])
    outcomes: dict[int, Outcome] = field(default_factory=dict[int, Outcome])

    def answer_frame(self, frame: Frame) -> None:
        self.frames.append(bytes(frame.buffer[frame.start : frame.end]))

    def settle_outcome(self, part: ProducePart, numbers: Numbers, outcome: Outcome) -> None:
        assert part.partition not in self.outcomes, "told twice"
        self.outcomes[part.partition] = outcome

    @property
    def codes(self) -> dict[int, int]:
        return {partition: outcome.error for partition, outcome in self.outcomes.items()}


class SlotOwner(Owner):
    """Implements `sidecar.writing.epoch.Writer`."""

    def refused(self, partition: int, client_epoch: int, first: int, records: int) -> None:
        raise AssertionError("there are no sequence ids here")


OWNER = SessionId("pid:11")


class Session:
    """An idempotent session that owns "orders", with what it sends next."""

    def __init__(self, forwarder: Forwarder, client_epoch: int = 0) -> None:
        taken = TakenSlot(
            SlotScope("orders"), UUID(int=sum(b"orders")), STAMP, cast(Any, None), cast(Any, None), OWNER, "billing", 1,
            dict.fromkeys(PARTITIONS, Position(client_epoch, ClientSequence(0))), {}, PARTITIONS,
            state.Ownership(), 0, {},
        )  # fmt: skip
        self.epoch = SlotEpoch(taken, forwarder, SlotOwner())
        self.next = dict.fromkeys(PARTITIONS, 0)

    def lane(self, partition: int) -> Lane:
        return self.epoch._lanes[partition]

    def request(
        self, *partitions: int, version: int = 8, epoch: int = 0, timeout_ms: int = 30_000
    ) -> tuple[WholeRequest, Client, int]:
        """The next request for some partitions, one record each, and its size in batches."""
        records: list[tuple[bytes, int, Octets]] = []
        for partition in partitions:
            batch = record_batch([b"%d" % self.next[partition]])
            stamp(batch, 0, len(batch), 11, epoch, self.next[partition])
            self.next[partition] += 1
            records.append((b"orders", partition, batch))
        ids = ids_in(version)
        message = produce_upstream.encode_request(CORRELATION, b"billing", version, -1, timeout_ms, records, None, ids)
        data = bytearray(b"".join(message))
        body = 14 + len(b"billing")
        walked = produce.walk(data, body, len(data), version, {TOPIC_ID: b"orders"})
        batches: list[tuple[ProducePart, memoryview, Any]] = []
        for part in walked.parts:
            window = memoryview(data)[part.start : part.end]
            batches.append((part, window, read_numbers(window)))
        client = Client(version)
        frame = Frame(data, 0, len(data), True)
        return WholeRequest(frame, body, timeout_ms, batches, client), client, sum(len(b) for *_, b in records)

    def send(self, *partitions: int, **options: int) -> Client | None:
        """Send whole; None where it may not."""
        request, client, size = self.request(*partitions, **options)
        return client if self.epoch.append_whole(request, size) else None

    def send_single(self, partition: int, topic_id: bytes = b"") -> list[Outcome]:
        """Send one batch as the usual way does, and return its outcomes. `topic_id`: as its request named the topic."""
        outcomes: list[Outcome] = []
        batch = record_batch([b"%d" % self.next[partition]])
        stamp(batch, 0, len(batch), 11, 0, self.next[partition])
        self.next[partition] += 1
        assert self.epoch._forwarder.admit(len(batch))
        header = read_header(batch, 0, len(batch))
        self.epoch.append(partition, header, memoryview(batch), 30_000, Reply(outcomes.append, topic_id))
        return outcomes


@pytest.fixture
async def upstream() -> AsyncIterator[KnownUpstream]:
    made = KnownUpstream()
    yield made
    await made.close()


@pytest.fixture
async def leader(upstream: KnownUpstream) -> AsyncIterator[ScriptedBroker]:
    async with broker() as found:
        upstream.know({1: found.port}, orders=dict.fromkeys(PARTITIONS, 1))
        yield found


@pytest.fixture
async def forwarder(upstream: KnownUpstream, leader: ScriptedBroker) -> AsyncIterator[Forwarder]:
    made = Forwarder(upstream, linger=0, buffer_bytes=100_000)
    yield made
    made.close()


@pytest.fixture
async def session(forwarder: Forwarder) -> Session:
    return Session(forwarder)


async def until(condition: Callable[[], object], what: str) -> None:
    async def holds() -> bool:
        return bool(condition())

    await wait_for_async(holds, what)


def answer(request: Request, **codes: int) -> None:
    """Answer a request, partition by partition (`p0`, `p1`, …), 0 where nothing is said."""
    request.answer_with(
        [
            ProduceResult(topic.encode(), partition, code := codes.get(f"p{partition}", 0), 7 if code == 0 else -1)
            for topic, partition, _ in request.batches
        ]
    )


# The usual case -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
async def test_it_arrives_as_one_request_under_the_stamps_of_the_slot(
    session: Session, leader: ScriptedBroker, forwarder: Forwarder, version: int
) -> None:
    client = session.send(*PARTITIONS, version=version)
    assert client is not None
    request = await leader.next()
    assert (request.version, request.client_id, request.acks, request.timeout_ms) == (version, b"sidecar", -1, 30_000)
    assert request.keys == ["orders-0:0", "orders-1:0", "orders-2:0"]
    stamps = {(header.producer_id, header.producer_epoch) for *_, header in request.batches}
    assert stamps == {(STAMP.producer_id, STAMP.epoch)}
    assert forwarder.held_bytes > 0
    answer(request)
    await until(lambda: client.frames, "an answer")
    expected = [ProduceResult(b"orders", partition, 0, 7, -1, -1) for partition in PARTITIONS]
    assert client.frames == [produce.encode_answer(CORRELATION, version, expected, ids=ids_in(version))]
    assert not client.outcomes
    assert forwarder.held_bytes == 0
    assert session.epoch.idle


async def test_a_batch_for_another_topic_of_the_name_does_not_go_out(
    session: Session, leader: ScriptedBroker, forwarder: Forwarder
) -> None:
    others = session.send_single(0, bytes(15) + b"o")
    assert [outcome.error for outcome in others] == [UNKNOWN_TOPIC_ID]
    assert forwarder.held_bytes == 0
    own = session.send_single(1, TOPIC_ID)
    request = await leader.next()
    assert request.keys == ["orders-1:0"]
    answer(request)
    await until(lambda: own, "an outcome")
    assert [outcome.error for outcome in own] == [OK]


async def test_every_batch_has_a_crc_that_fits(session: Session, leader: ScriptedBroker) -> None:
    request, _, size = session.request(*PARTITIONS)
    assert session.epoch.append_whole(request, size)
    for _, batch, _ in request.batches:
        assert crc_matches(batch, 0, len(batch))


async def test_it_counts_on_from_the_base_of_the_slot_epoch(session: Session, leader: ScriptedBroker) -> None:
    for sequence in range(3):
        client = session.send(0, 2)
        assert client is not None
        request = await leader.next()
        assert request.keys == [f"orders-0:{sequence}", f"orders-2:{sequence}"]
        answer(request)
        await until(lambda client=client: client.frames, "an answer")
    assert session.epoch.stands_at() == {
        0: Position(0, ClientSequence(3)),
        1: Position(0, ClientSequence(0)),
        2: Position(0, ClientSequence(3)),
    }
    assert session.epoch.certain


# What goes wrong ----------------------------------------------------------------------------------------------------


async def test_what_the_leader_refuses_for_now_goes_again_alone_and_the_answer_waits_for_it(
    session: Session, leader: ScriptedBroker, forwarder: Forwarder, upstream: KnownUpstream
) -> None:
    client = session.send(*PARTITIONS)
    assert client is not None
    answer(await leader.next(), p1=NOT_LEADER)
    await until(lambda: len(client.outcomes) == 2, "two outcomes")
    again = await leader.next()
    assert again.keys == ["orders-1:0"]
    assert upstream.refreshed == {b"orders"}
    answer(again)
    await until(lambda: len(client.outcomes) == 3, "three outcomes")
    assert client.codes == dict.fromkeys(PARTITIONS, OK)
    assert client.outcomes[0].offset == 7
    assert not client.frames
    assert forwarder.held_bytes == 0


async def test_a_final_error_is_told_of_its_partition_alone(session: Session, leader: ScriptedBroker) -> None:
    client = session.send(*PARTITIONS)
    assert client is not None
    answer(await leader.next(), p2=TOO_LARGE)
    await until(lambda: len(client.outcomes) == 3, "three outcomes")
    assert client.codes == {0: OK, 1: OK, 2: TOO_LARGE}


async def test_a_lost_connection_sends_every_batch_again_in_its_order(
    session: Session, leader: ScriptedBroker, forwarder: Forwarder
) -> None:
    clients = [session.send(*PARTITIONS), session.send(0)]
    first, _ = [await leader.next() for _ in clients]
    first.drop()
    sent: list[str] = []
    while len(sent) < 4:
        request = await leader.next()
        sent += request.keys
        answer(request)
    assert sorted(sent) == ["orders-0:0", "orders-0:1", "orders-1:0", "orders-2:0"]
    assert [key for key in sent if key.startswith("orders-0")] == ["orders-0:0", "orders-0:1"]
    await until(lambda: session.epoch.idle, "an end")
    assert [client.codes for client in clients if client] == [dict.fromkeys(PARTITIONS, OK), {0: OK}]
    assert forwarder.held_bytes == 0


async def test_an_acknowledgement_waits_for_an_earlier_batch_that_failed(
    session: Session, leader: ScriptedBroker
) -> None:
    first, second = session.send(0), session.send(0)
    assert first is not None
    assert second is not None
    requests = [await leader.next(), await leader.next()]
    answer(requests[0], p0=UNKNOWN_TOPIC)
    answer(requests[1])
    again = await leader.next()
    assert (again.keys, second.frames, second.outcomes) == (["orders-0:0"], [], {})
    answer(again)
    await until(lambda: second.outcomes, "the second one's outcome")
    assert (first.codes, second.codes) == ({0: OK}, {0: OK})


@pytest.mark.parametrize("code", [OK, TOO_LARGE])
async def test_an_answer_that_leaves_a_partition_out_is_no_answer_for_it(
    session: Session, leader: ScriptedBroker, code: int
) -> None:
    client = session.send(0, 1)
    assert client is not None
    (await leader.next()).answer(code, only=1)
    again = await leader.next()
    assert again.keys == ["orders-1:0"]
    answer(again)
    await until(lambda: len(client.outcomes) == 2, "two outcomes")
    assert client.codes == {0: code, 1: OK}


async def test_an_epoch_that_ends_meanwhile_tells_of_each_batch(session: Session, leader: ScriptedBroker) -> None:
    client = session.send(0, 1)
    assert client is not None
    request = await leader.next()
    session.epoch.close(Outcome(NOT_LEADER))
    answer(request, p1=47)
    await until(lambda: len(client.outcomes) == 2, "two outcomes")
    assert client.codes == {0: OK, 1: NOT_LEADER}
    assert session.send(0) is None


# When it may not ----------------------------------------------------------------------------------------------------


async def nothing_happened(forwarder: Forwarder, leader: ScriptedBroker, held: int = 0) -> None:
    await asyncio.sleep(0.02)
    assert forwarder.held_bytes == held
    assert leader.requests.empty()


async def test_not_beside_a_partition_with_five_batches_under_way(
    session: Session, leader: ScriptedBroker, forwarder: Forwarder
) -> None:
    for _ in range(MAX_IN_FLIGHT):
        session.send_single(1)
        await leader.next()
    held = forwarder.held_bytes
    assert session.send(0, 1) is None
    await nothing_happened(forwarder, leader, held)


async def test_not_behind_a_batch_that_goes_again(
    session: Session, leader: ScriptedBroker, forwarder: Forwarder
) -> None:
    session.send_single(0)
    answer(await leader.next(), p0=NOT_LEADER)
    await until(lambda: session.lane(0).muted, "a mute")
    assert session.send(0, 1) is None
    answer(await leader.next())
    await until(lambda: session.epoch.idle, "an end")
    await nothing_happened(forwarder, leader)


async def test_not_past_batches_that_gather(session: Session, leader: ScriptedBroker, forwarder: Forwarder) -> None:
    """A batch of another session on the same link has not left yet: both travel together."""
    session.send_single(0)
    assert session.send(1) is None
    assert (await leader.next()).keys == ["orders-0:0"]


async def test_not_while_a_linger_is_wanted(upstream: KnownUpstream, leader: ScriptedBroker) -> None:
    forwarder = Forwarder(upstream, linger=0.005, buffer_bytes=100_000)
    try:
        session = Session(forwarder)
        assert session.send(0) is None
        await nothing_happened(forwarder, leader)
    finally:
        forwarder.close()


async def test_not_to_several_leaders_or_none(
    session: Session, upstream: KnownUpstream, leader: ScriptedBroker, forwarder: Forwarder
) -> None:
    upstream.know({1: leader.port, 2: leader.port}, orders={0: 1, 1: 2, 2: -1})
    assert session.send(0, 1) is None
    assert session.send(2) is None
    await nothing_happened(forwarder, leader)
    session.next[0] = 0
    assert session.send(0) is not None


async def test_not_to_a_broker_that_failed_a_moment_ago(
    session: Session, upstream: KnownUpstream, leader: ScriptedBroker, forwarder: Forwarder
) -> None:
    upstream.connect_failed(1, "refused")
    assert session.send(0) is None
    await nothing_happened(forwarder, leader)


async def test_not_where_the_buffer_is_full(session: Session, leader: ScriptedBroker, forwarder: Forwarder) -> None:
    assert forwarder.admit(forwarder.buffer_bytes)
    assert session.send(0) is None
    await nothing_happened(forwarder, leader, forwarder.buffer_bytes)


@pytest.mark.parametrize("epoch", [1, 32_767])
async def test_not_where_the_sequences_of_one_partition_have_to_be_looked_at(
    session: Session, leader: ScriptedBroker, forwarder: Forwarder, epoch: int
) -> None:
    assert session.send(0, 1, epoch=epoch) is None
    await nothing_happened(forwarder, leader)


async def test_not_for_a_partition_outside_the_fence(
    session: Session, leader: ScriptedBroker, forwarder: Forwarder
) -> None:
    session.next[3] = 0
    assert session.send(0, 3) is None
    await nothing_happened(forwarder, leader)


def test_the_head_of_a_whole_request_counts_what_follows() -> None:
    head = produce.whole_head(9, 8, 100)
    assert I32.unpack(head[:4])[0] + 4 == len(head) + 100


async def test_a_session_has_state_for_the_partitions_it_writes_to_and_for_no_other(
    session: Session, leader: ScriptedBroker
) -> None:
    """64 sessions beside each other on a topic of 5,000 partitions took 0.6 to 1.3 GiB."""
    epoch = session.epoch
    assert (len(epoch._lanes), len(epoch._spaces)) == (0, 0)
    assert (epoch.stands_at(), epoch.wrote(), epoch.touched()) == (dict(epoch.taken.bases), [], set())
    assert epoch.idle
    assert epoch.certain
    assert epoch.acknowledged(PARTITIONS[0]) == NOTHING
    assert epoch.covers(PARTITIONS[-1])
    assert not epoch.covers(PARTITIONS[-1] + 1)
    session.next[99] = 0
    assert session.send(99) is None
    assert session.send(1) is not None
    assert (list(epoch._lanes), list(epoch._spaces), epoch.touched()) == ([1], [1], {1})


async def test_a_lane_that_is_made_after_its_epoch_ended_is_closed(session: Session, leader: ScriptedBroker) -> None:
    session.epoch.close(Outcome(NOT_LEADER))
    assert session.send(0) is None
    assert session.send_single(1) == [Outcome(NOT_LEADER)]
