"""How commands fail: a message on stderr and one of the documented exit codes. With `-o json` or `-o yaml` the message
has that format too.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import IO, Any

import click

from sidecar.cli.output import Format, complain, counted, printable, to_json, to_yaml
from sidecar.settings import SettingsError


class Exit(IntEnum):
    """What a command's exit code means."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    UNREACHABLE = 5
    UNHEALTHY = 10


class CommandError(click.ClickException):
    """A failure, shown in one sentence with a command that shows more."""

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
    """The output format that a command line asks for, even one with errors in it; the last one counts."""
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
    """All problems of the settings, one per line."""
    lines = "\n".join(f"  {problem}" for problem in error.problems)
    return CommandError(f"{counted(len(error.problems), 'problem')} in the settings:\n{lines}", Exit.USAGE)
