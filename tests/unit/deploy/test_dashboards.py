"""The dashboards: clean for the linter, complete, and provisioned so that the first page is the dashboard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pytest

from tests.unit.deploy import dashboard_rules, promql
from tests.unit.deploy.catalogue import NODE, Metric, samples
from tests.unit.deploy.files import COMPOSE, DASHBOARDS, GRAFANA, PROMETHEUS, Tree, load_json, load_yaml

Rule = Callable[[Tree], Iterator[str]]
OVERVIEW = GRAFANA / "dashboards" / "overview.json"


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
@pytest.mark.parametrize("rule", dashboard_rules.RULES, ids=lambda rule: rule.__name__)
def test_a_dashboard_keeps_the_rule(path: Path, rule: Rule):
    assert list(rule(load_json(path))) == []


def test_there_are_four_dashboards_and_links_to_them_last():
    uids = {path.stem: load_json(path)["uid"] for path in DASHBOARDS}

    assert uids == {name: f"sidecar-{name}" for name in ("exclusive", "node", "overview", "shadows")}


def test_a_title_names_one_panel_of_all_dashboards():
    titles = [panel["title"] for path in DASHBOARDS for panel in dashboard_rules.panels(load_json(path))]

    assert [title for title in titles if titles.count(title) > 1] == []


@pytest.mark.parametrize("metric", NODE, ids=lambda metric: metric.name)
def test_every_metric_of_a_node_is_on_a_dashboard(metric: Metric):
    known = samples()
    shown = {
        known[selection.name].metric.name
        for path in DASHBOARDS
        for _, reading in dashboard_rules.queries(load_json(path))
        for selection in reading.selections
    }

    assert metric.name in shown


def _variable(dashboard: Tree, name: str) -> Tree:
    return next(variable for variable in dashboard["templating"]["list"] if variable["name"] == name)


RULES = dashboard_rules


def test_the_variables_of_a_query_are_found_and_grafanas_own_are_not():
    assert promql.variables('rate(x{job=~"$job", topic=~"${topic}"}[$__rate_interval])') == {"job", "topic"}


def provisioned(kind: str, name: str) -> Tree:
    return load_yaml(GRAFANA / "provisioning" / kind / name)


def mounted(service: str) -> dict[PurePosixPath, str]:
    """Mount points of a service and what of the repository is there."""
    volumes = (volume.split(":") for volume in load_yaml(COMPOSE)["services"][service]["volumes"])
    return {PurePosixPath(target): source for source, target, *_ in volumes}


def test_the_data_source_is_the_prometheus_of_the_compose_file_and_knows_its_scrape_interval():
    [source] = provisioned("datasources", "prometheus.yaml")["datasources"]
    prometheus = load_yaml(COMPOSE)["services"]["prometheus"]

    assert source["url"] == "http://prometheus:9090"
    assert prometheus["ports"] == ["127.0.0.1:9090:9090"]
    assert source["jsonData"]["timeInterval"] == load_yaml(PROMETHEUS)["global"]["scrape_interval"]
    assert source["uid"] == _variable(load_json(OVERVIEW), "datasource")["current"]["value"]


def test_the_dashboards_are_where_the_provider_looks_and_cannot_be_changed_there():
    [provider] = provisioned("dashboards", "sidecar.yaml")["providers"]

    assert mounted("grafana")[PurePosixPath(provider["options"]["path"])] == "./grafana/dashboards"
    assert mounted("grafana")[PurePosixPath("/etc/grafana/provisioning")] == "./grafana/provisioning"
    assert provider["allowUiUpdates"] is False


def test_the_first_page_is_the_dashboard_and_a_visitor_can_only_look():
    environment = load_yaml(COMPOSE)["services"]["grafana"]["environment"]
    home = PurePosixPath(environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])

    assert mounted("grafana")[home.parent] == "./grafana/dashboards"
    assert OVERVIEW.name == home.name
    assert environment["GF_AUTH_ANONYMOUS_ENABLED"] == "true"
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert environment["GF_AUTH_BASIC_ENABLED"] == "false"
    assert environment["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
