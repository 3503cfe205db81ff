"""Shared by many commands: options, which may be before or after the command's name, and examples, which are shown
below the options and in docs/reference/cli.md. Tests parse each example and run most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from sidecar.cli.output import Format, settings_error
from sidecar.settings import SettingsError, admin_access

if TYPE_CHECKING:
    from sidecar.cli.api import AdminApi

CommandT = TypeVar("CommandT", bound=Callable[..., Any])
GivenT = TypeVar("GivenT", bound=click.Command)


@dataclass(slots=True)
class Shared:
    """The values of options that all commands share."""

    config: Path | None = None
    admin_url: str | None = None
    output: Format = Format.TABLE

    def api(self, timeout: float | None = None) -> AdminApi:
        """A client of the node. Raises CommandError."""
        from sidecar.cli.api import AdminApi  # noqa: PLC0415 - an HTTP client is a third of the time of `--version`

        try:
            access = admin_access(self.admin_url, self.config)
        except SettingsError as error:
            raise settings_error(error) from None
        return AdminApi(access) if timeout is None else AdminApi(access, timeout)


def _note(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is not None:
        name = str(parameter.name)
        setattr(context.ensure_object(Shared), name, Format(value) if name == "output" else value)


def _shared_option(*names: str, **more: Any) -> Callable[[CommandT], CommandT]:
    return click.option(*names, callback=_note, expose_value=False, **more)


config_option = _shared_option(
    "--config", type=click.Path(dir_okay=False, path_type=Path), help="File with settings, instead of ./sidecar.toml."
)
admin_url_option = _shared_option(
    "--admin-url", metavar="URL", help="Admin address of the node to ask. [env: SIDECAR_ADMIN_URL]"
)
_output = _shared_option(
    "-o",
    "--output",
    type=click.Choice([each.value for each in Format]),
    help="How to print data, and errors; a table by default. --json is -o json.",
)


def _as_json(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(Shared).output = Format.JSON


def output_option(command: CommandT) -> CommandT:
    """`-o`, and `--json`, the usual name of the same in other tools."""
    return click.option("--json", is_flag=True, hidden=True, expose_value=False, callback=_as_json)(_output(command))


pass_shared = click.make_pass_decorator(Shared, ensure=True)


def asks_a_node(function: Callable[..., None]) -> Callable[..., None]:
    """For commands that call a node and print data; the shared options are their first argument."""
    return config_option(asks_without_config(function))


def asks_without_config(function: Callable[..., None]) -> Callable[..., None]:
    """The same for a command whose own `--config` means something else: the settings file is given before the command's
    name.
    """
    return admin_url_option(output_option(pass_shared(function)))


_HEAD: Final = "Examples:"


def examples(*lines: str) -> Callable[[GivenT], GivenT]:
    """Add examples to a command, each one a whole command line."""

    def give(command: GivenT) -> GivenT:
        command.epilog = "\n\n".join((_HEAD, *lines))  # each line is a paragraph
        return command

    return give


def examples_of(command: click.Command) -> tuple[str, ...]:
    """The examples of a command; none if it is a group of commands."""
    return tuple((command.epilog or _HEAD).split("\n\n")[1:])
