"""Which setting decides how often a fence is kept alive."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sidecar.fencing.expiry import DEFAULT_KEEP_ALIVE, keep_alive


def test_a_quarter_of_the_shortest_time() -> None:
    found = keep_alive({"retention.ms of t": 8_000, "segment.ms of t": 9_000})
    assert (found.interval, found.setting) == (2.0, "retention.ms of t")


@given(st.dictionaries(st.text(min_size=1), st.integers(0, 10**12), min_size=1))
def test_no_memory_is_shorter_than_four_keep_alives(settings: dict[str, int]) -> None:
    found = keep_alive(settings)
    assert all(4 * round(found.interval * 1000) <= value for value in settings.values())
    assert settings[found.setting] == min(settings.values())


@given(expiration=st.integers(0, 10**12), retention=st.integers(0, 10**12))
def test_the_oldest_record_is_remembered_until_the_next_keep_alive(expiration: int, retention: int) -> None:
    name = "producer.id.expiration.ms of the brokers"
    found = keep_alive({name: expiration, "retention.ms of t": retention})
    assert found.oldest + found.interval <= expiration / 1000
    assert found.oldest >= expiration / 1000 / 2 - 0.001


def test_by_default_records_may_be_seventeen_hours_old() -> None:
    assert DEFAULT_KEEP_ALIVE.interval == 6 * 3600
    assert 17 * 3600 < DEFAULT_KEEP_ALIVE.oldest < 18 * 3600
