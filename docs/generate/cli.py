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
    Exit.FAILURE: "it did not work; the message on stderr says why",
    Exit.USAGE: "wrong options or settings, or a value that this version does not serve",
    Exit.NOT_FOUND: "no such topic, shadow or producer name, or no policy of its own",
    Exit.CONFLICT: "not in this state: nobody owns the topic, no deduplication, or a name, address or group is in use",
    Exit.UNREACHABLE: "no node answers, or it cannot reach Kafka or Redis",
    Exit.UNHEALTHY: "the node is not ready, or `doctor` found a fault",
}


_BEFORE: Final = """
    Data goes to stdout, talk to stderr; `-o json` and `-o yaml` print what REST answers, of a list its items.
    `--config`, `--admin-url` and `-o` may stand before or after the command's name. Commands that ask a node find it
    at `--admin-url`, else `SIDECAR_ADMIN_URL`, else at the port of `SIDECAR_ADMIN_LISTEN` on this machine.

    `--json` is `-o json`. With either, and with `-o yaml`, an error is one too, on stderr: `error_code` (HTTP's status,
    or null where no node answered with one), `message`, `exit_code`, and `remedy`, a command that shows more, or null.
    `status` and `topic show` have `refusals` besides what REST answers: what this node refused lately, of the topic
    alone.

    What cannot be taken back asks first where standard input is a terminal, and says what would happen to whom; `--yes`
    skips the question. A script is never asked. `--if-generation` makes `producer fence` and `producer release` end the
    owner that was seen, and none that came since; after a question it ends the owner that the question named.
    """
_KEYS: Final = (
    "On a terminal `--watch` shows a screen: what stays on top, and rows cut to its width. `s` sorts by something else,"
    " `r` turns the order round, arrows and page keys scroll, `Tab` shows the next table, `q` ends it. Where standard"
    " output is no terminal it prints lines. Colours are left out where `NO_COLOR` is set."
)
_NOTES: Final = {
    "sidecar status": f"{_KEYS} Topics in trouble come first; a refusal counts as trouble for ten minutes.",
    "sidecar refusals": f"{_KEYS} A reason that was cut stands in full below its row, if all rows are on the screen.",
    "sidecar topic set": (
        "Without `--access` the mode is shared. `--scope partition` gives each partition an owner of its own."
        " `--exclusive-reader` holds where a reader has claimed a partition: what nobody claimed everybody reads."
        " `--log-append-time` sets the topic's own `message.timestamp.type`: it has to exist, and a prefix cannot."
    ),
    "sidecar producer fence": "Any node may be asked: it asks the one that serves the topic.",
    "sidecar producer release": "Any node may be asked: it asks the one that serves the topic.",
    "sidecar dedup show": "Any node may be asked: it asks the one that serves the topic.",
    "sidecar dedup forget": "Any node may be asked: it asks the one that serves the topic.",
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
