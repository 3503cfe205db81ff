"""The ways that docs/architecture.md lists are those that requests go."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.sim import ways
from tests.sim.ways import Ways, counted, deciding

_PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
_MOST = 15
_BATCH, _BEFORE = "A governed batch, module by module", "Until the batch is judged"
_PROPER, _AFTER = "Until the session owns the topic", "Until the batch is answered"


@pytest.fixture(scope="module")
def recorded() -> Ways:
    return ways.ways()


def rows(title: str) -> list[list[str]]:
    """The cells of the numbered rows between a heading and the next one, in order."""
    section = re.search(rf"^#+ {re.escape(title)}$(.*?)^#", _PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert section is not None, title
    return [line.split("|")[2:-1] for line in section[1].splitlines() if re.match(r"\| \d+ \|", line)]


def listed(title: str) -> list[str]:
    """The modules of these rows."""
    return [cells[0].strip(" `") for cells in rows(title)]


def test_the_page_names_the_modules_that_a_governed_batch_crosses(recorded: Ways) -> None:
    assert sorted(listed(_BATCH)) == sorted(counted(recorded.batch))


def test_a_governed_batch_crosses_fifteen_modules_at_most(recorded: Ways) -> None:
    assert len(counted(recorded.batch)) <= _MOST


@pytest.mark.parametrize(("title", "part"), [(_BEFORE, "before"), (_AFTER, "after")])
def test_the_page_names_what_runs_before_and_after_a_takeover(recorded: Ways, title: str, part: str) -> None:
    assert listed(title) == deciding(getattr(recorded.takeover, part))


def test_the_page_names_what_comes_into_play_in_a_takeover_and_is_not_on_every_batchs_way(recorded: Ways) -> None:
    assert listed(_PROPER) == [each for each in deciding(recorded.takeover.proper) if each not in recorded.batch]


def test_the_page_marks_what_runs_again_in_a_takeover(recorded: Ways) -> None:
    marked = [cells[0].strip(" `") for cells in rows(_BEFORE) if cells[2].strip() == "yes"]
    assert marked == deciding(recorded.takeover.again)


def test_the_page_says_how_many_run_with_what_carries(recorded: Ways) -> None:
    before, proper, after = (len(counted(part)) for part in recorded.takeover[:3])
    text = f"With that {before + proper + after} modules run: {before}, {proper} and {after}."
    assert text in _PAGE.read_text()
