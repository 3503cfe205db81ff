"""A flag for every setting that may have one, generated from the schema. Imports pydantic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click

from sidecar.cli.failure import settings_error
from sidecar.cli.options import Shared, config_option
from sidecar.settings import ENV_PREFIX, SettingsError, resolve
from sidecar.settings_schema import Schema, is_secret, shown_default

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sidecar.settings import Problem, Resolved

CommandT = TypeVar("CommandT", bound="Callable[..., Any]")


def with_setting_flags(command: CommandT) -> CommandT:
    """Give a command `--listen`, `--redis-url`, … as keyword arguments; None where not said. Secrets have no flag."""
    for name, field in reversed(Schema.model_fields.items()):
        if is_secret(field):
            continue
        flag = name.replace("_", "-")
        default = shown_default(name)
        text = f"{field.description} [env: {ENV_PREFIX}{name.upper()}]" + (f" [default: {default}]" if default else "")
        if field.annotation is bool:
            command = click.option(f"--{flag}/--no-{flag}", name, default=None, help=text)(command)
        else:
            command = click.option(f"--{flag}", name, metavar="VALUE", help=text)(command)
    return config_option(command)


def resolve_settings(shared: Shared, flags: Mapping[str, Any], problems: Sequence[Problem] = ()) -> Resolved:
    """Settings from flags and everywhere else; tells what is odd.

    Raises CommandError that names every problem, also the `problems` that the caller found elsewhere.
    """
    try:
        resolved = resolve(flags, shared.config)
        if problems:
            raise SettingsError((), resolved.warnings)
    except SettingsError as error:
        tell_warnings(error.warnings)
        raise settings_error(SettingsError((*error.problems, *problems))) from None
    tell_warnings(resolved.warnings)
    return resolved


def tell_warnings(warnings: Iterable[Problem]) -> None:
    """What is odd about the settings, on stderr."""
    for warning in warnings:
        click.echo(f"{click.style('warning:', fg='yellow', bold=True)} {warning}", err=True)
