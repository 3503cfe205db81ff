"""`sidecar completion`: a script for the shell that completes commands, options, values, and names that a node knows.

Asking for names takes a second at most and says nothing where no node answers: a Tab is no place for an error. Clients
choose some of the names, and bash puts on the line what it is given: those that mean more to a shell than themselves
are never offered.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable
from typing import Final

import rich_click as click
from click.shell_completion import CompletionItem, get_completion_class

from sidecar.cli.api import AdminApi, shadow_path, topic_path
from sidecar.cli.options import Shared, examples
from sidecar.cli.output import CommandError, Exit

_TIMEOUT_S: Final = 1.0
_MOST: Final = 1000
"""Names; nobody reads more, and a page of the node holds no more."""


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


def topic_names(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of topics and of prefixes that have a policy."""
    return _asked(context, incomplete, lambda api: _named(api, "/v1/topics", "topic"))


def shadow_names(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of shadows."""
    return _asked(context, incomplete, lambda api: _named(api, "/v1/shadows", "name"))


def group_names(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Groups that have a cursor in the shadow that stands before."""
    said = context.params.get("shadow") or next(iter(context.args), "")  # in front of `--group` it is not parsed yet
    return _asked(context, incomplete, lambda api: _named(api, shadow_path(str(said), "cursors"), "group"))


def producer_names(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Producers whose sequence ids are known in the topic that stands before."""
    topic = str(context.params.get("topic"))
    return _asked(context, incomplete, lambda api: _named(api, topic_path(topic, "dedup"), "name"))


def _named(api: AdminApi, path: str, field: str) -> Iterable[str]:
    """One page alone: the shell waits."""
    return [str(each[field]) for each in api.get(path, page_size=_MOST)["items"]]


def _asked(context: click.Context, incomplete: str, ask: Callable[[AdminApi], Iterable[str]]) -> list[CompletionItem]:
    try:
        found = ask((context.find_object(Shared) or Shared()).api(_TIMEOUT_S))
    except (CommandError, LookupError, TypeError):  # of an older node too, which answers something else
        return []
    return [CompletionItem(name) for name in found if name.startswith(incomplete) and _is_plain(name)]


def _is_plain(name: str) -> bool:
    """Whether it is one word to a shell, and no option."""
    return shlex.quote(name) == name and not name.startswith("-")
