"""The more wait, the longer; never shorter than asked for, never longer than allowed, and not all at one time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sidecar.fanout.waiting import EACH_S, wait_s

_TIMES = st.floats(0.0, 60.0)
_COUNTS = st.integers(0, 200_000)


@given(_TIMES, _COUNTS, _TIMES, st.integers(0, 2**40))
def test_a_wait_is_within_what_was_asked_for_and_what_is_allowed(
    asked: float, waiting: int, longest: float, number: int
) -> None:
    found = wait_s(asked, waiting, longest, number)
    assert asked <= found <= max(asked, min(longest, waiting * EACH_S))


def test_few_wait_as_long_as_they_asked_for() -> None:
    assert [wait_s(0.5, waiting, 5.0, 3) for waiting in (0, 1, 50, 100)] == [0.5] * 4


def test_thousands_wait_longer_each_until_another_time() -> None:
    waits = sorted(wait_s(0.5, 5_000, 5.0, number) for number in range(5_000))
    assert 3.8 <= waits[0] <= waits[-1] <= 5.0
    in_a_slice = [sum(at <= wait < at + 0.1 for wait in waits) for at in (3.9, 4.1, 4.4, 4.6, 4.85)]
    assert max(in_a_slice) <= 1.5 * min(in_a_slice), "they come to ask again at an even pace"
