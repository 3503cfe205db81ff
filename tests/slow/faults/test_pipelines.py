"""Sessions with several batches in flight, everything at once and seeded: frames cut on both sides of the node, the
node killed at its failpoints, Redis emptied, applications that begin again from the first id.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from tests.conftest import Unique
from tests.services import Services
from tests.slow.faults.application import PATIENCE, REFUSED, Application, Connection
from tests.slow.faults.checker import Floors, Key, Told
from tests.slow.faults.conftest import StartFailing
from tests.slow.faults.failing import FailingNode
from tests.slow.faults.failing_node import POINTS
from tests.slow.faults.frame_proxy import FrameProxy, Seen, Way
from tests.slow.faults.scene import assert_once, forget_redis, judge, make_topic

_IN_FLIGHT = 5
_LONGEST = 4
"""Records of a batch at most."""
_LONGEST_S = 90.0
"""Seconds that faults may take to happen: twenty times what they take where nobody else works."""


class RefusedError(Exception):
    """Another session of the name is alive still, as far as the node knows."""


@dataclass
class Planned:
    """A batch with its place in the session."""

    keys: list[Key]
    batch: bytearray
    sequence: int


class Pipeline(Application):
    """An idempotent session with up to five batches in flight. After a failure it sends again from the first one that
    is not acknowledged, as clients do.
    """

    def __init__(self, name: str, topic: str, address: str, mode: str) -> None:
        super().__init__(name, topic, [address], [], mode=mode)
        self._left = deque[Planned]()
        self._flying = deque[Planned]()
        self._planned = self._at = 0

    def life(self, rng: random.Random, partition: int, first: int, last: int) -> None:
        """Write the ids from `first` to `last`, and some of them again."""
        self._at, deadline = first, time.monotonic() + PATIENCE
        while self._at < last or self._left:
            before = len(self.history)
            try:
                self._fly(self.connect(), rng, partition, last)
            except RefusedError:
                self._at = min(planned.keys[0].id for planned in (*self._flying, *self._left))
                self._lose_sight()
                self.restart()
            except OSError:
                self._lose_sight()
                self.elsewhere()
            if any(attempt.told is Told.OK for attempt in self.history[before:]):
                deadline = time.monotonic() + PATIENCE
            elif time.monotonic() > deadline:
                self.unfinished += [key for planned in self._left for key in planned.keys]
                return
            time.sleep(0.001)

    def _fly(self, connection: Connection, rng: random.Random, partition: int, last: int) -> None:
        """Send up to five batches, and read their answers. What failed is left, in its order."""
        while self._at < last and len(self._left) < _IN_FLIGHT:
            begin = max(0, self._at - rng.randrange(_LONGEST)) if rng.random() < 0.4 else self._at
            end = min(last, begin + rng.randrange(1, _LONGEST + 1))
            self._at = max(self._at, end)
            self._left.append(self._plan(partition, range(begin, end)))
        for _ in range(rng.randrange(1, len(self._left) + 1)):
            connection.push(self.topic, partition, self._left[0].batch, 10_000)
            self._flying.append(self._left.popleft())
        failed: list[Planned] = []
        try:
            while self._flying:
                sent = connection.finish()
                if sent.error in REFUSED:  # its client would count the sequences behind it anew: a new session does
                    raise RefusedError
                planned = self._flying.popleft()
                if not self.settles(planned.keys, sent):
                    failed.append(planned)
        finally:
            self._flying.extendleft(reversed(failed))
        self._left.extendleft(reversed(self._flying))
        self._flying.clear()

    def _lose_sight(self) -> None:
        for planned in self._flying:
            self.lost_sight(planned.keys)
        self._left.extendleft(reversed(self._flying))
        self._flying.clear()

    def _plan(self, partition: int, ids: range) -> Planned:
        keys = [self.key(number, partition) for number in ids]
        sequence = self._planned
        batch = self.batch(keys, sequence=sequence)
        self._planned += len(keys)
        return Planned(keys, batch, sequence)

    def restart(self) -> None:
        super().restart()
        self._planned = 0
        self._left.clear()


@dataclass(frozen=True)
class Line:
    """Client, proxy, node, proxy, Kafka."""

    near: FrameProxy
    node: FailingNode
    far: FrameProxy


@pytest.fixture(scope="session")
def line(start_failing: StartFailing, services: Services) -> Iterator[Line]:
    with ExitStack() as running:
        far = running.enter_context(FrameProxy(services.kafka_bootstrap))
        node = start_failing(kafka=far.address, haste=True)
        near = running.enter_context(FrameProxy(node.bootstrap))
        yield Line(near, node, far)
        node.stop()


class Work(threading.Thread):
    """One application: life after life, each from the first id on, then one to the end."""

    def __init__(self, pipeline: Pipeline, seed: int, enough: threading.Event) -> None:
        super().__init__()
        self.pipeline = pipeline
        self._random = random.Random(seed)
        self._enough = enough
        self._acknowledged = self._looked_at = 0

    def acknowledged(self) -> int:
        """How many records were acknowledged so far."""
        news = self.pipeline.history[self._looked_at :]
        self._looked_at += len(news)
        self._acknowledged += sum(attempt.told is Told.OK for attempt in news)
        return self._acknowledged

    def run(self) -> None:
        rng, known = self._random, 0
        while True:
            is_last = self._enough.is_set()
            first = 0 if is_last or rng.random() < 0.5 else known
            last = known + rng.randrange(5, 60)
            self.pipeline.life(rng, 0, first, last)
            known = last
            if is_last or self.pipeline.unfinished:  # ids behind those would make them duplicates
                break
            if rng.random() < 0.6:
                self.pipeline.restart()
        self.pipeline.disconnect()


@dataclass(frozen=True)
class Damage:
    """What happened: connections that broke on each side of the node, and its deaths."""

    near: int = 0
    far: int = 0
    deaths: int = 0

    @property
    def all(self) -> int:
        return self.near + self.far + self.deaths

    def suffices(self, least: Damage) -> bool:
        return self.near >= least.near and self.far >= least.far and self.deaths >= least.deaths


def break_something(line: Line, fits: Callable[[Seen], bool], rng: random.Random) -> None:
    """Cut a frame on its way, arm a failpoint now and then."""
    way, at = rng.choice([*Way]), rng.randrange(0, 400)
    if rng.random() < 0.5:
        line.near.cut(way, at)
    else:
        line.far.cut(way, at, fits)
    if rng.random() < 0.1:
        line.node.arm(rng.choice([*POINTS]), rng.randrange(1, 10))


def disturb(
    line: Line, topic: str, redis_url: str, rng: random.Random, least: Damage, acknowledged: Callable[[], int]
) -> Damage:
    """Break something after every few records that were acknowledged: if each attempt met a fault, nothing would ever
    be written. Until there was the `least` damage, or time is over; what there was.
    """
    near, far, deaths, due = line.near.resets, line.far.resets, 0, 0
    fits, over = line.far.produce_to(topic), time.monotonic() + _LONGEST_S
    damage = Damage()
    while not damage.suffices(least) and time.monotonic() < over:
        if line.node.is_dead:
            deaths += 1
            if rng.random() < 0.5:
                forget_redis(redis_url, line.node.cluster)
            line.node.recover()
        elif (count := acknowledged()) >= due:
            due = count + rng.randrange(1, 100)
            break_something(line, fits, rng)
        time.sleep(0.002)
        damage = Damage(line.near.resets - near, line.far.resets - far, deaths)
    return damage


def check_pipelines(line: Line, services: Services, unique: Unique, mode: str, seed: int, least: Damage) -> None:
    line.node.recover()
    topic = make_topic(services.kafka_bootstrap, line.node, mode)
    names = ["billing"] if mode == "exclusive" else ["billing", "audit"]
    enough = threading.Event()
    works = [
        Work(Pipeline(unique(name), topic, line.near.address, mode), seed * 10 + index, enough)
        for index, name in enumerate(names)
    ]
    for work in works:
        work.start()
    try:
        damage = disturb(
            line, topic, services.redis_url, random.Random(seed), least, lambda: sum(map(Work.acknowledged, works))
        )
    finally:
        enough.set()
        line.near.forget()
        line.far.forget()
        for work in works:
            while work.is_alive():
                line.node.recover()  # it may have been about to die at its point
                work.join(0.1)
    assert damage.suffices(least), f"{damage} in {_LONGEST_S} s"
    floors = Floors(5 * len(works), least.all)
    assert_once(
        judge(services.kafka_bootstrap, topic, [work.pipeline for work in works], floors, faults=damage.all),
    )
    line.node.check_log()


def test_pipelines_leave_each_id_once(line: Line, services: Services, unique: Unique) -> None:
    check_pipelines(line, services, unique, "shared", 2, Damage(10, 10, 1))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", ["exclusive", "shared"])
@pytest.mark.parametrize("seed", range(10, 20))
def test_pipelines_leave_each_id_once_for_long(
    line: Line, services: Services, unique: Unique, mode: str, seed: int
) -> None:
    check_pipelines(line, services, unique, mode, seed, Damage(30, 30, 2))
