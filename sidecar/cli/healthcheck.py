"""`sidecar healthcheck`, for containers: imports as little as possible, because it runs every few seconds."""

from __future__ import annotations

import rich_click as click

from sidecar.cli.api import ApiError
from sidecar.cli.options import Shared, admin_url_option, config_option, examples, pass_shared
from sidecar.cli.output import CommandError, Exit

_TIMEOUT = 4.0


@examples(
    "sidecar healthcheck",
    "sidecar healthcheck --live",
)
@click.command()
@click.option("--live", is_flag=True, help="Ask only whether it runs, not whether it is ready.")
@config_option
@admin_url_option
@pass_shared
def healthcheck(shared: Shared, live: bool) -> None:
    """Exit with 0 where the node is ready, 10 where it is not, 5 where nobody answers."""
    try:
        found = shared.api(_TIMEOUT).get("/livez" if live else "/readyz")
    except ApiError as refused:
        raise CommandError(f"not ready: {refused.message}", Exit.UNHEALTHY) from None
    click.echo(found["status"])
