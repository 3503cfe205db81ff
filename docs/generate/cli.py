"""docs/reference/cli.md from the tree of commands, as `--help` shows it."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any, Final

import click

from docs.generate import markdown
from sidecar.cli.options import examples_of
from sidecar.cli.output import Exit
from sidecar.cli.root import cli
from sidecar.settings.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Iterator

_MEANINGS: Final = {
    Exit.OK: "done",
    Exit.FAILURE: "the command failed; the message on stderr gives the reason",
    Exit.USAGE: "wrong options or settings, or a value that this version does not serve",
    Exit.NOT_FOUND: "no such topic, shadow or producer name, or the topic has no own policy",
    Exit.CONFLICT: "not possible now: no owner, no deduplication, or a name, address or group is in use",
    Exit.UNREACHABLE: "no node answers, or it cannot reach Kafka or Redis",
    Exit.UNHEALTHY: "the node is not ready, or `doctor` found a fault",
}


_BEFORE: Final = """
    Commands print data on stdout and messages on stderr; `-o json` and `-o yaml` print the answer of REST, of a list
    its items. `--config`, `--admin-url` and `-o` are allowed before and after the command's name. Commands that need a
    node use `--admin-url`, else `SIDECAR_ADMIN_URL`, else the port of `SIDECAR_ADMIN_LISTEN` on this machine.

    `--json` is `-o json`. With either, and with `-o yaml`, an error is printed in this format on stderr: `error_code`
    (HTTP's status, or null if no node answered), `message`, `exit_code`, and `remedy`, a command that shows more, or
    null. `status` and `topic show` add `refusals` to the answer of REST: the requests that this node refused lately,
    for `topic show` only those of the topic.

    If standard input is a terminal, a command that cannot be undone asks for confirmation and names its effects;
    `--yes` skips the question, and a script is never asked. With `--if-generation`, `producer fence` and `producer
    release` only end the ownership of that generation, not a later one; after a question they only end the ownership
    that the question named.
    """
_KEYS: Final = (
    "On a terminal `--watch` shows a screen: a fixed head, and rows cut to its width. `s` sorts by another column,"
    " `r` reverses the order, arrows and page keys scroll, `Tab` shows the next table, `q` ends it. If standard output"
    " is not a terminal, it prints lines. If `NO_COLOR` is set, it prints no colours."
)
_NOTES: Final = {
    "sidecar status": f"{_KEYS} Topics with problems are first; a refusal counts as a problem for ten minutes.",
    "sidecar refusals": f"{_KEYS} The full text of a cut reason is below its row, if all rows are on the screen.",
    "sidecar topic set": (
        "Without `--access` the mode is shared. `--scope partition` gives each partition its own owner."
        " `--exclusive-reader` applies to partitions that a reader has claimed: every client may read the others."
        " `--log-append-time` sets the topic's own `message.timestamp.type`: the topic has to exist; no prefix."
    ),
    "sidecar producer fence": "Works at any node, which passes the request on to the node that serves the topic.",
    "sidecar producer release": "Works at any node, which passes the request on to the node that serves the topic.",
    "sidecar dedup show": "Works at any node, which passes the request on to the node that serves the topic.",
    "sidecar dedup forget": "Works at any node, which passes the request on to the node that serves the topic.",
}
"""What a command's own help does not say of this version; tests/slow/docs holds it."""


def page() -> str:
    """Every command with its options."""
    root = click.Context(cli, info_name="sidecar")
    return markdown.page(
        [
            "# The command `sidecar`",
            "",
            *markdown.note("the commands themselves"),
            *markdown.prose(_BEFORE),
            "## Exit codes",
            "",
            *markdown.table(("code", "meaning"), [(int(code), _MEANINGS[code]) for code in Exit]),
            *_commands(cli, root),
        ]
    )


def _commands(group: click.Group, context: click.Context) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context)
        yield from _command(command, inner)
        if isinstance(command, click.Group):
            yield from _commands(command, inner)


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    usage = " ".join(command.collect_usage_pieces(context))
    yield from ("", f"## `{context.command_path}`", "", f"`{context.command_path} {usage}`", "", _prose(command.help))
    settings = [each for each in command.params if each.name in Schema.model_fields and len(Schema.model_fields) > 1]
    flags = len(settings) > len(Schema.model_fields) // 2
    options = [
        _option(each, context)
        for each in command.params
        if isinstance(each, click.Option) and not (flags and each in settings)
    ]
    if flags:
        yield from ("", "Takes a flag for every setting that is no secret: see [settings](settings.md).")
    if options:
        yield from ("", *markdown.table(("option", "meaning"), options))
    if examples_of(command):
        yield from ("", "```sh", *examples_of(command), "```")
    if context.command_path in _NOTES:
        yield from ("", _NOTES[context.command_path])


def _prose(text: str | None) -> str:
    """Lines of a paragraph joined, paragraphs kept apart."""
    return "\n\n".join(" ".join(each.split()) for each in re.split(r"\n\s*\n", inspect.cleandoc(text or "")))


def _option(option: click.Option, context: click.Context) -> tuple[str, str]:
    names = ", ".join(option.opts) + "".join(f"/{name}" for name in option.secondary_opts)
    metavar = "" if option.is_flag else f" {_metavar(option, context)}"
    default: Any = option.default
    shown = f" Default: {default}." if option.show_default and default is not None else ""
    return markdown.code(f"{names}{metavar}"), f"{option.help or ''}{shown}"


def _metavar(option: click.Option, context: click.Context) -> str:
    kind = option.type
    if isinstance(kind, click.IntRange):
        return f"{kind.min}…{kind.max}" if kind.max is not None else f"{kind.min}…"
    return option.make_metavar(context)
