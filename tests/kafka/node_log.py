"""The log of a node as tests read it: one JSON object per line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.nodes import NodeProcess


def events(node: NodeProcess, name: str, of: str = "") -> list[dict[str, Any]]:
    """The events of this name so far whose line has `of` in it, oldest first."""
    found = [json.loads(line) for line in node.log.splitlines() if line.startswith("{") and of in line]
    return [event for event in found if event["event"] == name]


def resident_bytes(node: NodeProcess) -> int:
    """How much memory the node's process holds now (VmRSS)."""
    status = Path(f"/proc/{node.child.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) * 1024
