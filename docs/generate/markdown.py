"""Tables and headings in Markdown. Pure."""

from __future__ import annotations

import re
from inspect import cleandoc
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WIDTH: Final = 240
_END: Final = re.compile(r"(?<=[.!?;]) (?=\S)")


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
    """Paragraphs, an empty line behind each."""
    return [line for part in cleandoc(text).split("\n\n") for line in (*sentences(part), "")]


def sentences(paragraph: str) -> list[str]:
    """The lines of a paragraph: each ends with a sentence, and has as many as fit into `WIDTH` characters."""
    lines: list[str] = []
    for sentence in _END.split(" ".join(paragraph.split())):
        if lines and len(lines[-1]) + len(sentence) < WIDTH:
            lines[-1] += f" {sentence}"
        else:
            lines.append(sentence)
    return lines


def page(lines: Iterable[str]) -> str:
    """Lines as a file."""
    return "\n".join(lines).rstrip() + "\n"
