"""The list that dashboards and alerts are checked against is what a node's metrics page really shows."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sidecar.telemetry.exposition import Exposition
from tests.unit.deploy.catalogue import NODE, PROCESS, Metric
from tests.unit.deploy.eventful import eventful_metrics


async def exposed() -> dict[str, tuple[str, frozenset[str]]]:
    """Kind and labels by the name a query uses; the bounds of a histogram are no labels of the family."""
    page = (await Exposition(eventful_metrics()).render()).decode()
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
