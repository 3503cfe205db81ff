"""`sidecar refusals`: what a node refused its clients lately, and why."""

from __future__ import annotations

from typing import Any, Final

import rich_click as click

from sidecar.cli.api import AdminApi, ApiError
from sidecar.cli.board import Board, Table
from sidecar.cli.completion import topic_names
from sidecar.cli.options import Shared, asks_a_node, examples
from sidecar.cli.output import Column, listing, write_list

_NONE: Final = "nothing was refused lately"
_PAGE: Final = 1_000
"""All that a node keeps, in one page: a new refusal between two pages would shift the rest."""
COLUMNS: Final[tuple[Column, ...]] = (
    "last",
    ("times", "count"),
    "client_id",
    "address",
    "topic",
    ("error", lambda each: f"{each['error_code']} {each['error']}"),
    "reason",
)


@examples("sidecar refusals", "sidecar refusals orders", "sidecar refusals --watch")
@click.command()
@click.argument("topic", required=False, shell_complete=topic_names)
@click.option("--watch", "watched", is_flag=True, help="Go on showing them, every two seconds, until q or Ctrl-C.")
@asks_a_node
def refusals(shared: Shared, topic: str | None, watched: bool) -> None:
    """Show what this node refused its clients lately: of TOPIC, or of all. The newest comes first.

    Each client.id, address, topic and error is one row, with the reason of the newest refusal. What is refused before a
    client names a topic, such as a client.id with a mistake, has no topic, and is shown for every TOPIC. Errors after
    which a client tries again by itself do not count, such as those while a topic changes its owner.
    """
    api = shared.api()
    if watched:
        from sidecar.cli.watching import watch  # noqa: PLC0415 - it draws with rich, which other commands do not load

        watch(shared, api, lambda: _asked(api, topic), _board, _text)
        return
    found = _asked(api, topic)
    write_list(found, shared.output, lambda: _text(found), _NONE)


def kept(api: AdminApi, **of: str) -> list[dict[str, Any]]:
    """A node's latest refusals, the newest first, to be shown beside other data. Empty if the node is too old to know
    them, or cannot answer now. `of`: `topic` for the refusals of that topic only.
    """
    try:
        return list(api.pages("/v1/refusals", page_size=_PAGE, **of))
    except ApiError:
        return []


def in_short(found: list[dict[str, Any]]) -> dict[str, str]:
    """A line for a list of names and values: how many refusals there are, the newest, how to see all. No line without
    refusals.
    """
    if not found:
        return {}
    times, newest = sum(each["count"] for each in found), found[0]
    of = f" of {newest['topic']}" if newest["topic"] else ""
    last = f"{newest['client_id']}{of}, {newest['error_code']} {newest['error']}, {newest['last']}"
    return {"refusals": f"{len(found)} ({times} times), the newest: {last}; all: sidecar refusals"}


def _asked(api: AdminApi, topic: str | None) -> list[dict[str, Any]]:
    """The refusals of a topic and those without a topic: an invalid client.id, for instance, is refused before a topic
    is named.
    """
    every = api.pages("/v1/refusals", page_size=_PAGE)
    return [each for each in every if topic is None or each["topic"] in {topic, ""}]


def _board(found: list[dict[str, Any]]) -> Board:
    return Board([], [table_of(found)])


def table_of(found: list[dict[str, Any]]) -> Table:
    """The refusals as a table on a screen."""
    return Table(
        "refusals",
        found,
        COLUMNS,
        least={"client id": 20, "topic": 12, "error": 19, "reason": 16, "address": 7},
        spare=("address", "last"),
        full="reason",
        orders={
            "time": lambda _: 0,
            "times": lambda each: -each["count"],
            "client": lambda each: each["client_id"],
            "topic": lambda each: each["topic"],
        },
    )


def _text(found: list[dict[str, Any]]) -> str:
    return listing(found, COLUMNS) if found else _NONE
