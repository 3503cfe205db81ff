"""Turns reports of the rooms into metrics and log events. The rooms know neither; `gauges` reads other metrics."""

from __future__ import annotations

import logging

from metadata import MetadataError, MetadataUnavailable
from sidecar.gateway.audit import Act
from sidecar.network.admission import Refusal
from sidecar.shadow.cursor_room import Statistics
from sidecar.telemetry.hooks import MECHANISMS, NodeMetrics
from sidecar.telemetry.limited_log import LimitedLog
from sidecar.telemetry.ownership_reports import OwnershipReports
from sidecar.telemetry.series import OTHER, ShadowSeries


class NodeHooks:
    """Implements the hooks of `gateway.handler` and `shadow.keeper`. `ownership`: for rooms that grant ownership."""

    def __init__(self, metrics: NodeMetrics, log_limit: int) -> None:
        self._metrics = metrics
        limited = LimitedLog(metrics, log_limit)
        self.ownership = OwnershipReports(metrics, limited)
        self._log, self._few, self._seldom = limited.log, limited.few, limited.seldom
        self.client_connected = metrics.client_connected
        self.client_disconnected = metrics.client_disconnected
        self.request_done = metrics.request_done
        self.response_error = metrics.response_error
        self.upstream_opened = metrics.upstream_opened
        self.upstream_closed = metrics.upstream_closed

    # Gateway

    def client_rejected(self, peer: str, client_id: str, reason: str, detail: str) -> None:
        self._metrics.count("client_rejections", reason)
        if (log := self._few(f"rejected {reason}")) is not None:
            log.warning("client_rejected", peer=peer, client_id=client_id[:200], reason=reason, detail=detail[:500])

    def connection_refused(self, reason: Refusal, host: str) -> None:
        self._metrics.count("client_connections_refused", reason)
        if (log := self._few(f"refused {reason}", 1)) is not None:
            log.warning("connection_refused", address=host, reason=str(reason))

    def handshake_failed(self, peer: str, reason: str) -> None:
        self._metrics.count("tls_handshakes", "failure")
        if (log := self._few("handshake", 1)) is not None:
            log.warning("handshake_failed", peer=peer, reason=reason[:200])

    def handshake_done(self) -> None:
        self._metrics.count("tls_handshakes", "success")

    def login_done(self, mechanism: str) -> None:
        self._login_ended(mechanism, "success")

    def _login_ended(self, mechanism: str, result: str) -> None:
        self._metrics.count("authentications", mechanism if mechanism in MECHANISMS else OTHER, result)

    def login_refused(self, peer: str, mechanism: str, reason: str) -> None:
        self._login_ended(mechanism, "failure")
        if (log := self._few("login", 1)) is not None:
            log.warning("login_refused", peer=peer, mechanism=mechanism[:50], reason=reason[:200])

    def request_failed(self, api: str, peer: str, error: BaseException) -> None:
        if (log := self._few(f"request {api}")) is not None:
            log.warning("request_failed", api=api, peer=peer, problem=str(error))

    def task_failed(self, error: BaseException) -> None:
        if (log := self._few(f"internal {type(error).__name__}")) is not None:
            log.error("internal_error", problem=repr(error), exc_info=error)

    def loop_failed(self, name: str, error: BaseException) -> None:
        self._metrics.count("loop_failures", name)
        if self._seldom(f"loop {name}"):
            self._log.error("loop_failed", loop=name, problem=repr(error), exc_info=error)

    def acls_changed(self, count: int) -> None:
        self._log.info("acls_read", acls=count)

    def acls_failed(self, error: Exception) -> None:
        if self._seldom("acls"):
            self._log.warning(
                "acls_unreadable", problem=str(error), effect="clients have the rights that were read last"
            )

    def client_quotas_changed(self, count: int) -> None:
        self._log.info("client_quotas_read", quotas=count)

    def client_quotas_failed(self, error: Exception) -> None:
        if self._seldom("client quotas"):
            self._log.warning(
                "client_quotas_unreadable",
                problem=str(error),
                effect="governed topics and shared reads have the quotas that were read last, or none",
                remedy="allow the node DESCRIBE_CONFIGS on the cluster, or set SIDECAR_CLIENT_QUOTAS=false",
            )

    def over_client_quota(self, quota: str, level: str, seconds: float) -> None:
        self._metrics.over_client_quota(quota, level, seconds)

    def acted(self, act: Act) -> None:
        """Write an event of the audit log: what a client changed, or was refused, as the admin port does."""
        more = {"more": act.more} if act.more else {}
        errors = {"errors": act.errors} if act.errors else {}
        self._log.bind(**more, **errors).log(
            logging.INFO if act.result == "done" else logging.WARNING,
            "audit",
            act=act.api,
            result=act.result,
            who=act.principal,
            peer=act.peer,
            client_id=act.client_id,
            on=act.on,
        )

    # Upstream, changelog, Redis

    def upstream_error(self, broker: int, reason: str) -> None:
        name = str(broker) if broker >= 0 else "bootstrap"
        self._metrics.count("upstream_connection_errors", name)
        if self._seldom(f"upstream {name}"):
            self._log.warning("broker_unreachable", broker=name, problem=reason)

    def changelog_error(self, error: Exception) -> None:
        if self._seldom("changelog"):
            self._log.warning("changelog_interrupted", problem=str(error))

    def redis_failed(self, error: MetadataError) -> None:
        kind = error.reason.value if isinstance(error, MetadataUnavailable) else type(error).__name__
        self._metrics.count("redis_errors", kind)
        if self._seldom(f"redis {kind}"):
            self._log.warning("redis_unavailable", problem=str(error), effect="owners keep writing, claims are refused")

    def redis_restored(self) -> None:
        self._log.info("redis_restored", effect="claims are taken again")

    def peer_lacks_listener(self, listener: str, node: int) -> None:
        effect = "clients of this listener are not led to that node, nor to governed topics that it serves"
        self._log.warning("peer_lacks_listener", listener=listener, peer=node, effect=effect)

    # Shadow topics

    def cursors_failed(self, shadow: str, error: BaseException) -> None:
        if self._seldom(f"cursors {shadow}"):
            self._log.warning("cursors_unknown", shadow=shadow, problem=str(error) or repr(error))

    def cursors_reset(self, shadow: str, group: str, detail: str) -> None:
        self._log.warning("cursors_reset", shadow=shadow, group=group[:200], detail=detail[:500])

    # Shadows

    def shadow_closed(self, shadow: str, reason: str) -> None:
        self._log.warning("shadow_closed", shadow=shadow, problem=reason)

    def shadow_opened(self, shadow: str) -> None:
        self._log.info("shadow_opened", shadow=shadow)

    def shadow_forgotten(self, shadow: str, reason: str) -> None:
        self._log.warning("shadow_forgotten", shadow=shadow, problem=reason)

    def shadow_failed(self, shadow: str, error: BaseException) -> None:
        if self._seldom(f"shadow {shadow}"):
            self._log.warning("shadow_failed", shadow=shadow, problem=str(error) or repr(error))


def shadow_series(statistics: Statistics) -> list[ShadowSeries]:
    """Return the metrics of all shadows, oldest shadow first."""
    return [
        ShadowSeries(
            name=found.name,
            readers=found.reading.readers,
            bytes=found.reading.record_bytes,
            last_read_ms=found.reading.last_read_ms,
            resets=found.resets,
            lag=found.lag,
        )
        for found in statistics.all()
    ]
