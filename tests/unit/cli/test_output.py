import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sidecar.cli.output import (
    CommandError,
    Format,
    OutputError,
    colors_wanted,
    painted,
    pairs,
    report,
    table,
    to_json,
    to_yaml,
    write,
    write_list,
)

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
DATA = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20
)


@given(DATA)
def test_json_stays_json_and_says_nothing_to_a_terminal(data: Any):
    text = to_json(data, indent=2)
    assert json.loads(text) == data
    assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize("form", [Format.JSON, Format.YAML])
def test_no_form_passes_on_what_a_client_says_to_a_terminal(capsys: pytest.CaptureFixture[str], form: Format):
    said = {"client_id": "\x9b31m\x7f\x1b[2J\u202e\U000e0001\ud800 café"}
    write(said, form, str)
    report(CommandError(said["client_id"]), form)
    shown = capsys.readouterr()
    assert "café" in shown.out
    for each in (shown.out, shown.err):
        assert each.replace("\n", "").isprintable()


@given(DATA)
def test_yaml_says_what_json_says(data: Any):
    assert yaml.safe_load(to_yaml(data)) == json.loads(json.dumps(data))


@pytest.mark.parametrize(
    "text", ["yes", "null", "True", "1", "1.0", "1e3", "- a", "a: b", "", " a", "#", "2026-11-20", "~"]
)
def test_a_text_that_yaml_could_take_for_something_else_stays_a_text(text: str):
    assert yaml.safe_load(to_yaml({"value": text})) == {"value": text}


def test_simple_words_are_not_quoted():
    assert to_yaml({"topic": "orders", "owner": None, "waiting": [{"name": "a", "id": 1}]}) == (
        "topic: orders\nowner: null\nwaiting:\n  - name: a\n    id: 1"
    )


def test_columns_are_as_wide_as_they_need_and_nothing_is_cut():
    long = "x" * 300
    lines = plain(table(("name", "value"), [("a", 1), (long, None), ("b", True)])).splitlines()
    assert lines[0].split() == ["NAME", "VALUE"]
    assert lines[2] == f"{long}  -"
    assert [line.index("VALUE") if "VALUE" in line else 302 for line in lines[:1]] == [302]
    assert lines[3].endswith("yes")


def test_on_a_terminal_that_is_too_narrow_a_table_is_folded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "27")
    lines = plain(table(("topic", "owner"), [("orders", "billing of the north")])).splitlines()
    assert lines == ["TOPIC  orders", "OWNER  billing of the north"]


def test_pairs_stand_below_each_other():
    assert plain(pairs({"topic": "orders", "owner": ""})) == "topic  orders\nowner  -"
    assert plain(pairs({"as_of": {"0": 5, "1": 7}, "lost": {}})) == "as_of  0: 5, 1: 7\nlost   -"


def plain(text: str) -> str:
    from click import unstyle  # noqa: PLC0415

    return unstyle(text)


@pytest.mark.parametrize("form", list(Format))
def test_data_goes_to_stdout_without_color_where_that_is_no_terminal(form: Format, capsys: pytest.CaptureFixture[str]):
    write({"a": 1}, form, lambda: table(("a",), [(1,)]))
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "\x1b" not in captured.out
    assert captured.out.splitlines()[0] in {"A", "{", "a: 1"}


@pytest.mark.parametrize(("form", "out"), [(Format.TABLE, ""), (Format.JSON, "[]\n"), (Format.YAML, "[]\n")])
def test_people_are_told_of_an_empty_list_and_programs_get_one(
    form: Format, out: str, capsys: pytest.CaptureFixture[str]
):
    write_list([], form, lambda: table(("topic",), []), "no topics")
    assert capsys.readouterr() == (out, "no topics\n" if form is Format.TABLE else "")
    write_list([1], form, lambda: "one", "no topics")
    captured = capsys.readouterr()
    assert (captured.out != "", captured.err) == (True, "")


@pytest.mark.parametrize(
    ("variables", "is_terminal", "wanted"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
    ],
)
def test_colors_are_for_terminals_and_for_whoever_asks(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], is_terminal: bool, wanted: bool
):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal, raising=False)
    assert colors_wanted() is wanted


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_what_a_client_calls_itself_says_nothing_to_the_terminal(name: str):
    shown = plain(table(("name",), [(name,)]))
    assert shown.count("\n") == 1
    assert shown.replace("\n", "").isprintable()


def test_our_own_colors_stay_in_a_cell():
    assert "\x1b[32mok\x1b[0m" in table(("state",), [(painted("ok", "green"),)])
    assert "\\x1b]0;x\\x07" in table(("state",), [("\x1b]0;x\x07",)])


HIDES = "\x1b[8mhidden\x1b[1A\x1b]0;title\x07\u202e"
"""What a client may call itself: what comes behind it is not shown, stands a line above, or backwards."""


def test_a_name_says_nothing_to_the_terminal_and_colours_of_our_own_do():
    lines = table(("name", "state"), [(HIDES, painted("ok", "green"))]).splitlines()
    assert lines[1].endswith("  \x1b[32mok\x1b[0m")
    assert lines[1].count("\x1b") == 2
    assert lines[1].startswith("\\x1b[8mhidden")
    assert lines[0].index("STATE") == lines[1].index("\x1b[32m") + len("\x1b[1m")


@pytest.mark.parametrize(("no_color", "escapes"), [("", True), ("1", False)])
def test_an_error_says_nothing_of_others_to_the_terminal_and_is_plain_where_no_colours_are_wanted(
    no_color: str, escapes: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", no_color)
    CommandError(f"owned by {HIDES}\nin two lines", remedy=f"fence {HIDES}").show()
    told = capsys.readouterr().err
    assert ("\x1b" in told) is escapes
    assert told.count("\n") == 3
    assert told.count("\\x1b[8mhidden") == 2


def test_an_answer_that_cannot_be_written_is_an_error(monkeypatch: pytest.MonkeyPatch):
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr("sys.stdout", full)
        with pytest.raises(OutputError, match="cannot be written: No space left"):
            write({"a": 1}, Format.JSON, str)
        monkeypatch.undo()
        with suppress(OSError):
            full.close()


def test_where_standard_output_is_closed_there_are_no_colours(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdout", None)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert colors_wanted() is False
