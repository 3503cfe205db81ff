"""`sidecar check-config` and `sidecar config`: check and show settings, start nothing."""

from __future__ import annotations

from typing import Any

import rich_click as click

from sidecar.cli.group import SuggestingGroup
from sidecar.cli.options import Shared, config_option, examples, output_option, pass_shared
from sidecar.cli.output import listing, write
from sidecar.cli.setting_flags import SettingsCommand, resolve_settings, with_setting_flags


@examples("sidecar check-config", "sidecar check-config --config ./sidecar.toml --node-id 2")
@click.command("check-config", cls=SettingsCommand)
@with_setting_flags
@pass_shared
def check_config(shared: Shared, **flags: Any) -> None:
    """Check the settings that `serve` would use; exit code 2 and all problems at once where they are wrong."""
    settings = resolve_settings(shared, flags).settings
    click.echo("the settings are valid", err=True)
    for each in settings.all_listeners if settings.listeners else ():
        click.echo(f"listener {each.name}: {each.security_protocol} at {each.listen} as {each.advertise}", err=True)


@click.group(cls=SuggestingGroup)
def config() -> None:
    """Settings: flag, then environment, then sidecar.toml, then default."""


@examples("sidecar config show --origin", "sidecar config show -o json")
@config.command(cls=SettingsCommand)
@click.option("--origin", is_flag=True, help="Say where each value stands.")
@output_option
@with_setting_flags
@pass_shared
def show(shared: Shared, origin: bool, **flags: Any) -> None:
    """Show the settings that `serve` would use. Secrets are masked."""
    resolved = resolve_settings(shared, flags)
    rows = [each._asdict() if origin else {"setting": each.setting, "value": each.value} for each in resolved.shown]
    columns = ("setting", "value", "origin")[: 3 if origin else 2]
    write(rows, shared.output, lambda: listing(rows, columns))


@examples("sidecar config schema > sidecar.schema.json")
@config.command()
@config_option
def schema() -> None:
    """Print the JSON schema of sidecar.toml, for editors."""
    import json  # noqa: PLC0415

    from sidecar.settings.schema import json_schema  # noqa: PLC0415

    click.echo(json.dumps(json_schema(), indent=2))
