"""Examples of commands, shown below their options and in docs/reference/cli.md. Tests parse each one and run most."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from click import Command

CommandT = TypeVar("CommandT", bound="Command")

_HEAD: Final = "Examples:"


def examples(*lines: str) -> Callable[[CommandT], CommandT]:
    """Give a command examples, each one whole command line."""

    def give(command: CommandT) -> CommandT:
        command.epilog = "\n\n".join((_HEAD, *lines))  # a paragraph is a line
        return command

    return give


def examples_of(command: Command) -> tuple[str, ...]:
    """The examples of a command; none where it is a group of commands."""
    return tuple((command.epilog or _HEAD).split("\n\n")[1:])
