import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.cli import folding
from sidecar.cli.folding import cells, fold, named, narrow_table

HEADS = ("TOPIC", "ACCESS", "OWNER", "LAST SEQUENCE ID")
TEXT = st.text(st.sampled_from("ab-_.:/ 9T漢"), max_size=60)


def plain(lines: list[str]) -> list[str]:
    return [click.unstyle(line) for line in lines]


@given(TEXT, st.integers(2, 40))
def test_a_folded_text_fits_and_loses_nothing_but_blanks(text: str, width: int):
    lines = fold(text, width)
    assert all(cells(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("the topic has an owner", ["the topic", "has an owner"]),
        ("2026-11-26T21:30:25Z", ["2026-11-26T", "21:30:25Z"]),
        ("POLICY_VIOLATION", ["POLICY_", "VIOLATION"]),
        ("aaaaaaaaaaaaaaaaaa", ["aaaaaaaaaaaa", "aaaaaa"]),
    ],
)
def test_a_text_is_broken_at_blanks_then_behind_marks_then_anywhere(text: str, lines: list[str]):
    assert fold(text, 12) == lines


def test_a_wide_letter_counts_twice():
    assert fold("漢字漢字", 5) == ["漢字", "漢字"]


ROWS = [("orders", "wait_for_exclusive", "billing-of-the-north", "7"), ("refunds", "exclusive", "-", "12")]


def test_a_table_that_is_a_little_too_wide_is_folded_in_its_widest_columns():
    assert plain(narrow_table(HEADS, ROWS, 50)) == [
        "TOPIC    ACCESS     OWNER            LAST",
        "                                     SEQUENCE ID",
        "orders   wait_for_  billing-of-the-  7",
        "         exclusive  north",
        "refunds  exclusive  -                12",
    ]


def test_a_row_is_a_list_where_columns_would_be_too_narrow():
    assert plain(narrow_table(HEADS, ROWS, 40)) == [
        "TOPIC             orders",
        "ACCESS            wait_for_exclusive",
        "OWNER             billing-of-the-north",
        "LAST SEQUENCE ID  7",
        "",
        "TOPIC             refunds",
        "ACCESS            exclusive",
        "OWNER             -",
        "LAST SEQUENCE ID  12",
    ]


def test_a_row_is_a_list_where_that_takes_fewer_lines():
    reason = "Topic has an existing exclusive producer: billing (generation 2). It has to leave first"
    lines = plain(narrow_table(("CLIENT", "ADDRESS", "REASON"), [("rival of the north", "127.0.0.1", reason)], 50))
    assert lines == [
        "CLIENT   rival of the north",
        "ADDRESS  127.0.0.1",
        "REASON   Topic has an existing exclusive producer:",
        "         billing (generation 2). It has to leave",
        "         first",
    ]


@given(st.lists(st.tuples(TEXT, TEXT, TEXT, TEXT), min_size=1, max_size=5), st.integers(40, 90))
def test_no_line_of_a_folded_table_is_too_wide_and_every_cell_is_there(
    rows: list[tuple[str, str, str, str]], width: int
):
    lines = plain(narrow_table(HEADS, rows, width))
    words = [word for line in lines for word in line.split(" ")]
    assert all(cells(line) <= width or any(cells(word) + 20 > width for word in words) for line in lines)
    shown = sorted("".join(lines).replace(" ", ""))
    said = sorted("".join("".join(row) for row in rows).replace(" ", ""))
    for each in set(said):
        assert shown.count(each) >= said.count(each)


def test_a_value_goes_on_below_itself_and_a_word_is_never_broken():
    command = "sidecar-" + "x" * 40
    lines = plain(named(["node", "try"], ["1 of cluster default, version 0.1.0", f"this: {command}"], 30))
    assert lines == ["node  1 of cluster default,", "      version 0.1.0", "try   this:", f"      {command}"]


def test_letters_are_looked_at_as_often_however_long_a_word_is(monkeypatch: pytest.MonkeyPatch):
    looked = []

    def counted(text: str) -> int:
        looked.append(len(text))
        return cells(text)

    monkeypatch.setattr(folding, "cells", counted)
    taken = []
    for letters in (250, 2_500):
        looked.clear()
        assert "".join(folding.fold("Z\u0300" * letters, 10)) == "Z\u0300" * letters
        taken.append(sum(looked))
    assert taken[1] <= 11 * taken[0]
