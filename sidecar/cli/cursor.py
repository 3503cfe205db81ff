"""`sidecar cursor`: the offsets of the groups that read a shadow, and how to move them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import rich_click as click

from sidecar.cli.api import AdminApi, shadow_path
from sidecar.cli.completion import group_names, shadow_names
from sidecar.cli.confirm import confirm, yes_option
from sidecar.cli.group import SuggestingGroup
from sidecar.cli.options import Shared, asks_a_node, examples
from sidecar.cli.output import CommandError, Exit, by_key, listing, write, write_list

_SHADOW = click.argument("shadow", shell_complete=shadow_names)
CURSORS: Final = ("group", "state", "members", "partition", "offset", "end", "lag")
_ENDS: Final = frozenset({"earliest", "latest"})


@click.group(cls=SuggestingGroup)
def cursor() -> None:
    """Cursors of shadow topics: what groups have committed under a shadow's name, and how far behind they are."""


@examples("sidecar cursor list orders-audit")
@cursor.command(name="list")
@_SHADOW
@asks_a_node
def list_(shared: Shared, shadow: str) -> None:
    """List the cursors of SHADOW."""
    found = list(cursors(shared.api(), shadow))
    write_list(found, shared.output, lambda: _as_table(found), f"no group has a cursor in {shadow}")


@examples(
    "sidecar cursor reset orders-audit --group audit --to earliest",
    "sidecar cursor reset orders-audit --group audit --to 2026-01-31T12:00:00Z --partition 0",
)
@cursor.command()
@_SHADOW
@click.option(
    "--group",
    required=True,
    shell_complete=group_names,
    help="Whose cursor to move. It must have no members: stop them first.",
)
@click.option(
    "--to",
    required=True,
    metavar="earliest|latest|TIMESTAMP|OFFSET",
    help="An end of the log, the first record not older than a time (2026-01-31T12:00:00Z), or an offset.",
)
@click.option("--partition", type=click.IntRange(min=0), multiple=True, help="Only there, repeatable.")
@yes_option
@asks_a_node
def reset(shared: Shared, shadow: str, group: str, to: str, partition: tuple[int, ...], yes: bool) -> None:
    """Move the cursor of a group in SHADOW. A group that has none gets one.

    Asks first, on a terminal, and says there if the group has none yet. Exit code 4 while the group has members.
    """
    api, target = shared.api(), _target(to)
    before = next((each for each in cursors(api, shadow) if each["group"] == group), None)
    confirm(yes, lambda: _question(before, shadow, group, to, partition))
    body = {"to": target} | ({"partitions": list(partition)} if partition else {})
    found = api.create(shadow_path(shadow, "cursors", group, "reset"), body)
    write(found, shared.output, lambda: _as_table([found]))
    if before is None:
        click.echo(f"the group {group} had no cursor in {shadow}; it has one now", err=True)


def _question(before: dict[str, Any] | None, shadow: str, group: str, to: str, partitions: tuple[int, ...]) -> str:
    where = f"partition {', '.join(map(str, partitions))}" if partitions else "every partition"
    if before is None:
        return f"No group {group} has a cursor in {shadow}. Make one, at {to} in {where}?"
    at = before["partitions"].items()
    wanted = {number: each for number, each in at if not partitions or int(number) in partitions}
    now = by_key({number: f"{each['offset']} (lag {each['lag']})" for number, each in wanted.items()})
    return f"The cursor of {group} is {now or 'nowhere yet'} (by partition). Move it in {where} of {shadow} to {to}?"


def _target(to: str) -> object:
    """The target in REST's form, whose node reports faults in a time. Raises CommandError for text
    that is no target.
    """
    if to in _ENDS:
        return to
    if to.isascii() and to.isdigit():
        return {"offset": int(to)}
    try:
        datetime.fromisoformat(to)
    except ValueError:
        raise CommandError(
            f"--to takes earliest, latest, an offset, or a time with its zone such as 2026-01-31T12:00:00Z, not {to}",
            Exit.USAGE,
        ) from None
    return {"timestamp": to}


def cursors(api: AdminApi, shadow: str) -> Iterator[dict[str, Any]]:
    """Every cursor of a shadow, page by page. Raises CommandError."""
    return api.pages(shadow_path(shadow, "cursors"))


def _as_table(found: list[dict[str, Any]]) -> str:
    rows = ({**each, "partition": index, **at} for each in found for index, at in each["partitions"].items())
    return listing(rows, CURSORS)
