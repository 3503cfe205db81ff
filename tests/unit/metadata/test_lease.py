"""A lease as its holder counts it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata import Lease, Sent
from metadata.clock import counting_suspension, elapsed


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def test_it_is_not_held_before_the_first_grant():
    lease = Lease(3000, 300, Clock())
    lease.sending()
    assert not lease.held
    assert lease.remaining_ms == 0


def test_it_counts_from_the_sending_and_not_from_the_answer():
    clock = Clock()
    lease = Lease(3000, 500, clock)
    sent = lease.sending()
    clock.seconds += 1.0
    lease.granted(sent)
    assert lease.remaining_ms == pytest.approx(1500)
    clock.seconds += 1.499
    assert lease.held
    clock.seconds += 0.002
    assert not lease.held
    assert lease.remaining_ms == 0


def test_an_answer_that_took_longer_than_the_lease_gives_nothing():
    clock = Clock()
    lease = Lease(3000, 300, clock)
    sent = lease.sending()
    clock.seconds += 2.7
    lease.granted(sent)
    assert not lease.held


def test_an_older_answer_that_comes_last_takes_nothing_away():
    clock = Clock()
    lease = Lease(3000, 0, clock)
    first = lease.sending()
    clock.seconds += 1.0
    second = lease.sending()
    lease.granted(second)
    lease.granted(first)
    assert lease.remaining_ms == pytest.approx(3000)


def test_what_was_sent_before_the_end_does_not_revive_it():
    clock = Clock()
    lease = Lease(3000, 300, clock)
    before = lease.sending()
    lease.end()
    lease.granted(before)
    assert not lease.held
    clock.seconds += 0.001
    lease.granted(lease.sending())
    assert lease.held


def test_the_margin_is_a_tenth_unless_told_otherwise():
    lease = Lease(3000, clock=Clock())
    lease.granted(lease.sending())
    assert lease.remaining_ms == pytest.approx(2700)


@pytest.mark.parametrize(("ttl_ms", "margin_ms"), [(0, 0), (-1, 0), (3000, 3000), (3000, -1)])
def test_a_lease_that_could_never_hold_is_refused(ttl_ms: int, margin_ms: int):
    with pytest.raises(ValueError, match="never holds"):
        Lease(ttl_ms, margin_ms)


step = st.one_of(
    st.tuples(st.just("wait"), st.floats(0, 5, allow_nan=False)),
    st.tuples(st.just("send"), st.just(0.0)),
    st.tuples(st.just("answer"), st.floats(0, 1, exclude_max=True)),
    st.tuples(st.just("end"), st.just(0.0)),
)


@given(
    ttl_ms=st.integers(1, 10_000),
    share=st.floats(0, 0.99),
    drift=st.floats(0.95, 1.0),
    steps=st.lists(step, max_size=60),
)
def test_the_holder_always_stops_before_the_server_gives_the_lease_away(
    ttl_ms: int, share: float, drift: float, steps: list[tuple[str, float]]
):
    """The server runs a renewal some time after it was sent and before it was answered, and its clock may run faster
    than the holder's by what the margin covers."""
    margin_ms = int(ttl_ms * share)
    clock = Clock()
    lease = Lease(ttl_ms, margin_ms, clock)
    covered = 1 - margin_ms / ttl_ms
    speed = 1 / max(drift, covered)
    under_way: list[Sent] = []
    expires = float("-inf")
    for kind, value in steps:
        if kind == "wait":
            clock.seconds += value
        elif kind == "send":
            under_way.append(lease.sending())
            # At the earliest the server carries it out in the moment it was sent.
            expires = max(expires, clock.seconds * speed + ttl_ms / 1000)
        elif kind == "end":
            lease.end()
            assert not lease.held
        elif under_way:
            lease.granted(under_way.pop(int(value * len(under_way))))
        assert not lease.held or clock.seconds * speed <= expires + 1e-6
        assert lease.held == (lease.remaining_ms > 0)


# Suspended machines ---------------------------------------------------------------------------------------------------


def test_a_lease_runs_out_while_the_machine_is_suspended(monkeypatch: pytest.MonkeyPatch):
    """CLOCK_MONOTONIC stands still meanwhile: the holder would wake up with a lease that another one has for long."""
    now = {time.CLOCK_MONOTONIC: 50.0, time.CLOCK_BOOTTIME: 1000.0}
    monkeypatch.setattr(time, "clock_gettime", now.__getitem__)
    monkeypatch.setattr(time, "monotonic", lambda: now[time.CLOCK_MONOTONIC])
    lease = Lease(3000, 300, counting_suspension())
    lease.granted(lease.sending())
    assert lease.held
    now[time.CLOCK_BOOTTIME] += 3600.0
    assert not lease.held


def test_by_itself_a_lease_counts_by_that_clock():
    (default,) = (each for each in Lease.__init__.__defaults__ or () if callable(each))
    assert default is elapsed


@pytest.mark.parametrize("missing", ["on this platform", "in this kernel"])
def test_without_such_a_clock_the_monotonic_one_stands_in(monkeypatch: pytest.MonkeyPatch, missing: str):
    def refuse(clock: int) -> float:
        raise OSError(22, f"clock {clock}")

    if missing == "on this platform":
        monkeypatch.delattr(time, "CLOCK_BOOTTIME")
    else:
        monkeypatch.setattr(time, "clock_gettime", refuse)
    assert counting_suspension() is time.monotonic


def test_the_clock_of_this_machine_goes_on():
    assert elapsed() <= elapsed()
