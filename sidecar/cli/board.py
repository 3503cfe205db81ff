"""The screen of `--watch`: fixed lines, and below them tables that are sorted, scrolled and cut to the screen. Pure: it
knows no terminal.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from sidecar.cli.output import Column, rows_of

_GAP: Final = 2
_AROUND: Final = 3
"""Lines around a table's rows: the one above it, its heading, the one with the keys."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one kind. `least`: the smallest width of a column, by its heading; other columns are never cut. `spare`:
    headings of columns that are left out without room, in this order. `full`: the heading of a column whose cut cells
    are repeated in full below their rows, if there is room for all rows. `orders`: sort keys, the first is the default.
    `color`: of a row, "" for none.
    """

    what: str
    items: Sequence[Mapping[str, Any]]
    columns: Sequence[Column]
    least: Mapping[str, int]
    orders: Mapping[str, Callable[[Any], Any]]
    spare: Sequence[str] = ()
    full: str = ""
    color: Callable[[Any], str] = field(default=lambda _: "")


@dataclass(frozen=True, slots=True)
class Board:
    """A screen: lines with a colour each, and tables, one of which is shown."""

    head: Sequence[tuple[str, str]]
    tables: Sequence[Table]


@dataclass(slots=True)
class View:
    """The user's choice: a table, its order, and the first row that is shown."""

    table: int = 0
    order: int = 0
    reverse: bool = False
    first: int = 0

    def press(self, key: str, rows: int, tables: int) -> None:
        """Handle a key; `rows`: how many are visible at a time, `tables`: how many tables there are."""
        match key:
            case "s":
                self.order, self.reverse, self.first = self.order + 1, False, 0
            case "r":
                self.reverse, self.first = not self.reverse, 0
            case "tab":
                self.table, self.order, self.reverse, self.first = (self.table + 1) % max(1, tables), 0, False, 0
            case "down" | "j":
                self.first += 1
            case "up" | "k":
                self.first -= 1
            case "page down" | " ":
                self.first += rows
            case "page up":
                self.first -= rows
            case "home" | "g":
                self.first = 0
            case "end" | "G":
                self.first = 10**9
            case _:
                pass


def rows_in(board: Board, height: int) -> int:
    """How many rows of a table fit on a screen."""
    return max(1, height - len(_head(board, height)) - _AROUND)


def draw(board: Board, view: View, width: int, height: int) -> list[Text]:
    """The lines of a screen of this size; corrects `view` if it is out of range."""
    lines = [_line(text, style, width) for text, style in _head(board, height)]
    if not board.tables:
        return lines
    table = board.tables[view.table % len(board.tables)]
    rows, order = rows_in(board, height), list(table.orders)[view.order % len(table.orders)]
    items = sorted(table.items, key=table.orders[order])[:: -1 if view.reverse else 1]
    view.first = max(0, min(view.first, len(items) - rows))
    titles, cells = rows_of(items, table.columns)
    shown, widths = fit(titles, cells, table, width)
    lines += [Text(), _line(_row(titles, shown, widths), "bold", width)]
    room = rows - len(items)
    for item, row in list(zip(items, cells, strict=True))[view.first : view.first + rows]:
        lines.append(_line(_row(row, shown, widths), table.color(item), width))
        below = [
            text for at in shown if titles[at].lower() == table.full for text in _below(row[at], widths[at], width)
        ]
        if len(below) <= room:
            lines += [_line(text, "dim", width) for text in below]
            room -= len(below)
    if not items:
        lines.append(_line(f"no {table.what}", "dim", width))
    lines += [Text()] * (height - 1 - len(lines))
    return [*lines[: height - 1], _line(_foot(board, view, table, order, rows), "dim", width)]


def fit(
    titles: Sequence[str], cells: Sequence[Sequence[str]], table: Table, width: int
) -> tuple[list[int], dict[int, int]]:
    """The columns that are shown, and the width of each. Spare columns are left out first; then the widest column that
    may be cut is narrowed.
    """
    widths = {at: max(cell_len(row[at]) for row in (titles, *cells)) for at in range(len(titles))}
    least = {at: min(widths[at], table.least.get(titles[at].lower(), widths[at])) for at in widths}
    for spare in table.spare:
        if sum(least.values()) + _GAP * (len(least) - 1) > width:
            least = {at: narrow for at, narrow in least.items() if titles[at].lower() != spare}
    shown = {at: widths[at] for at in least}
    over = sum(shown.values()) + _GAP * (len(shown) - 1) - width
    while over > 0 and (soft := [at for at in shown if shown[at] > least[at]]):
        shown[max(soft, key=lambda at: shown[at])] -= 1
        over -= 1
    return list(shown), shown


def _head(board: Board, height: int) -> Sequence[tuple[str, str]]:
    """The fixed lines, unless the screen is too low to show any row below them."""
    return board.head[: max(1, height - _AROUND - 1)]


def _line(text: str, style: str, width: int) -> Text:
    return Text(_cut(text, width).rstrip(), style=style, no_wrap=True)


def _row(cells: Sequence[str], shown: Sequence[int], widths: Mapping[int, int]) -> str:
    return (" " * _GAP).join(_cut(cells[at], widths[at]) for at in shown)


def _below(cell: str, shown: int, width: int) -> list[str]:
    """The whole cell, if only a part of it is shown in its row."""
    return (
        textwrap.wrap(cell, max(3, width), initial_indent="  ", subsequent_indent="  ")
        if cell_len(cell) > shown
        else []
    )


def _cut(text: str, width: int) -> str:
    """The text cut or padded to exactly `width` cells of a terminal; a character may take two."""
    return set_cell_size(text, width) if cell_len(text) <= width else set_cell_size(text, max(0, width - 1)) + "…"


def _foot(board: Board, view: View, table: Table, order: str, rows: int) -> str:
    count = len(table.items)
    where = f"{view.first + 1}-{min(count, view.first + rows)} of {count} {table.what}" if count else table.what
    down = ", reversed" if view.reverse else ""
    at = view.table % len(board.tables)
    others = [each.what for each in (*board.tables[at + 1 :], *board.tables[:at])]
    keys = ["q quit", "s sort", "r reverse", *(f"tab {each}" for each in others[:1])]
    keys += ["arrows scroll"] if count > rows else []
    return f"{where} by {order}{down}   {'  '.join(keys)}"
