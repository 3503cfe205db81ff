"""The way of a batch that docs/internals/architecture.md lists is the one that it goes."""

from __future__ import annotations

import re
from pathlib import Path

from tests.sim.ways import way

_PAGE = Path(__file__).parents[2] / "docs" / "internals" / "architecture.md"


def test_the_page_names_the_modules_that_a_governed_batch_crosses() -> None:
    section = re.search(r"^### A governed batch, module by module$(.*?)^#", _PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert section is not None
    listed = [line.split("|")[2].strip(" `") for line in section[1].splitlines() if re.match(r"\| \d+ \|", line)]
    assert sorted(listed) == sorted(way())
