"""Prometheus: it scrapes the nodes of the compose file; its alerts can fire, can keep silent and lead to a runbook."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from tests.programs import program
from tests.unit.deploy.files import COMPOSE, PROMETHEUS, RULE_TESTS, RULES, RUNBOOK, load_yaml

if TYPE_CHECKING:
    from pathlib import Path

ALERTS: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in load_yaml(RULES)["groups"] for rule in group["rules"]
}


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    path = program("promtool", "prometheus or promtool")
    return subprocess.run([path, *arguments], capture_output=True, text=True, check=False, timeout=60)


def test_prometheus_scrapes_every_node_of_the_compose_file_where_its_metrics_are():
    jobs = {job["job_name"]: job for job in load_yaml(PROMETHEUS)["scrape_configs"]}
    services = load_yaml(COMPOSE)["services"]
    ports = {
        name: services[name]["environment"]["SIDECAR_ADMIN_LISTEN"].rsplit(":", 1)[1]
        for name in ("sidecar-1", "sidecar-2")
    }

    [targets] = jobs["sidecar"]["static_configs"]
    assert sorted(targets["targets"]) == sorted(f"{name}:{port}" for name, port in ports.items())
    assert jobs["sidecar"]["metrics_path"] == "/metrics"


def test_prometheus_loads_the_rules_from_what_is_mounted():
    command = load_yaml(COMPOSE)["services"]["prometheus"]["command"]
    volumes = load_yaml(COMPOSE)["services"]["prometheus"]["volumes"]

    assert "--config.file=/etc/prometheus/prometheus.yml" in command
    assert "./grafana/prometheus:/etc/prometheus:ro" in volumes
    assert any(RULES in PROMETHEUS.parent.glob(pattern) for pattern in load_yaml(PROMETHEUS)["rule_files"])


def test_an_alert_leads_to_its_entry_of_the_runbook():
    links = {name: rule["annotations"]["runbook_url"] for name, rule in ALERTS.items()}
    place = "{{ with $externalLabels.runbook }}{{ . }}{{ else }}deploy/runbook.md{{ end }}"

    assert links == {name: f"{place}#{name.lower()}" for name in ALERTS}


@pytest.mark.parametrize("path", [PROMETHEUS, PROMETHEUS.with_name("secured.yml")], ids=["plain", "secured"])
def test_a_variable_of_the_compose_file_says_where_the_runbook_is_and_labels_no_alert(path: Path):
    found = load_yaml(path)
    [relabelling] = found["alerting"]["alert_relabel_configs"]

    assert found["global"]["external_labels"] == {"runbook": "${RUNBOOK_URL}"}
    assert load_yaml(COMPOSE)["services"]["prometheus"]["environment"] == {"RUNBOOK_URL": None}
    assert relabelling == {"action": "labeldrop", "regex": "runbook"}


def test_the_runbook_has_an_entry_for_each_alert_and_no_other():
    assert set(re.findall(r"^## (\w+)$", RUNBOOK.read_text(encoding="utf-8"), re.MULTILINE)) == set(ALERTS)


def test_promtool_accepts_the_configuration_and_the_rules():
    assert promtool("check", "config", "--lint=all", "--lint-fatal", PROMETHEUS).returncode == 0
    assert promtool("check", "rules", "--lint=all", "--lint-fatal", RULES).returncode == 0


@cache
def rule_tests() -> list[tuple[str, bool]]:
    """Every case of the unit tests of the rules: the alert and whether it is to fire."""
    cases = [case for test in load_yaml(RULE_TESTS)["tests"] for case in test.get("promql_expr_test", [])]
    names = [re.findall(r'alertname="(\w+)"', case["expr"])[0] for case in cases]
    return [(name, bool(case["exp_samples"])) for name, case in zip(names, cases, strict=True)]


@pytest.mark.parametrize("fires", [True, False], ids=["fires", "silent"])
@pytest.mark.parametrize("name", ALERTS)
def test_there_is_a_case_for_each_alert(name: str, fires: bool):
    assert (name, fires) in rule_tests()


def test_the_alerts_fire_when_they_should_and_only_then():
    result = promtool("test", "rules", RULE_TESTS)

    assert result.returncode == 0, result.stdout + result.stderr
