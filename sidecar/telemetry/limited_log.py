"""The node's log for events that may come by the thousand: the first few of a kind, and how many were left out."""

from typing import Any

import structlog

from sidecar.telemetry.hooks import NodeMetrics
from sidecar.telemetry.seldom import Seldom


class LimitedLog:
    """`log`: without a limit. `log_limit`: the number of events of one kind within five seconds."""

    def __init__(self, metrics: NodeMetrics, log_limit: int) -> None:
        self.log: Any = structlog.get_logger()
        self._metrics = metrics
        self._alike = log_limit
        self._seldom = Seldom()

    def seldom(self, what: str) -> bool:
        """Return whether to log an event that may occur a thousand times a second."""
        return self._left_out(what, 1) is not None

    def _left_out(self, kind: str, most: int) -> int | None:
        """Return how many events of a kind were left out before this one; None if this one is left out too."""
        left_out = self._seldom.ask(kind, most)
        if left_out is None:
            self._metrics.count("log_events_left_out")
        return left_out

    def few(self, kind: str, most: int | None = None) -> Any:
        """Return the log for an event that any client may cause, bound to the number of events of its kind that were
        left out before; None if this one is left out too. `most`: the limit per kind, if not the setting's.
        """
        left_out = self._left_out(kind, most or self._alike)
        if left_out is None:
            return None
        return self.log.bind(left_out=left_out) if left_out else self.log
