"""When a policy that a client made is over."""

from __future__ import annotations

import pytest

from metadata.ownership import AccessMode
from sidecar.exclusive.policy_use import Idle, Use
from sidecar.ownership.state import Absent, Awaited, Held, Leaving, Owned
from sidecar.protocol.session import Session

NOW = 100.0
_OWNER = Session("pid:1"), "x", AccessMode.EXCLUSIVE, 1


def until(kind: type[Absent], moment: float) -> Held:
    found = kind(*_OWNER, until=moment)
    assert isinstance(found, Leaving | Awaited)
    return found


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (Use(), False),
        (Use(Owned(*_OWNER, frozenset({1}))), True),
        (Use(Owned(*_OWNER)), True),
        (Use(until(Leaving, NOW + 1)), True),
        (Use(until(Awaited, NOW + 1)), True),
        (Use(until(Awaited, NOW)), False),
        (Use(is_waited_for=True), True),
        (Use(asks=True), True),
        (Use(awaited_until=NOW + 1), True),
        (Use(awaited_until=NOW), False),
    ],
)
def test_a_topic_is_used_by_who_owns_it_waits_for_it_asked_beside_others_or_may_come_back(
    use: Use, expected: bool
) -> None:
    assert use.is_on(NOW) is expected


def test_a_policy_is_over_when_nobody_has_used_it_for_the_grace() -> None:
    assert not Idle(NOW - 4.9).is_over(NOW, 5.0)
    assert Idle(NOW - 5.0).is_over(NOW, 5.0)


def test_an_end_that_fails_is_tried_less_and_less_often_but_never_given_up() -> None:
    waits = [
        next(seconds for seconds in range(0, 3600, 5) if Idle(NOW - seconds, failures).is_over(NOW, 5.0))
        for failures in (0, 1, 2, 3, 1000)
    ]
    assert waits == [5, 10, 20, 40, 60]


def test_a_grace_that_is_longer_than_the_longest_pause_is_waited_for() -> None:
    assert not Idle(NOW - 90.0).is_over(NOW, 100.0)
