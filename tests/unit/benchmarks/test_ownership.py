"""Figures of ownership, their aims and tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.ownership import report
from benchmarks.ownership.measures import AIMS, CHANGES, CROWD, MEASURES, NODE_KILL, Figures, judge, summarise
from benchmarks.ownership.run import QUICK, Results, Work
from benchmarks.report import replace_between

ROOT = Path(__file__).parents[3]
AROUND: dict[str, Any] = {"cores": 2, "cpu": "a CPU", "kafka": "4.1.1", "java": 17, "python": "3.11.7"}


def results(crowd: int = 500) -> Results:
    samples = {
        CHANGES[2]: [float(value) for value in range(100, 0, -1)],
        NODE_KILL: [2_400.0, 4_100.0, 3_000.0],
        CROWD: [4_000.0 + number for number in range(crowd)],
    }
    return Results(Work(), samples, {CHANGES[2]: 0.02, NODE_KILL: 0.31}, 70.0)


def test_figures_are_values_that_occurred() -> None:
    assert Figures.of([float(value) for value in range(100, 0, -1)]) == Figures(100, 50, 99, 100)
    assert Figures.of([7.0]) == Figures(1, 7, 7, 7)
    assert Figures.of([]) is None


def test_figures_come_in_the_order_of_the_table_and_only_where_measured() -> None:
    assert list(summarise({CROWD: [1.0], CHANGES[500]: [2.0], CHANGES[2]: []})) == [CHANGES[500], CROWD]


@pytest.mark.parametrize("aim", AIMS, ids=lambda aim: aim.text)
def test_an_aim_is_kept_at_its_limit_and_missed_beyond(aim: Any) -> None:
    assert aim.key in {measure.key for measure in MEASURES}
    for value, met in [(aim.at_most, True), (aim.at_most + 1, False)]:
        (verdict,) = [one for one in judge(summarise({aim.key: [value]})) if one.aim is aim]
        assert (verdict.value, verdict.met) == (value, met)
    assert all(verdict.met is None for verdict in judge({}))


def test_fewer_topics_than_the_aim_speaks_of_leave_it_open() -> None:
    assert "| 500 topics at once ≤ 10 s | 4499 ms | kept |" in report.document(results(), AROUND)
    assert "| 500 topics at once ≤ 10 s | not measured |  |" in report.document(results(crowd=100), AROUND)


def test_a_row_holds_percentiles_the_worst_and_how_many_there_were() -> None:
    rows = report.document(results(), AROUND).splitlines()
    assert "| change of owner, 2 partitions | 50.0 | 99.0 | 100.0 | 100 |" in rows
    assert "| kill -9 of the node → same session writes again | 3000 | 4100 | 4100 | 3 |" in rows
    assert "| the same for 500 topics at once | 4249 | 4494 | 4499 | once |" in rows
    assert "| kill -9 of the node → same session: at most lease + 1 s | 4100 ms | missed |" in rows


def test_what_others_took_of_the_machine_is_told() -> None:
    assert "other programs took 2% to 31% of the machine" in report.terminal(results(), AROUND)


def test_the_file_of_figures_holds_every_sample(tmp_path: Path) -> None:
    report.write_json(tmp_path / "made" / "figures.json", results(), AROUND)
    found = json.loads((tmp_path / "made" / "figures.json").read_text())
    assert found["samples_ms"][NODE_KILL] == [2_400.0, 4_100.0, 3_000.0]
    assert found["summary_ms"][CHANGES[2]]["p99"] == 99
    assert {aim["met"] for aim in found["aims"]} == {True, False, None}


def test_the_document_has_a_place_for_the_table_of_its_own() -> None:
    text = (ROOT / "docs" / "performance.md").read_text()
    once = replace_between(text, "new", (report.BEGIN, report.END))
    assert f"{report.BEGIN}\n\nnew\n\n{report.END}" in once
    assert once.count("<!-- figures: begin -->") == 1


@pytest.mark.parametrize(
    "wrong", [["ownership,latency"], ["ownership", "--rounds", "2"], ["ownership", "--profile"]], ids=" ".join
)
def test_ownership_is_a_run_of_its_own(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["--only", *wrong])
    assert refused.value.code == 2


def test_quick_does_the_same_in_less() -> None:
    whole = Work()
    assert 0 < QUICK.changes < whole.changes
    assert 0 < QUICK.closes < whole.closes
    assert 0 < QUICK.client_kills < whole.client_kills
    assert 0 < QUICK.node_kills < whole.node_kills
    assert 0 < QUICK.crowd < whole.crowd
