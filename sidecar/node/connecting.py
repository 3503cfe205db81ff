"""How a node's connections begin, made of its settings: TLS and logins, towards Kafka and of clients."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from metadata.nodes import ListenerAddress
from sidecar.cluster.nodes import NodeAddress
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.cluster.user_tokens import UserTokens
from sidecar.gateway.listeners import ClientListener
from sidecar.gateway.logins import Logins
from sidecar.gateway.relay import RelayedLogins, lacking
from sidecar.node.hooks import NodeHooks
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.calls.security import CreateDelegationToken
from sidecar.protocol.errors import KafkaError
from sidecar.security.broker_access import BrokerAccess, broker_access
from sidecar.security.errors import TokenError
from sidecar.security.files import FileError
from sidecar.security.listener import ListenerTls, listener_tls
from sidecar.security.logins import chosen, own_logins
from sidecar.security.scram import KINDS
from sidecar.settings import Settings
from sidecar.settings.listeners import ListenerSettings

_RETRY_S: Final = 1.0


class StartError(Exception):
    """The node cannot start; the message says why and what to do."""


def access_to_kafka(settings: Settings) -> BrokerAccess:
    """Towards brokers. Raises `StartError`."""
    log = structlog.get_logger()

    def log_change(error: FileError | None) -> None:
        if error is None:
            log.info("kafka_certificates_read")
        else:
            log.error("kafka_certificates_bad", problem=str(error), goes_on_with="those before")

    try:
        return broker_access(settings, log_change)
    except ValueError as error:
        raise StartError(f"{error}. See the settings SIDECAR_KAFKA_SSL_… and SIDECAR_KAFKA_SASL_…") from None


def client_listeners(settings: Settings, upstream: KafkaUpstream, hooks: NodeHooks) -> list[ClientListener]:
    """Every listener, in the order of the settings. Raises `StartError`."""
    if settings.kafka_delegation_tokens is not None:
        upstream.users = UserTokens(upstream, KINDS[settings.kafka_delegation_tokens])
    return [
        ClientListener(each.name, _tls_of_clients(each), _logins_of_clients(each, settings, upstream, hooks))
        for each in settings.all_listeners
    ]


async def check_tokens(upstream: KafkaUpstream) -> None:
    """Whether brokers make tokens, where clients' connections are to log in by them. Raises `StartError`."""
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
    """Raises `StartError` where no broker takes a login by token, `UpstreamError` where none can say it."""
    lacks, offers = await lacking(upstream, mechanism)
    if lacks and not offers:
        raise StartError(": ".join(lacks[0]))
    for problem, _ in lacks:
        structlog.get_logger().warning(
            "delegation_token_mechanism_missing", problem=problem, effect="clients are disconnected there"
        )


def advertised(settings: Settings, ports: Sequence[int] = ()) -> NodeAddress:
    """The node as clients of each listener reach it. `ports`: those that were taken, for listeners at any free one."""
    taken = dict(enumerate(ports))
    addresses = tuple(
        ListenerAddress(each.name, each.advertise.host, each.advertise.port or taken.get(number, 0))
        for number, each in enumerate(settings.all_listeners)
    )
    return NodeAddress(settings.node_id, addresses[0].host, addresses[0].port, addresses)


def _tls_of_clients(settings: ListenerSettings) -> ListenerTls | None:
    """None where the listener has none. Raises `StartError`."""
    log = structlog.get_logger()

    def log_change(error: FileError | None) -> None:
        if error is None:
            log.info("listener_certificates_read", listener=settings.name)
        else:
            log.error(
                "listener_certificates_bad", listener=settings.name, problem=str(error), goes_on_with="those before"
            )

    try:
        return listener_tls(settings, log_change)
    except ValueError as error:
        raise StartError(f"listener {settings.name}: {error}. See the settings SIDECAR_SSL_…") from None


def _logins_of_clients(
    settings: ListenerSettings, whole: Settings, upstream: KafkaUpstream, hooks: NodeHooks
) -> Logins | None:
    """None where clients of the listener do not log in. Raises `StartError`."""
    if not settings.security_protocol.startswith("SASL_"):
        return None
    log = structlog.get_logger()

    def log_change(problem: Exception | str | None) -> None:
        if problem is None:
            log.info("logins_checked_anew", listener=settings.name)
        else:
            log.error("logins_unchecked", listener=settings.name, problem=str(problem), goes_on_with="those before")

    try:
        own = own_logins(settings, log_change)
    except ValueError as error:
        raise StartError(f"listener {settings.name}: {error}. See the settings SIDECAR_SASL_…") from None
    if own is None:
        own = RelayedLogins(upstream, chosen(settings), settings.sasl_principal_claim, whole.logins_at_once)
    return Logins(own, hooks, whole.login_timeout_ms / 1000, upstream.users)
