"""The HTTP server of a node: routes, access checks, start and stop.

It runs in the node's event loop and handles no signals: the node stops it.
"""

from __future__ import annotations

import asyncio
from socket import gethostname
from typing import Final

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from sidecar import __version__
from sidecar.admin.access import FORWARDED, Caller, Refusal, Right, Rules, granted, judge, own_hosts, sees_producer_ids
from sidecar.admin.audit import AuditLog
from sidecar.admin.connections import Connections, admin_tls, subject_at
from sidecar.admin.health import Health
from sidecar.admin.judged import Behalf, JudgedRequest
from sidecar.admin.log_rest import RECORDS_PATH, LogRest, ProducerRest
from sidecar.admin.operations import EVENTS, known_parameters_alone, routes_of
from sidecar.admin.page_files import Page
from sidecar.admin.passing_on import PASSED_ON, SCHEME, Nonces, Passed, Passing, challenge, checked
from sidecar.admin.pulsar_rest import PulsarRest
from sidecar.admin.replies import error, errors_as_json, reply
from sidecar.admin.rest import Rest
from sidecar.admin.schema_paths import is_read
from sidecar.admin.schemas import ROOT, SchemaProxy
from sidecar.admin.shadow_rest import ShadowRest
from sidecar.network.listening import Listener
from sidecar.node.view import NodeView
from sidecar.settings import Address, Settings
from sidecar.telemetry.hooks import NodeMetrics

_STRANGERS: Final = frozenset({"cross-site", "same-site"})
"""Values of Sec-Fetch-Site in requests from another site's page; browsers send no origin with its GETs."""
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_HEALTH: Final = frozenset({"/livez", "/readyz"})
_ANSWER_TIMEOUT: Final = 60.0
"""Seconds that the node may take for an answer: a change of policy waits for the leases of silent nodes."""
_STOP_TIMEOUT: Final = 1.0
"""Seconds for running requests. aiohttp waits this time twice: before it cancels a handler, and for its end."""
_BODY_LIMIT: Final = 1024 * 1024
"""Bytes: enough for the longest allow list of a shadow, however it is escaped."""


class AdminServer:
    """Serves `port` and `metrics` at `settings.admin_listen`, from `start` to `stop`.

    Raises ValueError for a certificate that cannot be used.
    """

    def __init__(self, port: NodeView, metrics: NodeMetrics, settings: Settings) -> None:
        self._listen = settings.admin_listen
        self._advertise = settings.admin_advertise
        self._tls = admin_tls(settings)
        self._rules = _rules(settings)
        self._nonces = Nonces()
        self._audit = AuditLog()
        self._connections = Connections()
        self._listening: Listener | None = None
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
        passing = Passing(lambda: self._rules, None if self._tls is None else self._tls.to_nodes)
        self._schemas = SchemaProxy(port, settings.schema_registry_url, _secrets(settings))
        handlers = (
            Health(port, metrics),
            Rest(port, passing),
            ProducerRest(port, passing),
            LogRest(port, passing),
            ShadowRest(port.shadows),
            PulsarRest(port.shadows),
            Page(),
            self._schemas,
        )
        application.add_routes([route for each in handlers for route in routes_of(each)])
        application.add_routes([web.get("/openapi.json", _openapi)])
        application.on_cleanup.append(self._schemas.close)
        self._runner = web.AppRunner(application, handle_signals=False, access_log=None, shutdown_timeout=_STOP_TIMEOUT)

    @property
    def address(self) -> Address:
        """The address it listens on, with the real port if the setting is 0."""
        return self._listen if self._listening is None else self._listen._replace(port=self._listening.port)

    async def start(self) -> None:
        """Listen. Raises OSError if the address is taken or is not one of this machine."""
        await self._runner.setup()
        try:
            assert self._runner.server is not None
            tls = None if self._tls is None else self._tls.of_clients
            self._listening = await self._connections.listen(self._runner.server, self._listen, tls)
        except BaseException:
            await self._runner.cleanup()
            raise
        scheme = "http" if self._tls is None else "https"
        structlog.get_logger().info("admin_listening", url=f"{scheme}://{self.address}")

    async def stop(self) -> None:
        """Close; running requests get two seconds. May be called again."""
        if self._listening is not None:
            self._connections.end()
            await self._listening.close()
        await self._runner.cleanup()

    def take(self, settings: Settings) -> None:
        """Use the tokens and names in these settings for new requests. Running requests continue, but streams of events
        end within a second if their token is no longer valid.
        """
        self._rules = _rules(settings)
        self._schemas.keep_secret(_secrets(settings))

    @web.middleware
    async def _only_who_may(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        right = _right(request)
        judged, refusal = await self._judged(request, right)
        judged.sees_ids = sees_producer_ids(judged.behalf.who, self._rules)
        judged.begin()
        if refusal is not None:
            self._audit.refused(request, judged, refusal.status, refusal.message, right)
            headers = {"WWW-Authenticate": "Bearer"} if refusal.status == web.HTTPUnauthorized.status_code else None
            return error(refusal.status, refusal.message, headers)
        if right is not Right.OPERATE:
            return self._with_nonce(request, await handler(request))
        status: int | None = None
        try:
            answer = await handler(request)
            status = answer.status
        finally:
            self._audit.write(request, judged, status)
        return answer

    async def _judged(self, request: web.Request, right: Right) -> tuple[JudgedRequest, Refusal | None]:
        """For whom a request is, and the reason why it is refused; None: it is allowed."""
        caller, rules = _caller(request), self._rules
        if PASSED_ON in request.headers and caller.authorization.startswith(f"{SCHEME} "):
            found = await self._signed(request, caller.authorization)
            if found is not None and (caller.certificate or not rules.certificates):
                role, behalf = found
                return JudgedRequest(behalf, via=caller.peer), granted(role, right, rules)
        who, refusal = judge(caller, right, rules)
        stands = lambda: judge(caller, right, self._rules).refusal is None  # noqa: E731
        return JudgedRequest(Behalf(who, caller.peer, caller.certificate), stands=stands), refusal

    async def _signed(self, request: web.Request, authorization: str) -> tuple[str, Behalf] | None:
        try:
            body = await request.read()
        except (web.HTTPException, web.RequestPayloadError):
            return None
        match = ", ".join(request.headers.getall("If-Match", ()))
        port = self._advertise.port or self.address.port
        passed = Passed(str(self._advertise._replace(port=port)), request.method, request.raw_path, match, body)
        return checked((self._rules.operate, self._rules.read), self._nonces, authorization, passed)

    def _with_nonce(self, request: web.Request, answer: web.StreamResponse) -> web.StreamResponse:
        """Add a nonce for another node to the answer of a health request, if this node requires a token."""
        has_token = self._rules.operate is not None or self._rules.read is not None
        if has_token and PASSED_ON in request.headers and request.path in _HEALTH:
            answer.headers["WWW-Authenticate"] = challenge(self._nonces.new())
        return answer


@web.middleware
async def _in_time(request: web.Request, handler: Handler) -> web.StreamResponse:
    async with asyncio.timeout(None if request.path == EVENTS else _ANSWER_TIMEOUT):
        return await handler(request)


async def _openapi(_request: web.Request) -> web.Response:
    from sidecar.admin.openapi import document  # noqa: PLC0415 - most nodes never need it

    return reply(document(__version__))


def _right(request: web.Request) -> Right:
    """The right that a request needs."""
    if request.method not in _READS and not _reads_schemas(request):
        return Right.OPERATE
    if (resource := request.match_info.route.resource) is not None and resource.canonical == RECORDS_PATH:
        return Right.OPERATE
    if request.path in _HEALTH:
        return Right.HEALTH
    return Right.FILES if request.path in ("/", "/openapi.json") or request.path.startswith("/page/") else Right.READ


def _reads_schemas(request: web.Request) -> bool:
    """Whether it only reads schemas: a look-up of a schema is sent by POST."""
    path = request.raw_path.partition("?")[0]
    return path.startswith(f"{ROOT}/") and is_read(request.method, path.removeprefix(ROOT))


def _caller(request: web.Request) -> Caller:
    headers = request.headers
    return Caller(
        peer=request.remote or "",
        host=headers.get("Host", ""),
        origin=headers.get("Origin") or ("null" if headers.get("Sec-Fetch-Site") in _STRANGERS else ""),
        authorization=headers.get("Authorization", ""),
        forwarded=any(name in headers for name in FORWARDED),
        certificate=subject_at(request.transport),
    )


def _rules(settings: Settings) -> Rules:
    own = (settings.admin_listen, settings.admin_advertise, settings.listen, settings.advertise)
    return Rules(
        operate=settings.admin_token,
        read=settings.admin_read_token,
        hosts=own_hosts((*(each.host for each in own), gethostname()), settings.admin_hosts),
        tls=settings.admin_ssl_certificate is not None,
        certificates=settings.admin_ssl_ca is not None,
    )


def _secrets(settings: Settings) -> tuple[str, ...]:
    return tuple(each for each in (settings.admin_token, settings.admin_read_token) if each is not None)
