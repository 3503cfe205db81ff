"""`sidecar completion`: a shell script that completes commands, options, values, and names that a node knows.

Requesting names takes at most a second, and prints nothing if no node answers: completion must not print errors.
Clients choose some of the names, and bash inserts completions unquoted. So names with characters that are special in a
shell are never offered.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from typing import Final

import rich_click as click
from click.shell_completion import CompletionItem, get_completion_class

from sidecar.cli.api import shadow_path, topic_path
from sidecar.cli.options import Shared, examples
from sidecar.cli.output import CommandError, Exit

_TIMEOUT_S: Final = 1.0
_MOST: Final = 1000
"""The most names that are offered: nobody reads more, and a page of the node holds no more."""


@examples(
    "source <(sidecar completion bash)",
    "sidecar completion zsh > ~/.zsh/completions/_sidecar",
    "sidecar completion fish > ~/.config/fish/completions/sidecar.fish",
)
@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), required=False)
def completion(shell: str | None) -> None:
    """Print a completion script for SHELL (the one in use, where it is not said).

    It completes commands, options and their values, and what the node knows: topics, shadows, groups and producers.
    """
    from sidecar.cli.root import cli  # noqa: PLC0415 - root imports the commands

    name = shell or os.environ.get("SHELL", "").rpartition("/")[2]
    found = get_completion_class(name)
    if found is None:
        raise CommandError(f"which shell? {name or 'the one in use'} is none of bash, zsh and fish", Exit.USAGE)
    click.echo(found(cli, {}, "sidecar", "_SIDECAR_COMPLETE").source())


def _names(field: str, path: Callable[[click.Context], str]) -> Callable[..., list[CompletionItem]]:
    """Return a completion function: it offers the values of `field` in the list that the node serves at `path`. It
    reads only the first page, because the shell waits for it.
    """

    def complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            api = (context.find_object(Shared) or Shared()).api(_TIMEOUT_S)
            found = [str(each[field]) for each in api.get(path(context), page_size=_MOST)["items"]]
        except (CommandError, LookupError, TypeError):  # also another program, with another answer
            return []
        return [CompletionItem(name) for name in found if name.startswith(incomplete) and _is_plain(name)]

    return complete


def _cursors(context: click.Context) -> str:
    said = context.params.get("shadow") or next(iter(context.args), "")  # not parsed yet if `--group` comes after it
    return shadow_path(str(said), "cursors")


topic_names = _names("topic", lambda _: "/v1/topics")
"""Names of topics and of prefixes that have a policy."""

shadow_names = _names("name", lambda _: "/v1/shadows")

group_names = _names("group", _cursors)
"""Groups that have a cursor in the shadow named earlier on the line."""

producer_names = _names("name", lambda context: topic_path(str(context.params.get("topic")), "dedup"))
"""Producers whose sequence ids are known in the topic named earlier on the line."""


def _is_plain(name: str) -> bool:
    """Whether it is a single word for a shell, and no option."""
    return shlex.quote(name) == name and not name.startswith("-")
