"""Builds from the settings how connections begin: TLS and logins, towards Kafka and of clients. Also the sockets of the
listeners, which are bound, started and closed together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import structlog

from metadata.nodes import ListenerAddress
from sidecar.cluster.nodes import NodeAddress
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.cluster.user_tokens import UserTokens
from sidecar.gateway.handler import Gateway
from sidecar.gateway.logins import ClientListener, Logins
from sidecar.gateway.relay import RelayedLogins, lacking
from sidecar.network.listening import Listener, PlainListener
from sidecar.network.tls_listening import TlsListener
from sidecar.node.hooks import NodeHooks
from sidecar.node.port import ListenerFacts
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.calls.security import CreateDelegationToken
from sidecar.protocol.errors import KafkaError
from sidecar.security.broker_access import BrokerAccess, broker_access
from sidecar.security.errors import TokenError
from sidecar.security.listener import ListenerTls, listener_tls
from sidecar.security.logins import chosen, own_logins
from sidecar.security.scram import KINDS
from sidecar.settings import Address, Settings
from sidecar.settings.listeners import ListenerSettings

_RETRY_S: Final = 1.0


class StartError(Exception):
    """The node cannot start; the message says why and what to do."""


def log_of_files(good: str, bad: str, **more: str) -> Callable[..., None]:
    """Return a callback that logs `good` (files read again) or `bad` (with the problem). `more`: log fields."""
    log = structlog.get_logger()

    def log_change(problem: object) -> None:
        if problem is None:
            log.info(good, **more)
        else:
            log.error(bad, **more, problem=str(problem), goes_on_with="those before")

    return log_change


def access_to_kafka(settings: Settings) -> BrokerAccess:
    """Return TLS and login towards brokers. Raises `StartError`."""
    try:
        return broker_access(settings, log_of_files("kafka_certificates_read", "kafka_certificates_bad"))
    except ValueError as error:
        raise StartError(f"{error}. See the settings SIDECAR_KAFKA_SSL_… and SIDECAR_KAFKA_SASL_…") from None


def client_listeners(settings: Settings, upstream: KafkaUpstream, hooks: NodeHooks) -> list[ClientListener]:
    """Return all listeners, in the order of the settings. Raises `StartError`."""
    if settings.kafka_delegation_tokens is not None:
        upstream.users = UserTokens(upstream, KINDS[settings.kafka_delegation_tokens])
    return [
        ClientListener(each.name, _tls_of_clients(each), _logins_of_clients(each, settings, upstream, hooks))
        for each in settings.all_listeners
    ]


async def check_tokens(upstream: KafkaUpstream) -> None:
    """Check that brokers create delegation tokens, if connections for clients use them. Raises `StartError`."""
    asked = CreateDelegationToken
    if upstream.users is not None and not upstream.serves(asked.api_key, asked.api_version):
        raise StartError("SIDECAR_KAFKA_DELEGATION_TOKENS takes brokers of Kafka 3.3 or newer (KIP-373)")
    while upstream.users is not None:
        try:
            await upstream.users.check()
            await _check_mechanism(upstream, upstream.users.kind.mechanism)
        except TokenError as error:
            raise StartError(f"{error}, or take SIDECAR_KAFKA_DELEGATION_TOKENS out") from None
        except (UpstreamError, KafkaError) as error:
            structlog.get_logger().warning("delegation_tokens_unchecked", problem=str(error), retry_in_s=_RETRY_S)
            await asyncio.sleep(_RETRY_S)
        else:
            return


async def _check_mechanism(upstream: KafkaUpstream, mechanism: str) -> None:
    """Raise `StartError` if no broker accepts a login by token, `UpstreamError` if no broker can be asked."""
    lacks, offers = await lacking(upstream, mechanism)
    if lacks and not offers:
        raise StartError(": ".join(lacks[0]))
    for problem, _ in lacks:
        structlog.get_logger().warning(
            "delegation_token_mechanism_missing", problem=problem, effect="clients are disconnected there"
        )


def advertised(settings: Settings, ports: Sequence[int] = ()) -> NodeAddress:
    """Return the node's address for clients of each listener. `ports`: the bound ports, for listeners on port 0."""
    taken = dict(enumerate(ports))
    addresses = tuple(
        ListenerAddress(each.name, each.advertise.host, each.advertise.port or taken.get(number, 0))
        for number, each in enumerate(settings.all_listeners)
    )
    return NodeAddress(settings.node_id, addresses[0].host, addresses[0].port, addresses)


def _tls_of_clients(settings: ListenerSettings) -> ListenerTls | None:
    """Return the listener's TLS; None if it uses none. Raises `StartError`."""
    log_change = log_of_files("listener_certificates_read", "listener_certificates_bad", listener=settings.name)
    try:
        return listener_tls(settings, log_change)
    except ValueError as error:
        raise StartError(f"listener {settings.name}: {error}. See the settings SIDECAR_SSL_…") from None


def _logins_of_clients(
    settings: ListenerSettings, whole: Settings, upstream: KafkaUpstream, hooks: NodeHooks
) -> Logins | None:
    """Return the listener's logins; None if its clients do not log in. Raises `StartError`."""
    if not settings.security_protocol.startswith("SASL_"):
        return None
    try:
        own = own_logins(settings, log_of_files("logins_checked_anew", "logins_unchecked", listener=settings.name))
    except ValueError as error:
        raise StartError(f"listener {settings.name}: {error}. See the settings SIDECAR_SASL_…") from None
    if own is None:
        own = RelayedLogins(upstream, chosen(settings), settings.sasl_principal_claim, whole.logins_at_once)
    return Logins(own, hooks, whole.login_timeout_ms / 1000, upstream.users)


class ClientSockets:
    """The sockets of all listeners. `bind` binds the addresses, so early clients wait; `start` accepts clients."""

    def __init__(self, settings: Settings, listeners: Sequence[ClientListener], hooks: NodeHooks) -> None:
        self.listeners = listeners
        self._settings = settings
        self._hooks = hooks
        self._bound: list[Listener] = []

    async def bind(self, gateway: Gateway) -> list[int]:
        """Bind all addresses and return their ports. Raises OSError if one is in use or not of this machine."""
        handshake_s, unfinished = self._settings.login_timeout_ms / 1000, self._settings.max_unfinished_handshakes
        for each, listener in zip(self._settings.all_listeners, self.listeners, strict=True):
            new, tls = partial(gateway.new_connection, listener), listener.tls
            bound: Listener = PlainListener(new)
            if tls is not None:
                bound = TlsListener(new, tls.context, self._hooks, gateway.admission, handshake_s, unfinished)
            self._bound.append(bound)
            await bound.bind(each.listen.host, each.listen.port)
        return [bound.port for bound in self._bound]

    @property
    def unfinished(self) -> int:
        """The number of connections of all TLS listeners without a finished handshake."""
        return sum(bound.unfinished for bound in self._bound if isinstance(bound, TlsListener))

    async def start(self) -> None:
        """Accept clients from now on."""
        for bound in self._bound:
            await bound.start()

    async def close(self) -> None:
        """Accept no more clients; does nothing if nothing is bound."""
        for bound in self._bound:
            await bound.close()


def listener_facts(settings: Settings, me: NodeAddress) -> list[ListenerFacts]:
    """Return for each listener where it listens, and the address that its clients get."""
    return [
        ListenerFacts(each.name, str(each.listen), str(Address(at.host, at.port)), each.security_protocol)
        for each, at in zip(settings.all_listeners, me.listeners, strict=True)
    ]
