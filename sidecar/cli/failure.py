"""How commands fail: a message on stderr and one of the documented exit codes."""

from __future__ import annotations

from enum import IntEnum
from typing import IO, Any

import click

from sidecar.cli.output import complain, printable
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
    """A failure shown at the terminal in one sentence, with a command to look further with."""

    def __init__(self, message: str, code: Exit = Exit.FAILURE, remedy: str | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy
        self.exit_code = int(code)  # pyright: ignore[reportAttributeAccessIssue] - click reads it from the object

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the message to stderr."""
        complain("error", self.message, file)
        if self.remedy:
            click.echo(f"  -> {printable(self.remedy)}", file=file, err=True)


def settings_error(error: SettingsError) -> CommandError:
    """All problems of the settings, one per line."""
    count = len(error.problems)
    lines = "\n".join(f"  {problem}" for problem in error.problems)
    return CommandError(f"{count} {'problem' if count == 1 else 'problems'} in the settings:\n{lines}", Exit.USAGE)
