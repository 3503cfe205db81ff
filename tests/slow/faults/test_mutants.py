"""Mistakes that a node could make with sequence ids are noticed: each mutant is caught, a sound node is not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.conftest import Unique
from tests.services import Services
from tests.slow.faults.application import Application
from tests.slow.faults.checker import Attempt, Floors, Key, Kind, Told, Violation, summary
from tests.slow.faults.conftest import StartFailing
from tests.slow.faults.failing import FailingNode
from tests.slow.faults.failing_node import MUTANTS
from tests.slow.faults.frame_proxy import PRODUCE, FrameProxy, Way
from tests.slow.faults.scene import judge, make_topic, read_log, set_policy
from tests.topics import create_topic

_LET_IT_ACT = 0.4
"""Seconds that a node has for its mistake while an answer is held; a sound one does nothing then."""
_TOO_LARGE = 2_000
_PATIENCE = 20.0
"""Seconds for what a mutant never does; a sound node needs one after its crash, more where others work."""


@dataclass(frozen=True)
class Stage:
    """A node that reaches Kafka through a proxy, and the name that writes."""

    node: FailingNode
    proxy: FrameProxy
    kafka: str
    name: str

    def topic(self, mode: str, **config: str) -> str:
        return make_topic(self.kafka, self.node, mode, 1, **config)

    def application(self, topic: str, history: list[Attempt], *, plain: bool = False, mode: str = "") -> Application:
        return Application(self.name, topic, [self.node.bootstrap], history, plain=plain, mode=mode)

    def soon(self, condition: Callable[[], bool]) -> bool:
        """Whether it comes true while the node has time for its mistake."""
        deadline = time.monotonic() + _LET_IT_ACT
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True


def refused_by_kafka(stage: Stage) -> list[Violation]:
    """A batch that Kafka refuses for good, and the same id again in a batch that it takes."""
    topic = stage.topic("exclusive", **{"max.message.bytes": "1000"})
    application = stage.application(topic, [])
    application.write(0)
    assert not application.write(1, padding=_TOO_LARGE)
    application.write(1)
    application.write(2)
    application.disconnect()
    return judge(stage.kafka, topic, [application], Floors(3, 1), faults=1)


def the_same_twice_in_flight(stage: Stage) -> list[Violation]:
    """A batch is sent again while Kafka's answer for it is under way."""
    topic = stage.topic("exclusive")
    application = stage.application(topic, [], plain=True)
    application.write(0)
    keys = [application.key(1)]
    held = stage.proxy.hold(Way.REPLY, stage.proxy.produce_to(topic))
    connection = application.connect()
    connection.push(topic, 0, application.batch(keys), 10_000)
    held.wait()
    before = stage.proxy.passed[Way.REQUEST, PRODUCE]
    connection.push(topic, 0, application.batch(keys), 10_000)
    stage.soon(lambda: stage.proxy.passed[Way.REQUEST, PRODUCE] > before)
    held.release()
    for _ in range(2):
        application.settles(keys, connection.finish())
    application.write(2)
    application.disconnect()
    return judge(stage.kafka, topic, [application], Floors(3, 1), faults=1)


def the_next_session_repeats_what_then_fails(stage: Stage) -> list[Violation]:
    """A session is gone, its batch under way; the next one of its name sends the id, then Kafka refuses the first."""
    topic = stage.topic("shared", **{"max.message.bytes": "1000"})
    history: list[Attempt] = []
    first, second = (stage.application(topic, history) for _ in range(2))
    first.write(0)
    keys = [Key(0, stage.name, 1)]
    held = stage.proxy.hold(Way.REPLY, stage.proxy.produce_to(topic))
    first.connect().push(topic, 0, first.batch(keys, padding=_TOO_LARGE), 10_000)
    held.wait()
    first.lost_sight(keys)
    first.disconnect()
    writing = threading.Thread(target=second.write, args=(1,))
    writing.start()
    acknowledged = Attempt(keys[0], Told.OK, -1)
    stage.soon(lambda: acknowledged in history)
    held.release()
    writing.join()
    second.write(2)
    second.disconnect()
    return judge(stage.kafka, topic, [first, second], Floors(3, 1), faults=1)


def ids_begin_to_count_behind_falling_ones(stage: Stage) -> list[Violation]:
    """The log of a topic that gets sequence ids ends with a lower one; what it holds is sent again."""
    topic = create_topic(stage.kafka, 1)
    set_policy(stage.node, topic, access_mode="exclusive")
    application = stage.application(topic, [])
    for ids in ((3, 4), (2,)):
        application.write(*ids)
    set_policy(stage.node, topic, deduplication=True)
    since = max(record.offset for record in read_log(stage.kafka, topic)) + 1
    application.restart()
    for ids in ((3,), (4,), (5,)):
        application.write(*ids)
    application.disconnect()
    return judge(stage.kafka, topic, [application], Floors(4), since=since)


def a_session_goes_on_behind_dropped_records(stage: Stage) -> list[Violation]:
    """Duplicates are dropped, the node crashes, and the same session writes on."""
    topic = stage.topic("exclusive")
    application = stage.application(topic, [])
    for ids in ((0, 1, 2), (1, 2), (2, 3)):
        application.write(*ids)
    stage.node.kill()
    stage.node.start()
    application.write(4, patience=_PATIENCE)
    application.disconnect()
    return judge(stage.kafka, topic, [application], Floors(4, 1), faults=1)


Scenario = Callable[[Stage], list[Violation]]
SCENARIOS: dict[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        refused_by_kafka,
        the_same_twice_in_flight,
        the_next_session_repeats_what_then_fails,
        ids_begin_to_count_behind_falling_ones,
        a_session_goes_on_behind_dropped_records,
    )
}
CAUGHT: dict[str, tuple[str, Kind]] = {
    "mark-before-forward": ("refused_by_kafka", Kind.LOST),
    "mark-after-ack": ("the_same_twice_in_flight", Kind.TWICE),
    "in-flight-is-new": ("the_same_twice_in_flight", Kind.TWICE),
    "in-flight-is-duplicate": ("the_next_session_repeats_what_then_fails", Kind.LOST),
    "replay-by-put": ("ids_begin_to_count_behind_falling_ones", Kind.TWICE),
    "shift-not-recorded": ("a_session_goes_on_behind_dropped_records", Kind.UNFINISHED),
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_node_behind_proxy_passes(
    node_behind_proxy: FailingNode, proxy: FrameProxy, services: Services, unique: Unique, scenario: str
) -> None:
    found = SCENARIOS[scenario](Stage(node_behind_proxy, proxy, services.kafka_bootstrap, unique("billing")))
    assert not found, summary(found)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_caught(
    start_failing: StartFailing, proxy: FrameProxy, services: Services, unique: Unique, mutant: str
) -> None:
    scenario, kind = CAUGHT[mutant]
    node = start_failing(kafka=proxy.address, mutant=mutant)
    try:
        found = SCENARIOS[scenario](Stage(node, proxy, services.kafka_bootstrap, unique("billing")))
    finally:
        node.stop()
    assert kind in {violation.kind for violation in found}, f"{mutant} was not caught: {summary(found)}"
