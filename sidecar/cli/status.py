"""`sidecar status`: a node's view of itself and of its cluster, and with `--watch` a screen with problems first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import rich_click as click

from sidecar.cli.api import AdminApi
from sidecar.cli.board import Board, Table
from sidecar.cli.options import Shared, asks_a_node, examples
from sidecar.cli.output import (
    Column,
    CommandError,
    Exit,
    Format,
    Painted,
    counted,
    listing,
    painted,
    pairs,
    printable,
    printable_lines,
    report,
    write,
)
from sidecar.cli.refusals import in_short, kept, table_of
from sidecar.cli.topic import TOPICS, owner_text

CLIENTS: Final[tuple[Column, ...]] = (
    "address",
    "client_id",
    "principal",
    "listener",
    ("software", lambda client: " ".join(filter(None, (client["software_name"], client["software_version"])))),
    "since",
    "requests",
    "bytes_in",
    "bytes_out",
    "in_flight",
)
_RANKS: Final = ("", "yellow", "red")
_RECENT: Final = timedelta(minutes=10)
"""An older refusal no longer counts as a problem: if few occur, nodes keep them for ever."""


def board_of(found: Mapping[str, Any]) -> Board:
    """The screen. `found`: the data of `sidecar status`, its time, and its topics, or `failure`: why these cannot be
    listed.
    """
    recent = [each for each in found["refusals"] if found["asked"] - datetime.fromisoformat(each["last"]) < _RECENT]
    refused: dict[str, int] = {}
    for each in recent:
        refused[each["topic"]] = refused.get(each["topic"], 0) + each["count"]
    tables = [_topics_table([each | {"trouble": trouble(each, refused)} for each in found["topics"]])]
    if found["refusals"]:
        tables.append(table_of(found["refusals"]))
    if "clients" in found:
        tables.append(_clients_table(found["clients"]))
    return Board([(printable(text), color) for text, color in _head(found, "yellow" if recent else "")], tables)


def trouble(topic: Mapping[str, Any], refused: Mapping[str, int]) -> tuple[int, str]:
    """How severe a topic's problem is, from 0 (none) to 2, and why in a word or two. `refused`: the number of refusals,
    by topic.
    """
    owners, waiting = topic.get("owners") or {}, len(topic["waiting"])
    is_owned = topic["owner"] is not None or bool(owners)
    if topic.get("deduplication_state") == "lost":
        return 2, "ids lost"
    if is_owned and topic["serving_node"] is None:
        return 2, "no node serves it"
    if waiting and not is_owned:
        return 1, f"{waiting} waiting, no owner"
    if times := refused.get(topic["topic"]):
        return 1, f"{times} refused"
    if owners and len(owners) < topic["partitions"]:
        return 1, f"{topic['partitions'] - len(owners)} without owner"
    return 0, ""


def _head(found: Mapping[str, Any], refusals: str) -> Iterator[tuple[str, str]]:
    ready = "" if found["ready"] else ", not ready"
    words = [
        f"node {found['node_id']} of cluster {found['cluster']}",
        f"{found['state']}{ready}",
        f"version {found['version']}",
        counted(found["client_connections"], "client"),
        counted(len(found["nodes"]), "node"),
        counted(len(found["brokers"]), "broker"),
    ]
    yield "  ".join(words), "bold" if found["ready"] else "bold red"
    at = advertised(found)
    yield f"clients connect to {at if isinstance(at, str) else ', '.join(at)}", ""
    good = [each["name"] for each in found["checks"] if each["ok"]]
    yield f"checks ok: {', '.join(good) or 'none'}", "green" if good else "red"
    for each in found["checks"]:
        if not each["ok"]:
            yield (
                f"{each['name']} {'fails' if each['required'] else 'warns'}: {each['detail']}",
                ("red" if each["required"] else "yellow"),
            )
    for name, value in deduplication(found["deduplication"]).items():
        yield f"{name}: {value}", "red" if found["deduplication"].get("lost") else ""
    for name, value in in_short(found["refusals"]).items():
        yield f"{name}: {value}", refusals
    if found["failure"]:
        yield found["failure"], "red"


def _owner(topic: Mapping[str, Any]) -> str:
    if topic.get("owners") is not None and (topic["policy"] or {}).get("scope") == "partition":
        return f"{len(topic['owners'])} of {topic['partitions']} owned"
    return owner_text(topic["owner"])


WATCHED: Final[tuple[Column, ...]] = (
    "topic",
    ("trouble", lambda topic: topic["trouble"][1]),
    ("owner", _owner),
    ("wait", lambda topic: len(topic["waiting"])),
    ("access", "policy.access_mode"),
    ("dedup", "policy.deduplication"),
    ("gen", "generation"),
    ("node", "serving_node"),
    ("parts", "partitions"),
)


def _topics_table(topics: list[dict[str, Any]]) -> Table:
    return Table(
        "topics",
        topics,
        WATCHED,
        least={"topic": 36, "trouble": 10, "owner": 14, "access": 9},
        spare=("dedup", "access", "parts", "gen", "node"),
        orders={
            "trouble": lambda each: (-each["trouble"][0], each["topic"]),
            "topic": lambda each: each["topic"],
            "owner": lambda each: (_owner(each) == "", _owner(each), each["topic"]),
            "waiting": lambda each: (-len(each["waiting"]), each["topic"]),
            "generation": lambda each: (-each["generation"], each["topic"]),
            "node": lambda each: (each["serving_node"] is None, each["serving_node"] or 0, each["topic"]),
        },
        color=lambda each: _RANKS[each["trouble"][0]],
    )


def _clients_table(clients: list[dict[str, Any]]) -> Table:
    return Table(
        "clients",
        clients,
        CLIENTS,
        least={"address": 12, "client id": 12, "principal": 12, "software": 8, "since": 10},
        spare=("listener", "in flight", "since", "software", "bytes out", "bytes in"),
        orders={
            "client": lambda each: (each["client_id"], each["address"]),
            "requests": lambda each: -each["requests"],
            "bytes in": lambda each: -each["bytes_in"],
            "bytes out": lambda each: -each["bytes_out"],
        },
    )


def advertised(found: Mapping[str, Any]) -> str | list[str]:
    """The address for clients; with its listener if there are several."""
    listeners: list[dict[str, str]] = found["listeners"]
    if len(listeners) < 2:
        return found["advertise"]
    return [f"{each['advertise']} ({each['name']}, {each['security_protocol']})" for each in listeners]


def deduplication(count: Mapping[str, int]) -> dict[str, str]:
    """The number of topics by what the node knows of their sequence ids; nothing if it serves none."""
    states = [f"{number} {state}" for state, number in count.items() if number]
    return {"sequence ids": f"{', '.join(states)} (topics served here)"} if states else {}


_TIMEOUT: Final = 5.0
"""Seconds. A node waits longer for a Kafka that hangs, but a user who requests its status wants to
know that at once.
"""
_NO_TOPICS: Final = "no governed topics"


@examples(
    "sidecar status",
    "sidecar status --watch",
    "sidecar status --clients -o json",
)
@click.command()
@click.option("--clients", is_flag=True, help="Show the clients of this node, too.")
@click.option("--watch", "watched", is_flag=True, help="Go on showing it, every two seconds, until q or Ctrl-C.")
@asks_a_node
def status(shared: Shared, clients: bool, watched: bool) -> None:
    """Show a node, the nodes and brokers it sees, its checks, and governed topics with their owners.

    Exit code 10 where the node is not ready. Where topics cannot be listed, the rest is shown.
    """
    api = shared.api(_TIMEOUT)
    if watched:
        from sidecar.cli.watching import watch  # noqa: PLC0415 - it draws with rich, which other commands do not load

        watch(shared, api, lambda: _all(api, clients=clients), board_of, _screen)
        return
    found = _asked(api, clients=clients)
    if shared.output is Format.TABLE:
        write(found, shared.output, lambda: _as_text(found))  # at once, as topics may take long
    found["topics"], failure = _topics(api)
    if shared.output is not Format.TABLE:
        write(found, shared.output, str)
    elif failure is None:
        write(found, shared.output, lambda: f"\n{_topics_text(found['topics'])}")
    if failure is not None:
        report(failure, shared.output)
    if not found["ready"]:
        raise SystemExit(Exit.UNHEALTHY)
    if failure is not None:
        raise SystemExit(failure.exit_code)


def _asked(api: AdminApi, *, clients: bool) -> dict[str, Any]:
    found: dict[str, Any] = api.get("/v1/status")
    found["refusals"] = kept(api)
    return found | {"clients": list(api.pages("/v1/clients"))} if clients else found


def _all(api: AdminApi, *, clients: bool) -> dict[str, Any]:
    found = _asked(api, clients=clients)
    topics, failure = _topics(api)
    return found | {"topics": topics or [], "failure": failure and failure.message, "asked": datetime.now(UTC)}


def _screen(found: dict[str, Any]) -> str:
    listed = printable_lines(found["failure"]) if found["failure"] else _topics_text(found["topics"])
    return f"{_as_text(found)}\n\n{listed}"


def _topics_text(topics: list[dict[str, Any]]) -> str:
    return listing(topics, TOPICS) if topics else _NO_TOPICS


def _topics(api: AdminApi) -> tuple[list[dict[str, Any]] | None, CommandError | None]:
    """All governed topics, or why they cannot be listed."""
    try:
        return list(api.topics(governed=True)), None
    except CommandError as error:
        return None, CommandError(f"the topics cannot be listed: {error.message}", Exit(error.exit_code))


def _as_text(found: dict[str, Any]) -> str:
    head = {
        "node": f"{found['node_id']} of cluster {found['cluster']}, version {found['version']}",
        "state": found["state"] if found["ready"] else Painted(f"{found['state']}, {painted('not ready', 'red')}"),
        "since": found["started"],
        "advertised": advertised(found),
        "clients": found["client_connections"],
        **deduplication(found["deduplication"]),
        **in_short(found["refusals"]),
        **{of: [f"{each['id']} at {each['host']}:{each['port']}" for each in found[of]] for of in ("nodes", "brokers")},
    }
    parts = [pairs(head), listing(found["checks"], CHECKS)]
    if "clients" in found:
        parts.append(listing(found["clients"], CLIENTS) if found["clients"] else "no clients")
    return "\n\n".join(parts)


def _verdict(check: dict[str, Any]) -> str:
    if check["ok"]:
        return painted("ok", "green")
    return painted("fail", "red") if check["required"] else painted("warn", "yellow")


CHECKS: Final[tuple[Column, ...]] = (("check", "name"), ("state", _verdict), "detail")
