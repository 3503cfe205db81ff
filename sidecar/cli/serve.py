"""`sidecar serve`: read and check the settings, then become a node (or the supervisor of several)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import rich_click as click

from sidecar.cli.examples import examples
from sidecar.cli.failure import CommandError, Exit
from sidecar.cli.launch import become_node, hangups_held
from sidecar.cli.options import pass_shared
from sidecar.cli.setting_flags import resolve_settings, with_setting_flags

if TYPE_CHECKING:
    from sidecar.cli.options import Shared
    from sidecar.settings import Settings

_MOST_WORKERS = 256


@examples(
    "sidecar serve --bootstrap-servers kafka:9092 --redis-url redis://redis:6379/0",
    "sidecar serve --config /etc/sidecar/sidecar.toml --workers 2",
)
@click.command()
@click.option(
    "--workers",
    type=click.IntRange(1, _MOST_WORKERS),
    default=1,
    show_default=True,
    help="Nodes to run, one process each; node id, listen, advertise and admin port of worker i are higher by i.",
)
@with_setting_flags
@pass_shared
def serve(shared: Shared, workers: int, **flags: Any) -> None:
    """Run a node until SIGTERM or Ctrl-C. Logs go to stderr."""
    with hangups_held():
        resolved = resolve_settings(shared, flags)
        _check_workers(resolved.settings, workers)
        become_node(resolved.told, workers)


def _check_workers(settings: Settings, workers: int) -> None:
    """Every worker needs its own ports."""
    if workers == 1:
        return
    ports = {
        "listen": settings.listen.port,
        "advertise": settings.advertise.port,
        "admin listen": settings.admin_listen.port,
    }
    for name, port in ports.items():
        if port == 0 or port + workers - 1 > 65_535:
            raise CommandError(f"{workers} workers need {name} ports from {port} on, which there are not", Exit.USAGE)
    if abs(settings.listen.port - settings.admin_listen.port) < workers:
        raise CommandError(
            f"with {workers} workers the ports from {settings.listen} (SIDECAR_LISTEN) on and those from "
            f"{settings.admin_listen} (SIDECAR_ADMIN_LISTEN) on overlap",
            Exit.USAGE,
        )
