"""`sidecar status`: what a node says of itself and of its cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import rich_click as click

from sidecar.cli.failure import Exit
from sidecar.cli.options import asks_a_node, pass_shared
from sidecar.cli.output import pairs, table, write
from sidecar.cli.topic import topic_table

if TYPE_CHECKING:
    from sidecar.cli.options import Shared


@click.command(short_help="Show a node, its cluster and all governed topics.")
@asks_a_node
@pass_shared
def status(shared: Shared) -> None:
    """Show a node, the nodes and brokers it sees, its checks, and governed topics with their owners.

    Exit code 10 where the node is not ready.
    """
    api = shared.api()
    found = api.get("/v1/status")
    found["topics"] = list(api.topics(governed=True))
    write(found, shared.output, lambda: _as_text(found))
    if not found["ready"]:
        raise SystemExit(Exit.UNHEALTHY)


def _as_text(found: dict[str, Any]) -> str:
    head = {
        "node": f"{found['node_id']} of cluster {found['cluster']}, version {found['version']}",
        "state": found["state"] if found["ready"] else f"{found['state']}, {click.style('not ready', fg='red')}",
        "since": found["started"],
        "advertised": found["advertise"],
        "clients": found["client_connections"],
        "nodes": ", ".join(f"{each['id']} at {each['host']}:{each['port']}" for each in found["nodes"]),
        "brokers": ", ".join(f"{each['id']} at {each['host']}:{each['port']}" for each in found["brokers"]),
    }
    checks = [(check["name"], _verdict(check), check["detail"]) for check in found["checks"]]
    parts = [pairs(head), table(("check", "state", "detail"), checks)]
    parts.append(topic_table(found["topics"]) if found["topics"] else "no governed topics")
    return "\n\n".join(parts)


def _verdict(check: dict[str, Any]) -> str:
    if check["ok"]:
        return click.style("ok", fg="green")
    return click.style("fail", fg="red") if check["required"] else click.style("warn", fg="yellow")
