"""The metrics that dashboards and alerts may name: one list, kept as data.

A name that is missing here is a panel that stays empty or an alert that can never fire, and nobody would notice. The
labels are those that queries may select or group by.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One family as `/metrics` shows it; an info metric is a gauge that is always 1."""

    name: str
    kind: Kind
    labels: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Sample:
    """A name that can stand in a query. Buckets, sum and count of a histogram only rise: they are counters."""

    metric: Metric
    rises: bool


def _metric(name: str, kind: Kind, *labels: str) -> Metric:
    return Metric(name, kind, frozenset(labels))


NODE = (
    _metric("sidecar_build_info", "gauge", "version", "python"),
    _metric("sidecar_client_connections", "gauge"),
    _metric("sidecar_client_connections_total", "counter"),
    _metric("sidecar_client_disconnects_total", "counter", "cause"),
    _metric("sidecar_upstream_connections", "gauge"),
    _metric("sidecar_upstream_connection_errors_total", "counter", "broker"),
    _metric("sidecar_requests_total", "counter", "api"),
    _metric("sidecar_request_bytes_total", "counter", "api"),
    _metric("sidecar_response_bytes_total", "counter", "api"),
    _metric("sidecar_request_duration_seconds", "histogram", "api"),
    _metric("sidecar_upstream_duration_seconds", "histogram", "api"),
    _metric("sidecar_overhead_seconds", "histogram", "api"),
    _metric("sidecar_requests_in_flight", "gauge", "api"),
    _metric("sidecar_response_errors_total", "counter", "api", "error"),
    _metric("sidecar_produce_records_total", "counter", "topic"),
    _metric("sidecar_produce_bytes_total", "counter", "topic"),
    _metric("sidecar_produce_duplicates_total", "counter", "topic"),
    _metric("sidecar_produce_unknown_total", "counter", "topic"),
    _metric("sidecar_dedup_names", "gauge"),
    _metric("sidecar_dedup_recovered_records_total", "counter"),
    _metric("sidecar_dedup_recovery_duration_seconds", "histogram"),
    _metric("sidecar_dedup_snapshots_total", "counter"),
    _metric("sidecar_dedup_snapshot_bytes_total", "counter"),
    _metric("sidecar_produce_fenced_total", "counter", "topic", "reason"),
    _metric("sidecar_producer_generation", "gauge", "topic"),
    _metric("sidecar_producer_owner_info", "gauge", "topic", "owner", "mode"),
    _metric("sidecar_producer_waiting", "gauge", "topic"),
    _metric("sidecar_producer_stranded", "gauge", "topic"),
    _metric("sidecar_lease_expiry_timestamp_seconds", "gauge"),
    _metric("sidecar_takeovers_total", "counter", "mode"),
    _metric("sidecar_takeover_duration_seconds", "histogram"),
    _metric("sidecar_redis_up", "gauge"),
    _metric("sidecar_redis_noeviction", "gauge"),
    _metric("sidecar_redis_errors_total", "counter", "kind"),
    _metric("sidecar_redis_command_duration_seconds", "histogram", "script"),
    _metric("sidecar_kafka_up", "gauge"),
    _metric("sidecar_event_loop_lag_seconds", "histogram"),
    _metric("sidecar_dedup_reading_topics", "gauge"),
    _metric("sidecar_dedup_lost_topics", "gauge"),
    _metric("sidecar_claims_total", "counter", "outcome"),
    _metric("sidecar_claims_held", "gauge"),
    _metric("sidecar_claims_waiting", "gauge"),
    _metric("sidecar_shadows_closed", "gauge"),
    _metric("sidecar_fanout_polls", "gauge"),
    _metric("sidecar_fanout_waiting", "gauge"),
    _metric("sidecar_live_nodes", "gauge"),
    _metric("sidecar_config_reload_total", "counter", "outcome"),
    _metric("sidecar_config_last_reload_successful", "gauge"),
    _metric("sidecar_config_last_reload_success_timestamp_seconds", "gauge"),
    _metric("sidecar_labels_dropped_total", "counter"),
    _metric("sidecar_shadow_readers", "gauge", "shadow"),
    _metric("sidecar_shadow_read_bytes_total", "counter", "shadow"),
    _metric("sidecar_shadow_last_read_timestamp_seconds", "gauge", "shadow"),
    _metric("sidecar_shadow_cursor_resets_total", "counter", "shadow"),
    _metric("sidecar_shadow_groups", "gauge", "shadow"),
    _metric("sidecar_shadow_lag_records", "gauge", "shadow"),
    _metric("sidecar_shadow_max_lag_records", "gauge", "shadow"),
)
"""What a node says of itself."""

PROCESS = (
    _metric("process_cpu_seconds_total", "counter"),
    _metric("process_resident_memory_bytes", "gauge"),
    _metric("process_open_fds", "gauge"),
    _metric("process_max_fds", "gauge"),
    _metric("process_start_time_seconds", "gauge"),
)
"""What the operating system says of the node's process, as far as a query needs it."""

PROMETHEUS = (_metric("up", "gauge"),)
"""What Prometheus adds by itself to each target."""

TARGET_LABELS = frozenset({"job", "instance"})
"""Labels that Prometheus puts on every series it scrapes."""


def samples() -> dict[str, Sample]:
    """Every name a query may use; a histogram itself is none, only its parts are."""
    found: dict[str, Sample] = {}
    for metric in NODE + PROCESS + PROMETHEUS:
        if metric.kind == "histogram":
            with_bound = Metric(metric.name, metric.kind, metric.labels | {"le"})
            found[f"{metric.name}_bucket"] = Sample(with_bound, rises=True)
            found[f"{metric.name}_sum"] = Sample(metric, rises=True)
            found[f"{metric.name}_count"] = Sample(metric, rises=True)
        else:
            found[metric.name] = Sample(metric, rises=metric.kind == "counter")
    return found
