"""Tables, the document's generated part, and the file of figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import report
from benchmarks.machine import Memory
from benchmarks.measures import Target
from benchmarks.rounds import Results, Round

ROOT = Path(__file__).parents[3]
AROUND: dict[str, Any] = {"cores": 2, "cpu": "a CPU", "kafka": "4.1.1", "java": 17, "python": "3.11.7"}


def results() -> Results:
    figures = {
        Target.DIRECT: {"produce": 100.0, "produce_p50": 50.0, "consume": 200.0},
        Target.UNGOVERNED: {"produce": 91.5, "produce_p50": 92.0, "cpu_produce": 1.234, "consume": 150.0},
        Target.EXCLUSIVE: {"produce": 70.0, "cpu_produce": 2.5},
    }
    one = Round(figures, {"direct": 0.01, "ungoverned": 0.25}, Memory(50.0, 57.0), 40.0)
    return Results([one], Memory(48.0, 49.0), Memory(51.0, 58.4), 60.0, ["1 of 5 rounds"])


def test_a_row_holds_median_range_and_what_it_is_against_direct() -> None:
    text = report.terminal(results(), AROUND)
    (row,) = [line for line in text.splitlines() if line.startswith("produce 1 KiB, MB/s")]
    assert "91.5 (91.5 to 91.5) [×0.92]" in row
    assert "92 (92 to 92) [+42]" in text
    assert "1.23 (1.23 to 1.23)" in text


def test_neighbours_memory_and_notes_are_told() -> None:
    text = report.terminal(results(), AROUND)
    assert "other programs took 1% to 25% of the machine" in text
    assert "48 MiB before, 58 MiB at most, 51 MiB after" in text
    assert "1 of 5 rounds." in text


def test_every_aim_is_judged_or_said_not_to_be_measured() -> None:
    rows = report.document(results(), AROUND).splitlines()
    assert "| CPU ≤ 2.20 s/GB, produce 1 KiB | node, exclusive | 2.50 | missed |" in rows
    assert "| one produce in flight: p50 + 50 µs | node, ungoverned | +42 µs | kept |" in rows
    assert "| consume ≥ 0.65 of direct | node, ungoverned | 0.75 | kept |" in rows
    assert "| CPU ≤ 0.60 s/GB, consume | node, ungoverned | not measured |  |" in rows
    assert "| peak of resident memory ≤ 60 MiB | node | 58.4 MiB | kept |" in rows


def test_a_peak_of_memory_without_load_is_not_judged() -> None:
    light = results()
    del light.rounds[0].figures[Target.DIRECT]["consume"], light.rounds[0].figures[Target.UNGOVERNED]["consume"]
    assert "| peak of resident memory ≤ 60 MiB | node | not measured |  |" in report.document(light, AROUND)


def test_what_stands_between_the_markers_is_replaced_and_nothing_else() -> None:
    before = f"# Title\n\n{report.BEGIN}\nold\n{report.END}\n\ntail\n"
    once = report.replace_between(before, "new")
    assert once == f"# Title\n\n{report.BEGIN}\n\nnew\n\n{report.END}\n\ntail\n"
    assert report.replace_between(once, "new") == once


@pytest.mark.parametrize(
    "text",
    ["", report.BEGIN, report.END, f"{report.END}{report.BEGIN}", f"{report.BEGIN}{report.BEGIN}{report.END}"],
)
def test_a_document_without_its_markers_is_left_alone(text: str) -> None:
    with pytest.raises(ValueError, match="no single"):
        report.replace_between(text, "new")


def test_the_document_has_its_markers() -> None:
    text = (ROOT / "docs" / "performance.md").read_text()
    assert report.replace_between(text, "x") != text


def test_the_file_of_figures_holds_every_round(tmp_path: Path) -> None:
    report.write_json(tmp_path / "made" / "figures.json", results(), AROUND)
    found = json.loads((tmp_path / "made" / "figures.json").read_text())
    assert found["rounds"][0]["figures"]["ungoverned"]["produce"] == 91.5
    assert found["summary"]["produce"]["ungoverned"]["against_direct"]["median"] == pytest.approx(0.915)
    assert found["around"]["kafka"] == "4.1.1"
    assert {aim["met"] for aim in found["aims"]} == {True, False, None}
