"""The output of commands: data on stdout as a table, JSON or YAML; on stderr why a command fails, with a documented
exit code.

Tables are for people and may change; JSON is the REST interface's own. With `-o json` or `-o yaml` a failure is printed
in that format too.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum, StrEnum
from typing import IO, Any, Final, Literal, cast

import click

from sidecar.cli.folding import named, narrow_table, natural, padded
from sidecar.settings import SettingsError


class Format(StrEnum):
    """The values of `-o`."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class OutputError(click.ClickException):
    """Standard output cannot be written, for example because the disk is full."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the message to stderr."""
        complain("error", self.message, file)


Column = str | tuple[str, str | Callable[[dict[str, Any]], object]]
"""A field by its name in JSON, which is the heading too; or a heading with a path of names (`policy.scope`), or with a
function of the item.
"""
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", "none"})
_COLORS: Final = {"error": "red", "warning": "yellow"}


class Painted(str):
    """A cell with colour codes of our own, which is printed unchanged. In any other cell an escape sequence may come
    from a client's name.
    """

    __slots__ = ()


def painted(text: str, color: str) -> Painted:
    """`text` in a colour."""
    return Painted(click.style(text, fg=color))


def colors_wanted(stream: IO[Any] | None = None) -> bool:
    """True for a terminal, or if FORCE_COLOR is set; never if NO_COLOR is set (no-color.org)."""
    if os.environ.get("NO_COLOR"):
        return False
    stream = sys.stdout if stream is None else stream
    return bool(os.environ.get("FORCE_COLOR")) or (stream is not None and stream.isatty())


def complain(level: Literal["error", "warning"], text: str, file: IO[Any] | None = None) -> None:
    """Print an error or a warning on standard error. Control characters in it are escaped; its lines stay."""
    head = click.style(f"{level}:", fg=_COLORS[level], bold=True)
    click.echo(f"{head} {printable_lines(text)}", file=file, err=True, color=colors_wanted(file or sys.stderr))


def write_list(found: Sequence[Any], form: Format, as_table: Callable[[], str], empty: str) -> None:
    """Like `write`, for a list. Instead of an empty table, `empty` is printed on standard error."""
    if form is Format.TABLE and not found:
        click.echo(empty, err=True)
    else:
        write(found, form, as_table)


def write(data: Any, form: Format, as_table: Callable[[], str]) -> None:
    """Print `data`, or, as a table, the result of `as_table`."""
    match form:
        case Format.JSON:
            text = to_json(data, indent=2)
        case Format.YAML:
            text = to_yaml(data)
        case Format.TABLE:
            text = as_table()
    try:
        click.echo(text, color=colors_wanted())
    except BrokenPipeError:
        raise  # the reader has closed the pipe
    except OSError as error:
        raise OutputError(f"the answer cannot be written: {error.strerror}") from None


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Left-aligned columns two spaces apart, as wide as needed; no cell is ever cut off. On a terminal that is too
    narrow, cells are folded, or each row becomes a list of names and values.
    """
    heads, cells = [column.upper() for column in columns], [[_cell(value) for value in row] for row in rows]
    widths, room = natural([heads, *cells]), terminal_width()
    if room is not None and sum(widths) + 2 * (len(widths) - 1) > room:
        return "\n".join(narrow_table(heads, cells, room))
    return "\n".join([click.style(padded(heads, widths), bold=True), *(padded(row, widths) for row in cells)])


def terminal_width() -> int | None:
    """Cells in a line of standard output if it is a terminal; else None, and lines are as long as needed."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def listing(items: Iterable[Mapping[str, Any]], columns: Sequence[Column]) -> str:
    """A table with a row for each item of a list from REST."""
    return table(*rows_of(items, columns))


def rows_of(items: Iterable[Mapping[str, Any]], columns: Sequence[Column]) -> tuple[list[str], list[list[str]]]:
    """The headings of a table and the cells of each row."""
    named = [(each.replace("_", " "), each) if isinstance(each, str) else each for each in columns]
    rows = [[_cell(_found(item, what)) for _, what in named] for item in items]
    return [title.upper() for title, _ in named], rows


def _found(item: Any, what: str | Callable[[Any], object]) -> object:
    if not isinstance(what, str):
        return what(item)
    for name in what.split("."):
        item = None if item is None else item.get(name)
    return item


def pairs(found: Mapping[str, object]) -> str:
    """Names and values, one pair per line."""
    return "\n".join(named(list(found), [_cell(value) for value in found.values()], terminal_width()))


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return _cell(by_key(cast("Mapping[object, object]", value)))
    if isinstance(value, list):
        return _cell(", ".join(cast("list[str]", value)))
    return value if isinstance(value, Painted) else printable(str(value))


def counted(number: int, what: str) -> str:
    """`1 topic`, `2 topics`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def by_key(found: Mapping[Any, object]) -> str:
    """The values by key, for example by partition, in one line."""
    return ", ".join(f"{key}: {each}" for key, each in found.items())


def printable(text: str) -> str:
    """The text in one line and without control characters: clients choose names."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def printable_lines(text: str) -> str:
    """The same for each line of a text."""
    return "\n".join(map(printable, text.split("\n")))


def to_json(data: Any, indent: int | None = None) -> str:
    """Data as JSON without control characters: what cannot be printed is escaped, in both forms."""
    text = json.dumps(data, indent=indent, ensure_ascii=False)
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)


def to_yaml(data: Any) -> str:
    """JSON data in YAML's block style; strings that YAML could read as something else are quoted."""
    return "\n".join(_block(data))


def _block(data: Any) -> list[str]:
    if isinstance(data, Mapping) and data:
        lines: list[str] = []
        for name, value in cast("Mapping[object, Any]", data).items():
            lines += _entry(f"{_scalar(str(name))}:", value)
        return lines
    if isinstance(data, list | tuple) and data:
        return [line for value in cast("list[Any]", data) for line in _item(value)]
    return [_scalar(data)]


def _entry(head: str, value: Any) -> list[str]:
    if isinstance(value, Mapping | list | tuple) and value:
        return [head, *(f"  {line}" for line in _block(value))]
    return [f"{head} {_scalar(value)}"]


def _item(value: Any) -> list[str]:
    first, *rest = _block(value)
    return [f"- {first}", *(f"  {line}" for line in rest)]


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and "e" in text and "." not in text:
        return text.replace("e", ".0e")  # without a point YAML 1.1 reads it as a string
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)


class Exit(IntEnum):
    """The exit codes of commands."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    UNREACHABLE = 5
    UNHEALTHY = 10


class CommandError(click.ClickException):
    """A failure, printed in one sentence with a command that shows more."""

    def __init__(self, message: str, code: Exit = Exit.FAILURE, remedy: str | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy
        self.exit_code = int(code)  # pyright: ignore[reportAttributeAccessIssue] - click reads it from the object

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the message to stderr."""
        complain("error", self.message, file)
        if self.remedy:
            click.echo(f"  -> {printable(self.remedy)}", file=file, err=True)


def report(error: click.ClickException, form: Format) -> None:
    """Write to stderr why a command fails. In JSON and YAML `error_code` is the HTTP status, null if no node answered;
    `remedy` is a command that shows more, or null.
    """
    if form is Format.TABLE:
        error.show()
        return
    found = {
        "error_code": getattr(error, "status", None),
        "message": error.format_message(),
        "exit_code": int(error.exit_code),
        "remedy": getattr(error, "remedy", None),
    }
    click.echo(to_json(found) if form is Format.JSON else to_yaml(found), err=True)


def format_of(arguments: Sequence[str]) -> Format:
    """The output format of a command line, even of an invalid one; the last option counts."""
    found = Format.TABLE.value
    for at, word in enumerate(arguments):
        if word == "--":
            break
        if word == "--json":
            found = Format.JSON.value
        elif word in ("-o", "--output"):
            found = "".join(arguments[at + 1 : at + 2])
        elif word.startswith(("-o", "--output=")):
            found = word.removeprefix("--output=").removeprefix("-o")
    return Format(found) if found in set(Format) else Format.TABLE


def settings_error(error: SettingsError) -> CommandError:
    """An error with all problems of the settings, one per line."""
    lines = "\n".join(f"  {problem}" for problem in error.problems)
    return CommandError(f"{counted(len(error.problems), 'problem')} in the settings:\n{lines}", Exit.USAGE)
