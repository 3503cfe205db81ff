"""Requests that clients of other makes, or with mistakes, send: each must be answered, or its connection closed.

What may get into the log is in the ledger as a plain session's record of which nothing was promised. `TRANSACTIONAL`
clients write to a topic without a policy, and try a governed one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.sim import wire
from tests.sim.ledger import Sent
from tests.sim.wire import LostError, Wire, Writable

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from tests.sim.ledger import Ledger

_ID: Final = b"sidecar-sequence-id"
_NAME: Final = b"sidecar-producer-name"
_PATIENCE_S: Final = 8.0
HEADERS: Final[tuple[tuple[tuple[bytes, bytes], ...], ...]] = (
    ((_ID, b"no number"),),
    ((_ID, b"-5"),),
    ((_ID, b"99999999999999999999"),),
    ((_ID, b"1"), (_ID, b"2")),
    ((_ID, b"1"), (_NAME, b"")),
    ((_NAME, b"stranger"),),
    ((_ID, b"7"), (_NAME, b"stranger")),
    ((b"other", b"\xff\x00"),),
    (),
)
CLIENT_IDS: Final = (
    "stranger", "producer-1", "", "stranger;mode=sharde", "stranger;generation=x",
    "stranger;mode=exclusive;generation=0",
    "stranger;mode=exclusive_with_fencing;generation=3",
    "stranger;mode=wait_for_exclusive;-1", "stranger;mode=shared",
    "stranger;generation=1", "stranger;color=red",
)  # fmt: skip


@dataclass(slots=True)
class Stranger:
    """One process."""

    name: str
    address: tuple[str, int]
    topic: str
    partition: int
    ledger: Ledger
    rng: random.Random
    wall_ms: Callable[[], int]
    sent: int = 0
    producer_id: int = -1
    """One that nobody gave it, where it uses any."""

    def record(self, headers: tuple[tuple[bytes, bytes], ...] = (), size: int = 0) -> Writable:
        """A record of its own, known to the ledger."""
        value = f"{self.name}/{self.sent}/".encode() + b"." * size
        self.ledger.sent.append(
            Sent(
                self.name, self.topic, self.partition, self.sent, value, idempotent=False, attempts=1, doubtful=True,
                sent_at=asyncio.get_running_loop().time(),
            )
        )  # fmt: skip
        self.sent += 1
        return Writable(value, headers)

    async def run(self, what: str) -> int:
        """Do it; how many answers came."""
        rng = self.rng
        client_id = rng.choice(CLIENT_IDS) if what == "settings" else self.name
        try:
            to = await Wire.open(self.address, client_id)
        except LostError:
            return 0
        answers = 0
        for key, body in self.requests(what):
            try:
                await to.call(key, body, _PATIENCE_S)
            except LostError:
                break
            answers += 1
        to.close()
        return answers

    def requests(self, what: str) -> Sequence[tuple[int, bytes]]:
        """What it sends, one behind the answer to the other."""
        rng = self.rng
        match what:
            case "headers":
                records = [self.record(rng.choice(HEADERS)) for _ in range(rng.choice((1, 2, 3)))]
                return [self._produce(self._batch(records, compressed=rng.random() < 0.5))] * rng.choice((1, 2))
            case "bytes":
                return [self._produce(self._broken())]
            case "garbage":
                batch = bytearray(self._batch([self.record()], compressed=True))
                batch[70:] = rng.randbytes(len(batch) - 70)
                return [self._produce(wire.with_crc(bytes(batch)))]
            case "old":
                old_ms = self.wall_ms() - rng.choice((3_600_000, 50_000_000, 86_400_000, 864_000_000))
                return [self._produce(wire.batch_of([self.record(_headers(rng))], old_ms))]
            case "large":
                records = [self.record(_headers(rng), rng.choice((0, 100_000, 400_000))) for _ in range(3)]
                return [self._produce(self._batch(records, compressed=rng.random() < 0.7))]
            case "many":
                records = [self.record(((_ID, b"%d" % (n + 1)), (_NAME, b"many"))) for n in range(1500)]
                return [self._produce(self._batch(records)), self._produce(self._batch(records[700:]))]
            case "blind":
                return [self._produce(self._batch([self.record(_headers(rng))]), acks=rng.choice((0, 1)))]
            case "settings":
                return [(wire.INIT_PRODUCER_ID, wire.init_producer_id()), self._produce(self._batch([self.record()]))]
            case "unborn":
                self.producer_id = 4_000_000 + rng.randrange(3)
                batch = wire.batch_of([self.record()], self.wall_ms(), self.producer_id, 0, 0)
                return [self._produce(batch)]
        raise AssertionError(what)

    def _broken(self) -> bytes:
        """A batch that is none."""
        batch = bytearray(self._batch([self.record(), self.record()]))
        match self.rng.choice(("crc", "magic", "count", "length", "body", "empty")):
            case "crc":
                batch[17] ^= 0xFF
            case "magic":
                batch[16] = 1
            case "count":
                batch[60] ^= 0x7F
            case "length":
                batch = batch[:-7]
            case "body":
                batch[-3] ^= 0xFF
            case _:
                batch = bytearray()
        return bytes(batch)

    def _batch(self, records: Sequence[Writable], **more: Any) -> bytes:
        return wire.batch_of(records, self.wall_ms(), **more)

    def _produce(self, batch: bytes, acks: int = -1) -> tuple[int, bytes]:
        return wire.PRODUCE, wire.produce(self.topic, {self.partition: batch}, 3_000, acks)


KINDS: Final = ("headers", "bytes", "garbage", "old", "large", "many", "blind", "settings", "unborn")


def _headers(rng: random.Random) -> tuple[tuple[bytes, bytes], ...]:
    return rng.choice(((), ((_ID, b"%d" % rng.randrange(50)), (_NAME, b"stranger"))))


KEYS: Final = (
    b"future/thing", b"no key", b"\xff\xfe", b"tail/owned/0/x", b"ownership/owned", b"ownership/owned/0", b"claim/x",
    b"serving/owned/no slot", b"slot//1", b"", b"owned/0/0/0", b"owned/zero/0/0", b"counted/0/1/0",
    b"sequence-base/a/0/-1",
)  # fmt: skip
"""Under which an intruder writes to internal topics."""


async def intrude(
    leader: tuple[str, int], topic: str, partition: int, rng: random.Random, wall_ms: Callable[[], int]
) -> bool:
    """Somebody writes to an internal topic past the nodes, or a newer node does: whether the broker took it."""
    records = [Writable(rng.randbytes(rng.choice((0, 1, 30))), (), rng.choice(KEYS)) for _ in range(3)]
    batch = wire.batch_of(records, wall_ms())  # nodes go no further behind a compressed one
    try:
        to = await Wire.open(leader, "intruder")
        answer = await to.call(wire.PRODUCE, wire.produce(topic, {partition: batch}, 3_000), _PATIENCE_S)
    except LostError:
        return False
    to.close()
    return not wire.produced(answer)[partition].error


async def transact(
    stranger: Stranger, leader: Callable[[], tuple[str, int] | None], governed: str, is_over: Callable[[], bool]
) -> int:
    """Transactions one after the other; how many were committed."""
    name, rng = f"tx-{stranger.name}", stranger.rng
    done = 0
    while done < 3 and not is_over():
        await asyncio.sleep(0.1)
        try:
            done += await _transaction(stranger, name, leader(), governed if rng.random() < 0.2 else stranger.topic)
        except LostError:
            continue
    return done


async def _transaction(stranger: Stranger, name: str, at: tuple[str, int] | None, topic: str) -> bool:
    to = await Wire.open(at or stranger.address, stranger.name)
    try:
        answer = await to.call(wire.INIT_PRODUCER_ID, wire.init_producer_id(name), _PATIENCE_S)
        error, producer_id, epoch = wire.producer_id(answer)
        if error:
            return False
        body = wire.add_partitions(name, producer_id, epoch, topic, stranger.partition)
        if wire.added(await to.call(wire.ADD_PARTITIONS_TO_TXN, body, _PATIENCE_S)) and topic == stranger.topic:
            return False
        records = [stranger.record()] if topic == stranger.topic else [Writable(b"never")]
        batch = wire.batch_of(records, stranger.wall_ms(), producer_id, epoch, 0, transactional=True)
        await to.call(wire.PRODUCE, wire.produce(topic, {stranger.partition: batch}, 3_000), _PATIENCE_S)
        commit = stranger.rng.random() < 0.8
        body = wire.end_txn(name, producer_id, epoch, commit=commit)
        return not wire.ended(await to.call(wire.END_TXN, body, _PATIENCE_S)) and commit
    finally:
        to.close()
