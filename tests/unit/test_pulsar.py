"""Every acceptance test of Pulsar and Sarama that is known here has one of ours that shows the same, or a reason."""

from __future__ import annotations

import pytest

from tests import shown
from tests.shown import ROOT, Entry
from tests.unit.docs.pages import tracked

each_entry = pytest.mark.parametrize("entry", shown.entries(), ids=lambda entry: entry.name)


def test_every_name_has_its_entry() -> None:
    assert {entry.name for entry in shown.entries()} == shown.names()
    assert len(shown.names()) > 80


@each_entry
def test_an_entry_names_tests_or_a_reason(entry: Entry) -> None:
    assert bool(entry.tests) is not bool(entry.reason)


@each_entry
def test_what_is_named_runs_with_all_others(entry: Entry) -> None:
    """None is absent, skipped, expected to fail or left for `make test-slow`."""
    for test in entry.tests:
        file, _, name = test.partition("::")
        assert file in tracked()
        assert not file.startswith("tests/slow/")
        assert (ROOT / file).name.startswith("test_")
        assert shown.why_not_run((ROOT / file).read_text(encoding="utf-8"), name) is None, test


def test_every_hole_is_shown_closed() -> None:
    holes = {entry.name: entry for entry in shown.entries() if entry.name.startswith("Holes.")}
    assert holes.keys() == {f"Holes.E{number}" for number in range(1, 9)}
    assert all(entry.tests for entry in holes.values())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("def test_x(): pass", None),
        ("async def test_x(): pass", None),
        ("def test_y(): pass", "is not there"),
        ("def helper():\n    def test_x(): pass", "is not there"),
        ("@pytest.mark.skip\ndef test_x(): pass", "is marked skip"),
        ("@pytest.mark.skipif(True, reason='x')\ndef test_x(): pass", "is marked skipif"),
        ("@pytest.mark.parametrize('a', [1])\n@pytest.mark.xfail\ndef test_x(a): pass", "is marked xfail"),
        ("@pytest.mark.x([pytest.param(1, marks=pytest.mark.skip)])\ndef test_x(a): pass", "is marked skip"),
        ("pytestmark = [pytest.mark.slow]\ndef test_x(): pass", "is marked slow"),
        ("def test_x():\n    if 1:\n        pytest.skip('no')", "may skip itself"),
    ],
)  # fmt: skip
def test_what_does_not_run_is_found(text: str, problem: str | None) -> None:
    assert shown.why_not_run(text, "test_x") == problem


@pytest.mark.parametrize(("outcome", "named", "becomes"), [
    ("skipped", True, "failed"), ("passed", True, "passed"), ("failed", True, "failed"), ("skipped", False, "skipped"),
])  # fmt: skip
def test_in_a_run_that_skips_what_is_named_it_fails(outcome: str, named: bool, becomes: str) -> None:
    test = f"{min(shown.shown())}[case]" if named else "tests/unit/test_pulsar.py::test_other"
    report = pytest.TestReport(test, ("", 0, ""), {}, outcome, None, "setup")  # type: ignore[arg-type]
    shown.fail_if_skipped(report)
    assert report.outcome == becomes
