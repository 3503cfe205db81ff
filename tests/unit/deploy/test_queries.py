"""What dashboards and alerts ask for is what a node exposes: names and labels. What they find is tested in
tests/slow/observed, on a real Prometheus.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import promql_parser
import pytest
from prometheus_client.parser import text_string_to_metric_families

from sidecar.telemetry.exposition import Exposition
from tests.unit.deploy.eventful import eventful_metrics
from tests.unit.deploy.files import DASHBOARDS, RULES, load_json, load_yaml, panels, variables

PROMETHEUSS_OWN = {"up": frozenset[str]()}
TARGET_LABELS = {"job", "instance"}


def queries() -> Iterator[tuple[str, str, str]]:
    """Every query, with the words that name its labels."""
    for group in load_yaml(RULES)["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"], " ".join(rule["annotations"].values())
    for path in DASHBOARDS:
        dashboard = load_json(path)
        for marks in dashboard["annotations"]["list"]:
            if not marks.get("builtIn"):
                yield f"{path.stem}-{marks['name']}", marks["expr"], marks["textFormat"]
        for panel in panels(dashboard):
            for target in panel["targets"]:
                name = f"{path.stem}-{panel['title']}-{target['refId']}"
                yield name, target["expr"], target.get("legendFormat", "")


async def exposed() -> dict[str, frozenset[str]]:
    """The labels of everything that a query can name."""
    page = (await Exposition(eventful_metrics()).render()).decode()
    families = text_string_to_metric_families(page)
    found = {each.name: frozenset(each.labels) for family in families for each in family.samples}
    return found | PROMETHEUSS_OWN


@pytest.mark.parametrize(("expression", "words"), [pytest.param(*rest, id=name) for name, *rest in queries()])
async def test_a_query_asks_for_metrics_and_labels_that_are_there(expression: str, words: str) -> None:
    promql_parser.parse(re.sub(r"\$\{?(__)?\w+\}?", lambda found: "5m" if found[1] else ".+", expression))
    known = await exposed()
    names = set(re.findall(r"\b(?:sidecar_\w+|process_\w+|up)\b", expression))
    assert names
    assert names <= known.keys()
    labels = TARGET_LABELS.union(*(known[name] for name in names))
    grouped = re.findall(r"\b(?:by|without|on|ignoring|group_left|group_right) ?\(([^)]*)\)", expression)
    asked = {label for each in grouped for label in re.split(r",\s*", each) if label}
    asked |= set(re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"', expression))
    asked |= set(re.findall(r"\{\{\s*(?:\$labels\.)?(?!(?:else|end)\b)(\w+)\s*\}\}", words))
    assert asked <= labels


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_the_variables_of_queries_are_defined(path: Path) -> None:
    dashboard = load_json(path)
    defined = {each["name"] for each in dashboard["templating"]["list"]}
    used = {name for panel in panels(dashboard) for target in panel["targets"] for name in variables(target["expr"])}
    assert used <= defined
