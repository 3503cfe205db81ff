"""The list that dashboards and alerts are checked against is what a node's metrics page really shows."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sidecar.telemetry.exposition import Exposition
from sidecar.telemetry.hooks import NodeMetrics
from tests.unit.deploy.catalogue import NODE, PROCESS, Metric


def a_node_to_which_everything_has_happened() -> NodeMetrics:
    """Metrics with a sample in every family, so that labels show."""
    metrics = NodeMetrics({0: "Produce", 1: "Fetch"}, "0.1.0", topic_limit=1)
    metrics.client_connected()
    metrics.client_disconnected("closed")
    metrics.request_done(0, 0.001, 100, 50)
    metrics.response_error("Produce", "POLICY_VIOLATION")
    metrics.upstream_opened()
    metrics.upstream_error("1")
    metrics.governed_produce("orders", 3, 300)
    metrics.fenced("orders", "deposed")
    metrics.fenced("one-too-many", "deposed")
    metrics.owner_changed("orders", 7, "billing", "exclusive")
    metrics.takeover("exclusive", 0.02)
    metrics.redis_command("claim", 0.0002)
    metrics.redis_error("timeout")
    metrics.loop_lagged(0.001)
    for gauge in ("requests_in_flight", "redis_up", "kafka_up", "live_nodes"):
        metrics.read_gauge(gauge, lambda: 1.0)
    return metrics


async def exposed() -> dict[str, tuple[str, frozenset[str]]]:
    """Kind and labels by the name a query uses; the bounds of a histogram are no labels of the family."""
    page = (await Exposition(a_node_to_which_everything_has_happened()).render()).decode()
    found: dict[str, tuple[str, frozenset[str]]] = {}
    for family in text_string_to_metric_families(page):
        labels = frozenset(label for sample in family.samples for label in sample.labels) - {"le"}
        found[f"{family.name}_total" if family.type == "counter" else family.name] = (family.type, labels)
    return found


@pytest.mark.parametrize("metric", NODE + PROCESS, ids=lambda metric: metric.name)
async def test_a_node_exposes_the_metric_with_its_kind_and_labels(metric: Metric):
    assert (await exposed()).get(metric.name) == (metric.kind, metric.labels)


async def test_a_node_exposes_nothing_that_the_catalogue_does_not_know():
    own = {name for name in await exposed() if name.startswith("sidecar_")}

    assert own == {metric.name for metric in NODE}
