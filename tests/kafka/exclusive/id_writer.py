"""Applications that write the ids of their names at random, as clients would, and note what they are told."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from metadata.ownership import AccessMode
from sidecar.exclusive.policies import PolicyFields, Scope
from sidecar.protocol.produce import ProduceResult
from tests.kafka.exclusive.room import Party, Room
from tests.slow.faults.checker import Attempt, Key, Told
from tests.wait import wait_for_async

APART: Final = 1_000_000
"""Between the first ids of two names: a record's value tells whose it is."""
CONFIG: Final = {"max.message.bytes": "250"}
"""Of a topic: Kafka takes four records at once, or five compressed ones."""
PATIENCE_S: Final = 40.0
"""In which every batch is answered."""
_TOO_LARGE, _LOST, _REFUSED = 10, 13, 44
_RETRIED: Final = frozenset({5, 6, 7})
_EXPECTED: Final = _RETRIED | {_TOO_LARGE, _LOST, _REFUSED}
"""What may come first among the errors of a pipeline; 45 only behind another one, as no client here leaves a gap."""
_REPEATED: Final = 10
"""Ids that an application sends again in the end."""
_MEANING: Final = {0: Told.OK, 46: Told.OK, _TOO_LARGE: Told.FAIL, _REFUSED: Told.FAIL}


class Life(NamedTuple):
    """A room, and whether its clients have lost it."""

    room: Room
    over: asyncio.Future[None]


class Scene:
    """What applications share: a topic, the node that serves it, and what is noted of them all."""

    def __init__(self, policy: PolicyFields, partitions: int) -> None:
        self.topic = ""
        self.policy = policy
        self.is_shared = policy.access_mode is AccessMode.SHARED
        self.partitions = partitions
        self.life: asyncio.Future[Life] = asyncio.get_running_loop().create_future()
        """The room that is there, or will be next."""
        self.restart: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when every application is started anew, whatever it waits for."""
        self.is_over = False
        """Nothing goes wrong any more: applications end what they began."""
        self.history: list[Attempt] = []
        self.tale: deque[str] = deque(maxlen=60)
        """The last steps of everybody."""
        self._turns = [asyncio.Lock() for _ in range(partitions)]

    def tell(self, *what: object) -> None:
        """Note a step."""
        self.tale.append(f"{asyncio.get_running_loop().time():.3f} " + " ".join(map(str, what)))

    def restart_all(self) -> None:
        """Start every application anew."""
        self.tell("applications start anew")
        self.restart.set_result(None)
        self.restart = asyncio.get_running_loop().create_future()

    def turn(self, partition: int) -> AbstractAsyncContextManager[object]:
        """The right to write beside nobody, where a topic is exclusive: rivals are for other tests."""
        if self.is_shared:
            return nullcontext()
        return self._turns[partition if self.policy.scope is Scope.PARTITION else 0]


@dataclass(eq=False)
class Batch:
    """Ids that go together, and what their client gave them."""

    ids: list[int]
    sequence: int
    codec: int = 0

    def __str__(self) -> str:
        return f"{self.ids} at {self.sequence}:"


@dataclass(eq=False)
class Session:
    """What an application's client knows. `cursor` is the id that goes next, `pending` has no acknowledgement;
    `is_over`: its process is gone.
    """

    cursor: int = 0
    plain: bool = True
    producer_id: int | None = None
    epoch: int = 0
    sequence: int = 0
    is_over: bool = False
    pending: list[Batch] = field(default_factory=list[Batch])

    def __str__(self) -> str:
        who = "plain" if self.plain else f"pid {self.producer_id}, epoch {self.epoch}, sequence {self.sequence}"
        return f"{who}, at {self.cursor}, {len(self.pending)} pending"


class Writer:
    """An application that writes the ids of its name to a partition, in order, by one session after the other.

    What is not acknowledged goes again, in order; what is goes again too, now and then, in other batches. Behind a
    higher id a lower one is a duplicate, so nothing goes behind what may be refused for good.
    """

    def __init__(self, scene: Scene, index: int, rng: random.Random) -> None:
        self.name = f"name-{index}"
        self._scene = scene
        self._first = index * APART
        self._partition = index % scene.partitions
        self._random = rng
        self._session = Session()
        self._told: list[str] = []
        self._acked: set[int] = set()
        self._low = self._floor = 0
        """Everything in front of the one is acknowledged, and of the other never sent again."""
        self._reach = 0
        """Nothing from here on was ever sent."""

    def __str__(self) -> str:
        return f"{self.name}: {self._low} of {self._reach} acknowledged, {self._session}"

    def key(self, number: int) -> Key:
        return Key(self._partition, self.name, number)

    @property
    def unfinished(self) -> list[Key]:
        """What was sent, and neither acknowledged nor let be."""
        return [self.key(each) for each in range(self._low, self._reach) if each not in self._acked]

    async def live(self) -> None:
        """Session after session, until nothing goes wrong any more and everything is acknowledged."""
        while not self._scene.is_over or self.unfinished:
            async with self._scene.turn(self._partition):
                await self._write_on()
            await asyncio.sleep(self._random.choice([0.0, 0.0, 0.1]))  # others have their turn

    async def repeat(self) -> None:
        """Once nobody writes any more, a new session sends the last acknowledged ids again: all are duplicates."""
        async with self._scene.turn(self._partition):
            await wait_for_async(self._repeat, f"{self.name} to be told of duplicates", PATIENCE_S)

    async def _repeat(self) -> bool:
        """False where the session is not let in: for a moment more the topic is another one's."""
        self._session = Session(plain=self._random.random() < 0.5)
        _, party = await self._connect()
        try:
            for place, number in enumerate(sorted(self._acked)[-_REPEATED:]):
                result = await self._begin(party, Batch([number], place), 10_000)
                if result.error in _RETRIED or result.error == _REFUSED:
                    return False
                told = _MEANING.get(result.error), result.base_offset
                assert told == (Told.OK, -1), f"{self.key(number)} is in the log, and was told {result}"
        finally:
            party.close()
        return True

    # Sessions -------------------------------------------------------------------------------------------------------

    async def _write_on(self) -> None:
        """Some rounds of the session, which comes again, or of a new one."""
        if self._session.plain or self._session.is_over or self._random.random() < 0.5:
            self._begin_anew()
        life, party = await self._connect()
        self._scene.tell(self.name, "connects:", self._session)
        for _ in range(self._random.randint(1, 12)):
            if life.over.done():
                if self._session.plain:
                    break
                life, party = await self._connect()
            self._fill()
            if not self._session.pending or not await self._round(life, party):
                break
        party.close()
        self._scene.tell(self.name, "disconnects")

    def _begin_anew(self) -> None:
        """The application does not know exactly where it was; at times it goes on behind everything that it sent."""
        rng = self._random
        if not self._scene.is_over and rng.random() < 0.2:
            self._floor = self._low = self._reach
        cursor = max(self._floor, self._low - rng.choice([0, 0, 1, 3, 10]))
        self._session = Session(cursor, plain=rng.random() < 0.3)

    async def _connect(self) -> tuple[Life, Party]:
        session, life = self._session, await self._scene.life
        party = life.room.connect(self.name, plain=session.plain, producer_id=session.producer_id)
        session.producer_id = None if session.plain else party.producer_id
        return life, party

    def _fill(self) -> None:
        """Have some batches to send. Now and then the application goes back a little; in the end it sends the rest."""
        session, rng, is_over = self._session, self._random, self._scene.is_over
        if not is_over and rng.random() < 0.3:
            session.cursor = max(self._floor, session.cursor - rng.choice([1, 1, 2, 4, 9]))
        elif is_over and not session.pending:
            session.cursor = min(session.cursor, self._low)
        for _ in range(rng.randint(1, 5) - len(session.pending)):
            behind = session.cursor + rng.choice([1, 1, 2, 3, 3 if session.plain else 5])
            if is_over:
                behind = min(behind, self._reach)
            ids = list(range(session.cursor, behind))
            if ids:
                session.pending.append(Batch(ids, session.sequence, rng.choice([0, 0, 1])))
            session.cursor, session.sequence = behind, session.sequence + len(ids)
            self._reach = max(self._reach, behind)

    def _raise_epoch(self) -> None:
        """As clients do that gave something up, or please to: sequences begin at 0 again (KIP-360)."""
        session = self._session
        session.epoch, session.sequence = session.epoch + 1, 0
        if self._random.random() < 0.3:
            self._batch_anew()
        for batch in session.pending:
            batch.sequence, session.sequence = session.sequence, session.sequence + len(batch.ids)

    def _batch_anew(self) -> None:
        """What is pending goes again in other batches."""
        session = self._session
        session.cursor = min([session.cursor, *(batch.ids[0] for batch in session.pending)])
        session.pending.clear()

    def _split(self, batch: Batch) -> None:
        """What is too large goes again in parts, under the same sequences (KIP-126)."""
        index = self._session.pending.index(batch)
        parts = [Batch([number], batch.sequence + place) for place, number in enumerate(batch.ids)]
        self._session.pending[index : index + 1] = parts

    # Rounds ---------------------------------------------------------------------------------------------------------

    async def _round(self, life: Life, party: Party) -> bool:
        """Send what is pending, and hear; whether the session goes on."""
        rng, session, restart = self._random, self._session, self._scene.restart
        sent = await self._send(life, party)
        every = asyncio.gather(*sent.values())
        (patience,) = rng.choices([PATIENCE_S, 0.2, 0.005], [60, 30, 10])
        await asyncio.wait((every, life.over, restart), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        error = self._note(sent)
        assert not error or error in _EXPECTED, f"{self.name} was told {error} first"
        if error == _REFUSED:
            self._session = Session()
            return False
        if restart.done():
            session.is_over = True
            return False
        if not every.done() and not life.over.done():
            assert patience < PATIENCE_S, f"{self.name} has no answer after {patience} s"
            return False
        if session.plain:
            if session.pending and rng.random() < 0.3:
                self._batch_anew()
        elif every.done() and rng.random() < 0.05:
            self._raise_epoch()
        if error:
            await asyncio.sleep(0.02)  # retry.backoff.ms
        return not error or rng.random() < 0.97

    async def _send(self, life: Life, party: Party) -> dict[Batch, asyncio.Future[ProduceResult]]:
        """Send five batches, as many as idempotence allows, or the first alone where it may be refused for good. Some
        have little time.
        """
        pending, rng = self._session.pending, self._random
        is_let_in = self._scene.is_shared or any(not answer.error for answer in party.answers)
        sent: dict[Batch, asyncio.Future[ProduceResult]] = {}
        for batch in pending[: 5 if is_let_in else 1]:
            if life.over.done():
                break
            sent[batch] = self._begin(party, batch, rng.choice([10_000, 10_000, 300, 50, 20]))
            if rng.random() < 0.25:
                await asyncio.sleep(rng.choice([0.001, 0.01, 0.03]))  # its client has no more at the moment
        return sent

    def _begin(self, party: Party, batch: Batch, timeout_ms: int) -> asyncio.Future[ProduceResult]:
        return party.begin(
            self._scene.topic,
            ids=[self._first + each for each in batch.ids],
            sequence=batch.sequence,
            epoch=self._session.epoch,
            partition=self._partition,
            codec=batch.codec,
            timeout_ms=timeout_ms,
        )

    def _note(self, sent: dict[Batch, asyncio.Future[ProduceResult]]) -> int:
        """Note what was told of each batch; the first error, 0 where there is none."""
        unheard = ProduceResult(b"", self._partition, _LOST)
        results = {batch: answer.result() if answer.done() else unheard for batch, answer in sent.items()}
        told = [f"{batch} {result.error:d}@{result.base_offset}" for batch, result in results.items()]
        if told != self._told:  # else it tries again, and nothing has changed
            self._scene.tell(self.name, *told)
            self._told = told
        for batch, result in results.items():
            meaning = _MEANING.get(result.error, Told.INFO)
            for place, number in enumerate(batch.ids):
                offset = result.base_offset + place if result.base_offset >= 0 and meaning is Told.OK else -1
                self._scene.history.append(Attempt(self.key(number), meaning, offset))
            if meaning is Told.OK:
                self._acked.update(batch.ids)
                self._session.pending.remove(batch)
            elif result.error == _TOO_LARGE:
                self._split(batch)
        while self._low in self._acked:
            self._low += 1
        return next((result.error for result in results.values() if _MEANING.get(result.error) is not Told.OK), 0)
