"""The tree of commands. Each is imported when it is asked for; only their names stand here."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import rich_click as click
from click.exceptions import Abort, ClickException

from sidecar import __version__
from sidecar.cli.failure import Exit
from sidecar.cli.options import admin_url_option, config_option, output_option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from click import Command, Context

_COMMANDS: Final = {
    "up": "sidecar.cli.up:up",
    "demo": "sidecar.cli.demo:demo",
    "serve": "sidecar.cli.serve:serve",
    "status": "sidecar.cli.status:status",
    "doctor": "sidecar.cli.doctor:doctor",
    "healthcheck": "sidecar.cli.healthcheck:healthcheck",
    "check-config": "sidecar.cli.config:check_config",
    "config": "sidecar.cli.config:config",
    "topic": "sidecar.cli.topic:topic",
    "producer": "sidecar.cli.producer:producer",
    "dedup": "sidecar.cli.dedup:dedup",
    "shadow": "sidecar.cli.shadow:shadow",
    "cursor": "sidecar.cli.cursor:cursor",
    "pipeline": "sidecar.cli.pipeline:pipeline",
    "completion": "sidecar.cli.completion:completion",
}


class LazyGroup(click.RichGroup):
    """A group that knows its commands by the place of their code, and says errors in plain lines.

    A box around an error would break its lines, and what follows could not be found with grep.
    """

    def __init__(self, *args: Any, places: Mapping[str, str], **more: Any) -> None:
        """`places`: module and name of each command, in the order in which a newcomer needs them."""
        super().__init__(*args, **more)
        self._places = places

    def main(self, *args: Any, standalone_mode: bool = True, **more: Any) -> Any:
        """As click's: ends the process, unless `standalone_mode` is off."""
        if not standalone_mode:
            return super().main(*args, standalone_mode=False, **more)
        try:
            code = super().main(*args, standalone_mode=False, **more)
        except ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except Abort:
            sys.exit(Exit.FAILURE)
        sys.exit(code if isinstance(code, int) else Exit.OK)

    def list_commands(self, ctx: Context) -> list[str]:
        """In the order of their places."""
        return list(self._places)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        """Import one command."""
        if cmd_name not in self._places:
            return None
        module, _, name = self._places[cmd_name].partition(":")
        found: Any = getattr(import_module(module), name)
        return found


@click.group(cls=LazyGroup, places=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sidecar")
@config_option
@admin_url_option
@output_option
def cli() -> None:
    """Exclusive producers and deduplication for plain Apache Kafka and unmodified clients.

    Kafka clients connect to the sidecar instead of Kafka, unchanged. `sidecar up` starts one with a Kafka and a Redis
    of its own; `sidecar serve` runs one in front of yours.

    Exit codes: 0 ok, 1 failure, 2 usage, 3 not found, 4 conflict or fenced, 5 unreachable, 10 unhealthy.
    """
