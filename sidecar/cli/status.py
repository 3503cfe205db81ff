"""`sidecar status`: what a node says of itself and of its cluster."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import rich_click as click

from sidecar.cli.api import AdminApi
from sidecar.cli.examples import examples
from sidecar.cli.failure import CommandError, Exit, report
from sidecar.cli.options import Shared, asks_a_node
from sidecar.cli.output import Column, Format, Painted, listing, painted, pairs, printable_lines, write
from sidecar.cli.refusals import in_short, kept
from sidecar.cli.status_board import CLIENTS, advertised, board_of, deduplication
from sidecar.cli.topic import TOPICS

_TIMEOUT: Final = 5.0
"""Seconds; a node waits longer for a Kafka that hangs, and a person that asks for its status wants to know that now."""
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
        write(found, shared.output, lambda: _as_text(found))  # at once, as topics may take their time
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
