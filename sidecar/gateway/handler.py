"""Takes every request of every client, looks its API up and calls the module for it.

Hot APIs are plain functions and may be pipelined. All other APIs run as one coroutine at a time per connection: later
requests wait, as on a broker. A request that is not in the table of APIs, or cannot be read, closes the
connection with one event.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from sidecar.exclusive import identity
from sidecar.gateway.client import Client, ClientLinks
from sidecar.gateway.enforcement import AmendedExchange
from sidecar.gateway.logins import VERSIONS as LOGIN_VERSIONS
from sidecar.network.client import ClientConnection, Pause
from sidecar.network.request import Exchange, RejectError, Request
from sidecar.network.tasks import Tasks
from sidecar.protocol import api_versions
from sidecar.protocol.api import ALL_APIS, API_VERSIONS, LOGIN_APIS, NOT_SERVED, OWN_APIS, PRODUCE, api_name
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.errors import KafkaError, error_name
from sidecar.protocol.primitives import MalformedFrameError
from sidecar.protocol.session import Session
from sidecar.security.distinguished_names import CertificateError
from sidecar.security.principal_mapping import NoRuleError

if TYPE_CHECKING:
    from sidecar.cluster.upstream import KafkaUpstream
    from sidecar.gateway.enforcement import Enforcement
    from sidecar.gateway.logins import Logins
    from sidecar.security.listener import ListenerTls

HotApi = Callable[[Client, Request], None]
"""Handles a request within the call; one that it keeps it owns."""

ColdApi = Callable[[Client, Exchange, Request], Awaitable[None]]
"""Handles an owned request and answers the exchange."""


_LOOK_S: Final = 0.01
"""Between two looks at what is not answered, while the node ends."""


class TrafficHooks(Protocol):
    """What the node wants to know of traffic (metrics, log); implementations are cheap and never raise."""

    def client_connected(self) -> None: ...
    def client_disconnected(self, cause: str) -> None: ...
    def upstream_opened(self) -> None: ...
    def upstream_closed(self) -> None: ...
    def client_rejected(self, peer: str, client_id: str, reason: str, detail: str) -> None: ...
    def request_done(
        self, key: int, seconds: float, bytes_in: int, bytes_out: int, upstream: float, request: Exchange
    ) -> None: ...
    def response_error(self, api: str, error: str) -> None: ...
    def request_failed(self, api: str, peer: str, error: BaseException) -> None: ...
    def task_failed(self, error: BaseException) -> None: ...


class Apis(NamedTuple):
    """The modules of this room by API key."""

    hot: dict[int, HotApi]
    cold: dict[int, ColdApi]


class Gateway:
    """The handler of all client connections of a node. `served` is set once upstream has said what it serves."""

    def __init__(
        self,
        upstream: KafkaUpstream,
        node_id: int,
        boot_id: str,
        request_limit: int,
        hooks: TrafficHooks,
        tls: ListenerTls | None = None,
        logins: Logins | None = None,
    ) -> None:
        """`tls`: how certificates name the principals of clients; None on a listener without TLS. `logins`:
        None where clients do not log in.
        """
        self.clients: dict[int, Client] = {}
        self.closed_callbacks: list[Callable[[Client], None]] = []
        self._upstream = upstream
        self._node = node_id, boot_id
        self._request_limit = request_limit
        self._hooks = hooks
        self._tls = tls
        self._logins = logins
        self._apis = Apis({}, {})
        self._served: list[api_versions.VersionRange] = []
        self._ranges: dict[int, tuple[int, int]] = {}
        self._next_connection = 0
        self.tasks = Tasks(hooks.task_failed)
        self._rejected: set[int] = set()
        self.enforcement: Enforcement | None = None
        """Set where Kafka's ACLs are enforced, before the first client connects."""

    def serve(self, apis: Apis, served: list[api_versions.VersionRange]) -> None:
        """Set the modules, and the versions that clients are told and may use."""
        self._apis = apis
        self._served = served
        self._ranges = {
            found.key: (ALL_APIS[found.key].first, found.max) for found in served if found.key not in LOGIN_APIS
        }
        self._ranges |= {key: (own.first, own.last) for key, own in OWN_APIS.items() if key in apis.cold}
        if self._logins is not None:
            self._ranges |= {found.key: (found.min, found.max) for found in LOGIN_VERSIONS}
            apis.cold.update(dict.fromkeys(LOGIN_APIS, self._logins.handle))

    @property
    def login_versions(self) -> list[api_versions.VersionRange]:
        """What clients are told beside the rest where they log in."""
        return [] if self._logins is None else list(LOGIN_VERSIONS)

    def new_connection(self) -> ClientConnection:
        """The protocol factory of the listening socket."""
        self._next_connection += 1
        return ClientConnection(self, self._next_connection, self._request_limit)

    # Handler ------------------------------------------------------------------------------------------------------

    def client_connected(self, connection: ClientConnection) -> None:
        links = ClientLinks(connection, self._upstream, self._hooks)
        client = Client(connection, links, Session.by_connection(*self._node, connection.id))
        connection.state = client
        if self.enforcement is not None:
            client.rights = self.enforcement.rights(client)
        self.clients[connection.id] = client
        self._hooks.client_connected()
        if self._tls is not None and connection.tls is not None:
            try:
                client.principal = self._tls.principal(connection.tls)
            except (NoRuleError, CertificateError) as error:
                connection.reject("certificate", str(error))
        if self._logins is not None:
            self._logins.connected(client)

    def request_received(self, connection: ClientConnection, request: Request) -> None:
        limits = self._ranges.get(request.key)
        if limits is None or not limits[0] <= request.version <= limits[1]:
            self._refuse_version(connection, request)
            return
        client: Client = connection.state
        login = client.login
        if login is not None and self._logins is not None:
            self._logins.check(login, request)
        if client.identity is None or client.identity.raw != request.client_id:
            self._identify(client, request)
        if connection.largest_frame != self._request_limit and (login is None or login.done):
            connection.first_request_valid()
        hot = self._apis.hot.get(request.key)
        try:
            if hot is not None:
                hot(client, request)
                return
        except MalformedFrameError as error:
            raise RejectError(error.reason, f"{ALL_APIS[request.key].name} v{request.version}: {error}") from None
        exchange = Exchange(connection, request) if client.rights is None else AmendedExchange(connection, request)
        connection.expect(exchange)
        connection.hold()
        request.own()
        self.tasks.start(self._run(client, exchange, request))

    def _identify(self, client: Client, request: Request) -> None:
        """Read the client id; one that is wrong shows when it matters (InitProducerId, Produce)."""
        client.claimants.clear()
        try:
            client.identity = identity.parse(request.client_id)
        except KafkaError as error:
            client.identity = identity.ClientIdentity(
                request.client_id, request.client_id.split(b";")[0].decode(errors="replace")
            )
            client.identity_error = error
        else:
            client.identity_error = None

    async def _run(self, client: Client, exchange: Exchange, request: Request) -> None:
        connection = client.connection
        name = api_name(request.key)
        try:
            handle = self._apis.cold[request.key]
            if self.enforcement is not None and isinstance(exchange, AmendedExchange):
                await self.enforcement.run(handle, client, exchange, request)
            else:
                await handle(client, exchange, request)
        except MalformedFrameError as error:
            connection.reject(error.reason, f"{name} v{request.version}: {error}")
        except RejectError as error:
            connection.reject(error.reason, error.detail)
        except (UpstreamError, KafkaError) as error:
            # No answer can be made of it in the API's own terms: the client sees what it would see of a broker that
            # died.
            self._hooks.request_failed(name, connection.peer, error)
            connection.close()
        except Exception:
            connection.close()
            raise
        finally:
            if not connection.closed:
                connection.release()

    def _refuse_version(self, connection: ClientConnection, request: Request) -> None:
        if request.key == API_VERSIONS:
            exchange = Exchange(connection, request)
            connection.expect(exchange)
            exchange.answer([api_versions.encode_unsupported(request.correlation_id, self._served)])
            return
        api = ALL_APIS.get(request.key)
        if api is not None:
            low, high = self._ranges.get(request.key, (0, -1))
            said = f"{low} to {high} are" if low <= high else "no version is"
            raise RejectError("unsupported_version", f"{api.name} v{request.version}: {said} served")
        raise RejectError("unknown_api", NOT_SERVED.get(request.key, f"api key {request.key} v{request.version}"))

    def client_full(self, connection: ClientConnection, full: bool) -> None:
        client: Client = connection.state
        client.links.client_full(full)

    def client_closed(self, connection: ClientConnection) -> None:
        client = self.clients.pop(connection.id, None)
        if client is None:
            return
        client.links.close()
        if self._logins is not None:
            self._logins.closed(client)
        self._hooks.client_disconnected("rejected" if connection.id in self._rejected else "closed")
        self._rejected.discard(connection.id)
        for callback in self.closed_callbacks:
            callback(client)

    def client_rejected(self, connection: ClientConnection, reason: str, detail: str, *, closed: bool) -> None:
        if closed:
            self._rejected.add(connection.id)
        client: Client = connection.state
        said = client.identity.raw.decode(errors="replace") if client.identity else ""
        self._hooks.client_rejected(connection.peer, said, reason, detail)

    def error_answered(self, exchange: Exchange, code: int) -> None:
        self._hooks.response_error(api_name(exchange.key), error_name(code))

    def unanswered_by_api(self) -> dict[str, int]:
        """How many requests of all clients have no answer yet, by the name of the API; only those that there are."""
        counts = Counter(exchange.key for client in self.clients.values() for exchange in client.connection.pending)
        return {(ALL_APIS[key].name if key in ALL_APIS else str(key)): count for key, count in counts.items()}

    def exchange_done(self, exchange: Exchange, answer_bytes: int) -> None:
        seconds = time.perf_counter() - exchange.started
        self._hooks.request_done(
            exchange.key, seconds, exchange.request_bytes, answer_bytes, exchange.upstream, exchange
        )

    async def finish(self) -> None:
        """Take up no more requests; returns when all Produce requests that were have their answers, which may be never.

        A client without an answer sends its batch again; only an idempotent one is safe from having it twice.
        """
        connections = [client.connection for client in self.clients.values()]
        for each in connections:
            each.pause(Pause.ENDING)
        while True:
            if not any(exchange.key == PRODUCE for each in connections if not each.closed for exchange in each.pending):
                return
            await asyncio.sleep(_LOOK_S)

    async def close(self) -> None:
        """Close every client connection and wait for what runs."""
        for client in list(self.clients.values()):
            client.connection.close()
        await self.tasks.cancel()
        if self._logins is not None:
            await self._logins.authenticator.close()
