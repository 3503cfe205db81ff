"""Tables on a terminal that is too narrow for them: cells are folded. If columns would get too narrow for that, each
row becomes a list of names and values. Nothing is left out. Pure: it knows no terminal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import Final
from unicodedata import combining, east_asian_width

import click

_GAP: Final = 2
_LEAST: Final = 10
"""The smallest width of a folded column, in cells of the terminal."""
_LEAST_VALUE: Final = 20
"""The smallest width beside a name, in cells, in which a value is folded."""
_WITHIN: Final = re.compile(r"(?<=[-_/.,;:@=&?])(?=[^\W\d])|(?<=\dT)(?=\d)")
"""Where a word may be broken: after a punctuation mark, and between the day and the hour of a time."""
_UNIT: Final = re.compile(r"\x1b\[[\d;]*m|.", re.DOTALL)
"""The parts of a word that are never broken: a character, or the code of a colour."""


def cells(text: str) -> int:
    """How many cells of a terminal a text takes; colour codes take none."""
    if text.isascii():
        return len(click.unstyle(text)) if "\x1b" in text else len(text)
    return sum(0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in click.unstyle(text))


def padded(row: Sequence[str], widths: Sequence[int]) -> str:
    """One line of a table."""
    return (
        (" " * _GAP).join(cell + " " * (width - cells(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
    )


def natural(rows: Sequence[Sequence[str]]) -> list[int]:
    """The width of each column that all of its cells need."""
    return [max(map(cells, column)) for column in zip(*rows, strict=True)]


def narrow_table(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """The lines of a table that would be wider than `width` cells: with folded cells, or as a list of names and values
    per row, whichever takes fewer lines.
    """
    listed = _blocks(heads, rows, width)
    widths = _narrowed([heads, *rows], width)
    folded = [] if widths is None else _folded(heads, rows, widths)
    return folded if 0 < len(folded) <= len(listed) else listed


def _folded(heads: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int]) -> list[str]:
    above, *below = ([fold(cell, widths[at]) for at, cell in enumerate(row)] for row in (heads, *rows))
    lines = [click.style(padded(line, widths), bold=True) for line in zip_longest(*above, fillvalue="")]
    return lines + [padded(line, widths) for row in below for line in zip_longest(*row, fillvalue="")]


def _narrowed(rows: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """The widths of columns. Narrow columns keep theirs; wide ones share the rest equally. What a column does not need,
    because of its word ends, goes to the next one. None if a column would be too narrow to read.
    """
    columns = list(zip(*rows, strict=True))
    wide = natural(rows)
    room = width - _GAP * (len(wide) - 1)
    found = dict.fromkeys(range(len(wide)), 0)
    for done, at in enumerate(sorted(found, key=lambda at: wide[at])):
        share = room // (len(wide) - done)
        least = max(min(wide[at], _LEAST), *(cells(word) for word in columns[at][0].split(" ")))
        if share < least:
            return None
        found[at] = max(cells(line) for cell in columns[at] for line in fold(cell, share))
        room -= found[at]
    return list(found.values()) if room >= 0 else None


def _blocks(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Each row as names and values below each other, with an empty line between rows."""
    lines: list[str] = []
    for row in rows:
        lines += ["", *named(heads, row, width)]
    return lines[1:]


def named(names: Sequence[str], values: Sequence[str], width: int | None) -> list[str]:
    """Names, in bold, and values, one pair per line; a value that does not fit continues below itself. A word that is
    wider than the room is not broken, so that it can be copied.
    """
    first = max(map(cells, names), default=0) + _GAP
    room = None if width is None or width - first < _LEAST_VALUE else width - first
    lines: list[str] = []
    for name, value in zip(names, values, strict=True):
        head, *more = [value] if room is None else fold(value, room, within_words=False)
        lines.append(f"{click.style(name + ' ' * (first - _GAP - cells(name)), bold=True)}{' ' * _GAP}{head}".rstrip())
        lines += [" " * first + line for line in more]
    return lines


def fold(text: str, width: int, *, within_words: bool = True) -> list[str]:
    """A text in lines of at most `width` cells. It is broken at blanks, else after punctuation marks in a word, else
    anywhere; a text with colours is not broken.
    """
    if cells(text) <= width or "\x1b" in text:
        return [text]
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if cells(joined) <= width:
            lines[-1] = joined
            continue
        lines += [""] if lines[-1] else []
        for piece in _pieces(word, width) if within_words else [word]:
            if lines[-1] and cells(lines[-1] + piece) > width:
                lines.append("")
            lines[-1] += piece
    return lines


def _pieces(word: str, width: int) -> list[str]:
    """A word in pieces that fit. The time grows only linearly with its length, because clients choose some words."""
    found: list[str] = []
    for part in _WITHIN.split(word):
        begin, end, taken = 0, 0, 0
        for unit in _UNIT.findall(part):
            more = cells(unit)
            if taken + more > width and end > begin:
                found.append(part[begin:end])
                begin, taken = end, 0
            end += len(unit)
            taken += more
        found.append(part[begin:])
    return found
