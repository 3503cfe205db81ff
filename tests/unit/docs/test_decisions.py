"""A page of docs/decisions has its four sections, and is short."""

from __future__ import annotations

import re

import pytest

from tests.unit.docs.pages import Page, pages

PAGES = [found for found in pages() if found.name.startswith("docs/decisions/") and "README" not in found.name]
SECTIONS = ["Context", "Decision", "Consequences", "Rejected"]
MOST_WORDS = 350


def test_there_are_decisions() -> None:
    assert len(PAGES) >= 10


@pytest.mark.parametrize("found", PAGES, ids=lambda found: found.name)
def test_a_decision_has_its_sections_and_is_short(found: Page) -> None:
    assert re.findall(r"^## (.+)$", found.prose, re.MULTILINE) == SECTIONS
    assert len(found.text.split()) <= MOST_WORDS
