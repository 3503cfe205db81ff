"""A screen that is shown again every two seconds, for commands with `--watch`."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from sidecar.cli.failure import CommandError
from sidecar.cli.output import Format, printable_lines, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.cli.api import AdminApi

_EVERY_S: Final = 2.0


def watch_screens(api: AdminApi, ask: Callable[[], str]) -> None:
    """Show what `ask` returns until Ctrl-C; a node that goes away is shown as such and waited for."""
    with suppress(KeyboardInterrupt):
        while True:
            screen = _screen(api, ask)  # asked for first, so that the screen is not empty meanwhile
            click.clear()  # nothing where this is no terminal
            write(None, Format.TABLE, lambda text=screen: text)
            time.sleep(_EVERY_S)


def _screen(api: AdminApi, ask: Callable[[], str]) -> str:
    head = click.style(f"{api.url}, {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}; Ctrl-C ends this", dim=True)
    try:
        return f"{head}\n\n{ask()}\n"
    except CommandError as error:
        return f"{head}\n\n{printable_lines(error.message)}\n"
