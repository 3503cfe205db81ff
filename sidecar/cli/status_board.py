"""The screen of `sidecar status --watch`: what is wrong first. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from sidecar.cli.board import Board, Table
from sidecar.cli.output import Column, counted, printable
from sidecar.cli.refusals import in_short, table_of
from sidecar.cli.topic import owner_text

CLIENTS: Final[tuple[Column, ...]] = (
    "address",
    "client_id",
    ("principal", lambda client: client.get("principal") or "-"),  # none from a node of an older version
    ("listener", lambda client: client.get("listener") or "-"),
    ("software", lambda client: " ".join(filter(None, (client["software_name"], client["software_version"])))),
    "since",
    "requests",
    "bytes_in",
    "bytes_out",
    "in_flight",
)
_RANKS: Final = ("", "yellow", "red")
_RECENT: Final = timedelta(minutes=10)
"""A refusal that is older is no trouble any more: nodes keep them for ever where few come."""


def board_of(found: Mapping[str, Any]) -> Board:
    """`found`: what `sidecar status` asks for, and when, with its topics, or `failure`: why these cannot be listed."""
    recent = [each for each in found["refusals"] if found["asked"] - datetime.fromisoformat(each["last"]) < _RECENT]
    refused: dict[str, int] = {}
    for each in recent:
        refused[each["topic"]] = refused.get(each["topic"], 0) + each["count"]
    tables = [_topics([each | {"trouble": trouble(each, refused)} for each in found["topics"]])]
    if found["refusals"]:
        tables.append(table_of(found["refusals"]))
    if "clients" in found:
        tables.append(_clients(found["clients"]))
    return Board([(printable(text), color) for text, color in _head(found, "yellow" if recent else "")], tables)


def trouble(topic: Mapping[str, Any], refused: Mapping[str, int]) -> tuple[int, str]:
    """How bad it is with a topic, from 0, fine, to 2, and why in a word or two. `refused`: how often clients were, by
    topic.
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


TOPICS: Final[tuple[Column, ...]] = (
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


def _topics(topics: list[dict[str, Any]]) -> Table:
    return Table(
        "topics",
        topics,
        TOPICS,
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


def _clients(clients: list[dict[str, Any]]) -> Table:
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
    """The address for clients; with its listener where there are several."""
    listeners: list[dict[str, str]] = found.get("listeners", [])  # none from a node of an older version
    if len(listeners) < 2:
        return found["advertise"]
    return [f"{each['advertise']} ({each['name']}, {each['security_protocol']})" for each in listeners]


def deduplication(count: Mapping[str, int]) -> dict[str, str]:
    """Topics by what the node knows of their sequence ids; nothing where it serves none."""
    states = [f"{number} {state}" for state, number in count.items() if number]
    return {"sequence ids": f"{', '.join(states)} (topics served here)"} if states else {}
