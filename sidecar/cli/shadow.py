"""`sidecar shadow`: read-only names over a topic's log."""

from __future__ import annotations

from typing import Any, Final

import rich_click as click

from sidecar.cli.api import given, shadow_path, topic_path
from sidecar.cli.completion import shadow_names, topic_names
from sidecar.cli.confirm import confirm, yes_option
from sidecar.cli.group import SuggestingGroup
from sidecar.cli.options import Shared, asks_a_node, examples
from sidecar.cli.output import CommandError, Exit, complain, counted, listing, pairs, write, write_list

_SHADOW = click.argument("shadow", shell_complete=shadow_names)
_NEW = click.argument("shadow")
SHADOWS: Final = (("shadow", "name"), "source", "state", "allow", "created", "reason")


@click.group(cls=SuggestingGroup)
def shadow() -> None:
    """Shadow topics: read-only names over another topic's log, each with its own cursors. Nothing is copied."""


@examples(
    "sidecar shadow create orders-audit --source orders",
    "sidecar shadow create orders-audit --source orders --allow User:audit",
)
@shadow.command()
@_NEW
@click.option(
    "--source",
    required=True,
    metavar="TOPIC",
    shell_complete=topic_names,
    help="The topic whose log is read under the new name.",
)
@click.option("--allow", multiple=True, metavar="PRINCIPAL", help="Who may read it, repeatable; User:* unless given.")
@click.option(
    "--auto-reset-backlog-entries",
    type=click.IntRange(min=0),
    metavar="N",
    help="Reset cursors to the end that more than N records lie behind; 0, the default: never.",
)
@asks_a_node
def create(
    shared: Shared, shadow: str, source: str, allow: tuple[str, ...], auto_reset_backlog_entries: int | None
) -> None:
    """Create SHADOW, a read-only view of another topic."""
    body = {"name": shadow, **given(allow=allow or None, auto_reset_backlog_entries=auto_reset_backlog_entries)}
    _show(shared, shared.api().create(topic_path(source, "shadows"), body))


@examples("sidecar shadow list", "sidecar shadow list orders -o json")
@shadow.command(name="list")
@click.argument("topic", required=False, shell_complete=topic_names)
@asks_a_node
def list_(shared: Shared, topic: str | None) -> None:
    """List the shadows of TOPIC, or all."""
    found = list(shared.api().pages("/v1/shadows" if topic is None else topic_path(topic, "shadows")))
    empty = "no shadows" if topic is None else f"{topic} has no shadows"
    write_list(found, shared.output, lambda: listing(found, SHADOWS), empty)


@examples("sidecar shadow show orders-audit")
@shadow.command()
@_SHADOW
@asks_a_node
def show(shared: Shared, shadow: str) -> None:
    """Show SHADOW."""
    found = shared.api().get(shadow_path(shadow))
    write(found, shared.output, lambda: _as_text(found))


@examples(
    "sidecar shadow set orders-audit --allow User:audit --allow User:billing",
    "sidecar shadow set orders-audit --auto-reset-backlog-entries 1000000",
)
@shadow.command(name="set")
@_SHADOW
@click.option("--allow", multiple=True, metavar="PRINCIPAL", help="Who may read it from now on, repeatable.")
@click.option("--allow-nobody", is_flag=True, help="Nobody may read it from now on.")
@click.option(
    "--auto-reset-backlog-entries",
    type=click.IntRange(min=0),
    metavar="N",
    help="Reset cursors that are more than N records behind; 0: never.",
)
@asks_a_node
def set_(
    shared: Shared, shadow: str, allow: tuple[str, ...], allow_nobody: bool, auto_reset_backlog_entries: int | None
) -> None:
    """Change who may read SHADOW, and when its cursors are reset. What is not said stays as it is."""
    if allow and allow_nobody:
        raise CommandError("--allow and --allow-nobody contradict each other", Exit.USAGE)
    allowed = allow if allow or allow_nobody else None
    body = given(allow=allowed, auto_reset_backlog_entries=auto_reset_backlog_entries)
    if not body:
        raise CommandError(
            "nothing to set: say at least one of --allow, --allow-nobody, --auto-reset-backlog-entries", Exit.USAGE
        )
    _show(shared, shared.api().patch(shadow_path(shadow), body))


@examples("sidecar shadow delete orders-audit")
@shadow.command()
@_SHADOW
@yes_option
@asks_a_node
def delete(shared: Shared, shadow: str, yes: bool) -> None:
    """Delete SHADOW and the cursors of its readers. Its source is not touched.

    Asks first, on a terminal.
    """
    api = shared.api()
    found = api.get(shadow_path(shadow))
    source = found["source"]
    confirm(yes, lambda: _question(found))
    api.delete(topic_path(source, "shadows", shadow))
    click.echo(f"{shadow} is deleted; {source} is as it was", err=True)


def _question(found: dict[str, Any]) -> str:
    groups = (found.get("stats") or {}).get("groups")
    readers = "everybody" if groups is None else counted(groups, "group")
    return f"The cursors of {readers} reading {found['name']} go with it; {found['source']} stays. Delete it?"


def _show(shared: Shared, found: dict[str, Any]) -> None:
    """Print the shadow as it is now, and why nobody can read it, if so."""
    if found["warning"]:
        complain("warning", found["warning"])
    write(found, shared.output, lambda: _as_text(found))


def _as_text(found: dict[str, Any]) -> str:
    return pairs(
        {
            "shadow": found["name"],
            "source": found["source"],
            "allow": found["allow"] or "nobody",
            "auto reset": f"behind {found['auto_reset_backlog_entries']} records"
            if found["auto_reset_backlog_entries"]
            else "never",
            "created": found["created"],
            "state": found["state"],
            "reason": found["reason"],
            **_in_numbers(found.get("stats")),
        }
    )


def _in_numbers(stats: dict[str, Any] | None) -> dict[str, object]:
    if stats is None:
        return {}
    return {
        "groups": stats["groups"],
        "total lag": stats["total_lag"],
        "longest lag": stats["max_lag"],
        "readers": f"{stats['readers']} at this node",
        "bytes read": f"{stats['bytes']} by this node",
        "last read": stats["last_read"],
        "cursors reset": f"{stats['cursor_resets']} by this node",
    }
