"""Receives every request of every client and calls the module for its API.

Hot APIs are plain functions and may be pipelined. All other APIs run as one coroutine at a time per connection: later
requests wait, as on a broker. A request that is not in the table of APIs, or cannot be read, closes the
connection with one event.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from sidecar.cluster.resolver import ANONYMOUS
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway.apis.table import ALL_APIS, AUDITED, FOR_SUPER_USERS, NOT_SERVED, OWN_APIS
from sidecar.gateway.audit import Act, act_of
from sidecar.gateway.client import Apis, Client, ClientLinks
from sidecar.gateway.coordinators import CROWD
from sidecar.gateway.enforcement import AmendedExchange, Enforcement
from sidecar.gateway.logins import UNNAMED, ClientListener, check_login, with_logins
from sidecar.gateway.logins import VERSIONS as LOGIN_VERSIONS
from sidecar.gateway.metering import Metering
from sidecar.gateway.quotas import Quotas
from sidecar.gateway.refusals import Refusals
from sidecar.network.admission import Admission, ConnectionLimits, open_files
from sidecar.network.client import ClientConnection
from sidecar.network.handling import Pause
from sidecar.network.memory import RequestMemory
from sidecar.network.request import Exchange, RejectError, Request
from sidecar.network.tasks import Tasks
from sidecar.network.turn import TURN
from sidecar.network.unread import AnswerMemory
from sidecar.policy import identity
from sidecar.protocol import api_versions
from sidecar.protocol.api import LOGIN_APIS, ApiKey, api_name
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.errors import ErrorCode, KafkaError, error_name
from sidecar.protocol.primitives import MalformedFrameError, TaggedFieldsError
from sidecar.protocol.session import Session
from sidecar.security.distinguished_names import CertificateError
from sidecar.security.principal_mapping import NoRuleError

_KAFKAS_CLIENT: Final = "__admin_client"
"""With this client.id brokers let any client write to their internal topics."""
_NOT_KAFKAS: Final = KafkaError(ErrorCode.INVALID_REQUEST, f"client.id {_KAFKAS_CLIENT} is Kafka's own")
_LOOK_S: Final = 0.01
"""Seconds between two checks for unanswered requests while the node shuts down."""


class TrafficHooks(Protocol):
    """Called for events of the traffic (metrics, log). Implementations are cheap and never raise."""

    def client_connected(self, listener: str) -> None: ...
    def client_disconnected(self, cause: str, listener: str) -> None: ...
    def upstream_opened(self) -> None: ...
    def upstream_closed(self) -> None: ...
    def client_rejected(self, peer: str, client_id: str, reason: str, detail: str) -> None: ...
    def request_done(
        self, key: int, seconds: float, bytes_in: int, bytes_out: int, upstream: float, request: Exchange
    ) -> None: ...
    def response_error(self, api: str, error: str) -> None: ...
    def request_failed(self, api: str, peer: str, error: BaseException) -> None: ...
    def task_failed(self, error: BaseException) -> None: ...


class _Links:
    """Counts the connections to brokers that are opened for one client. Implements `gateway.client.LinkHooks`."""

    __slots__ = ("_admission", "_group", "_hooks")

    def __init__(self, admission: Admission, group: str, hooks: TrafficHooks) -> None:
        self._admission = admission
        self._group = group
        self._hooks = hooks

    @property
    def are_many(self) -> bool:
        return self._admission.links >= CROWD

    def may_open(self) -> bool:
        return self._admission.may_link(self._group)

    def upstream_opened(self) -> None:
        self._admission.linked(self._group)
        self._hooks.upstream_opened()

    def upstream_closed(self) -> None:
        self._admission.unlinked(self._group)
        self._hooks.upstream_closed()


class Gateway:
    """The handler of all client connections of a node. `serve` is called once upstream's APIs are known."""

    def __init__(
        self,
        upstream: KafkaUpstream,
        node_id: int,
        boot_id: str,
        request_limit: int,
        hooks: TrafficHooks,
        listeners: Sequence[ClientListener] = (UNNAMED,),
        admission: Admission | None = None,
        memory: RequestMemory | None = None,
        *,
        answers: AnswerMemory | None = None,
        quotas: Quotas | None = None,
        acted: Callable[[Act], None] | None = None,
    ) -> None:
        """`listeners`: all that call `new_connection`, at least one. `admission`: limits the number of clients; by
        default, to what the limit of open files allows. `memory`, `answers`: bound the memory of large requests, and
        of answers that clients have not read; None: no bound. `quotas`: those of the settings. `acted` receives the
        changes that clients make, for the audit log.
        """
        self.clients: dict[int, Client] = {}
        self.refusals = Refusals()
        self.closed_callbacks: list[Callable[[Client], None]] = []
        self._upstream = upstream
        self._node = node_id, boot_id
        self._request_limit = request_limit
        self._hooks = hooks
        self._listeners = listeners
        for listener in listeners:
            if listener.logins is not None:
                listener.logins.admits = self._admits
        self.admission = admission or Admission(ConnectionLimits.of(open_files()))
        self._memory = memory
        self._answers = answers
        self.metering = Metering(quotas)
        self.newcomer: Callable[[ClientConnection], None] = lambda _connection: None
        """Called for a connection that has to send a request soon."""
        self._apis = Apis({}, {})
        self._served: list[api_versions.VersionRange] = []
        self._ranges: dict[int, tuple[int, int]] = {}
        self._next_connection = 0
        self.tasks = Tasks(hooks.task_failed)
        self._causes: dict[int, str] = {}
        """Why the node closes a connection, by its id, until the connection has ended."""
        self.enforcement: Enforcement | None = None
        """Set before the first client connects, if Kafka's ACLs are enforced."""
        self._acted = acted

    def serve(self, apis: Apis, served: list[api_versions.VersionRange]) -> None:
        """Set the modules, and the versions that clients see and may use."""
        self._apis = apis
        self._served = served
        self._ranges = {
            key: (max(ALL_APIS[key].first, low), high) for key, low, high in served if key not in LOGIN_APIS
        }
        self._ranges |= {key: (own.first, own.last) for key, own in OWN_APIS.items() if key in apis.cold}
        if any(listener.logins is not None for listener in self._listeners):
            self._ranges |= {found.key: (found.min, found.max) for found in LOGIN_VERSIONS}
            apis.cold.update(dict.fromkeys(LOGIN_APIS, _log_in))

    def new_connection(self, listener: ClientListener | None = None) -> ClientConnection:
        """The protocol factory of a listener's socket; by default of the first listener."""
        self._next_connection += 1
        at = self._listeners[0] if listener is None else listener
        return ClientConnection(self, self._next_connection, self._request_limit, self._memory, self._answers, at)

    # Handler ------------------------------------------------------------------------------------------------------

    def client_connected(self, connection: ClientConnection) -> None:
        if connection.seat is None:
            connection.seat = self.admission.enter(connection.host)
            if connection.seat is None:
                connection.abort()
                return
        links = ClientLinks(connection, self._upstream, _Links(self.admission, connection.seat.group, self._hooks))
        listener: ClientListener = connection.listener
        client = Client(
            connection, links, Session.by_connection(*self._node, connection.id), listener.name, self.refusals
        )
        connection.state = client
        if self.enforcement is not None:
            client.rights = self.enforcement.rights(client)
        self.clients[connection.id] = client
        self.metering.apply(client)
        self._hooks.client_connected(listener.name)
        if listener.tls is not None and connection.tls is not None:
            try:
                client.principal = listener.tls.principal(connection.tls)
            except (NoRuleError, CertificateError) as error:
                connection.reject("certificate", str(error))
            else:
                if not self._admits(client):
                    connection.close()
        if listener.logins is not None:
            listener.logins.connected(client)
        else:
            self.newcomer(connection)

    def _admits(self, client: Client) -> bool:
        """Called when a client's principal is known. Returns whether that may have one more connection."""
        self.metering.apply(client)
        seat, principal = client.connection.seat, client.principal
        return seat is None or principal == ANONYMOUS or self.admission.name(seat, principal, client.connection.host)

    def end_idle(self, connection: ClientConnection, *, spoke: bool) -> None:
        """Close a connection that sends no requests; `spoke`: whether it has ever sent one."""
        self._causes[connection.id] = "idle" if spoke else "silent"
        connection.close()

    def is_needed(self, connection_id: int) -> bool:
        """Whether a client would lose claims if its idle connection were closed."""
        client = self.clients.get(connection_id)
        return client is not None and client.has_claims

    def request_received(self, connection: ClientConnection, request: Request) -> None:
        limits = self._ranges.get(request.key)
        if limits is None or not limits[0] <= request.version <= limits[1]:
            self._refuse_version(connection, request)
            return
        client: Client = connection.state
        login = client.login
        if login is not None:
            check_login(login, request)
        if client.identity is None or client.identity.raw != request.client_id:
            self._identify(client, request)
        if connection.largest_frame != self._request_limit and (login is None or login.done):
            connection.first_request_valid()
        hot = self._apis.hot.get(request.key)
        try:
            if hot is not None:
                try:
                    hot(client, request)
                except TaggedFieldsError as found:
                    request.drop_tags(found.sections)
                    hot(client, request)
                return
        except MalformedFrameError as error:
            raise RejectError(error.reason, f"{api_name(request.key)} v{request.version}: {error}") from None
        exchange = self._exchange(client, request)
        connection.expect(exchange)
        connection.hold()
        request.own()
        self.tasks.start(self._run(client, exchange, request))

    def _exchange(self, client: Client, request: Request) -> Exchange:
        is_audited = self._acted is not None and request.key in AUDITED
        is_amended = is_audited or client.rights is not None or request.key in FOR_SUPER_USERS
        return (AmendedExchange if is_amended else Exchange)(client.connection, request)

    def _identify(self, client: Client, request: Request) -> None:
        """Parse the client id. An invalid one is refused only by APIs that need it (InitProducerId, Produce)."""
        client.governed.renamed()
        try:
            client.identity = identity.parse(request.client_id)
        except KafkaError as error:
            client.identity = identity.ClientIdentity(
                request.client_id, request.client_id.split(b";")[0].decode(errors="replace")
            )
            client.identity_error = error
        else:
            is_kafkas = client.identity.name == _KAFKAS_CLIENT and (client.rights is None or not client.rights.enforced)
            client.identity_error = _NOT_KAFKAS if is_kafkas else None
        self.metering.apply(client)

    async def _run(self, client: Client, exchange: Exchange, request: Request) -> None:
        connection = client.connection
        name = api_name(request.key)
        try:
            handle = self._apis.cold[request.key]
            if request.key in OWN_APIS:
                client.uses_own_apis = True
            if self.enforcement is not None and isinstance(exchange, AmendedExchange):
                await self.enforcement.run(handle, client, exchange, request)
            else:
                await handle(client, exchange, request)
        except MalformedFrameError as error:
            connection.reject(error.reason, f"{name} v{request.version}: {error}")
        except RejectError as error:
            connection.reject(error.reason, error.detail)
        except (UpstreamError, KafkaError) as error:
            # The API has no answer for this error: the client sees the same as if a broker died.
            self._hooks.request_failed(name, connection.peer, error)
            connection.close()
        except Exception:
            connection.close()
            raise
        finally:
            if not connection.closed:
                connection.release()
        if self._acted is not None and request.key in AUDITED and isinstance(exchange, AmendedExchange):
            act = await act_of(client, exchange, request)
            if act is not None:
                self._acted(act)

    def _refuse_version(self, connection: ClientConnection, request: Request) -> None:
        if request.key == ApiKey.API_VERSIONS:
            exchange = Exchange(connection, request)
            connection.expect(exchange)
            client: Client = connection.state
            served = self._served if client.login is None else with_logins(self._served)
            exchange.answer([api_versions.encode_unsupported(request.correlation_id, served)])
            return
        if request.key in self._ranges or request.key in ALL_APIS:
            low, high = self._ranges.get(request.key, (0, -1))
            said = f"{low} to {high} are" if low <= high else "no version is"
            raise RejectError("unsupported_version", f"{api_name(request.key)} v{request.version}: {said} served")
        raise RejectError("unknown_api", NOT_SERVED.get(request.key, f"api key {request.key} v{request.version}"))

    def client_full(self, connection: ClientConnection, full: bool) -> None:
        client: Client = connection.state
        client.links.client_full(full)

    def client_closed(self, connection: ClientConnection) -> None:
        if connection.seat is not None:
            connection.seat.leave()
        client = self.clients.pop(connection.id, None)
        if client is None:
            return
        client.links.close()
        self.metering.end(client)
        logins = connection.listener.logins
        if logins is not None:
            logins.closed(client)
        self._hooks.client_disconnected(self._causes.pop(connection.id, "closed"), client.listener)
        for callback in self.closed_callbacks:
            callback(client)

    def client_rejected(self, connection: ClientConnection, reason: str, detail: str, *, closed: bool) -> None:
        if closed:
            self._causes[connection.id] = "rejected"
        client: Client = connection.state
        said = client.identity.raw.decode(errors="replace") if client.identity else ""
        self._hooks.client_rejected(connection.peer, said, reason, detail)

    def error_answered(self, exchange: Exchange, code: int) -> None:
        self._hooks.response_error(api_name(exchange.key), error_name(code))

    def unanswered_by_api(self) -> dict[str, int]:
        """The number of unanswered requests of all clients, by API name; only APIs that have some."""
        counts = Counter(exchange.key for client in self.clients.values() for exchange in client.connection.pending)
        return {(ALL_APIS[key].name if key in ALL_APIS else str(key)): count for key, count in counts.items()}

    def exchange_done(self, exchange: Exchange, answer_bytes: int) -> None:
        seconds = time.perf_counter() - exchange.started
        done = exchange.key, seconds, exchange.request_bytes, answer_bytes, exchange.upstream, exchange
        TURN.note(self._hooks.request_done, done)

    async def finish(self) -> None:
        """Stop reading requests; returns when all pending Produce requests are answered, which may be never.

        A client without an answer sends its batch again. Only an idempotent producer is safe from duplicates then.
        """
        connections = [client.connection for client in self.clients.values()]
        for each in connections:
            each.pause(Pause.ENDING)
        while True:
            waiting = (exchange for each in connections if not each.closed for exchange in each.pending)
            if not any(exchange.key == ApiKey.PRODUCE for exchange in waiting):
                return
            await asyncio.sleep(_LOOK_S)

    async def close(self) -> None:
        """Close every client connection, and cancel the tasks that run."""
        for client in list(self.clients.values()):
            client.connection.close()
        await self.tasks.cancel()
        for listener in self._listeners:
            if listener.logins is not None:
                await listener.logins.authenticator.close()


async def _log_in(client: Client, exchange: Exchange, request: Request) -> None:
    """SaslHandshake and SaslAuthenticate. Implements `ColdApi`."""
    listener: ClientListener = client.connection.listener
    logins = listener.logins
    if logins is None:
        raise RejectError("unsupported_version", f"{api_name(request.key)}: no login at listener {listener.name}")
    await logins.handle(client, exchange, request)
