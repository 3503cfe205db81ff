"""Every panel shows something: a real Prometheus that scrapes two real nodes at work answers each of its queries."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.slow.observed.conftest import Observed
from tests.slow.observed.prometheus import WINDOW
from tests.unit.deploy.files import DASHBOARDS, Tree, load_json, panels, variables


def asked(expression: str) -> str:
    """A query as Grafana would send it where every choice is "all"."""
    query = expression.replace("$__rate_interval", WINDOW).replace("$__range", WINDOW)
    for name in variables(query):
        query = query.replace(f"${name}", ".+")
    return query


def panel_queries() -> Iterator[ParameterSet]:
    for path in DASHBOARDS:
        for panel in panels(load_json(path)):
            for target in panel["targets"]:
                name = f"{path.stem}-{panel['id']}-{panel['title']}-{target['refId']}"
                labels = set(re.findall(r"\{\{\s*(\w+)\s*\}\}", target.get("legendFormat", "")))
                yield pytest.param(panel, asked(target["expr"]), labels, id=name)


@pytest.mark.parametrize(("panel", "query", "labels"), list(panel_queries()))
def test_a_panel_has_data_and_the_labels_of_its_legend(
    observed: Observed, panel: Tree, query: str, labels: set[str]
) -> None:
    found = observed.prometheus.query(query, observed.scene.at)
    values = [float(series["value"][1]) for series in found]
    assert [value for value in values if not math.isnan(value)], f"{panel['title']}: {query} finds {found}"
    assert all(labels <= series["metric"].keys() for series in found)


def test_duplicates_are_no_records_that_were_written(observed: Observed) -> None:
    [written] = [
        target["expr"]
        for path in DASHBOARDS
        for panel in panels(load_json(path))
        for target in panel["targets"]
        if panel["title"] == "Records written"
    ]
    taken = "sum by (topic) (rate(sidecar_produce_records_total[$__rate_interval]))"
    first, second = [
        {series["metric"]["topic"]: float(series["value"][1]) for series in found}[observed.scene.payments]
        for found in [observed.prometheus.query(asked(query), observed.scene.at) for query in (written, taken)]
    ]
    assert 0 < first < second * 0.75, "half of what was sent is in the log already"


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_takeovers_are_marked(observed: Observed, path: Path) -> None:
    [marks] = [found for found in load_json(path)["annotations"]["list"] if not found.get("builtIn")]
    found = observed.prometheus.query(asked(marks["expr"]), observed.scene.at)
    assert observed.scene.orders in [series["metric"]["topic"] for series in found]


def test_what_the_variables_offer_is_there(observed: Observed) -> None:
    for label, name in (("topic", observed.scene.orders), ("topic", observed.scene.payments)):
        assert name in observed.prometheus.api(f"label/{label}/values")
    assert observed.scene.audit in observed.prometheus.api("label/shadow/values")
