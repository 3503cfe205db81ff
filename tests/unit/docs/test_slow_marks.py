"""Which tests of guarantees.md `make test` leaves out: the page marks exactly these *slow*."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache

from tests.unit.docs.pages import ROOT, page

COLLECT = """
import sys, pytest

class Marks:
    def pytest_collection_finish(self, session):
        with open(1, "w", closefd=False) as out:
            for item in session.items:
                out.write(f"{item.get_closest_marker('slow') is not None} {item.nodeid.partition('[')[0]}\\n")

sys.exit(pytest.main(["--collect-only", "-qq", "-m", "not clients", *sys.argv[1:]], plugins=[Marks()]))
"""
REFERENCE = re.compile(r"`(tests/[\w/]+\.py(?:::test_\w+)?)`( \(\*slow\*\))?")


def marks(text: str) -> dict[str, set[bool]]:
    """The references of a text, and whether each is marked."""
    found: dict[str, set[bool]] = {}
    for reference, mark in REFERENCE.findall(text):
        found.setdefault(reference, set()).add(bool(mark))
    return found


@cache
def left_out(files: tuple[str, ...]) -> dict[str, bool]:
    """Whether `make test` runs nothing of a file, or of a test with all its parameters."""
    command = [sys.executable, "-c", COLLECT, *files]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
    assert result.returncode == 0, result.stdout[-2_000:] + result.stderr
    found: dict[str, bool] = {}
    for slow, test in re.findall(r"^(True|False) (\S+)$", result.stdout, re.MULTILINE):
        for name in (test, test.partition("::")[0]):
            found[name] = found.get(name, True) and slow == "True"
    return found


def test_the_page_marks_exactly_the_tests_that_make_test_leaves_out() -> None:
    named = marks(page("docs/guarantees.md").text)
    slow = left_out(tuple(sorted({reference.partition("::")[0] for reference in named})))
    assert sorted(reference for reference in named if slow[reference] and False in named[reference]) == []
    assert sorted(reference for reference in named if not slow[reference] and True in named[reference]) == []


def test_marks_are_read() -> None:
    assert marks("`tests/a.py` `tests/a.py::test_b` (*slow*), `tests/a.py`") == {
        "tests/a.py": {False},
        "tests/a.py::test_b": {True},
    }
