"""Plots of the reports' pages: bars as wide as people count time, axes with units, and names that are only text."""

from __future__ import annotations

import re

import pytest

from sidecar.pipeline.page import bar_width, duration, lines, over_time

T0 = 1_767_268_800_000  # 2026-01-01 12:00:00 UTC
MINUTE_MS = 60_000


@pytest.mark.parametrize(
    ("span_ms", "width_ms", "words"),
    [
        (100, 1, "1 ms"),
        (600, 5, "5 ms"),
        (61_000, 1_000, "1 second"),
        (10 * MINUTE_MS, 5_000, "5 seconds"),
        (24 * 60 * MINUTE_MS, 15 * MINUTE_MS, "15 minutes"),
        (30 * 24 * 60 * MINUTE_MS, 6 * 60 * MINUTE_MS, "6 hours"),
        (365 * 24 * 60 * MINUTE_MS, 5 * 24 * 60 * MINUTE_MS, "5 days"),
    ],
)
def test_a_bar_is_as_wide_as_people_count_time(span_ms: int, width_ms: int, words: str) -> None:
    assert bar_width(span_ms, 120) == width_ms
    assert duration(width_ms) == words


def test_a_plot_says_what_a_bar_counts_and_over_which_time() -> None:
    text = over_time({"billing": [(T0, 30.0), (T0 + 5_000, 7.0)], "ledger": [(T0, 12.0)]}, 5_000, "Records")
    assert "<figcaption>Records per 5 seconds" in text
    assert "2026-01-01 12:00:00 to 2026-01-01 12:00:10 UTC" in text
    assert re.findall(r"<title>(.*?)</title>", text) == [
        "12:00:00, billing: 30",
        "12:00:05, billing: 7",
        "12:00:00, ledger: 12",
    ]
    assert re.findall(r'bottom:[\d.]+%">(.*?)<', text) == ["0", "10", "20", "30", "40", "50"]
    assert re.findall(r'left:[\d.]+%">(.*?)<', text) == [
        "12:00:00",
        "12:00:02",
        "12:00:04",
        "12:00:06",
        "12:00:08",
        "12:00:10",
    ]


def test_bars_lie_on_each_other_and_within_the_plot() -> None:
    text = over_time({"one": [(T0, 25.0)], "other": [(T0, 25.0)]}, 1_000, "Records")
    bars = re.findall(r'<rect class="s(\d)" x="0.00" y="([\d.]+)" width="1000.00" height="([\d.]+)">', text)
    assert bars == [("0", "100.00", "100.00"), ("1", "0.00", "100.00")]


def test_a_day_is_named_where_it_begins() -> None:
    hour = 60 * MINUTE_MS
    text = over_time({"one": [(T0, 1.0), (T0 + 24 * hour, 1.0)]}, hour, "Records")
    assert re.findall(r'left:[\d.]+%">(.*?)<', text) == ["12:00", "18:00", "2026-01-02", "06:00", "12:00"]


def test_a_name_of_any_script_is_text_and_nothing_else() -> None:
    series = {name: [(T0, 1.0)] for name in ("\u751f\u7523\u8005", "<b>", "{0}")}
    for text in (over_time(series, 100, "Records"), lines(series, "Records")):
        assert "\u751f\u7523\u8005" in text
        assert "<b>" not in text
        assert "{0}" in text


def test_marks_are_lines_with_what_they_are() -> None:
    text = over_time({"one": [(T0, 1.0)]}, 1_000, "Records", {T0 + 500: "claimed 2"})
    assert '<path class="mark" d="M500.00 0V200"><title>claimed 2, 12:00:00.500</title></path>' in text
    assert "change of owner" in text


def test_a_line_of_one_point_has_a_dot_and_a_flat_one_a_height() -> None:
    text = lines({"audit": [(T0, 0.0)]}, "Records behind")
    assert 'd="M333.33 200.00h0"' in text
    assert "11:59:00 to 2026-01-01 12:02:00 UTC" in text  # not one ms
    assert "<figcaption>Records behind" in text
