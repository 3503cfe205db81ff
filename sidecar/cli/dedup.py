"""`sidecar dedup`: the producer names of a topic with their highest sequence ids, and how to forget one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import rich_click as click

from sidecar.cli.api import topic_path
from sidecar.cli.options import asks_a_node, is_asked_by_a_person, pass_shared
from sidecar.cli.output import pairs, table, write
from sidecar.cli.topic import producer_table, topic_argument

if TYPE_CHECKING:
    from sidecar.cli.options import Shared


@click.group(short_help="Show producer names and their sequence ids; forget one.")
def dedup() -> None:
    """Sequence ids of topics with deduplication."""


@dedup.command()
@topic_argument
@click.argument("name", required=False)
@asks_a_node
@pass_shared
def show(shared: Shared, topic: str, name: str | None) -> None:
    """Show the highest sequence ids that are in the log of TOPIC: of producer NAME, or of the 100 that wrote last."""
    if name is None:
        found = shared.api().get(topic_path(topic, "dedup"))["items"]
        write(found, shared.output, lambda: producer_table(found))
        return
    one = shared.api().get(topic_path(topic, "dedup", name))
    write(one, shared.output, lambda: _as_text(one))


@dedup.command()
@topic_argument
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@asks_a_node
@pass_shared
def forget(shared: Shared, topic: str, name: str, yes: bool) -> None:
    """Forget producer NAME in TOPIC: what it sends next is new, whatever its ids, also what is in the log already.

    Asks first, on a terminal. Exit code 4 while a connected session writes under the name.
    """
    if not yes and is_asked_by_a_person():
        question = f"Records that {name!r} sends again are then appended to {topic} again. Forget its sequence ids?"
        click.confirm(question, abort=True, err=True)
    shared.api().delete(topic_path(topic, "dedup", name))
    click.echo(f"{topic}: the sequence ids of {name!r} are forgotten", err=True)


def _as_text(found: dict[str, Any]) -> str:
    head = {"name": found["name"], "last sequence id": found["last_sequence_id"], "in use": found["in_use"]}
    rows = [
        (partition, last, found["offsets"][partition], found["last_seen"][partition])
        for partition, last in found["last_sequence_ids"].items()
    ]
    return f"{pairs(head)}\n\n{table(('partition', 'last sequence id', 'offset', 'last seen'), rows)}"
