"""What is read a second time, and how records are spread over the bars of a plot."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from sidecar.pipeline.audit.judge import Stretch, merged
from sidecar.pipeline.page import bars, bounds_of, dated

stretches = st.builds(
    lambda partition, first, length: Stretch(partition, first, first + length),
    st.integers(0, 2), st.integers(0, 200), st.integers(0, 20),
)  # fmt: skip


def offsets(found: list[Stretch]) -> set[tuple[int, int]]:
    return {(each.partition, offset) for each in found for offset in range(each.first, each.last + 1)}


@given(st.lists(stretches, max_size=30), st.integers(1, 4))
def test_few_stretches_hold_every_offset_that_was_asked_for(asked: list[Stretch], most: int) -> None:
    found = merged(asked, most)
    assert offsets(asked) <= offsets(found)
    for partition in {each.partition for each in asked}:
        its = [each for each in found if each.partition == partition]
        assert len(its) <= most
        assert all(after.first > before.last + 1 for before, after in itertools.pairwise(its))
    if all(len([each for each in merged(asked, 1_000) if each.partition == p]) <= most for p in range(3)):
        assert offsets(found) == offsets(asked)


def test_the_smallest_gaps_are_closed_first() -> None:
    asked = [Stretch(0, 0, 1), Stretch(0, 3, 4), Stretch(0, 90, 91), Stretch(0, 95, 99)]
    assert merged(asked, 2) == [Stretch(0, 0, 4), Stretch(0, 90, 99)]


def test_records_are_spread_over_the_time_of_their_run_and_small_series_added_up(spark: SparkSession) -> None:
    rows = [("a", 100, 1_000, 1_399), ("b", 10, 1_200, 1_100), *((f"s{n}", 1, 1_300, 1_300) for n in range(8))]
    runs = spark.createDataFrame(rows, "series string, records long, first_timestamp_ms long, last_timestamp_ms long")
    found = bars(runs, 1_000, 100)
    assert found["a"] == [(1_000, 25.0), (1_100, 25.0), (1_200, 25.0), (1_300, 25.0)]
    assert found["b"] == [(1_100, 5.0), (1_200, 5.0)]
    assert found["others"] == [(1_300, 2.0)]
    assert len(found) == 9


def test_what_no_calendar_dates_is_in_no_plot(spark: SparkSession) -> None:
    microseconds = 1_700_000_000_000_000
    times = [(1_000, 1_399), (microseconds, microseconds), (2_000, -1), (-1, 2_000), (2**63 - 1, 0), (0, -(2**63))]
    rows = [(1, *each) for each in times] + [(0, 1, 5_000)]
    runs = spark.createDataFrame(rows, "records long, first_timestamp_ms long, last_timestamp_ms long")
    assert bounds_of(dated(runs)) == (1_000, 1_399, 5)


def test_generations_are_drawn_in_their_order_and_the_smallest_added_up(spark: SparkSession) -> None:
    rows = [(f"generation {number}", 100 - number, 1_000, 1_000) for number in range(11, 0, -1)]
    rows.append(("no owner", 500, 1_000, 1_000))
    runs = spark.createDataFrame(rows, "series string, records long, first_timestamp_ms long, last_timestamp_ms long")
    assert list(bars(runs, 1_000, 100)) == [*(f"generation {n}" for n in range(1, 8)), "no owner", "others"]
