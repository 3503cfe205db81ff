"""Tables and headings in Markdown. Pure."""

from __future__ import annotations

from inspect import cleandoc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """The lines of a table; a bar within a cell would end it."""
    return [
        "| " + " | ".join(columns) + " |",
        "|" + "---|" * len(columns),
        *("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows),
    ]


def code(text: object) -> str:
    """As code, nothing where there is nothing."""
    return f"`{text}`" if str(text) else ""


def note(source: str) -> list[str]:
    """What stands below the title of every generated page."""
    return [f"Written by `python -m docs.generate` from {source}: do not edit.", ""]


def prose(text: str) -> list[str]:
    """Paragraphs, each on one line, an empty line behind each."""
    return [line for part in cleandoc(text).split("\n\n") for line in (" ".join(part.split()), "")]


def page(lines: Iterable[str]) -> str:
    """Lines as a file."""
    return "\n".join(lines).rstrip() + "\n"
