"""Liveness, readiness and metrics of the node: `/livez`, `/readyz`, `/metrics`. Open to everybody.

A node that answers is alive: if an orchestrator restarted nodes because Redis is unreachable, it would make things
worse.
"""

from __future__ import annotations

from aiohttp import web

from sidecar.admin.operations import FOR_ANYBODY, answer, reads, text
from sidecar.admin.replies import reply
from sidecar.admin.shapes import ALIVE, NOT_READY, READY, is_ready
from sidecar.node.view import NodeView
from sidecar.telemetry.exposition import CONTENT_TYPE, OPENMETRICS_TYPE, Exposition, takes_exemplars
from sidecar.telemetry.hooks import NodeMetrics


class Health:
    """The three handlers."""

    def __init__(self, port: NodeView, metrics: NodeMetrics) -> None:
        self._port = port
        self._exposition = Exposition(metrics)

    @reads("/livez", answer(ALIVE), security=FOR_ANYBODY)
    async def livez(self, _request: web.Request) -> web.Response:
        """Whether the node runs. 200 whenever the event loop turns."""
        return reply(ALIVE.to_json(None))

    @reads("/readyz", answer(READY), security=FOR_ANYBODY, status_503=answer(NOT_READY))
    async def readyz(self, _request: web.Request) -> web.Response:
        """Whether the node can serve. 200 with all checks, or 503 with an error that says which required ones fail."""
        checks = await self._port.checks()
        if is_ready(checks):
            return reply(READY.to_json(None, checks=checks))
        wrong = "; ".join(f"{check.name}: {check.detail}" for check in checks if check.required and not check.ok)
        return reply(NOT_READY.to_json(None, message=wrong, checks=checks), 503)

    @reads("/metrics", text("Text format 0.0.4", "text/plain"))
    async def metrics(self, request: web.Request) -> web.Response:
        """Metrics for Prometheus. Its text format; OpenMetrics, with exemplars, for clients that accept it."""
        exemplars = takes_exemplars(request.headers.get("Accept", ""))
        body = await self._exposition.render(with_exemplars=exemplars)
        return web.Response(body=body, headers={"Content-Type": OPENMETRICS_TYPE if exemplars else CONTENT_TYPE})
