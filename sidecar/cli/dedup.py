"""`sidecar dedup`: the producer names of a topic with their highest sequence ids, and how to forget one."""

from __future__ import annotations

from typing import Any, Final

import rich_click as click

from sidecar.cli.api import AdminApi, topic_path
from sidecar.cli.completion import producer_names
from sidecar.cli.confirm import confirm, yes_option
from sidecar.cli.group import SuggestingGroup
from sidecar.cli.options import Shared, asks_a_node, examples
from sidecar.cli.output import by_key, listing, pairs, write, write_list
from sidecar.cli.topic import PRODUCERS, topic_argument

_BESIDE: Final = {"offset": "offsets", "last_seen": "last_seen"}
"""Fields of a partition besides the id, by heading."""


@click.group(cls=SuggestingGroup)
def dedup() -> None:
    """Sequence ids of topics with deduplication."""


@examples("sidecar dedup show orders", "sidecar dedup show orders billing -o json")
@dedup.command()
@topic_argument
@click.argument("name", required=False, shell_complete=producer_names)
@asks_a_node
def show(shared: Shared, topic: str, name: str | None) -> None:
    """Show the highest sequence ids that are in the log of TOPIC: of producer NAME, or of all, the newest first."""
    if name is None:
        found = list(shared.api().pages(topic_path(topic, "dedup"), page_size=1000))
        write_list(found, shared.output, lambda: listing(found, PRODUCERS), f"no producer name is known in {topic}")
        return
    one = shared.api().get(topic_path(topic, "dedup", name))
    write(one, shared.output, lambda: _as_text(one))


@examples("sidecar dedup forget orders billing")
@dedup.command()
@topic_argument
@click.argument("name", shell_complete=producer_names)
@yes_option
@asks_a_node
def forget(shared: Shared, topic: str, name: str, yes: bool) -> None:
    """Forget producer NAME in TOPIC: what it sends next is new, whatever its ids, also what is in the log already.

    Asks first, on a terminal. Exit code 4 while a connected session writes under the name.
    """
    api = shared.api()
    confirm(yes, lambda: _question(api, topic, name))
    api.delete(topic_path(topic, "dedup", name))
    click.echo(f"{topic}: the sequence ids of {name!r} are forgotten", err=True)


def _question(api: AdminApi, topic: str, name: str) -> str:
    ids = api.get(topic_path(topic, "dedup", name))["last_sequence_ids"]
    return (
        f"The highest ids of {name!r} in {topic} are {by_key(ids)} (by partition); records that it sends again are"
        " appended again. Forget its sequence ids?"
    )


def _as_text(found: dict[str, Any]) -> str:
    head = {"name": found["name"], "last sequence id": found["last_sequence_id"], "in use": found["in_use"]}
    rows = [
        {"partition": index, "last_sequence_id": last, **{name: found[of][index] for name, of in _BESIDE.items()}}
        for index, last in found["last_sequence_ids"].items()
    ]
    return f"{pairs(head)}\n\n{listing(rows, ('partition', 'last_sequence_id', *_BESIDE))}"
