"""The HTTP server of a node: routes, write access, start and stop.

It runs in the node's event loop and takes no signals: the node says when it ends.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog
from aiohttp import web

from sidecar import __version__
from sidecar.admin.access import Caller, refusal_of_write
from sidecar.admin.asked import known_parameters_alone
from sidecar.admin.connections import Connections
from sidecar.admin.health import Health
from sidecar.admin.page_files import Page
from sidecar.admin.pulsar_rest import PulsarRest
from sidecar.admin.replies import error, errors_as_json, reply
from sidecar.admin.rest import Rest
from sidecar.admin.schema_paths import is_read
from sidecar.admin.schemas import ROOT, SchemaProxy
from sidecar.admin.shadow_rest import ShadowRest
from sidecar.settings import Address

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

    from sidecar.node.port import NodePort
    from sidecar.settings import Settings
    from sidecar.telemetry.hooks import NodeMetrics

_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_REFUSALS: Final = 400
"""From this status on nothing was changed."""
_ANSWER_TIMEOUT: Final = 60.0
"""Seconds that the node may take for an answer: a policy waits for the leases of silent nodes."""
_EVENTS: Final = "/v1/events"
_PRODUCER: Final = r"/v1/topics/{topic}/dedup/{name:[^/]+}"
"""A name may hold anything, braces too; a slash in it comes as %2F."""
_SCHEMAS: Final = ROOT + "/{path:.*}"
_STOP_TIMEOUT: Final = 1.0
"""Seconds for requests under way. aiohttp waits this time twice: before it cancels a handler, and for its end."""
_BODY_LIMIT: Final = 1024 * 1024
"""Bytes: the longest allow list of a shadow fits in, however it is escaped."""


class AdminServer:
    """Serves `port` and `metrics` at `settings.admin_listen`, from `start` to `stop`."""

    def __init__(self, port: NodePort, metrics: NodeMetrics, settings: Settings) -> None:
        self._listen = settings.admin_listen
        self._token = settings.admin_token
        self._connections = Connections()
        self._listening: asyncio.Server | None = None
        application = web.Application(
            middlewares=[
                self._connections.under_way,
                self._only_who_may,
                errors_as_json,
                known_parameters_alone,
                _in_time,
            ],
            client_max_size=_BODY_LIMIT,
        )
        application.add_routes(
            [
                *_routes(Health(port, metrics), Rest(port)),
                *ShadowRest(port.shadows).routes(),
                *PulsarRest(port.shadows).routes(),
                *Page().routes(),
            ]
        )
        self._schemas = SchemaProxy(port, settings.schema_registry_url, settings.admin_token)
        application.add_routes(_schema_routes(self._schemas))
        application.on_cleanup.append(self._schemas.close)
        self._runner = web.AppRunner(application, handle_signals=False, access_log=None, shutdown_timeout=_STOP_TIMEOUT)

    @property
    def address(self) -> Address:
        """Where it listens; the port that was found where the setting says 0."""
        sockets = () if self._listening is None else self._listening.sockets
        return Address(self._listen.host, sockets[0].getsockname()[1]) if sockets else self._listen

    async def start(self) -> None:
        """Listen. Raises OSError where the address is taken or is not one of this machine."""
        await self._runner.setup()
        try:
            assert self._runner.server is not None
            self._listening = await self._connections.listen(self._runner.server, self._listen)
        except BaseException:
            await self._runner.cleanup()
            raise
        structlog.get_logger().info("admin_listening", url=f"http://{self.address}")

    async def stop(self) -> None:
        """Close; requests under way get two seconds. Repeating it is harmless."""
        if self._listening is not None:
            self._listening.close()
        await self._runner.cleanup()

    def take(self, settings: Settings) -> None:
        """The token that writes need from now on; requests under way were let in."""
        self._token = settings.admin_token
        self._schemas.keep_secret(settings.admin_token)

    @web.middleware
    async def _only_who_may(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method in _READS or _reads_schemas(request):
            return await handler(request)
        refusal = refusal_of_write(_caller(request), self._token)
        log = structlog.get_logger().bind(method=request.method, path=request.path, peer=request.remote)
        if refusal is not None:
            log.warning("admin_write_refused", status=refusal.status)
            headers = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else None
            return error(refusal.status, refusal.message, headers)
        answer = await handler(request)
        if answer.status < _REFUSALS:
            log.info("admin_write", status=answer.status)
        return answer


@web.middleware
async def _in_time(request: web.Request, handler: Handler) -> web.StreamResponse:
    async with asyncio.timeout(None if request.path == _EVENTS else _ANSWER_TIMEOUT):
        return await handler(request)


async def _openapi(_request: web.Request) -> web.Response:
    from sidecar.admin.openapi import document  # noqa: PLC0415 - most nodes are never asked for it

    return reply(document(__version__))


def _routes(health: Health, rest: Rest) -> list[web.RouteDef]:
    return [
        web.get("/livez", health.livez),
        web.get("/readyz", health.readyz),
        web.get("/metrics", health.metrics),
        web.get("/openapi.json", _openapi),
        web.get("/v1/status", rest.status),
        web.get("/v1/clients", rest.clients),
        web.get("/v1/settings", rest.settings),
        web.get(_EVENTS, rest.events, allow_head=False),  # it would never end
        web.get("/v1/topics", rest.topics),
        web.get("/v1/topics/{topic}", rest.topic),
        web.put("/v1/topics/{topic}/policy", rest.put_policy),
        web.delete("/v1/topics/{topic}/policy", rest.delete_policy),
        web.post("/v1/topics/{topic}/fence", rest.fence),
        web.post("/v1/topics/{topic}/release", rest.release),
        web.get("/v1/topics/{topic}/dedup", rest.producers),
        web.get(_PRODUCER, rest.producer),
        web.delete(_PRODUCER, rest.forget_producer),
    ]


def _schema_routes(schemas: SchemaProxy) -> list[web.RouteDef]:
    add = (web.get, web.post, web.put, web.delete)
    return [each(_SCHEMAS, schemas.handle) for each in add]


def _reads_schemas(request: web.Request) -> bool:
    """A look-up of a schema is sent by POST."""
    path = request.raw_path.partition("?")[0]
    return path.startswith(f"{ROOT}/") and is_read(request.method, path.removeprefix(ROOT))


def _caller(request: web.Request) -> Caller:
    headers = request.headers
    return Caller(
        peer=request.remote or "",
        host=headers.get("Host", ""),
        origin=headers.get("Origin", ""),
        authorization=headers.get("Authorization", ""),
        forwarded="Forwarded" in headers or "X-Forwarded-For" in headers,
    )
