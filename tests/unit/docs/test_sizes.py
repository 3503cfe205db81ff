"""Pages stay short enough to be read: a bound on words where one was set, and on every line that a person writes."""

from __future__ import annotations

import pytest

from docs.generate import PAGES
from tests.unit.docs.pages import ROOT, Page, page, tracked

MOST_WORDS = {
    "docs/internals/architecture.md": 9000,
    "docs/internals/testing.md": 6000,
    "docs/reference/guarantees.md": 6000,
    "docs/operate/operations.md": 6000,
    "docs/operate/deploy.md": 5000,
}
LONGEST_LINE = 400
GENERATED = {f"docs/{name}" for name in PAGES} | {"docs/reference/client-matrix.md"}
WRITTEN = [Page(ROOT / name) for name in sorted(tracked()) if name.endswith(".md") and name not in GENERATED]


@pytest.mark.parametrize("name", MOST_WORDS)
def test_a_page_has_no_more_words_than_somebody_reads(name: str) -> None:
    assert len(page(name).text.split()) <= MOST_WORDS[name]


@pytest.mark.parametrize("found", WRITTEN, ids=lambda found: found.name)
def test_a_line_of_a_page_fits_into_a_window(found: Page) -> None:
    long = [f"line {number}" for number, line in enumerate(found.text.splitlines(), 1) if len(line) > LONGEST_LINE]
    assert long == []
