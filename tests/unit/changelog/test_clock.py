"""What time it is at the brokers, on a machine whose own clocks are wrong, jump and stand still."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.changelog import Clock

DAY_S = 24 * 3600.0
START_S = 1_800_000_000.0


class Machine:
    """A wall clock that is off, and time that passes at the brokers and here."""

    def __init__(self, off_s: float = 0.0) -> None:
        self.brokers_s = START_S
        self.off_s = off_s
        self.clock = Clock(lambda: self.brokers_s + self.off_s, self.elapsed)

    def elapsed(self) -> float:
        return self.brokers_s - START_S + 77.0

    def passes(self, seconds: float) -> None:
        self.brokers_s += seconds

    @property
    def error_s(self) -> float:
        """How far ahead of the brokers' time the clock is."""
        return self.clock.now_ms() / 1000 - self.brokers_s

    def reads(self, age_s: float = 0.0, since: float | None = None) -> None:
        """A record that a broker stamped so long ago; the end of the log had been seen at `since`."""
        stamped_ms = int((self.brokers_s - age_s) * 1000)
        if since is None:
            self.clock.heard(stamped_ms)
        else:
            self.clock.heard(stamped_ms, since)


def test_before_any_record_it_is_the_wall_clocks_time() -> None:
    machine = Machine()
    assert machine.error_s == pytest.approx(0, abs=0.01)
    assert not machine.clock.is_confirmed


@pytest.mark.parametrize("off_s", [DAY_S, -DAY_S, 0.0])
def test_a_record_that_came_while_it_was_watched_corrects_any_wall_clock(off_s: float) -> None:
    machine = Machine(off_s)
    seen = machine.elapsed()
    machine.passes(2.0)
    machine.reads(age_s=1.5, since=seen)
    assert -1.6 <= machine.error_s <= 0.6
    assert machine.clock.is_confirmed


def test_a_wall_clock_that_jumps_later_changes_nothing() -> None:
    machine = Machine()
    machine.reads(since=machine.elapsed())
    machine.off_s = DAY_S
    machine.passes(60.0)
    assert machine.error_s == pytest.approx(0, abs=0.01)


def test_records_read_from_the_past_never_set_it_back() -> None:
    machine = Machine()
    machine.reads(since=machine.elapsed())
    for age_s in (7 * DAY_S, 3600.0, 1.0):
        machine.reads(age_s)
    assert machine.error_s == pytest.approx(0, abs=0.01)


def test_a_clock_that_is_slow_learns_from_the_newest_record_of_the_past() -> None:
    machine = Machine(-DAY_S)
    machine.reads(age_s=3600.0)
    assert machine.error_s == pytest.approx(-3600, abs=0.01)
    assert not machine.clock.is_confirmed, "it may have been written at any time before now"


def test_a_broker_whose_clock_was_wrong_is_forgotten_with_the_next_record() -> None:
    machine = Machine()
    machine.reads(age_s=-DAY_S, since=machine.elapsed())
    assert machine.error_s == pytest.approx(DAY_S, abs=0.01)
    seen = machine.elapsed()
    machine.passes(1.0)
    machine.reads(since=seen)
    assert 0 <= machine.error_s <= 1.01


def test_a_record_without_a_time_says_nothing() -> None:
    machine = Machine()
    machine.clock.heard(-1, machine.elapsed())
    assert machine.error_s == pytest.approx(0, abs=0.01)
    assert not machine.clock.is_confirmed


@given(
    off_s=st.floats(-1e6, 1e6),
    steps=st.lists(st.tuples(st.floats(0.0, 3600), st.floats(0.0, 1.0), st.booleans()), min_size=1, max_size=20),
)
def test_once_confirmed_it_is_never_wrong_by_more_than_the_last_polls_took(
    off_s: float, steps: list[tuple[float, float, bool]]
) -> None:
    """Whatever the mix of fresh records and those that were read late, as all brokers agree on the time."""
    machine, longest = Machine(off_s), 0.0
    for wait_s, share, watched in steps:
        seen = machine.elapsed()
        machine.passes(wait_s)
        machine.reads(wait_s * share, since=seen if watched else None)
        longest = max(longest, wait_s) if watched else longest
        if machine.clock.is_confirmed:
            assert abs(machine.error_s) <= longest + 0.01
