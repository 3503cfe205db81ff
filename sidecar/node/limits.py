"""Builds the limits of clients from the settings: connections, their idle time, memory and quotas. Also raises the
limit of open files of the process.
"""

from __future__ import annotations

import resource
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from sidecar.gateway.handler import Gateway
from sidecar.gateway.kafka_quotas import UNKNOWN_USER, KafkaQuotas
from sidecar.gateway.logins import ClientListener
from sidecar.gateway.quotas import AudienceLimits, Audiences, QuotaLimits, Quotas
from sidecar.network.admission import Admission, ConnectionLimits, open_files, parse_overrides
from sidecar.network.aside import Opened
from sidecar.network.client import ClientConnection
from sidecar.network.idling import IdleWatch
from sidecar.network.memory import RequestMemory
from sidecar.network.slices import AtWork, in_slices
from sidecar.network.turn import TURN
from sidecar.network.unread import AnswerMemory
from sidecar.node.connecting import ClientSockets
from sidecar.node.hooks import NodeHooks
from sidecar.node.parts import Parts
from sidecar.protocol.limits import BOUNDS
from sidecar.security.broker_access import user_at_brokers
from sidecar.settings import Settings
from sidecar.telemetry.hooks import NodeMetrics

_FILES: Final = 65_536


def raise_open_files() -> None:
    """Raise the soft limit of open files to 65,536, or to the hard limit if that is lower. Linux's default of 1,024 is
    enough for 300 clients. Kafka's JVM raises it too.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # a sandbox that forbids it: the limit stays
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def admission_of_clients(settings: Settings, hooks: NodeHooks) -> Admission:
    """Return the admission of client connections, with the limits of the settings."""
    limits = ConnectionLimits.of(
        open_files(),
        connections=settings.max_connections,
        per_address=settings.max_connections_per_ip,
        overrides=parse_overrides(settings.max_connections_per_ip_overrides),
        per_principal=settings.max_connections_per_principal,
        rate=settings.max_connection_creation_rate,
        reserved=settings.reserved_files,
    )
    return Admission(limits, hooks.connection_refused)


def bound_clients(sockets: ClientSockets, settings: Settings, metrics: NodeMetrics) -> None:
    """Apply the limits of clients' work, and register metrics of those that begin."""
    bound_work(settings, metrics)
    count_logins(sockets.listeners, metrics)
    metrics.read_gauge("tls_handshakes_unfinished", lambda: float(sockets.unfinished))


def bound_work(settings: Settings, metrics: NodeMetrics) -> None:
    """Set how much of one client's requests is handled and decompressed before other clients have their turn. Metrics
    count how often these limits took effect. Limits and counts are per process, as is the event loop.
    """
    BOUNDS.move(settings.max_request_elements, settings.turn_elements, settings.decompression_byte_rate)
    metrics.read_count("turns_cut", lambda: TURN.cut)
    metrics.read_count("slices", lambda: AtWork.slices)
    metrics.read_count("decompressed_bytes", lambda: Opened.size)
    metrics.read_count("decompression_wait_seconds", lambda: Opened.waited_s)


def count_logins(listeners: Sequence[ClientListener], metrics: NodeMetrics) -> None:
    """Register metrics of the logins that brokers check now, and of those that wait for it."""
    checkers = [each.logins.authenticator for each in listeners if each.logins is not None]
    metrics.read_gauge("logins_under_way", lambda: float(sum(each.under_way for each in checkers)))
    metrics.read_gauge("logins_waiting", lambda: float(sum(each.waiting for each in checkers)))


def request_memory(settings: Settings, metrics: NodeMetrics) -> RequestMemory:
    """Return the memory for large requests of all clients; metrics show its use."""
    memory = RequestMemory(settings.queued_max_request_bytes)
    metrics.read_gauge("request_memory_bytes", lambda: float(memory.used))
    metrics.read_gauge("request_memory_waiting", lambda: float(memory.waiting))
    return memory


def answer_memory(settings: Settings, metrics: NodeMetrics) -> AnswerMemory:
    """Return the memory for answers to all clients until they are read; metrics show its use."""
    memory = AnswerMemory(settings.queued_max_response_bytes)
    metrics.read_gauge("response_memory_bytes", lambda: float(memory.used + memory.arriving))
    metrics.read_gauge("response_memory_waiting", lambda: float(memory.waiting))
    return memory


def quotas(settings: Settings, metrics: NodeMetrics) -> Quotas | None:
    """Return the quotas of principals; None if none is set."""
    limits = QuotaLimits(
        settings.quota_producer_byte_rate, settings.quota_consumer_byte_rate, settings.quota_request_rate
    )
    return Quotas(limits, metrics.throttled) if limits.any else None


def kafka_quotas(node: Parts, gateway: Gateway) -> KafkaQuotas | None:
    """Return Kafka's quotas, which hold for clients once they are read; None if they are not enforced."""
    if not node.settings.client_quotas:
        return None

    def changed() -> None:
        gateway.tasks.start(in_slices(gateway.metering.apply_to_all(gateway.clients)))

    user = user_at_brokers(node.settings) or UNKNOWN_USER
    found = gateway.metering.kafka = KafkaQuotas(node.upstream, user, node.hooks, changed)
    return found


def audiences(settings: Settings, gateway: Gateway) -> Audiences | None:
    """Return the limits of shadows' readers; None if none is set."""
    limits = AudienceLimits(settings.shadow_max_readers, settings.shadow_consumer_byte_rate)
    return Audiences(limits, gateway.clients) if limits.readers or limits.byte_rate else None


def idle_watch(settings: Settings, gateway: Gateway) -> IdleWatch:
    """Return the watch that closes idle connections; the gateway adds each new connection to it from now on."""
    clients = gateway.clients

    def end(connection: ClientConnection, spoke: bool) -> None:
        gateway.end_idle(connection, spoke=spoke)

    watch = IdleWatch(
        lambda: [client.connection for client in clients.values()],
        end,
        lambda connection: gateway.is_needed(connection.id),
        first_s=settings.login_timeout_ms / 1000,
        idle_s=settings.connections_max_idle_ms / 1000,
    )
    gateway.newcomer = watch.came
    return watch
