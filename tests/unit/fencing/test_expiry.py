"""Which setting decides how often a fence is kept alive."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.fencing.expiry import (
    BROKER_DEFAULTS,
    BROKER_FLOOR_S,
    DEFAULT_KEEP_ALIVE,
    TOPIC_FLOOR_S,
    TOPIC_SETTINGS,
    keep_alive,
    settings_in_use,
)

EXPIRATION = "producer.id.expiration.ms"
DURATIONS = st.integers(0, 10**12)


def test_a_quarter_of_the_shortest_time() -> None:
    found = keep_alive(BROKER_DEFAULTS, {"retention.ms": 8_000_000, "segment.ms": 9_000_000}, name="t")
    assert (found.interval, found.setting, found.short) == (2_000.0, "retention.ms of t", ())
    found = keep_alive({EXPIRATION: 4_000, "transactional.id.expiration.ms": 9_000})
    assert (found.interval, found.setting) == (1.0, "producer.id.expiration.ms of the brokers")


@pytest.mark.parametrize("setting", TOPIC_SETTINGS)
@pytest.mark.parametrize("value", [0, 1, 100, 1_000, 60_000])
def test_an_idle_topic_is_not_fenced_all_the_time_whatever_its_settings_are(setting: str, value: int) -> None:
    """As public configurations set them: each such topic got 15 markers a second in every partition, for ever."""
    found = keep_alive(BROKER_DEFAULTS, {setting: value}, name="t")
    assert found.interval == TOPIC_FLOOR_S
    assert found.short == (f"{setting}={value}",)


@pytest.mark.parametrize(
    ("policy", "counted"),
    [
        ("delete", ["retention.ms", "segment.ms"]),
        ("compact", ["delete.retention.ms", "segment.ms"]),
        ("compact,delete", [*TOPIC_SETTINGS]),
        ("delete, compact", [*TOPIC_SETTINGS]),
        ("", ["segment.ms"]),
        (None, [*TOPIC_SETTINGS]),
    ],
)
def test_only_settings_count_that_kafka_uses_under_the_cleanup_policy(policy: str | None, counted: list[str]) -> None:
    """A topic that is not compacted was fenced every five minutes because of delete.retention.ms, and warned of."""
    assert settings_in_use(policy) == counted


def test_brokers_that_forget_at_once_do_not_make_a_node_fence_without_a_pause() -> None:
    assert keep_alive({EXPIRATION: 0}).interval == BROKER_FLOOR_S


@given(brokers=DURATIONS, own=st.dictionaries(st.sampled_from([*TOPIC_SETTINGS]), DURATIONS))
def test_no_memory_is_shorter_than_four_keep_alives_but_below_the_floors(brokers: int, own: dict[str, int]) -> None:
    found = keep_alive({EXPIRATION: brokers}, own, name="t")
    assert 4 * found.interval <= max(brokers / 1000, 4 * BROKER_FLOOR_S)
    for setting, value in own.items():
        assert 4 * found.interval <= max(value / 1000, 4 * TOPIC_FLOOR_S)
        assert (f"{setting}={value}" in found.short) is (value < 4_000 * TOPIC_FLOOR_S)
    assert found.interval >= min(BROKER_FLOOR_S, TOPIC_FLOOR_S)


@given(expiration=st.integers(int(8_000 * BROKER_FLOOR_S), 10**12), retention=DURATIONS)
def test_the_oldest_record_is_remembered_until_the_next_keep_alive(expiration: int, retention: int) -> None:
    found = keep_alive({EXPIRATION: expiration}, {"retention.ms": retention}, name="t")
    assert found.oldest + found.interval <= expiration / 1000
    assert found.oldest >= expiration / 1000 / 2 - 0.001


def test_by_default_records_may_be_seventeen_hours_old() -> None:
    assert DEFAULT_KEEP_ALIVE.interval == 6 * 3600
    assert 17 * 3600 < DEFAULT_KEEP_ALIVE.oldest < 18 * 3600
