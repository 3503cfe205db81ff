"""Grafana in compose.yaml: it finds Prometheus and the dashboards, and a visitor can only look."""

from __future__ import annotations

from pathlib import PurePosixPath

from tests.unit.deploy.files import COMPOSE, GRAFANA, PROMETHEUS, Tree, load_json, load_yaml

SERVICE: Tree = load_yaml(COMPOSE)["services"]["grafana"]
OVERVIEW = GRAFANA / "dashboards" / "overview.json"


def provisioned(kind: str, name: str) -> Tree:
    return load_yaml(GRAFANA / "provisioning" / kind / name)


def test_the_data_source_is_the_prometheus_of_the_compose_file_and_knows_its_scrape_interval():
    [source] = provisioned("datasources", "prometheus.yaml")["datasources"]
    variables = {each["name"]: each for each in load_json(OVERVIEW)["templating"]["list"]}

    assert source["url"] == "http://prometheus:9090"
    assert source["jsonData"]["timeInterval"] == load_yaml(PROMETHEUS)["global"]["scrape_interval"]
    assert source["uid"] == variables["datasource"]["current"]["value"]


def test_the_dashboards_are_where_grafana_looks_and_the_first_page_is_one():
    [provider] = provisioned("dashboards", "sidecar.yaml")["providers"]
    mounted = {PurePosixPath(each.split(":")[1]): each.split(":")[0] for each in SERVICE["volumes"]}
    home = PurePosixPath(SERVICE["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])

    assert mounted[PurePosixPath("/etc/grafana/provisioning")] == "./grafana/provisioning"
    assert mounted[PurePosixPath(provider["options"]["path"])] == mounted[home.parent] == "./grafana/dashboards"
    assert home.name == OVERVIEW.name


def test_a_visitor_can_only_look():
    environment = SERVICE["environment"]

    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert environment["GF_AUTH_BASIC_ENABLED"] == "false"
    assert environment["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
