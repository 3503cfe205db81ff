"""Which setting decides how often a fence is kept alive."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sidecar.fencing import KeepAlive, keep_alive


def test_a_quarter_of_the_shortest_time() -> None:
    assert keep_alive({"retention.ms of t": 8_000, "segment.ms of t": 9_000}) == KeepAlive(2.0, "retention.ms of t")


@given(st.dictionaries(st.text(min_size=1), st.integers(0, 10**12), min_size=1))
def test_no_memory_is_shorter_than_four_keep_alives(settings: dict[str, int]) -> None:
    found = keep_alive(settings)
    assert all(4 * round(found.interval * 1000) <= value for value in settings.values())
    assert settings[found.setting] == min(settings.values())
