"""Which modules are mutated: all of the core's rooms, and of the gateway those that decide."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
ROOMS: Final = (
    "access", "changelog", "dedup", "exclusive", "fanout", "fencing", "forwarder", "gateway", "ownership", "policy",
    "resources", "shadow", "takeover", "writing",
)  # fmt: skip
_DECISIONS: Final = (
    "access/asked.py", "access/cluster.py", "access/groups.py", "access/topics.py", "enforcement.py", "fetch.py",
    "gaps.py", "kafka_quotas.py", "leader_hints.py", "ordinary_produce.py", "own/asked.py", "own/owning.py",
    "own/sets.py", "produce.py", "purging.py", "quotas.py", "refusals.py", "rights.py",
    "sequence_ids.py", "severing.py", "share_sessions.py", "source_check.py", "write_rights.py",
)  # fmt: skip
"""The gateway's other modules encode, forward and merge."""


def files(room: str) -> tuple[str, ...]:
    """The modules of a room, relative to the project."""
    base = ROOT / "sidecar" / room
    paths = [base / name for name in _DECISIONS] if room == "gateway" else sorted(base.rglob("*.py"))
    return tuple(str(path.relative_to(ROOT)) for path in paths)


def room_of(path: str) -> str:
    """The room of a module."""
    return path.split("/")[1]


def own_tests(room: str) -> tuple[str, ...]:
    """The folders of the room's own tests. Those of `exclusive` play its topics with real policies and takeovers."""
    folders = (room, "exclusive") if room in {"policy", "takeover", "writing"} else (room,)
    return tuple(f"tests/unit/{folder}/" for folder in folders)
