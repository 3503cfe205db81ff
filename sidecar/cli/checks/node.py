"""The node itself, if one runs here: is it ready, is its limit of open files high enough? Its listeners are in
`listeners`.
"""

from __future__ import annotations

import re
import resource
from dataclasses import dataclass, field
from typing import Any, Final

from sidecar import __version__
from sidecar.cli.api import AdminApi, ApiError
from sidecar.cli.checks.finding import Finding, fail, ok, warn
from sidecar.cli.output import CommandError, Exit, counted
from sidecar.settings import Address

_FEW_FILES: Final = 4096


@dataclass(frozen=True, slots=True)
class NodeView:
    """The answers of a running node: its status, governed topics, those of them with sequence ids, shadows, settings.
    `status` None: no node answers.
    """

    findings: list[Finding]
    status: dict[str, Any] | None = None
    governed: list[str] = field(default_factory=list[str])
    files: int | None = None
    shadows: frozenset[str] = frozenset()
    settings: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    with_ids: list[str] = field(default_factory=list[str])

    @property
    def nodes(self) -> list[str]:
        """The hosts that live nodes advertise; for this node those of every listener."""
        if self.status is None:
            return []
        own = [Address.parse(each["advertise"]).host for each in self.status["listeners"]]
        return list(dict.fromkeys([*(node["host"] for node in self.status["nodes"]), *own]))


def look_at_node(api: AdminApi) -> NodeView:
    """Request the view from the node at `api`."""
    try:
        status = api.get("/v1/status")
        governed, with_ids, shadows = _topics(api)
        settings = api.get("/v1/settings")["items"]
        files = _metric(api.get_text("/metrics"), "process_max_fds")
    except CommandError as error:
        if error.exit_code == Exit.UNREACHABLE:
            return NodeView([warn("node", f"none answers at {api.url}", "start one: sidecar serve")])
        detail = f"{api.url}: {error.message}"
        blocks = "what else there is to say of the node"
        return NodeView([fail("node", detail, error.remedy or "is something else listening there?", blocks)])
    found = [_failing(check) for check in status["checks"] if not check["ok"]]
    if status["version"] != __version__:
        text = f"the node runs version {status['version']}, this is {__version__}"
        found.append(warn("node", text, "run both in the same version"))
    found += _sequence_ids(status)
    if not found:
        found.append(ok("node", f"node {status['node_id']} at {api.url} is ready, version {status['version']}"))
    return NodeView(found, status, governed, files, shadows, settings, with_ids)


def _failing(check: dict[str, Any]) -> Finding:
    detail, remedy = f"{check['name']}: {check['detail']}", "see the node's log and the findings below"
    if check["required"]:
        return fail("node", detail, remedy, "the node: it is not ready, and load balancers pass it by")
    return warn("node", detail, remedy)


def _topics(api: AdminApi) -> tuple[list[str], list[str], frozenset[str]]:
    """Governed topics, those of them with sequence ids, and shadows; none if the node is not ready to list them: its
    own checks say why.
    """
    try:
        governed = {t["topic"]: t["deduplication_state"] for t in api.topics(governed=True) if t["partitions"]}
        shadows = frozenset(name for topic in api.topics(governed=False) for name in topic["shadows"])
        return list(governed), [topic for topic, state in governed.items() if state not in (None, "off")], shadows
    except ApiError:
        return [], [], frozenset()


def _sequence_ids(status: dict[str, Any]) -> list[Finding]:
    """Find topics whose sequence ids the node cannot know, which accept no batches, and those that will soon forget
    names.
    """
    found: list[Finding] = []
    if lost := status["deduplication"].get("lost", 0):
        detail = f"lost in partitions of {counted(lost, 'topic')}: these accept no batches"
        remedy = "sidecar topic show says for each topic what is lost and what to do"
        found.append(fail("sequence ids", detail, remedy, "producers of these topics"))
    if crowded := status["deduplication"].get("crowded", 0):
        detail = f"partitions of {counted(crowded, 'topic')} remember nearly as many producer names as they may"
        remedy = "raise SIDECAR_PRODUCER_NAMES_LIMIT before names are forgotten; sidecar topic show names the partition"
        found.append(warn("producer names", detail, remedy))
    return found


def check_files(view: NodeView) -> list[Finding]:
    """Check the limit of open files: of the node if one runs, else of this shell, from which a node
    would inherit it.
    """
    whose = "this shell" if view.files is None else "the node"
    limit = view.files if view.files is not None else resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if 0 <= limit < _FEW_FILES:
        detail = f"{whose} may open {limit}, and a client takes two or more"
        return [warn("open files", detail, "raise it: ulimit -n 65536, or LimitNOFILE= of the unit")]
    return [ok("open files", f"{whose} may open {limit if limit >= 0 else 'as many as it likes'}")]


def _metric(page: str, name: str) -> int | None:
    found = re.search(rf"^{name} (\S+)$", page, re.MULTILINE)
    return int(float(found[1])) if found else None
