"""What a node tells of a topic's past."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.nodes import NodeProcess

_IDLE_S: Final = 0.5


def history(node: NodeProcess, topic: str) -> list[dict[str, Any]]:
    """The events of a topic that are there already: a node with nothing to tell is silent for seconds."""
    found: list[dict[str, Any]] = []
    with urllib.request.urlopen(f"{node.admin_url}/v1/events?from=0&topic={topic}", timeout=10) as stream:
        before = time.monotonic()
        for line in stream:
            now = time.monotonic()
            if line.startswith(b"data: "):
                found.append(json.loads(line[6:]))
            elif line.startswith(b":") and found and now - before > _IDLE_S:
                return found
            before = now
    raise AssertionError("the stream has ended")
