"""`sidecar completion`: a script for the shell that completes commands, options and topic names."""

from __future__ import annotations

import os

import rich_click as click
from click.shell_completion import CompletionItem, get_completion_class

from sidecar.cli.failure import CommandError, Exit
from sidecar.cli.options import Shared

_TIMEOUT = 1.0


@click.command(short_help="Print a completion script for a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), required=False)
def completion(shell: str | None) -> None:
    """Print a completion script for SHELL (the one in use, where it is not said).

    bash: `source <(sidecar completion bash)`, zsh likewise, fish: `sidecar completion fish | source`.
    """
    from sidecar.cli.root import cli  # noqa: PLC0415 - root imports the commands

    name = shell or os.environ.get("SHELL", "").rpartition("/")[2]
    found = get_completion_class(name)
    if found is None:
        raise CommandError(f"which shell? {name or 'the one in use'} is none of bash, zsh and fish", Exit.USAGE)
    click.echo(found(cli, {}, "sidecar", "_SIDECAR_COMPLETE").source())


def topic_names(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of topics as the node knows them; none where no node answers."""
    try:
        topics = list((context.find_object(Shared) or Shared()).api(_TIMEOUT).topics(governed=False))
    except CommandError:
        return []
    return [CompletionItem(topic["topic"]) for topic in topics if topic["topic"].startswith(incomplete)]
