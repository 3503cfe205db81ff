"""`sidecar status`: what a node says of itself and of its cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import rich_click as click

from sidecar.cli.failure import CommandError, Exit
from sidecar.cli.options import asks_a_node, pass_shared
from sidecar.cli.output import Format, pairs, table, write
from sidecar.cli.topic import topic_table

if TYPE_CHECKING:
    from sidecar.cli.api import AdminApi
    from sidecar.cli.options import Shared

_TIMEOUT: Final = 5.0
"""Seconds; a node waits longer for a Kafka that hangs, and who asks for its status wants to know that now."""
_NO_TOPICS: Final = "no governed topics"


@click.command(short_help="Show a node, its cluster and all governed topics.")
@asks_a_node
@pass_shared
def status(shared: Shared) -> None:
    """Show a node, the nodes and brokers it sees, its checks, and governed topics with their owners.

    Exit code 10 where the node is not ready. Where topics cannot be listed, the rest is shown.
    """
    api = shared.api(_TIMEOUT)
    found = api.get("/v1/status")
    if shared.output is Format.TABLE:
        write(found, shared.output, lambda: _as_text(found))  # at once, as topics may take their time
    found["topics"], failure = _topics(api)
    if shared.output is not Format.TABLE:
        write(found, shared.output, str)
    elif failure is None:
        write(found, shared.output, lambda: f"\n{topic_table(found['topics']) if found['topics'] else _NO_TOPICS}")
    if failure is not None:
        failure.show()
    if not found["ready"]:
        raise SystemExit(Exit.UNHEALTHY)
    if failure is not None:
        raise SystemExit(failure.exit_code)


def _topics(api: AdminApi) -> tuple[list[dict[str, Any]] | None, CommandError | None]:
    """All governed topics, or why they cannot be listed."""
    try:
        return list(api.topics(governed=True)), None
    except CommandError as error:
        return None, CommandError(f"the topics cannot be listed: {error.message}", Exit(error.exit_code))


def _as_text(found: dict[str, Any]) -> str:
    head = {
        "node": f"{found['node_id']} of cluster {found['cluster']}, version {found['version']}",
        "state": found["state"] if found["ready"] else f"{found['state']}, {click.style('not ready', fg='red')}",
        "since": found["started"],
        "advertised": found["advertise"],
        "clients": found["client_connections"],
        **_deduplication(found["deduplication"]),
        "nodes": ", ".join(f"{each['id']} at {each['host']}:{each['port']}" for each in found["nodes"]),
        "brokers": ", ".join(f"{each['id']} at {each['host']}:{each['port']}" for each in found["brokers"]),
    }
    checks = [(check["name"], _verdict(check), check["detail"]) for check in found["checks"]]
    return f"{pairs(head)}\n\n{table(('check', 'state', 'detail'), checks)}"


def _deduplication(count: dict[str, int]) -> dict[str, str]:
    """Topics by what the node knows of their sequence ids; nothing where it serves none."""
    told = [f"{number} {state}" for state, number in count.items() if number]
    return {"sequence ids": f"{', '.join(told)} (topics served here)"} if told else {}


def _verdict(check: dict[str, Any]) -> str:
    if check["ok"]:
        return click.style("ok", fg="green")
    return click.style("fail", fg="red") if check["required"] else click.style("warn", fg="yellow")
