"""A flag for every setting that may have one, made from the schema. Imports pydantic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import rich_click as click

from sidecar.cli.options import Shared, config_option
from sidecar.cli.output import complain, settings_error
from sidecar.settings import ENV_PREFIX, Problem, Settings, SettingsError, resolve
from sidecar.settings.listeners import own_setting
from sidecar.settings.loaded import LoadedSettings
from sidecar.settings.schema import Schema, is_secret, shown_default

CommandT = TypeVar("CommandT", bound="Callable[..., Any]")


class SettingsCommand(click.RichCommand):
    """A command with further options `--listener-NAME-SETTING VALUE`, for settings of single listeners: their names
    depend on `--listeners`.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Like click's, after the options of single listeners were removed."""
        others: list[str] = []
        left = list(args)
        while left:
            word = left.pop(0)
            if word == "--":
                others += [word, *left]
                break
            flag, equals, value = word.partition("=")
            name = flag.removeprefix("--").replace("-", "_").lower()
            own = own_setting(name) if flag.startswith("--") else None
            if own is None or is_secret(own[1]):
                others.append(word)
                continue
            if not equals:
                if not left:
                    raise click.BadOptionUsage(flag, f"Option {flag!r} requires an argument.", ctx)
                value = left.pop(0)
            ctx.params[name] = value
        return super().parse_args(ctx, others)


def with_setting_flags(command: CommandT) -> CommandT:
    """Add `--listen`, `--redis-url`, … to a command as keyword arguments; None if absent. Secrets have no flag."""
    for name, field in reversed(Schema.model_fields.items()):
        if is_secret(name):
            continue
        flag = name.replace("_", "-")
        default = shown_default(name)
        text = f"{field.description} [env: {ENV_PREFIX}{name.upper()}]" + (f" [default: {default}]" if default else "")
        if field.annotation is bool:
            command = click.option(f"--{flag}/--no-{flag}", name, default=None, help=text)(command)
        else:
            command = click.option(f"--{flag}", name, metavar="VALUE", help=text)(command)
    return config_option(command)


def resolve_settings(shared: Shared, flags: Mapping[str, Any], problems: Sequence[Problem] = ()) -> LoadedSettings:
    """Settings from flags and all other sources; prints warnings.

    Raises CommandError that names every problem, also the `problems` that the caller found elsewhere.
    """
    try:
        resolved = resolve(flags, shared.config)
        if problems:
            raise SettingsError((), resolved.warnings)
    except SettingsError as error:
        print_warnings(error.warnings)
        raise settings_error(SettingsError((*error.problems, *problems))) from None
    print_warnings(resolved.warnings)
    return resolved


def print_warnings(warnings: Iterable[Problem]) -> None:
    """Print warnings about the settings on stderr."""
    for warning in warnings:
        complain("warning", str(warning))


def resolve_here(config: Path | None, flags: Mapping[str, Any] | None = None) -> tuple[LoadedSettings, str]:
    """The settings. If they set neither Kafka nor Redis, those of a running `sidecar up` are used; the second value
    says so, for the caller to report.

    Raises SettingsError.
    """
    given = dict(flags or {})
    resolved = resolve(given, config)
    said = {each.setting for each in resolved.shown if each.origin != "default"}
    if said & {"SIDECAR_BOOTSTRAP_SERVERS", "SIDECAR_REDIS_URL"}:
        return resolved, ""
    from sidecar.local.stack import default_state_directory, find_running  # noqa: PLC0415 - heavy

    running = find_running(default_state_directory())
    if running is None or running.endpoints is None:
        return resolved, ""
    given |= {"bootstrap_servers": running.endpoints.kafka, "redis_url": running.endpoints.redis}
    return resolve(given, config), "Kafka and Redis are those of `sidecar up`"


def settings_here(
    config: Path | None, say: Callable[[str], None] | None, flags: Mapping[str, Any] | None = None
) -> Settings:
    """Like `resolve_here`. If the settings are those of `sidecar up`, `say` is called with a sentence about it.

    Raises CommandError.
    """
    try:
        resolved, origin = resolve_here(config, flags)
    except SettingsError as error:
        raise settings_error(error) from None
    if origin and say is not None:
        say(origin)
    return resolved.settings
