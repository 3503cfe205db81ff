"""Medians, ratios within rounds, and aims."""

from __future__ import annotations

import pytest

from benchmarks.measures import AIMS, BY_KEY, PEAK_MEMORY, Against, Aim, Figure, Target
from benchmarks.summary import Spread, judge, summarise


def rounds(direct: list[float], node: list[float], key: str) -> list[dict[Target, dict[str, float]]]:
    return [{Target.DIRECT: {key: a}, Target.UNGOVERNED: {key: b}} for a, b in zip(direct, node, strict=True)]


def test_a_ratio_is_taken_within_each_round() -> None:
    found = summarise(rounds([100, 50, 10], [90, 40, 9.5], "produce"))["produce"]
    assert found[Target.DIRECT].value == Spread(50, 10, 100)
    assert found[Target.DIRECT].against_direct is None
    against = found[Target.UNGOVERNED].against_direct
    assert against is not None
    assert (against.median, against.least, against.most) == pytest.approx((0.9, 0.8, 0.95))


def test_latencies_are_set_against_direct_kafka_by_difference() -> None:
    found = summarise(rounds([100, 200, 300], [150, 260, 340], "produce_p50"))["produce_p50"]
    assert found[Target.UNGOVERNED].against_direct == Spread(50, 40, 60)


def test_what_the_node_alone_has_stands_for_itself() -> None:
    found = summarise([{Target.DIRECT: {}, Target.EXCLUSIVE: {"cpu_produce": 2.0}}])["cpu_produce"]
    assert set(found) == {Target.EXCLUSIVE}
    assert found[Target.EXCLUSIVE].against_direct is None


def test_a_round_without_direct_kafka_has_no_ratio_and_still_counts() -> None:
    both, alone = rounds([100], [90], "produce")[0], {Target.UNGOVERNED: {"produce": 80.0}}
    cell = summarise([both, alone])["produce"][Target.UNGOVERNED]
    assert cell.value == Spread(85, 80, 90)
    assert cell.against_direct == Spread(0.9, 0.9, 0.9)


def test_nothing_measured_is_nothing_summarised() -> None:
    assert summarise([{target: {} for target in Target}]) == {}
    assert all(verdict.value is None and verdict.met is None for verdict in judge({}, None))


@pytest.mark.parametrize("aim", AIMS, ids=lambda aim: aim.text)
def test_an_aim_speaks_of_a_figure_that_exists(aim: Aim) -> None:
    assert (aim.at_least is None) != (aim.at_most is None)
    if aim.key != PEAK_MEMORY:
        assert aim.target in (Target.UNGOVERNED, Target.EXCLUSIVE)
        assert (BY_KEY[aim.key].against is Against.NOTHING) == (aim.figure is Figure.VALUE)


def test_an_aim_is_kept_at_its_limit_and_missed_beyond() -> None:
    figures = {
        Target.DIRECT: {"produce": 100.0, "consume": 100.0, "produce_p50": 100.0},
        Target.UNGOVERNED: {"produce": 90.0, "consume": 64.0, "produce_p50": 150.0, "cpu_produce": 1.51},
    }
    met = {verdict.aim.text: verdict.met for verdict in judge(summarise([figures]), 60.0)}
    assert met["produce 1 KiB ≥ 0.90 of direct"] is True
    assert met["consume ≥ 0.65 of direct"] is False
    assert met["one produce in flight: p50 + 50 µs"] is True
    assert met["CPU ≤ 1.50 s/GB, produce 1 KiB"] is False
    assert met["CPU ≤ 2.20 s/GB, produce 1 KiB"] is None
    assert met["peak of resident memory ≤ 60 MiB"] is True
