"""docs/decisions/README.md: the pages beside it, by their titles and the first sentence of each decision."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from docs.generate import markdown

_FOLDER: Final = Path(__file__).resolve().parents[1] / "decisions"
_BEFORE: Final = """
    Each page has one decision that a newcomer would question: its context, what was decided, what follows from it, and
    what was rejected and why. A page changes when its decision changes. [Why, and when not](../start/why.md) compares
    the product with alternatives; [architecture](../internals/architecture.md) describes the parts.
    """


def page() -> str:
    """All decisions, in the order of their titles."""
    rows = sorted(_row(path) for path in _FOLDER.glob("*.md") if path.name != "README.md")
    lines = ["# Decisions", "", *markdown.note("the pages beside it"), *markdown.prose(_BEFORE)]
    return markdown.page([*lines, *markdown.table(("decision", "in short"), rows)])


def _row(path: Path) -> tuple[str, str]:
    text = path.read_text(encoding="utf-8")
    title = text.partition("\n")[0].removeprefix("# ")
    decided = re.search(r"^## Decision\n\n(.+?[.])(?= [A-Z]|\n)", text, re.MULTILINE | re.DOTALL)
    if decided is None:
        raise ValueError(f'{path.name} has no section "Decision"')
    return f"[{title}]({path.name})", " ".join(decided[1].split())
