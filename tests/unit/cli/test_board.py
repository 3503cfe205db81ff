"""What a screen of `--watch` shows: cut to its size, sorted, scrolled; and which topics are in trouble."""

from dataclasses import replace
from typing import Any

import pytest
from rich.cells import cell_len

from sidecar.cli.board import Board, Table, View, draw, fit, rows_in
from sidecar.cli.output import rows_of
from sidecar.cli.status import trouble

COLUMNS = ("name", "what", ("n", "n"))


def table(*items: tuple[str, str, int]) -> Table:
    rows: list[dict[str, Any]] = [{"name": name, "what": what, "n": n} for name, what, n in items]
    orders: dict[str, Any] = {"n": lambda each: each["n"], "name": lambda each: each["name"]}
    return Table("things", rows, COLUMNS, least={"name": 6, "what": 4}, orders=orders, spare=("what",))


def drawn(board: Board, width: int, height: int, view: View | None = None) -> list[str]:
    return [line.plain for line in draw(board, view or View(), width, height)]


def test_cells_are_cut_to_the_width_and_say_so():
    lines = drawn(Board([("x" * 50, "")], [table(("abcdefghijkl", "mnopqrst", 1))]), 20, 6)
    assert lines[:4] == ["x" * 19 + "…", "", "NAME     WHAT      N", "abcdef…  mnopqrst  1"]
    assert all(cell_len(line) <= 20 for line in lines)


def test_letters_that_take_two_cells_are_counted_so():
    (line,) = [line for line in drawn(Board([], [table(("名前名前名前", "x", 7))]), 14, 6) if "名" in line]
    assert (cell_len(line) <= 14, line.endswith("7"), "…" in line) == (True, True, True)


def test_a_spare_column_goes_before_others_get_too_narrow():
    found = table(("abcdefgh", "mnopqrst", 1))
    titles, cells = rows_of(found.items, COLUMNS)
    assert fit(titles, cells, found, 15)[0] == [0, 1, 2]
    assert fit(titles, cells, found, 14)[0] == [0, 2]


@pytest.mark.parametrize("size", [(1, 1), (5, 3), (80, 24), (10, 200)])
def test_a_screen_of_any_size_is_not_exceeded(size: tuple[int, int]):
    width, height = size
    board = Board([("a head", "")] * 5, [table(*((f"name{number}", "what", number) for number in range(50)))])
    lines = drawn(board, width, height)
    assert len(lines) <= height
    assert all(cell_len(line) <= width for line in lines)


def test_scrolling_ends_where_the_rows_do():
    board = Board([], [table(*((f"name{number:02d}", "", number) for number in range(20)))])
    view = View()
    for key, first in (("up", 0), ("down", 1), ("page down", 8), ("end", 13), ("page up", 6), ("home", 0)):
        view.press(key, rows_in(board, 10), 1)
        drawn(board, 60, 10, view)
        assert view.first == first
    view.press("end", 7, 1)
    drawn(board, 60, 30, view)
    assert view.first == 0, "a higher screen shows all of them"


def test_what_was_cut_of_the_cell_that_matters_stands_below_its_row_as_long_as_all_rows_are_seen():
    reason = "Topic has an existing exclusive producer: billing"
    board = Board([], [replace(table(("rival", reason, 1), ("other", "no", 2)), spare=(), full="what")])
    lines = drawn(board, 40, 7)
    assert lines[2].startswith("rival ")
    assert lines[2].endswith("…  1")
    assert lines[3:5] == ["  Topic has an existing exclusive", "  producer: billing"]
    assert lines[5].startswith("other")
    assert [line.split()[0] for line in drawn(board, 40, 6)[2:4]] == ["rival", "other"], "no room for two more lines"
    assert not [line for line in drawn(board, 80, 7) if line.startswith("  ")], "nothing is cut"


def test_the_last_line_names_the_keys_that_do_something():
    few = [("billing", "", 1), ("orders", "", 2)]
    board = Board([], [table(*few), table()])
    assert drawn(board, 80, 10)[-1] == "1-2 of 2 things by n   q quit  s sort  r reverse  tab things"
    assert drawn(board, 80, 4)[-1] == "1-1 of 2 things by n   q quit  s sort  r reverse  tab things  arrows scroll"


def test_orders_come_round_and_turn():
    board = Board([], [table(("b", "", 1), ("a", "", 2))])
    view = View()
    names = lambda: [line[0] for line in drawn(board, 60, 8, view)[2:4]]  # noqa: E731
    assert names() == ["b", "a"]
    for key, found in (("s", ["a", "b"]), ("r", ["b", "a"]), ("s", ["b", "a"]), ("r", ["a", "b"])):
        view.press(key, 5, 1)
        assert names() == found


TOPIC: dict[str, Any] = {
    "topic": "orders", "owner": {"name": "a"}, "waiting": [], "serving_node": 1, "partitions": 6,
    "deduplication_state": "ready",
}  # fmt: skip


@pytest.mark.parametrize(
    ("more", "refused", "found"),
    [
        ({}, {"other": 3}, (0, "")),
        ({"waiting": [{}]}, {}, (0, "")),
        ({"owner": None, "serving_node": None}, {}, (0, "")),
        ({"deduplication_state": "lost"}, {"orders": 3}, (2, "ids lost")),
        ({"serving_node": None}, {}, (2, "no node serves it")),
        ({"owner": None, "waiting": [{}, {}]}, {}, (1, "2 waiting, no owner")),
        ({}, {"orders": 3}, (1, "3 refused")),
        ({"owner": None, "owners": {"0": {}, "1": {}}}, {}, (1, "4 without owner")),
    ],
)
def test_trouble_of_a_topic_is_said_by_how_bad_it_is(
    more: dict[str, Any], refused: dict[str, int], found: tuple[int, str]
):
    assert trouble(TOPIC | more, refused) == found
