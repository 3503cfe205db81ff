"""Real idempotent producers that begin again from the first id, again and again, while their node is killed."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.conftest import Unique
from tests.services import Services
from tests.slow.faults.checker import Attempt, Floors, Key, Told, check, summary
from tests.slow.faults.conftest import StartFailing
from tests.slow.faults.failing import FailingNode
from tests.slow.faults.failing_node import POINTS
from tests.slow.faults.scene import forget_redis, make_topic, read_log
from tests.wait import wait_for

SEED = 6
_BATCH = 20
"""Records of a batch at most. librdkafka counts on from the offset of a batch, also where none was told: -1, 0, 1, …"""
_UNKNOWN = frozenset(
    {KafkaError._MSG_TIMED_OUT, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._FATAL}
)
_LAST_TRIES = 5


class Restarting:
    """An application with a name that knows nothing of its former life: each life sends everything from id 0 on."""

    def __init__(self, bootstrap: str, name: str, topic: str, partitions: int, mode: str, *, idempotent: bool) -> None:
        self.name = name
        self.history: list[Attempt] = []
        self.lives = 0
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._mode = mode
        self._idempotent = idempotent

    def live(self, ids: int, *, to_the_end: bool) -> set[Key]:
        """Write the ids below `ids`; the ones without an acknowledgement. `to_the_end` False: it dies in the midst."""
        self.lives += 1
        missing: set[Key] = set()
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "client.id": f"{self.name};mode={self._mode}",
                "enable.idempotence": self._idempotent,
                "linger.ms": 1,
                "batch.num.messages": _BATCH,
                "retry.backoff.ms": 10,
                "retry.backoff.max.ms": 100,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "message.timeout.ms": 300_000,  # a record that it gives up on is passed over by those behind it
                "log_level": 0,
            }
        )

        def delivered(error: KafkaError | None, message: Message) -> None:
            number = int((message.value() or b"").rpartition(b":")[2])
            key = Key(number % self._partitions, self.name, number)
            if error is None:
                offset = message.offset() or 0
                self.history.append(Attempt(key, Told.OK, offset if offset >= _BATCH else -1))
                missing.discard(key)
            else:
                self.history.append(Attempt(key, Told.INFO if error.code() in _UNKNOWN else Told.FAIL))

        for number in range(ids):
            key = Key(number % self._partitions, self.name, number)
            missing.add(key)
            producer.produce(
                self._topic,
                f"{self.name}:{number}".encode(),
                partition=key.partition,
                headers={"sidecar-sequence-id": str(number).encode()},
                on_delivery=delivered,
            )
            if number % _BATCH == 0:
                producer.poll(0.001)
        if to_the_end:
            producer.flush(30)
        else:
            producer.poll(0.01)
        producer.purge()
        producer.flush(5)
        return missing


def disturb(node: FailingNode, redis_url: str, rng: random.Random, kills: int, answered: Callable[[], int]) -> None:
    """Let the node die so often, at points that it passes or else after some records that were `answered`, every other
    time with an emptied Redis, and start it again.
    """
    for number in range(kills):
        point = rng.choice([*POINTS])
        node.arm(point, rng.randrange(1, 30))
        due = answered() + rng.randrange(1, 1_000)
        wait_for(lambda: node.is_dead or answered() >= due, "the node to die or records to be answered", 60)  # noqa: B023
        if not node.is_dead:
            node.kill()
        if number % 2:
            forget_redis(redis_url, node.cluster)
        node.recover()


def check_restarts(
    node: FailingNode,
    services: Services,
    unique: Unique,
    mode: str,
    partitions: int,
    kills: int,
    *,
    idempotent: bool = True,
) -> None:
    """Applications live and die until the node was killed so often, then live once more, to the end."""
    node.recover()
    topic = make_topic(services.kafka_bootstrap, node, mode, partitions)
    names = [unique("billing")] if mode == "exclusive" else [unique("billing"), unique("audit")]
    applications = [Restarting(node.bootstrap, name, topic, partitions, mode, idempotent=idempotent) for name in names]
    enough, ids = threading.Event(), [0] * len(applications)
    missing: list[set[Key]] = [set() for _ in applications]

    def work(index: int) -> None:
        rng = random.Random(SEED + index)
        while not enough.is_set():
            ids[index] += rng.randrange(50, 400)
            applications[index].live(ids[index], to_the_end=rng.random() < 0.5)
        for _ in range(_LAST_TRIES):
            missing[index] = applications[index].live(ids[index], to_the_end=True)
            if not missing[index]:
                break

    working = [threading.Thread(target=work, args=(index,)) for index in range(len(applications))]
    for thread in working:
        thread.start()
    try:
        disturb(
            node,
            services.redis_url,
            random.Random(SEED),
            kills,
            lambda: sum(len(each.history) for each in applications),
        )
    finally:
        enough.set()
        for thread in working:
            thread.join()
    history = [attempt for each in applications for attempt in each.history]
    unfinished = [key for found in missing for key in found]
    log = read_log(services.kafka_bootstrap, topic, partitions)
    floors = Floors(sum(ids), kills)
    violations = check(log, history, floors, faults=kills, unfinished=unfinished)
    assert not violations, summary(violations)
    assert all(each.lives >= 2 for each in applications)
    node.check_log()


@pytest.fixture(scope="session")
def killed_node(start_failing: StartFailing) -> FailingNode:
    return start_failing(haste=True)


@pytest.mark.parametrize(("mode", "partitions"), [("exclusive", 1), ("shared", 3)])
def test_applications_that_send_everything_again_write_each_id_once(
    killed_node: FailingNode, services: Services, unique: Unique, mode: str, partitions: int
) -> None:
    check_restarts(killed_node, services, unique, mode, partitions, 2)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["exclusive", "shared"])
def test_applications_without_idempotence_lose_nothing_either(
    killed_node: FailingNode, services: Services, unique: Unique, mode: str
) -> None:
    check_restarts(killed_node, services, unique, mode, 2, 20, idempotent=False)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["exclusive", "shared"])
@pytest.mark.parametrize("partitions", [1, 4])
def test_applications_that_send_everything_again_for_long_write_each_id_once(
    killed_node: FailingNode, services: Services, unique: Unique, mode: str, partitions: int
) -> None:
    check_restarts(killed_node, services, unique, mode, partitions, 20)
