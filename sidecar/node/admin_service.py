"""What a node calls of its HTTP side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sidecar.node.view import NodeView
from sidecar.settings import Settings
from sidecar.telemetry.hooks import NodeMetrics


class AdminService(Protocol):
    """The HTTP side as the node sees it."""

    async def start(self) -> None:
        """Listen. Raises OSError where the address is taken."""
        ...

    async def stop(self) -> None:
        """Close; calls under way get a moment to end. Repeating it is harmless."""
        ...

    def take(self, settings: Settings) -> None:
        """From now on these hold, as far as they may change while it runs."""
        ...


AdminFactory = Callable[["NodeView", "NodeMetrics", "Settings"], AdminService]
"""How the node is given its HTTP side: `sidecar.admin.server.AdminServer` is one."""
