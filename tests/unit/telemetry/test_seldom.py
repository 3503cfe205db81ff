"""Which events are logged of those that strangers may cause by the thousand."""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.telemetry.seldom import WHILE_S, Seldom


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_first_of_a_kind_are_logged_and_the_next_while_says_how_many_were_not() -> None:
    clock = Clock()
    events = Seldom(clock)
    assert [events.ask("rejected", 2) for _ in range(5)] == [0, 0, None, None, None]
    clock.now += WHILE_S
    assert [events.ask("rejected", 2) for _ in range(3)] == [3, 0, None]


def test_one_kind_hides_no_other() -> None:
    events = Seldom(Clock())
    assert [events.ask("rejected"), events.ask("rejected"), events.ask("refused")] == [0, None, 0]


def test_kinds_are_forgotten_where_there_are_too_many() -> None:
    events = Seldom(Clock())
    for number in range(5_000):
        events.ask(f"kind {number}")
    assert len(events._kinds) == 1_000
