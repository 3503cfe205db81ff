"""`sidecar producer`: who owns and who waits, and an admin's word on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import rich_click as click

from sidecar.cli.api import topic_path
from sidecar.cli.options import asks_a_node, pass_shared
from sidecar.cli.output import table, write
from sidecar.cli.topic import owner_text, topic_argument

if TYPE_CHECKING:
    from sidecar.cli.options import Shared

partition_option = click.option(
    "--partition", type=click.IntRange(0), help="Which owner, of a topic whose scope is partition."
)


@click.group(short_help="List owners and those who wait; fence or release an owner.")
def producer() -> None:
    """Owners of topics and those who wait for them."""


@producer.command("list")
@click.argument("topics", nargs=-1)
@asks_a_node
@pass_shared
def list_(shared: Shared, topics: tuple[str, ...]) -> None:
    """List owners and waiting sessions of TOPICS, or of all governed topics."""
    api = shared.api()
    found = [api.get(topic_path(each)) for each in topics] if topics else api.topics(governed=True)
    rows = [row for each in found for row in _rows(each)]
    columns = ("topic", "partition", "role", "name", "session", "mode", "since", "generation")
    write(rows, shared.output, lambda: table(columns, [[row[name] for name in columns] for row in rows]))


@producer.command()
@topic_argument
@partition_option
@asks_a_node
@pass_shared
def fence(shared: Shared, topic: str, partition: int | None) -> None:
    """Depose the owner of TOPIC: its session may never write there again (error 90)."""
    _end(shared, topic, partition, "fence")


@producer.command()
@topic_argument
@partition_option
@asks_a_node
@pass_shared
def release(shared: Shared, topic: str, partition: int | None) -> None:
    """Clear the owner of TOPIC: the topic is free, and its session may claim it again."""
    _end(shared, topic, partition, "release")


def _end(shared: Shared, topic: str, partition: int | None, what: str) -> None:
    query = {} if partition is None else {"partition": partition}
    found = shared.api().post(topic_path(topic, what), **query)
    write(found, shared.output, lambda: f"{topic}: {what}d; owner now: {owner_text(found['owner']) or 'nobody'}")


def _rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    owners: dict[str, dict[str, Any]] = found.get("owners") or {}
    rows = [_row(found, "owner", each, int(partition)) for partition, each in owners.items()]
    if found["owner"] is not None:
        rows.append(_row(found, "owner", found["owner"], None))
    return rows + [_row(found, "waiting", each, None) for each in found["waiting"]]


def _row(found: dict[str, Any], role: str, who: dict[str, Any], partition: int | None) -> dict[str, Any]:
    return {
        "topic": found["topic"],
        "partition": partition,
        "role": role,
        "name": who["name"],
        "session": who["session"],
        "mode": who.get("mode"),
        "since": who["since"],
        "generation": who.get("generation", found["generation"]) if role == "owner" else None,
    }
