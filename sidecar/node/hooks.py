"""Turns reports of the rooms into metrics and log events. The rooms know neither; `gauges` reads other metrics."""

from __future__ import annotations

import logging
from typing import Any, Final

import structlog

from metadata import MetadataError, MetadataUnavailable
from sidecar.exclusive.upkeep import Cause
from sidecar.gateway.audit import Act
from sidecar.network.admission import Refusal
from sidecar.protocol.session import Caller
from sidecar.shadow.cursor_room import Statistics
from sidecar.telemetry.hooks import MECHANISMS, NodeMetrics
from sidecar.telemetry.seldom import Seldom
from sidecar.telemetry.series import OTHER, ShadowSeries

_CHANGES: Final = 200
"""The number of changes of owners or claims of one kind logged within five seconds; the events topic has all."""
_NAMED: Final = 100
"""The number of sessions that one log event names."""


class NodeHooks:
    """Implements the hooks of `gateway.handler`, `exclusive.interfaces`, `resources.coordinator`, `shadow.keeper`."""

    def __init__(self, metrics: NodeMetrics, log_limit: int) -> None:
        self._metrics = metrics
        self._alike = log_limit
        self._log = structlog.get_logger()
        self._events = Seldom()
        self.client_connected = metrics.client_connected
        self.client_disconnected = metrics.client_disconnected
        self.request_done = metrics.request_done
        self.response_error = metrics.response_error
        self.topic_forgotten = metrics.topic_forgotten
        self.upstream_opened = metrics.upstream_opened
        self.upstream_closed = metrics.upstream_closed
        self.governed_produce = metrics.governed_produce
        self.fenced = metrics.fenced
        self.owner_changed = metrics.owner_changed
        self.duplicates_dropped = metrics.duplicates_dropped
        self.ids_unknown = metrics.ids_unknown
        self.claims_answered = metrics.claims_answered

    def _seldom(self, what: str) -> bool:
        """Return whether to log an event that may occur a thousand times a second."""
        return self._ask(what, 1) is not None

    def _ask(self, kind: str, most: int) -> int | None:
        """Return how many events of a kind were left out before this one; None if this one is left out too."""
        left_out = self._events.ask(kind, most)
        if left_out is None:
            self._metrics.count("log_events_left_out")
        return left_out

    def _few(self, kind: str, most: int | None = None) -> Any:
        """Return the log for an event that any client may cause, bound to the number of events of its kind that were
        left out before; None if this one is left out too. `most`: the limit per kind, if not the setting's.
        """
        left_out = self._ask(kind, most or self._alike)
        if left_out is None:
            return None
        return self._log.bind(left_out=left_out) if left_out else self._log

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

    def deposed(self, resource: str, lost: tuple[str, ...], by: Caller, client: str) -> None:
        """Write an event of the audit log: a session was deposed by the mode or generation of a batch, or by Own."""
        self._log.info(
            "audit",
            act="Depose",
            result="done",
            who=by.principal,
            peer=client,
            client_id=by.client_id[:200],
            on=(resource,),
            deposed=lost[:_NAMED],
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

    # Governed topics

    def takeover(
        self, topic: str, mode: str, seconds: float, session: str, generation: int, deposed: str | None
    ) -> None:
        self._metrics.count("takeovers", mode)
        self._metrics.observe("takeover_duration_seconds", seconds)
        if (log := self._few("takeover", _CHANGES)) is not None:
            log.info(
                "takeover",
                topic=topic,
                mode=mode,
                ms=round(seconds * 1000, 1),
                session=session,
                generation=generation,
                deposed=deposed,
            )

    def fence_renewed(self, topic: str, cause: Cause | None) -> None:
        self._metrics.count("fence_renewals", cause.name.lower() if cause else "time")
        if cause is not None and (log := self._few("fence_renewed", _CHANGES)) is not None:
            log.info("fence_renewed", topic=topic, reason=cause.value)

    def compaction_lag_raised(self, topic: str, before_ms: int, after_ms: int) -> None:
        self._log.warning("compaction_lag_raised", topic=topic, before_ms=before_ms, after_ms=after_ms)

    def compaction_lag_low(self, topic: str, problem: str) -> None:
        if self._seldom(f"lag {topic}"):
            self._log.error("compaction_lag_low", topic=topic, problem=problem)

    def topic_gone(self, topic: str, generation: int) -> None:
        self._log.info("topic_gone", topic=topic, generation=generation, effect="only its generation is kept")

    def released(self, topic: str, session: str, generation: int) -> None:
        if (log := self._few("released", _CHANGES)) is not None:
            log.info("released", topic=topic, session=session, generation=generation)

    def ids_read(self, topic: str, records: int) -> None:
        self._metrics.count("dedup_recovered_records", more=records)

    def ids_recovered(self, topic: str, records: int, seconds: float) -> None:
        self._metrics.observe("dedup_recovery_duration_seconds", seconds)
        self._log.info("sequence_ids_read", topic=topic, records=records, ms=round(seconds * 1000, 1))

    def ids_lost(self, topic: str, reason: str) -> None:
        if self._seldom(f"ids {topic}"):
            self._log.error("sequence_ids_lost", topic=topic, problem=reason)

    def snapshot_written(self, topic: str, names: int, size: int) -> None:
        self._metrics.count("dedup_snapshots")
        self._metrics.count("dedup_snapshot_bytes", more=size)

    def names_forgotten(self, topic: str, names: int) -> None:
        self._metrics.count("dedup_names_forgotten", more=names)
        if self._seldom(f"names {topic}"):
            effect = "their ids count as new; raise SIDECAR_PRODUCER_NAMES_LIMIT if they may come back"
            self._log.warning("producer_names_forgotten", topic=topic, names=names, effect=effect)

    # Claims

    def claims_granted(self, resource: str, resources: int, generation: int, session: str, deposed: str | None) -> None:
        if (log := self._few("resources_claimed", _CHANGES)) is not None:
            log.info(
                "resources_claimed",
                resource=resource[:200],
                resources=resources,
                generation=generation,
                session=session,
                deposed=deposed,
            )

    def claims_let_go(self, resource: str, resources: int, session: str) -> None:
        if (log := self._few("resources_released", _CHANGES)) is not None:
            log.info("resources_released", resource=resource[:200], resources=resources, session=session)

    def coordinator_changed(self, coordinates: bool, claims: int, reason: str) -> None:
        if coordinates:
            self._log.info("claims_coordinated", claims=claims)
        else:
            self._log.warning("claims_handed_on", claims=claims, reason=reason[:500])

    def claims_failed(self, error: BaseException) -> None:
        if self._seldom("claims"):
            self._log.warning("claims_failed", problem=str(error) or repr(error))

    # Shadow topics

    def cursors_failed(self, shadow: str, error: BaseException) -> None:
        if self._seldom(f"cursors {shadow}"):
            self._log.warning("cursors_unknown", shadow=shadow, problem=str(error) or repr(error))

    def cursors_reset(self, shadow: str, group: str, detail: str) -> None:
        self._log.warning("cursors_reset", shadow=shadow, group=group[:200], detail=detail[:500])

    # All topics

    def operation_failed(self, topic: str, error: BaseException) -> None:
        if self._seldom(f"operation {topic}"):
            self._log.warning("takeover_failed", topic=topic, problem=str(error) or repr(error))

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
