"""A node's metrics with a sample in every family: to everything that is counted something has happened."""

from __future__ import annotations

from itertools import count
from typing import NamedTuple

from sidecar.telemetry.hooks import COUNTS, GAUGES, NodeMetrics
from sidecar.telemetry.series import ShadowSeries
from tests.unit.telemetry.paper_request import REQUEST


def everything_happens(metrics: NodeMetrics) -> None:
    """One event of each kind. The second topic is one too many and is counted under `_other`."""
    metrics.client_connected("INSIDE")
    metrics.client_disconnected("closed", "INSIDE")
    metrics.request_done(0, 0.001, 100, 50, 0.0004, REQUEST)
    metrics.response_error("Produce", "POLICY_VIOLATION")
    metrics.count("upstream_connection_errors", "1")
    metrics.governed_produce("orders", 3, 300)
    metrics.duplicates_dropped("orders", 1)
    metrics.ids_unknown("orders")
    metrics.fenced("orders", "deposed")
    metrics.fenced("one-too-many", "deposed")
    metrics.owner_changed("orders", 7, "billing", "exclusive")
    metrics.count("takeovers", "exclusive")
    metrics.observe("takeover_duration_seconds", 0.02)
    metrics.redis_command("claim", 0.0002)
    metrics.count("redis_errors", "timeout")
    metrics.observe("event_loop_lag_seconds", 0.001)
    metrics.count("config_reload", "success")


class _Lag(NamedTuple):
    groups: int = 2
    total: int = 30
    longest: int = 20


def _shadow(name: str, reads: int) -> ShadowSeries:
    return ShadowSeries(name, 1, 1_000 * reads, 1_700_000_000_000 + reads, reads, _Lag())


def eventful_metrics() -> NodeMetrics:
    """Metrics of a node to which everything has happened once."""
    metrics = NodeMetrics({0: "Produce", 1: "Fetch"}, "0.1.0", topic_limit=1)
    for gauge in GAUGES:
        metrics.read_gauge(gauge, lambda: 1.0)
    for name in COUNTS:
        metrics.read_count(name, lambda: 1.0)
    reads = count(1)
    metrics.read_shadows(lambda: [_shadow("orders-audit", next(reads)), _shadow("one-too-many", next(reads))])
    everything_happens(metrics)
    return metrics
