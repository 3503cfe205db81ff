"""Turns reports of the rooms that grant ownership, and of those that know sequence ids, into metrics and log events.
Cheap; never raises.
"""

from enum import Enum
from typing import Final

from sidecar.telemetry.hooks import NodeMetrics
from sidecar.telemetry.limited_log import LimitedLog

_CHANGES: Final = 200
"""The number of changes of owners or claims of one kind logged within five seconds; the events topic has all."""
_NAMED: Final = 100
"""The number of sessions that one log event names."""


class OwnershipReports:
    """Takeovers, fences, sequence ids and claims of one node."""

    def __init__(self, metrics: NodeMetrics, limited: LimitedLog) -> None:
        self._metrics = metrics
        self._limited = limited
        self._log = limited.log
        self.topic_forgotten = metrics.topic_forgotten
        self.governed_produce = metrics.governed_produce
        self.fenced = metrics.fenced
        self.owner_changed = metrics.owner_changed
        self.duplicates_dropped = metrics.duplicates_dropped
        self.ids_unknown = metrics.ids_unknown
        self.claims_answered = metrics.claims_answered

    def deposed(self, resource: str, lost: tuple[str, ...], by: tuple[str, str], client: str) -> None:
        """Write an event of the audit log: a session was deposed by the mode or generation of a batch, or by Own."""
        self._log.info(
            "audit",
            act="Depose",
            result="done",
            who=by[0],
            peer=client,
            client_id=by[1][:200],
            on=(resource,),
            deposed=lost[:_NAMED],
        )

    # Governed topics

    def takeover(
        self, topic: str, mode: str, seconds: float, session: str, generation: int, deposed: str | None
    ) -> None:
        self._metrics.count("takeovers", mode)
        self._metrics.observe("takeover_duration_seconds", seconds)
        if (log := self._limited.few("takeover", _CHANGES)) is not None:
            log.info(
                "takeover",
                topic=topic,
                mode=mode,
                ms=round(seconds * 1000, 1),
                session=session,
                generation=generation,
                deposed=deposed,
            )

    def fence_renewed(self, topic: str, cause: Enum | None) -> None:
        self._metrics.count("fence_renewals", cause.name.lower() if cause else "time")
        if cause is not None and (log := self._limited.few("fence_renewed", _CHANGES)) is not None:
            log.info("fence_renewed", topic=topic, reason=cause.value)

    def compaction_lag_raised(self, topic: str, before_ms: int, after_ms: int) -> None:
        self._log.warning("compaction_lag_raised", topic=topic, before_ms=before_ms, after_ms=after_ms)

    def compaction_lag_low(self, topic: str, problem: str) -> None:
        if self._limited.seldom(f"lag {topic}"):
            self._log.error("compaction_lag_low", topic=topic, problem=problem)

    def topic_gone(self, topic: str, generation: int) -> None:
        self._log.info("topic_gone", topic=topic, generation=generation, effect="only its generation is kept")

    def released(self, topic: str, session: str, generation: int) -> None:
        if (log := self._limited.few("released", _CHANGES)) is not None:
            log.info("released", topic=topic, session=session, generation=generation)

    def ids_read(self, topic: str, records: int) -> None:
        self._metrics.count("dedup_recovered_records", more=records)

    def ids_recovered(self, topic: str, records: int, seconds: float) -> None:
        self._metrics.observe("dedup_recovery_duration_seconds", seconds)
        self._log.info("sequence_ids_read", topic=topic, records=records, ms=round(seconds * 1000, 1))

    def ids_lost(self, topic: str, reason: str) -> None:
        if self._limited.seldom(f"ids {topic}"):
            self._log.error("sequence_ids_lost", topic=topic, problem=reason)

    def snapshot_written(self, topic: str, names: int, size: int) -> None:
        self._metrics.count("dedup_snapshots")
        self._metrics.count("dedup_snapshot_bytes", more=size)

    def names_forgotten(self, topic: str, names: int) -> None:
        self._metrics.count("dedup_names_forgotten", more=names)
        if self._limited.seldom(f"names {topic}"):
            effect = "their ids count as new; raise SIDECAR_PRODUCER_NAMES_LIMIT if they may come back"
            self._log.warning("producer_names_forgotten", topic=topic, names=names, effect=effect)

    # Claims

    def claims_granted(self, resource: str, resources: int, generation: int, session: str, deposed: str | None) -> None:
        if (log := self._limited.few("resources_claimed", _CHANGES)) is not None:
            log.info(
                "resources_claimed",
                resource=resource[:200],
                resources=resources,
                generation=generation,
                session=session,
                deposed=deposed,
            )

    def claims_let_go(self, resource: str, resources: int, session: str) -> None:
        if (log := self._limited.few("resources_released", _CHANGES)) is not None:
            log.info("resources_released", resource=resource[:200], resources=resources, session=session)

    def coordinator_changed(self, coordinates: bool, claims: int, reason: str) -> None:
        if coordinates:
            self._log.info("claims_coordinated", claims=claims)
        else:
            self._log.warning("claims_handed_on", claims=claims, reason=reason[:500])

    def claims_failed(self, error: BaseException) -> None:
        if self._limited.seldom("claims"):
            self._log.warning("claims_failed", problem=str(error) or repr(error))

    # All topics

    def operation_failed(self, topic: str, error: BaseException) -> None:
        if self._limited.seldom(f"operation {topic}"):
            self._log.warning("takeover_failed", topic=topic, problem=str(error) or repr(error))
