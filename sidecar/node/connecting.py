"""How a node's connections begin, made of its settings: TLS and logins, towards Kafka and of clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from sidecar.gateway.logins import Logins
from sidecar.gateway.relay import RelayedLogins
from sidecar.security.broker_access import broker_access
from sidecar.security.listener import listener_tls
from sidecar.security.logins import chosen, own_logins

if TYPE_CHECKING:
    from sidecar.cluster.upstream import KafkaUpstream
    from sidecar.node.hooks import NodeHooks
    from sidecar.security.broker_access import BrokerAccess
    from sidecar.security.files import FileError
    from sidecar.security.listener import ListenerTls
    from sidecar.settings import Settings


class StartError(Exception):
    """The node cannot start; the message says why and what to do."""


def access_to_kafka(settings: Settings) -> BrokerAccess:
    """Towards brokers. Raises `StartError`."""
    log = structlog.get_logger()

    def tell(error: FileError | None) -> None:
        if error is None:
            log.info("kafka_certificates_read")
        else:
            log.error("kafka_certificates_bad", problem=str(error), goes_on_with="those before")

    try:
        return broker_access(settings, tell)
    except ValueError as error:
        raise StartError(f"{error}. See the settings SIDECAR_KAFKA_SSL_… and SIDECAR_KAFKA_SASL_…") from None


def tls_of_clients(settings: Settings) -> ListenerTls | None:
    """Of the listener; None where it has none. Raises `StartError`."""
    log = structlog.get_logger()

    def tell(error: FileError | None) -> None:
        if error is None:
            log.info("listener_certificates_read")
        else:
            log.error("listener_certificates_bad", problem=str(error), goes_on_with="those before")

    try:
        return listener_tls(settings, tell)
    except ValueError as error:
        raise StartError(f"{error}. See the settings SIDECAR_SSL_…") from None


def logins_of_clients(settings: Settings, upstream: KafkaUpstream, hooks: NodeHooks) -> Logins | None:
    """Of clients; None where they do not log in. Raises `StartError`."""
    if not settings.security_protocol.startswith("SASL_"):
        return None
    log = structlog.get_logger()

    def tell(problem: Exception | str | None) -> None:
        if problem is None:
            log.info("logins_checked_anew")
        else:
            log.error("logins_unchecked", problem=str(problem), goes_on_with="those before")

    try:
        own = own_logins(settings, tell)
    except ValueError as error:
        raise StartError(f"{error}. See the settings SIDECAR_SASL_…") from None
    if own is None:
        own = RelayedLogins(upstream, chosen(settings), settings.sasl_principal_claim, settings.logins_at_once)
    return Logins(own, hooks, settings.login_timeout_ms / 1000)
