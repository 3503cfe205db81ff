"""The node itself, if one runs here: is it ready, does its advertised address work, are its files enough?"""

from __future__ import annotations

import re
import resource
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sidecar import __version__
from sidecar.cli.api import ApiError
from sidecar.cli.checks.finding import Finding, fail, ok, warn
from sidecar.cli.failure import CommandError, Exit
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.calls import ApiVersions
from sidecar.settings import Address

if TYPE_CHECKING:
    from sidecar.cli.api import AdminApi
    from sidecar.settings import Settings

_FEW_FILES: Final = 4096
_TIMEOUT: Final = 5.0


@dataclass(frozen=True, slots=True)
class NodeView:
    """What a running node says: its status, governed topics, shadows. `status` None: nobody answers."""

    findings: list[Finding]
    status: dict[str, Any] | None = None
    governed: list[str] = field(default_factory=list[str])
    files: int | None = None
    shadows: frozenset[str] = frozenset()

    @property
    def nodes(self) -> list[str]:
        """The hosts that live nodes advertise."""
        return [node["host"] for node in (self.status or {"nodes": []})["nodes"]]


def look_at_node(api: AdminApi) -> NodeView:
    """Ask the node at `api`."""
    try:
        status = api.get("/v1/status")
        governed, shadows = _topics(api)
        files = _metric(api.get_text("/metrics"), "process_max_fds")
    except CommandError as error:
        if error.exit_code == Exit.UNREACHABLE:
            return NodeView([warn("node", f"none answers at {api.url}", "start one: sidecar serve")])
        return NodeView([fail("node", f"{api.url}: {error.message}", "is something else listening there?")])
    found = [
        fail("node", f"{check['name']}: {check['detail']}", "see the node's log and the findings below")
        for check in status["checks"]
        if not check["ok"]
    ]
    if status["version"] != __version__:
        text = f"the node runs version {status['version']}, this is {__version__}"
        found.append(warn("node", text, "run both in the same version"))
    found += _sequence_ids(status)
    if not found:
        found.append(ok("node", f"node {status['node_id']} at {api.url} is ready, version {status['version']}"))
    return NodeView(found, status, governed, files, shadows)


def _topics(api: AdminApi) -> tuple[list[str], frozenset[str]]:
    """Governed topics and shadows; none where the node is not ready to list them: its own checks say why."""
    try:
        governed = [topic["topic"] for topic in api.topics(governed=True) if topic["partitions"]]
        return governed, frozenset(name for topic in api.topics(governed=False) for name in topic["shadows"])
    except ApiError:
        return [], frozenset()


def _sequence_ids(status: dict[str, Any]) -> list[Finding]:
    """Topics whose sequence ids the node cannot know: they take no batch."""
    lost: int = status.get("deduplication", {}).get("lost", 0)
    if not lost:
        return []
    detail = f"lost in partitions of {lost} {'topic' if lost == 1 else 'topics'}: these accept no batches"
    return [fail("sequence ids", detail, "sidecar topic show says for each topic what is lost and what to do")]


async def check_advertised(settings: Settings, view: NodeView) -> list[Finding]:
    """The address that clients get: does a node answer there? Without a node: could one listen?"""
    if view.status is None:
        return _check_free(settings)
    address = Address.parse(view.status["advertise"])
    upstream = KafkaUpstream([address], connect_timeout=_TIMEOUT, request_timeout=_TIMEOUT)
    try:
        served = await upstream.call(None, ApiVersions())
    except UpstreamError as error:
        return [fail("advertised", f"{address}: {error}", "set SIDECAR_ADVERTISE to where clients reach this node")]
    finally:
        await upstream.close()
    reach = "; only programs on this machine can use it" if address.loopback else ""
    return [ok("advertised", f"{address} answers and serves {len(served)} APIs{reach}")]


def _check_free(settings: Settings) -> list[Finding]:
    found: list[Finding] = []
    for name, address in (("SIDECAR_LISTEN", settings.listen), ("SIDECAR_ADMIN_LISTEN", settings.admin_listen)):
        try:
            family, _, _, _, where = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(where)
        except OSError as error:
            remedy = f"free the port, or choose another {name}"
            found.append(fail("listen", f"nobody can listen at {address}: {error.strerror or error}", remedy))
    return found or [ok("listen", f"{settings.listen} and {settings.admin_listen} are free")]


def check_files(view: NodeView) -> list[Finding]:
    """The limit of open files: of the node where one runs, else of this shell, which a node would inherit."""
    whose = "this shell" if view.files is None else "the node"
    limit = view.files if view.files is not None else resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if 0 <= limit < _FEW_FILES:
        detail = f"{whose} may open {limit}, and a client takes two or more"
        return [warn("open files", detail, "raise it: ulimit -n 65536, or LimitNOFILE= of the unit")]
    return [ok("open files", f"{whose} may open {limit if limit >= 0 else 'as many as it likes'}")]


def _metric(page: str, name: str) -> int | None:
    found = re.search(rf"^{name} (\S+)$", page, re.MULTILINE)
    return int(float(found[1])) if found else None
