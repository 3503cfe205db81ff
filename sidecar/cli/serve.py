"""`sidecar serve`: read and check the settings, then become a node (or the supervisor of several)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import rich_click as click

from sidecar.cli.launch import become_node, hangups_held
from sidecar.cli.options import Shared, examples, pass_shared
from sidecar.cli.output import CommandError, Exit
from sidecar.cli.setting_flags import SettingsCommand, resolve_settings, with_setting_flags
from sidecar.settings import Settings
from sidecar.settings.listeners import ListenerSettings

_MOST_WORKERS = 256


@examples(
    "sidecar serve --bootstrap-servers kafka:9092 --redis-url redis://redis:6379/0",
    "sidecar serve --config /etc/sidecar/sidecar.toml --workers 2",
)
@click.command(cls=SettingsCommand)
@click.option(
    "--workers",
    type=click.IntRange(1, _MOST_WORKERS),
    default=1,
    show_default=True,
    help="Nodes to run, one process each; node id and all ports of worker i are higher by i.",
)
@with_setting_flags
@pass_shared
def serve(shared: Shared, workers: int, **flags: Any) -> None:
    """Run a node until SIGTERM or Ctrl-C. Logs go to stderr."""
    with hangups_held():
        resolved = resolve_settings(shared, flags)
        _check_workers(resolved.settings, workers)
        become_node(resolved, workers)


def _check_workers(settings: Settings, workers: int) -> None:
    """Raise an error unless every worker has its own ports."""
    if workers == 1:
        return
    listeners = settings.all_listeners
    ports = {name: port for each in listeners for name, port in _ports_of(each, named=len(listeners) > 1)}
    ports["admin listen"] = settings.admin_listen.port
    for name, port in ports.items():
        if port == 0 or port + workers - 1 > 65_535:
            raise CommandError(f"{workers} workers need {name} ports from {port} on, which there are not", Exit.USAGE)
    setting = "SIDECAR_LISTENERS" if settings.listeners else "SIDECAR_LISTEN"
    taken = [*((each.listen, setting) for each in listeners), (settings.admin_listen, "SIDECAR_ADMIN_LISTEN")]
    for (one, of_one), (other, of_other) in combinations(taken, 2):
        if abs(one.port - other.port) < workers:
            raise CommandError(
                f"with {workers} workers the ports from {one} ({of_one}) on and those from {other} ({of_other}) on"
                " overlap",
                Exit.USAGE,
            )


def _ports_of(listener: ListenerSettings, *, named: bool) -> Iterator[tuple[str, int]]:
    of_it = f" of {listener.name}" if named else ""
    yield f"listen{of_it}", listener.listen.port
    yield f"advertise{of_it}", listener.advertise.port
