"""How far snapshots stay ahead of what Kafka itself deletes from a log."""

from __future__ import annotations

import math

import pytest

from sidecar.dedup.cleaning import LAG_MS, SNAPSHOT_BATCHES, SNAPSHOT_S, Cleaning, Pace, lag_needed

USUAL = Pace(SNAPSHOT_S, SNAPSHOT_BATCHES)
MIB = 1024 * 1024


def settings(**values: object) -> dict[str, str | None]:
    return {name.replace("_", "."): str(value) for name, value in values.items()}


def test_a_topic_that_nothing_cleans_has_the_usual_pace() -> None:
    assert Cleaning.of({}).pace(LAG_MS) == USUAL
    assert Cleaning.of(settings(cleanup_policy="delete", retention_ms=-1, retention_bytes=-1)).pace(LAG_MS) == USUAL


def test_only_compacted_topics_need_a_lag() -> None:
    """It costs topics that are not compacted nothing."""
    assert Cleaning.of(settings(cleanup_policy="delete", min_compaction_lag_ms=0)).lag_ms is None
    for policy in ("compact", "compact,delete", "delete, compact"):
        assert Cleaning.of(settings(cleanup_policy=policy, min_compaction_lag_ms=5)).lag_ms == 5
        assert Cleaning.of(settings(cleanup_policy=policy)).lag_ms == 0


def test_a_lag_that_is_too_short_and_cannot_be_raised_makes_snapshots_as_frequent_as_they_may_be() -> None:
    found = Cleaning.of(settings(cleanup_policy="compact", min_compaction_lag_ms=LAG_MS - 1))
    assert found.lacks_lag(LAG_MS)
    assert found.pace(LAG_MS) == Pace(1.0, SNAPSHOT_BATCHES)


def test_an_operators_longer_lag_stays() -> None:
    found = Cleaning.of(settings(cleanup_policy="compact", min_compaction_lag_ms=LAG_MS))
    assert not found.lacks_lag(LAG_MS)
    assert found.pace(LAG_MS) == USUAL


@pytest.mark.parametrize(
    ("retention_ms", "seconds"), [(0, 1.0), (1_000, 1.0), (60_000, 15.0), (7 * LAG_MS, SNAPSHOT_S)]
)
def test_snapshots_come_four_times_before_records_are_too_old(retention_ms: int, seconds: float) -> None:
    assert Cleaning.of(settings(retention_ms=retention_ms)).pace(LAG_MS).seconds == seconds
    assert Cleaning.of(settings(retention_ms=retention_ms, cleanup_policy="compact")).retention_ms is None


@pytest.mark.parametrize(
    ("size", "largest", "batches"),
    [(0, MIB, 1), (MIB, MIB, 1), (100 * MIB, MIB, 25), (100 * MIB, 10 * MIB, 2), (2**40, MIB, SNAPSHOT_BATCHES)],
)
def test_snapshots_come_before_batches_of_the_largest_size_fill_what_is_kept(
    size: int, largest: int, batches: int
) -> None:
    found = Cleaning.of(settings(retention_bytes=size, max_message_bytes=largest))
    assert found.pace(LAG_MS).batches == batches


def test_the_lag_includes_the_age_of_the_oldest_records_that_are_accepted() -> None:
    """Compaction counts it from the records' own times."""
    assert lag_needed(math.inf, 300.0) == LAG_MS
    assert lag_needed(18 * 3600.0, 6 * 3600.0) == LAG_MS
    assert lag_needed(7 * 24 * 3600.0, 300.0) == 7 * LAG_MS + 300_000
