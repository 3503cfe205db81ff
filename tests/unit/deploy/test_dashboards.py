"""The dashboards: clean for the linter, complete, and provisioned so that the first page is the dashboard."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

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


def _panel(dashboard: Tree, title: str) -> Tree:
    return next(panel for panel in dashboard["panels"] if panel["title"] == title)


def _variable(dashboard: Tree, name: str) -> Tree:
    return next(variable for variable in dashboard["templating"]["list"] if variable["name"] == name)


def _in_panel(title: str, key: str, value: Any) -> Callable[[Tree], None]:
    return lambda dashboard: _panel(dashboard, title).update({key: value})


def _in_query(title: str, **values: Any) -> Callable[[Tree], None]:
    return lambda dashboard: _panel(dashboard, title)["targets"][0].update(values)


def _in_variable(which: str, /, **values: Any) -> Callable[[Tree], None]:
    return lambda dashboard: _variable(dashboard, which).update(values)


def _at_top(**values: Any) -> Callable[[Tree], None]:
    return lambda dashboard: dashboard.update(values)


def _in_link(**values: Any) -> Callable[[Tree], None]:
    return lambda dashboard: dashboard["links"][0].update(values)


def _in_annotation(**values: Any) -> Callable[[Tree], None]:
    return lambda dashboard: dashboard["annotations"]["list"][-1].update(values)


def _asking(query: str) -> Callable[[Tree], None]:
    return _in_query("Requests", expr=query.replace("SELECTED", 'job=~"$job", instance=~"$instance"'))


def _labels_of(query: str) -> Callable[[Tree], None]:
    return _in_variable("topic", definition=query, query={"query": query, "refId": "topic"})


RULES = dashboard_rules
MUTATIONS: tuple[tuple[Rule, Callable[[Tree], None], str], ...] = (
    (RULES.template_datasource, _in_variable("datasource", query="loki"), "no variable `datasource`"),
    (RULES.template_job, _in_variable("job", name="jobs"), "no variable job"),
    (RULES.template_job, _in_variable("job", allValue=None), "variable job: allValue is None"),
    (RULES.template_instance, _in_variable("instance", multi=False), "variable instance: multi is False"),
    (RULES.template_label_promql, _labels_of("label_values(sidecar_generation, topic)"), "nobody exposes"),
    (RULES.template_label_promql, _labels_of("label_values(sidecar_redis_up, topic)"), "has no label topic"),
    (RULES.template_label_promql, _labels_of("sidecar_redis_up"), "is no label_values()"),
    (RULES.template_on_time_change_reload, _in_variable("topic", refresh=1), "topic is not reloaded"),
    (
        RULES.panel_datasource,
        _in_panel("Redis", "datasource", {"type": "prometheus", "uid": "x"}),
        "Redis: data source",
    ),
    (RULES.panel_datasource, _in_query("Redis", datasource=None), "Redis: data source None"),
    (RULES.panel_title_description, _in_panel("Redis", "description", ""), "no title or no description"),
    (RULES.panel_units, _in_panel("Redis", "fieldConfig", {"defaults": {"unit": "byes"}}), "Redis: unit byes"),
    (RULES.panel_no_targets, _in_panel("Redis", "targets", []), "Redis asks for nothing"),
    (RULES.target_promql, _asking("sum(rate(sidecar_requests_total{SELECTED}[$__rate_interval])"), "does not parse"),
    (RULES.target_promql, _asking("sum(sidecar_request_total{SELECTED})"), "nobody exposes sidecar_request_total"),
    (RULES.target_promql, _asking('sidecar_redis_up{SELECTED, api="Fetch"}'), "sidecar_redis_up has no label api"),
    (RULES.target_promql, _asking("sum by (topic) (sidecar_redis_up{SELECTED})"), "groups by topic"),
    (RULES.target_promql, _asking("rate(sidecar_live_nodes{SELECTED}[$__rate_interval])"), "it has no rate"),
    (
        RULES.target_promql,
        _asking("sum(sidecar_event_loop_lag_seconds_bucket{SELECTED})"),
        "without histogram_quantile",
    ),
    (
        RULES.target_promql,
        _asking(
            "histogram_quantile(0.9, sum(rate(sidecar_event_loop_lag_seconds_bucket{SELECTED}[$__rate_interval])))"
        ),
        "histogram_quantile over series without le",
    ),
    (
        RULES.target_promql,
        _asking("sidecar_redis_up{SELECTED} * on (topic) sidecar_live_nodes{SELECTED}"),
        "joins on topic, which one side lacks",
    ),
    (RULES.target_rate_interval, _asking("rate(sidecar_requests_total{SELECTED}[5m])"), "Requests: range 5m"),
    (RULES.target_rate_interval, _asking("increase(sidecar_requests_total{SELECTED}[$__range])"), "range $__range"),
    (RULES.target_job, _asking('sidecar_redis_up{instance=~"$instance"}'), 'not selected by job=~"$job"'),
    (RULES.target_job, _asking('sidecar_redis_up{job="$job"}'), "job is compared"),
    (RULES.target_instance, _asking('sidecar_redis_up{job=~"$job", instance=~".+"}'), "not selected by instance"),
    (RULES.target_counter_agg, _asking("sum(sidecar_requests_total{SELECTED})"), "is shown without a rate"),
    (RULES.uneditable_dashboard, _at_top(editable=True), "can be edited"),
    (RULES.identity, _at_top(uid=None), "uid is None"),
    (RULES.identity, _at_top(id=7), "id is 7"),
    (RULES.identity, _at_top(__inputs=[]), "form for sharing"),
    (RULES.identity, _at_top(schemaVersion=16), "schemaVersion is 16"),
    (RULES.identity, _at_top(tags=[]), "has no tags"),
    (RULES.panel_ids, _in_panel("Redis", "id", 1), "2 panels have the id 1"),
    (RULES.panel_ids, _in_panel("Redis", "id", None), "1 panels have the id None"),
    (RULES.panel_ids, _in_query("Produce duration", refId="B"), "Produce duration: queries"),
    (RULES.layout, _in_panel("Redis", "gridPos", {"x": 0, "y": 0, "w": 3, "h": 4}), "Redis lies on Nodes"),
    (RULES.layout, _in_panel("Redis", "gridPos", {"x": 22, "y": 0, "w": 3, "h": 4}), "Redis hangs over the edge"),
    (RULES.shown_labels, _in_query("Errors by code", legendFormat="{{code}}"), "shows code, which is not there"),
    (RULES.shown_labels, _in_query("Versions", expr="sidecar_redis_up"), "Versions shows python"),
    (RULES.used_variables, _asking('sidecar_redis_up{job=~"$jobs"}'), "$jobs is used but not defined"),
    (RULES.used_variables, _in_variable("topic", name="subject"), "$subject is defined but not used"),
    (RULES.dashboard_links, _at_top(links=[]), "no link to /d/sidecar-node"),
    (RULES.dashboard_links, _in_link(url="/d/sidecar"), "a link to /d/sidecar, which is not there"),
    (RULES.dashboard_links, _in_link(keepTime=False), "loses what was chosen"),
    (RULES.stat_thresholds, _in_panel("Redis", "fieldConfig", {"defaults": {"unit": "none"}}), "Redis: thresholds []"),
    (RULES.legends, _in_panel("Produce duration", "options", {}), "Produce duration: legend"),
    (RULES.takeover_marks, _at_top(annotations={"list": []}), "marks []"),
    (RULES.takeover_marks, _in_annotation(expr="changes(sidecar_generation[1m])"), "nobody exposes sidecar_generation"),
    (RULES.takeover_marks, _in_annotation(textFormat="{{owner}}"), "shows owner, which is not there"),
    (RULES.takeover_marks, _in_annotation(expr='sidecar_redis_up{job=~"$jobs"}'), "a variable that is not defined"),
    (RULES.target_names, _in_query("Produce duration", legendFormat="__auto"), "query A has no name"),
)


@pytest.mark.parametrize(("rule", "mutate", "sentence"), MUTATIONS)
def test_a_fault_put_into_the_dashboard_is_found(rule: Rule, mutate: Callable[[Tree], None], sentence: str):
    dashboard = copy.deepcopy(load_json(OVERVIEW))
    mutate(dashboard)

    found = list(rule(dashboard))

    assert any(sentence in problem for problem in found), found


def test_every_rule_has_a_fault_that_it_finds():
    assert {rule for rule, *_ in MUTATIONS} == set(dashboard_rules.RULES)


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
