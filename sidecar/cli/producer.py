"""`sidecar producer`: owners, waiting producers, and how an operator ends an owner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rich_click as click

from sidecar.cli.api import topic_path
from sidecar.cli.completion import topic_names
from sidecar.cli.confirm import confirm, described, has_to_ask, owner_of, yes_option
from sidecar.cli.group import SuggestingGroup
from sidecar.cli.options import Shared, asks_a_node, examples
from sidecar.cli.output import listing, printable, write, write_list
from sidecar.cli.topic import owner_text, topic_argument

partition_option = click.option(
    "--partition", type=click.IntRange(0), help="Which owner, of a topic whose scope is partition."
)

_if_generation_option = click.option(
    "--if-generation",
    type=click.IntRange(0),
    metavar="N",
    help="Only if the generation is still this one; else nothing happens, with exit code 4.",
)


def _ends_an_owner(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the arguments of commands that end an owner."""
    command = yes_option(asks_a_node(function))
    return topic_argument(partition_option(_if_generation_option(command)))


@click.group(cls=SuggestingGroup)
def producer() -> None:
    """Owners of topics, and the sessions that wait for them."""


@examples("sidecar producer list", "sidecar producer list orders -o json")
@producer.command("list")
@click.argument("topics", nargs=-1, shell_complete=topic_names)
@asks_a_node
def list_(shared: Shared, topics: tuple[str, ...]) -> None:
    """List owners and waiting sessions of TOPICS, or of all governed topics."""
    api = shared.api()
    found = [api.get(topic_path(each)) for each in topics] if topics else api.topics(governed=True)
    rows = [row for each in found for row in _rows(each)]
    write_list(
        rows,
        shared.output,
        lambda: listing(rows, ("topic", "partition", "role", "name", "session", "mode", "since", "generation")),
        f"nobody owns {', '.join(topics) or 'any topic'} or waits for it",
    )


@examples("sidecar producer fence orders", "sidecar producer fence orders --if-generation 7")
@producer.command()
@_ends_an_owner
def fence(shared: Shared, topic: str, **said: Any) -> None:
    """Depose the owner of TOPIC: its session may never write there again (90 PRODUCER_FENCED).

    Asks first, on a terminal. Exit code 4 where nobody owns it, or the generation is not that of --if-generation.
    """
    _end(shared, topic, "fence", "may never write there again (90 PRODUCER_FENCED)", **said)


@examples("sidecar producer release orders", "sidecar producer release orders --partition 2 --yes")
@producer.command()
@_ends_an_owner
def release(shared: Shared, topic: str, **said: Any) -> None:
    """Clear the owner of TOPIC: the topic is free, and its session may claim it again.

    Asks first, on a terminal. Exit code 4 where nobody owns it, or the generation is not that of --if-generation.
    """
    _end(shared, topic, "release", "loses the topic and may claim it again", **said)


def _end(
    shared: Shared, topic: str, what: str, fate: str, *, partition: int | None, if_generation: int | None, yes: bool
) -> None:
    """End an owner: only the one that the question named, not one that has claimed since."""
    api = shared.api()
    generation = if_generation
    if has_to_ask(yes):
        owner = owner_of(api.get(topic_path(topic)), partition)
        if owner is not None:  # without an owner the node's answer says what is wrong
            confirm(yes, lambda: f"The owner of {topic} is {described(owner)}. It {fate}. {what.capitalize()} it?")
            generation = int(owner["generation"]) if generation is None else generation
    query = {} if partition is None else {"partition": partition}
    found = api.post(topic_path(topic, what), if_generation=generation, **query)
    now = printable(owner_text(found["owner"])) or "nobody"
    write(found, shared.output, lambda: f"{topic}: {what}d; owner now: {now}")


def _rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    owners: dict[str, dict[str, Any]] = found.get("owners") or {}
    rows = [_row(found, "owner", each, int(partition)) for partition, each in owners.items()]
    if found["owner"] is not None:
        rows.append(_row(found, "owner", found["owner"], None))
    return rows + [_row(found, "waiting", each, each.get("partition")) for each in found["waiting"]]


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
