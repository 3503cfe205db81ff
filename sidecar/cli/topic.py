"""`sidecar topic`: topics and their policies."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, Final

import rich_click as click

from sidecar.cli.api import AdminApi, ApiError, given, topic_path
from sidecar.cli.completion import topic_names
from sidecar.cli.confirm import confirm, ownership, yes_option
from sidecar.cli.group import SuggestingGroup
from sidecar.cli.options import Shared, asks_a_node, asks_without_config, examples
from sidecar.cli.output import Column, CommandError, Exit, by_key, listing, pairs, write, write_list
from sidecar.cli.refusals import COLUMNS as REFUSALS
from sidecar.cli.refusals import kept

_PARTITIONS_SHOWN: Final = 8
_REFUSALS_SHOWN: Final = 5
_KNOWN: Final = frozenset({"topic", "client_id"})
OWNERS: Final = ("partition", ("owner", "name"), "session", "mode", "generation", "since")
WAITING: Final = (("waiting", "name"), "session", "partition", "since")
ACCESS_MODES: Final = ("shared", "exclusive", "wait_for_exclusive", "exclusive_with_fencing")
SCOPES: Final = ("topic", "partition")
topic_argument = click.argument("topic", shell_complete=topic_names)


@click.group(cls=SuggestingGroup)
def topic() -> None:
    """Topics and their policies."""


@examples("sidecar topic list --governed", "sidecar topic list -o json")
@topic.command("list")
@click.option("--governed", is_flag=True, help="Only topics that have a policy.")
@asks_a_node
def list_(shared: Shared, governed: bool) -> None:
    """List topics, and prefixes that have a policy."""
    found = list(shared.api().topics(governed=governed))
    empty = "no topic has a policy" if governed else "no topics"
    sources = {shadow: each["topic"] for each in found for shadow in each["shadows"]}
    columns = (*TOPICS, ("shadow of", lambda each: sources.get(each["topic"]))) if sources else TOPICS
    write_list(found, shared.output, lambda: listing(found, columns), empty)


@examples("sidecar topic show orders", "sidecar topic show orders -o yaml")
@topic.command()
@topic_argument
@asks_a_node
def show(shared: Shared, topic: str) -> None:
    """Show a topic's policy, its owner and its queue, and what this node refused of it lately."""
    api = shared.api()
    found = api.get(topic_path(topic))
    found["refusals"] = kept(api, topic=topic)
    write(found, shared.output, lambda: _as_text(found))


_POLICY_OPTIONS: Final = (
    click.option("--access", "access_mode", type=click.Choice(ACCESS_MODES), help="Who may write."),
    click.option(
        "--dedup/--no-dedup", "deduplication", default=None, help="Append each (producer name, sequence id) once."
    ),
    click.option("--scope", type=click.Choice(SCOPES), help="What an owner owns."),
    click.option(
        "--log-append-time/--no-log-append-time",
        default=None,
        help="Have Kafka stamp records on arrival, so that producers may send records with old timestamps.",
    ),
    click.option("--exclusive-reader/--no-exclusive-reader", default=None, help="Let only the claimed reader fetch."),
)


def _takes_a_policy(command: Callable[..., None]) -> Callable[..., None]:
    """Adds every field of a policy as an option."""
    for option in reversed(_POLICY_OPTIONS):
        command = option(command)
    return command


@examples(
    "sidecar topic create orders --partitions 6",
    "sidecar topic create orders --partitions 6 --replication-factor 3 --access exclusive --dedup",
    "sidecar topic create orders --config retention.ms=604800000 --config cleanup.policy=compact",
)
@topic.command()
@click.argument("topic")
@click.option("--partitions", type=click.IntRange(min=1), metavar="N", help="How many; default: the brokers'.")
@click.option("--replication-factor", type=click.IntRange(min=1), metavar="N", help="Default: the brokers'.")
@click.option("--config", "configs", multiple=True, metavar="KEY=VALUE", help="A setting of the topic, repeatable.")
@_takes_a_policy
@asks_without_config
def create(
    shared: Shared,
    topic: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    **policy: str | bool | None,
) -> None:
    """Create TOPIC in Kafka, then set its policy where --access, --dedup, … say one.

    A policy that an earlier topic of this name left holds for this one.

    Exit code 4 where there is such a topic. A file with settings is named in front of the command: sidecar --config
    FILE topic create …
    """
    body = given(
        topic=topic,
        partitions=partitions,
        replication_factor=replication_factor,
        configs=_settings(configs) or None,
        policy=given(**policy) or None,
    )
    api = shared.api()
    stale = _waiting_policy(api, topic)
    found = api.create("/v1/topics", body)
    write(found, shared.output, lambda: _as_text(found))
    _warn(found)
    if stale:
        fields = by_key({name: value for name, value in stale.items() if value})
        click.echo(
            f"{topic} had a policy before it was there, which holds now ({fields}): `sidecar topic unset {topic}`"
            " forgets it",
            err=True,
        )


@examples(
    "sidecar topic set orders --access exclusive --dedup",
    "sidecar topic set orders --access exclusive --scope partition",
    "sidecar topic set 'payments.*' --access wait_for_exclusive",
)
@topic.command("set")
@topic_argument
@_takes_a_policy
@asks_a_node
def set_(shared: Shared, topic: str, **wanted: str | bool | None) -> None:
    """Set some fields of a topic's policy; the others stay as they are. TOPIC may be a prefix: 'payments.*'."""
    change = given(**wanted)
    if not change:
        raise CommandError("nothing to set: say at least one of --access, --dedup, --scope, …", Exit.USAGE)
    found = shared.api().put(topic_path(topic, "policy"), change)
    write(found, shared.output, lambda: _as_text(found))
    _warn(found)
    if not found["partitions"] and not topic.endswith("*"):
        click.echo(
            f"there is no topic {topic} yet: the policy waits for it; make it with `sidecar topic create {topic}`",
            err=True,
        )


@examples("sidecar topic unset orders", "sidecar topic unset 'payments.*' --yes")
@topic.command()
@topic_argument
@yes_option
@asks_a_node
def unset(shared: Shared, topic: str, yes: bool) -> None:
    """Forget a topic's or a prefix's own policy.

    Stop its writers first: their next batches go to Kafka as they are, where an idempotent client that has written
    under the policy may be refused with 45 OUT_OF_ORDER_SEQUENCE_NUMBER and end.

    A compacted topic that had --dedup keeps the min.compaction.lag.ms that nodes raised.

    Asks first, on a terminal.
    """
    api = shared.api()
    confirm(yes, lambda: _unset_question(api, topic))
    api.delete(topic_path(topic, "policy"))
    click.echo(f"{topic} has no policy of its own any more", err=True)


@examples("sidecar topic delete orders", "sidecar topic delete orders --force --yes")
@topic.command()
@topic_argument
@click.option("--force", is_flag=True, help="Delete its shadows too, with the cursors of their readers.")
@yes_option
@asks_a_node
def delete(shared: Shared, topic: str, force: bool, yes: bool) -> None:
    """Delete TOPIC with its records, as Kafka's own tool does. Its policy stays, for a topic that is made anew.

    Asks first, on a terminal. Exit code 4 where it has shadows and nobody says --force. Done again it finishes what was
    interrupted.
    """
    api = shared.api()
    confirm(yes, lambda: _delete_question(api, topic, force=force))
    api.delete(topic_path(topic), force=str(force).lower())
    click.echo(f"{topic} is deleted", err=True)


def _warn(topic: dict[str, Any]) -> None:
    """Print what the node warns of after a change of a policy; an older node warns of nothing."""
    for warning in topic.get("warnings", ()):
        click.echo(f"warning: {warning}", err=True)


def _waiting_policy(api: AdminApi, topic: str) -> dict[str, Any]:
    """The own policy of a topic that does not exist: set in advance, or left by an earlier topic of the name."""
    try:
        found = api.get(topic_path(topic))
    except ApiError as error:
        if error.exit_code not in (Exit.NOT_FOUND, Exit.USAGE):
            raise
        return {}
    return {} if found["partitions"] else found["policy"] or {}


def _settings(given: tuple[str, ...]) -> dict[str, str]:
    """Parse `key=value` pairs. Raises CommandError for other text, and for a key that is given twice."""
    found: dict[str, str] = {}
    for each in given:
        key, sign, value = each.partition("=")
        if not key or not sign:
            more = (
                f". A file with settings goes in front: sidecar --config {each} topic create"
                if key and not sign
                else ""
            )
            raise CommandError(f"--config {each}: write KEY=VALUE, such as retention.ms=604800000{more}", Exit.USAGE)
        if key in found:
            raise CommandError(f"--config {key} is given twice", Exit.USAGE)
        found[key] = value
    return found


def _owner_of(api: AdminApi, topic: str) -> str:
    """A sentence about the owner for a question; empty if the topic does not exist, which the node reports itself."""
    try:
        return f" Its owner is {ownership(api.get(topic_path(topic)))}."
    except ApiError as error:
        if error.exit_code != Exit.NOT_FOUND:
            raise
        return ""


def _delete_question(api: AdminApi, topic: str, *, force: bool) -> str:
    names = [each["name"] for each in api.pages(topic_path(topic, "shadows"))] if force else []
    more = f", and its shadows {', '.join(names)} with the cursors of their readers" if names else ""
    return f"All records of {topic} are lost{more}.{_owner_of(api, topic)} Delete it?"


def _unset_question(api: AdminApi, topic: str) -> str:
    if topic.endswith("*"):
        return f"Topics under {topic} without a policy of their own are governed no more. Forget its policy?"
    return (
        f"Without its policy the writers of {topic} are not fenced any more.{_owner_of(api, topic)} Forget its policy?"
    )


def owner_text(owner: dict[str, Any] | None) -> str:
    """Name and session of an owner as text."""
    return "" if owner is None else f"{owner['name'] or '(no name)'} ({owner['session']})"


def _owners(topic: dict[str, Any]) -> str:
    owners: dict[str, dict[str, Any]] = topic.get("owners") or {}
    found = by_key({partition: owner_text(each) for partition, each in owners.items()})
    return found or owner_text(topic["owner"])


def _by_partition(producer: dict[str, Any]) -> str:
    ids: dict[str, int] = producer["last_sequence_ids"]
    return by_key(dict(islice(ids.items(), _PARTITIONS_SHOWN))) + (", …" if len(ids) > _PARTITIONS_SHOWN else "")


TOPICS: Final[tuple[Column, ...]] = (
    "topic",
    ("access", "policy.access_mode"),
    ("dedup", "policy.deduplication"),
    ("scope", "policy.scope"),
    "generation",
    ("owner", _owners),
    ("waiting", lambda topic: len(topic["waiting"])),
    ("node", "serving_node"),
    "partitions",
)
PRODUCERS: Final[tuple[Column, ...]] = (("producer", "name"), "last_sequence_id", ("by partition", _by_partition))
"""The last sequence id of each producer, and its ids by partition."""
REFUSED: Final[tuple[Column, ...]] = (("refused", "client_id"), *(each for each in REFUSALS if each not in _KNOWN))
"""The columns for refusals of one topic."""


def _as_text(found: dict[str, Any]) -> str:
    owner: dict[str, Any] = found["owner"] or {}
    head: dict[str, object] = {"topic": found["topic"], "partitions": found["partitions"]}
    head |= {name.replace("_", " "): value for name, value in (found["policy"] or {"policy": None}).items()}
    if found.get("deduplication_state") not in (None, "off"):
        head["sequence ids"] = "; ".join(filter(None, (found["deduplication_state"], found["deduplication_detail"])))
    head |= {"generation": found["generation"], "owner": owner_text(found["owner"])}
    if owner:
        head |= {"mode": owner["mode"], "since": owner["since"], "client": owner["client"]}
    head |= {"serving node": found["serving_node"], "shadows": found["shadows"]}
    parts = [pairs(head)]
    if found.get("owners"):
        parts.append(listing(({"partition": index, **each} for index, each in found["owners"].items()), OWNERS))
    if found["waiting"]:
        parts.append(listing(found["waiting"], WAITING))
    if found["producers"]:
        parts.append(listing(found["producers"], PRODUCERS))
    if refused := found.get("refusals"):
        parts.append(listing(refused[:_REFUSALS_SHOWN], REFUSED))
        if len(refused) > _REFUSALS_SHOWN:
            more = len(refused) - _REFUSALS_SHOWN
            parts[-1] += f"\n{more} more: sidecar refusals {found['topic']}"
    return "\n\n".join(parts)
