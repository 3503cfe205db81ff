"""Nodes in rooms, one after the other, and what goes wrong with them while applications write ids, all at random.

A seed decides on the topic and on every step; when a step falls is the event loop's affair, so a run is not repeated to
the letter. Log and history are judged by `tests.slow.faults.checker`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Final

import pytest

from metadata.ownership import AccessMode
from sidecar.exclusive import arbitration
from sidecar.exclusive.answers import FAILURES
from sidecar.exclusive.policies import PolicyFields, Scope
from sidecar.protocol.caller import CallTimeoutError
from tests.kafka.exclusive.bad_network import BadNetwork
from tests.kafka.exclusive.id_writer import APART, CONFIG, PATIENCE_S, Life, Scene, Writer
from tests.kafka.exclusive.room import HeldAnswers, Room, open_room
from tests.kafka.gates import REDIS_AWAY, forget_redis
from tests.logs import read_messages
from tests.services import Services
from tests.slow.faults.checker import Floors, Logged, Violation, check
from tests.topics import create_topic

_POLICIES: Final = (
    PolicyFields(AccessMode.EXCLUSIVE, deduplication=True),
    PolicyFields(AccessMode.EXCLUSIVE, deduplication=True, scope=Scope.PARTITION),
    PolicyFields(AccessMode.SHARED, deduplication=True),
)
_LEASE_MS: Final = 1_000
"""Of whoever dies: others wait for its end."""


class CrashedError(Exception):
    """The node is dead."""


class Machine:
    """One topic, its applications and its nodes."""

    def __init__(self, services: Services, cluster: str, seed: int, patch: pytest.MonkeyPatch) -> None:
        self.duplicates = 0
        """Records that nodes dropped."""
        self._steps = 0
        """Things that went wrong by intent."""
        self._kafka, self._redis, self._cluster = services.kafka_bootstrap, services.redis_url, cluster
        self._random = rng = random.Random(seed)
        self._network = BadNetwork(random.Random(seed + 1), patch)
        self._scene = Scene(rng.choice(_POLICIES), rng.choice([1, 2]))
        self._writers = [Writer(self._scene, index, random.Random(rng.random())) for index in range(rng.choice([2, 3]))]
        patch.setattr(arbitration, "CLAIM_LEASE_MS", _LEASE_MS)

    @property
    def tale(self) -> str:
        """What the run was about, and its last steps."""
        scene = self._scene
        about = f"{scene.policy}, {scene.partitions} partitions, {self.duplicates} duplicates, {self._network.happened}"
        return "\n".join([about, *scene.tale, *map(str, self._writers)])

    async def run(self, seconds: float) -> list[Violation]:
        """Everything at once for so long, then on to the end in peace: what is wrong with the log."""
        self._scene.topic = await asyncio.to_thread(create_topic, self._kafka, self._scene.partitions, **CONFIG)
        until, node = asyncio.get_running_loop().time() + seconds, 1
        async with asyncio.TaskGroup() as group:
            writing = [group.create_task(writer.live()) for writer in self._writers]
            while not self._scene.is_over:
                with suppress(CrashedError):
                    opened = open_room(
                        self._kafka, self._redis, self._cluster, node_id=node, grace=0.2, lease_ms=_LEASE_MS
                    )
                    async with opened as room:
                        await self._serve(room, until, writing)
                self.duplicates += room.told.duplicates
                wrong = [*room.told.lost, *room.unexpected]
                assert not wrong, wrong
                if self._random.random() < 0.3:
                    await self.empty_redis(room)
                node = 3 - node
        log = await asyncio.to_thread(self._read_log)
        unfinished = [key for writer in self._writers for key in writer.unfinished]
        faults = self._steps + self._network.happened.total()
        floors = Floors(acknowledged=int(2 * seconds), faults=int(seconds / 2))
        return check(log, self._scene.history, floors, faults=faults, unfinished=unfinished)

    def _read_log(self) -> list[Logged]:
        found: list[Logged] = []
        for partition in range(self._scene.partitions):
            for message in read_messages(self._kafka, self._scene.topic, partition):
                writer, number = divmod(int(message.value() or b""), APART)
                key = self._writers[writer].key(number)._replace(partition=partition)
                found.append(Logged(key, message.offset() or 0))
        return found

    # A node ---------------------------------------------------------------------------------------------------------

    async def _serve(self, room: Room, until: float, writing: list[asyncio.Task[None]]) -> None:
        """A room's life, and its end: it leaves, or crashes (`CrashedError`), or it is the last one."""
        scene, loop = self._scene, asyncio.get_running_loop()
        if scene.topic not in room.governed.env.catalog.book.topics:
            await room.governed.env.catalog.set(scene.topic, scene.policy)
        end = min(until, loop.time() + self._random.uniform(0.5, 5.0))
        life = Life(room, loop.create_future())
        scene.life.set_result(life)
        scene.tell("node", room.governed.env.node_id)
        while loop.time() < end:
            (step,) = self._random.choices(list(_STEPS), list(_STEPS.values()))
            scene.tell(step.__name__)
            await step(self, room)
            self._steps += 1
            await asyncio.sleep(self._random.uniform(0.0, 0.2))
        if end == until:
            await self._finish(room, writing)
            return
        scene.life = loop.create_future()
        if self._random.random() < 0.25:
            scene.tell("leaves")
            await room.governed.drain()
            life.over.set_result(None)
        else:
            scene.tell("crashes")
            life.over.set_result(None)
            room.crash()
            raise CrashedError

    async def _finish(self, room: Room, writing: list[asyncio.Task[None]]) -> None:
        """Nothing goes wrong any more, and what was sent comes to an end."""
        self._scene.tell("over")
        self._scene.is_over = True
        self._network.lost = self._network.late = 0.0
        room.gates.heal()
        _, stuck = await asyncio.wait(writing, timeout=PATIENCE_S)
        for each in stuck:
            each.cancel()
        if not stuck:
            await self._begin_again(room)

    async def _begin_again(self, room: Room) -> None:
        """Each application starts once more, a little way back."""
        before = room.told.duplicates
        for writer in self._writers:
            await writer.repeat()
        assert room.told.duplicates > before, "nothing was dropped"

    async def fence(self, room: Room) -> None:
        """Kafka refuses an epoch, or only a fence can tell what became of a batch: a takeover in mid-traffic."""
        topic = room.governed.topic(self._scene.topic)
        epochs = [part for part in topic.parts if part.writer.epoch is not None]
        if epochs:
            self._random.choice(epochs).lose_epoch()
        else:
            topic.fence_wanted()

    async def change_weather(self, _: Room) -> None:
        """From now on few answers are lost on their way, or many, and some batches are late, or none."""
        self._network.lost = self._random.choice([0.01, 0.05, 0.3])
        self._network.late = self._random.choice([0.0, 0.01, 0.1])

    async def hold_answers(self, _: Room) -> None:
        """Kafka is slow: nothing that it answers to writers is told for a while."""
        with pytest.MonkeyPatch.context() as patch:
            answers = HeldAnswers(patch)
            await asyncio.sleep(self._random.choice([0.01, 0.1, 0.3, 1.0]))
        answers.tell()

    async def hold_call(self, room: Room) -> None:
        """A call of the node's own waits for a while, perhaps in the midst of a takeover or a recovery."""
        gate = room.gates.hold(self._call(room))
        await asyncio.sleep(self._random.uniform(0.01, 0.3))
        gate.open()

    async def hold_append(self, room: Room) -> None:
        """The node's own log is slow for what is written down next: where a session stands behind dropped records, or
        whose a slot is. Meanwhile applications go on by new sessions, often.
        """
        gate = room.gates.hold("ProduceBatch")
        with suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await gate.reached()
        if self._random.random() < 0.7:
            self._scene.restart_all()
        await asyncio.sleep(self._random.choice([0.05, 0.2, 0.4]))
        gate.open()

    async def fail_call(self, room: Room) -> None:
        """A call of the node's own has no answer, done or not."""
        room.gates.fail(self._call(room), CallTimeoutError("lost"), after=self._random.random() < 0.5)

    def _call(self, room: Room) -> str:
        return self._random.choice(sorted({step for step in room.gates.passed if step[0].isupper()}))

    async def fail_redis(self, room: Room) -> None:
        """Redis is not there when it is asked next."""
        room.gates.fail(self._random.choice(["claim", "publish", "serve"]), REDIS_AWAY)

    async def empty_redis(self, _: Room) -> None:
        """Redis forgets everything."""
        await forget_redis(self._redis, self._cluster)

    async def keep_alive(self, room: Room) -> None:
        """The fence is renewed in mid-traffic."""
        with suppress(*FAILURES):
            await room.governed.topic(self._scene.topic).keep_alive()

    async def save(self, room: Room) -> None:
        """There are snapshots of all that has moved, and sessions that are gone are forgotten."""
        ids = room.governed.topic(self._scene.topic).ids
        assert ids is not None
        await ids.save_all()
        await ids.forget_gone()


_STEPS: Final[dict[Callable[[Machine, Room], Coroutine[None, None, None]], int]] = {
    Machine.fence: 15,
    Machine.change_weather: 15,
    Machine.hold_answers: 20,
    Machine.hold_call: 10,
    Machine.hold_append: 15,
    Machine.fail_call: 10,
    Machine.fail_redis: 5,
    Machine.empty_redis: 3,
    Machine.keep_alive: 10,
    Machine.save: 10,
}
"""What may happen to a node, and how often."""
