"""Which tests of guarantees.md and evidence.md `make test` leaves out: the pages mark exactly these *slow*."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.shown import COLLECTED
from tests.unit.docs.pages import ROOT, page

PAGES = ("docs/reference/guarantees.md", "docs/internals/evidence.md")
PLACE = Path(__file__).relative_to(ROOT)

REFERENCE = re.compile(r"`(tests/[\w/]+\.py(?:::test_\w+)?)`( \(\*slow\*\))?")


def marks(text: str) -> dict[str, set[bool]]:
    """The references of a text, and whether each is marked."""
    found: dict[str, set[bool]] = {}
    for reference, mark in REFERENCE.findall(text):
        found.setdefault(reference, set()).add(bool(mark))
    return found


def left_out(collected: list[tuple[str, bool]]) -> dict[str, bool]:
    """Whether `make test` runs nothing of a file, or of a test with all its parameters."""
    found: dict[str, bool] = {}
    for test, slow in collected:
        for name in (test.partition("[")[0], test.partition("::")[0]):
            found[name] = found.get(name, True) and slow
    return found


def test_the_pages_mark_exactly_the_tests_that_make_test_leaves_out(request: pytest.FixtureRequest) -> None:
    """Of the files that are run together with this one: all of them in `make test`."""
    slow = left_out(request.config.stash[COLLECTED])
    assert slow[f"{PLACE}::test_marks_are_read"] is False
    text = "\n".join(page(name).text for name in PAGES)
    named = {reference: marked for reference, marked in marks(text).items() if reference in slow}
    assert sorted(reference for reference in named if slow[reference] and False in named[reference]) == []
    assert sorted(reference for reference in named if not slow[reference] and True in named[reference]) == []


def test_what_is_left_out_is_left_out_whole() -> None:
    collected = [("tests/a.py::test_b[1]", True), ("tests/a.py::test_b[2]", False), ("tests/a.py::test_c", True)]
    assert left_out(collected) == {"tests/a.py": False, "tests/a.py::test_b": False, "tests/a.py::test_c": True}


def test_marks_are_read() -> None:
    assert marks("`tests/a.py` `tests/a.py::test_b` (*slow*), `tests/a.py`") == {
        "tests/a.py": {False},
        "tests/a.py::test_b": {True},
    }
