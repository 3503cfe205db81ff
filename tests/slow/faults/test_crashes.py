"""A node killed at each failpoint (S4): whatever its application does next, each id is in the log once, in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.conftest import Unique
from tests.services import Services
from tests.slow.faults.application import Application
from tests.slow.faults.checker import Attempt, Floors, Told
from tests.slow.faults.failing import FailingNode
from tests.slow.faults.failing_node import POINTS
from tests.slow.faults.scene import assert_once, forget_redis, judge, make_topic

_ROUNDS = 3_000
"""Until the point is passed: what a node does twice a second comes late, as seen by a fast writer."""
_IDEMPOTENT_ONLY = {"before-shift", "after-shift"}
_TAKEOVERS = {"fenced", "committed"}


@dataclass(frozen=True)
class Case:
    """A way to crash and to come back."""

    point: str
    number: int = 1
    forgets: bool = False
    mode: str = "exclusive"
    plain: bool = False
    goes_on: bool = True
    """First it goes on from what was acknowledged, then everything is sent again; False: the other way round."""

    def __str__(self) -> str:
        words = [self.point, str(self.number), "redis-emptied" if self.forgets else "redis-kept", self.mode]
        return "-".join([*words, "plain" if self.plain else "idempotent", "on" if self.goes_on else "again"])


def default_cases() -> list[Case]:
    """Each point once; Redis, modes and kinds of clients take turns."""
    return [
        Case(
            point,
            number=2 if point not in {*_TAKEOVERS, "recovering", "between-chunks", "snapshot-in-kafka"} else 1,
            forgets=bool(index % 2),
            mode=("exclusive", "shared")[index // 2 % 2],
            plain=index % 3 == 2 and point not in _IDEMPOTENT_ONLY and not point.startswith("rest-answered"),
            goes_on=index % 4 < 2,
        )
        for index, point in enumerate(POINTS)
    ]


def all_cases() -> list[Case]:
    """Every point in every way, at several passages; what comes first afterwards takes turns."""
    ways = [
        (point, number, forgets, mode, plain)
        for point in POINTS
        for number in (1, 3)
        for forgets in (False, True)
        for mode in ("exclusive", "shared")
        for plain in (False, True)
        if not (plain and (point in _IDEMPOTENT_ONLY or point == "rest-answered"))
        if not (number > 1 and point in {*_TAKEOVERS, "recovering"})
    ]
    return [Case(*way, goes_on=index % 3 != 0) for index, way in enumerate(ways)]


def traffic(application: Application, first: int, *, dead: Callable[[], bool], rounds: int = 1) -> int:
    """New ids, whole duplicates and part duplicates, and another name besides; the next id."""
    at = first
    for _ in range(rounds):
        for ids in ((at, at + 1), (at + 2,), (at + 1, at + 2), (at, at + 1), (at + 2, at + 3), (at + 4,)):
            if dead():
                return at
            application.write(*ids, ends=dead)
        if dead():
            return at
        application.write(at, at + 1, under=f"{application.name}-side", ends=dead)
        at += 5
    return at


def crash(node: FailingNode, application: Application, case: Case, redis_url: str) -> int:
    """Some traffic, and the node dies at the point; the id behind the last one that may have been sent."""
    at = traffic(application, 0, dead=lambda: False)
    if case.point == "recovering":
        node.kill()
        node.arm(case.point, case.number)
        if case.forgets:
            forget_redis(redis_url, node.cluster)
        node.start()
    else:
        node.arm(case.point, case.number)
    if case.point in _TAKEOVERS:
        application.restart()
    at = traffic(application, at, dead=lambda: node.is_dead, rounds=_ROUNDS) + 5
    node.died_at(case.point)
    return at


def acknowledged(application: Application) -> int:
    """The highest id that the application was told is in the log."""
    return max(
        attempt.key.id
        for attempt in application.history
        if attempt.told is Told.OK and attempt.key.name == application.name
    )


def check_a_crash(node: FailingNode, services: Services, name: str, case: Case) -> None:
    topic = make_topic(services.kafka_bootstrap, node, case.mode)
    history: list[Attempt] = []
    application = Application(name, topic, [node.bootstrap], history, plain=case.plain, mode=case.mode)
    at = crash(node, application, case, services.redis_url)
    if case.forgets:
        forget_redis(services.redis_url, node.cluster)
    node.start()

    def go_on() -> None:
        """From what was acknowledged, by the session that was at work; what it had under way comes first."""
        application.resume()
        for number in range(acknowledged(application) + 1, at):
            application.write(number)

    def again() -> None:
        """A new process, everything from the beginning."""
        application.restart()
        for number in range(0, at, 2):
            application.write(number, number + 1)
        for number in range(2):
            application.write(number, under=f"{name}-side")

    for step in (go_on, again, go_on) if case.goes_on else (again, go_on, again):
        step()
        at += 3
        # Every batch is answered, too: in Pulsar it never was (#21892).
        assert_once(judge(services.kafka_bootstrap, topic, [application], Floors(10, 1), faults=1))
    application.disconnect()
    node.check_log()


_SMOKE = {"committed"}


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.smoke] * (case.point in _SMOKE)) for case in default_cases()],
    ids=str,
)
def test_a_node_killed_at_a_point_leaves_each_id_once(
    failing_node: FailingNode, services: Services, unique: Unique, case: Case
) -> None:
    check_a_crash(failing_node, services, unique("billing"), case)


@pytest.mark.parametrize("case", all_cases(), ids=str)
def test_a_node_killed_at_a_point_in_every_way_leaves_each_id_once(
    failing_node: FailingNode, services: Services, unique: Unique, case: Case
) -> None:
    check_a_crash(failing_node, services, unique("billing"), case)
