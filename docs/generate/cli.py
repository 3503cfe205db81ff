"""docs/reference/cli.md from the tree of commands, as `--help` shows it. What many commands take stands there once."""

from __future__ import annotations

import inspect
import re
from collections import Counter
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


_MANY: Final = 10
"""An option of at least this number of commands is described once, before all commands."""


def page() -> str:
    """Every command with its options."""
    root = click.Context(cli, info_name="sidecar")
    common = _common(root)
    return markdown.page(
        [
            "# The command `sidecar`",
            "",
            *markdown.note("the commands themselves"),
            *markdown.prose(_BEFORE),
            "## Exit codes",
            "",
            *markdown.table(("code", "meaning"), [(int(code), _MEANINGS[code]) for code in Exit]),
            "",
            "## Common options",
            "",
            "A command that takes one of these names it.",
            "",
            *markdown.table(("option", "meaning"), common),
            *(line for command, context in _commands(cli, root) for line in _command(command, context, common)),
        ]
    )


def _commands(group: click.Group, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context)
        yield command, inner
        if isinstance(command, click.Group):
            yield from _commands(command, inner)


def _common(root: click.Context) -> list[tuple[str, str]]:
    """The rows of options that many commands take."""
    rows = Counter(row for command, context in _commands(cli, root) for row in _options(command, context))
    return [row for row, commands in rows.items() if commands >= _MANY]


def _command(command: click.Command, context: click.Context, common: list[tuple[str, str]]) -> Iterator[str]:
    usage = " ".join(command.collect_usage_pieces(context))
    yield from ("", f"## `{context.command_path}`", "", f"`{context.command_path} {usage}`", "", _prose(command.help))
    options = _options(command, context)
    if _takes_settings(command):
        yield from ("", "Takes a flag for every setting that is no secret: see [settings](settings.md).")
    if own := [row for row in options if row not in common]:
        yield from ("", *markdown.table(("option", "meaning"), own))
    if shared := [row[0].split()[0].strip("`,") for row in common if row in options]:
        yield from ("", f"[Common](#common-options): {', '.join(map(markdown.code, shared))}.")
    if examples_of(command):
        yield from ("", "```sh", *examples_of(command), "```")
    if context.command_path in _NOTES:
        yield from ("", _NOTES[context.command_path])


def _takes_settings(command: click.Command) -> bool:
    settings = [each for each in command.params if each.name in Schema.model_fields]
    return len(settings) > len(Schema.model_fields) // 2


def _options(command: click.Command, context: click.Context) -> list[tuple[str, str]]:
    """A row for each option, without the flags of settings where a command has one for nearly every setting."""
    flags = _takes_settings(command)
    return [
        _option(each, context)
        for each in command.params
        if isinstance(each, click.Option) and not (flags and each.name in Schema.model_fields)
    ]


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
