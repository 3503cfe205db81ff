"""`sidecar cursor`: how far the groups that read a shadow have come, and how to move them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import rich_click as click

from sidecar.cli.dedup import is_asked_by_a_person
from sidecar.cli.options import asks_a_node, pass_shared
from sidecar.cli.output import table, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.cli.api import AdminApi
    from sidecar.cli.options import Shared

_SHADOW = click.argument("shadow")
_COLUMNS: Final = ("group", "state", "members", "partition", "offset", "end", "lag")
_ENDS: Final = frozenset({"earliest", "latest"})


@click.group(short_help="List and reset the cursors of shadow topics.")
def cursor() -> None:
    """Cursors of shadow topics: what groups have committed under a shadow's name, and how far behind they are."""


@cursor.command(name="list")
@_SHADOW
@asks_a_node
@pass_shared
def list_(shared: Shared, shadow: str) -> None:
    """List the cursors of SHADOW."""
    found = list(cursors(shared.api(), shadow))
    write(found, shared.output, lambda: _as_table(found))


@cursor.command()
@_SHADOW
@click.option("--group", required=True, help="Whose cursor to move. It must have no members: stop them first.")
@click.option(
    "--to",
    required=True,
    metavar="earliest|latest|TIMESTAMP|OFFSET",
    help="An end of the log, the first record not older than a time (2026-01-31T12:00:00Z), or an offset.",
)
@click.option("--partition", type=click.IntRange(min=0), multiple=True, help="Only there, repeatable.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@asks_a_node
@pass_shared
def reset(shared: Shared, shadow: str, group: str, to: str, partition: tuple[int, ...], yes: bool) -> None:
    """Move the cursor of a group in SHADOW. A group that has none gets one.

    `sidecar cursor reset orders-audit --group audit --to earliest`

    Asks first, on a terminal. Exit code 4 while the group has members.
    """
    if not yes and is_asked_by_a_person():
        where = f"partition {', '.join(map(str, partition))}" if partition else "every partition"
        click.confirm(f"Move the cursor of {group} in {where} of {shadow} to {to}?", abort=True, err=True)
    body = {"to": _target(to)} | ({"partitions": list(partition)} if partition else {})
    found = shared.api().create(f"{_path(shadow)}/{quote(group, safe='')}/reset", body)
    write(found, shared.output, lambda: _as_table([found]))


def _target(to: str) -> object:
    """As REST takes it, which says what is wrong with a time."""
    if to in _ENDS:
        return to
    return {"offset": int(to)} if to.isascii() and to.isdigit() else {"timestamp": to}


def cursors(api: AdminApi, shadow: str) -> Iterator[dict[str, Any]]:
    """Every cursor of a shadow, page by page. Raises CommandError."""
    token: str | None = ""
    while token is not None:
        page = api.get(_path(shadow), **({"page_token": token} if token else {}))
        yield from page["items"]
        token = page["next_page_token"]


def _path(shadow: str) -> str:
    return f"/v1/shadows/{quote(shadow, safe='')}/cursors"


def _as_table(found: list[dict[str, Any]]) -> str:
    rows = [
        (each["group"], each["state"], each["members"], partition, at["offset"], at["end"], at["lag"])
        for each in found
        for partition, at in each["partitions"].items()
    ]
    return table(_COLUMNS, rows)
