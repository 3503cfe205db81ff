"""Prometheus: it scrapes the nodes of the compose file; its alerts can fire, can keep silent and lead to a runbook."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.programs import program
from tests.unit.deploy import promql
from tests.unit.deploy.compose_rules import NODES
from tests.unit.deploy.files import COMPOSE, DASHBOARDS, PROMETHEUS, RULE_TESTS, RULES, RUNBOOK, load_yaml

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
    ports = {name: services[name]["environment"]["SIDECAR_ADMIN_LISTEN"].rsplit(":", 1)[1] for name in NODES}

    [targets] = jobs["sidecar"]["static_configs"]
    assert sorted(targets["targets"]) == sorted(f"{name}:{port}" for name, port in ports.items())
    assert jobs["sidecar"]["metrics_path"] == "/metrics"


def test_prometheus_loads_the_rules_from_what_is_mounted():
    command = load_yaml(COMPOSE)["services"]["prometheus"]["command"]
    volumes = load_yaml(COMPOSE)["services"]["prometheus"]["volumes"]

    assert "--config.file=/etc/prometheus/prometheus.yml" in command
    assert "./grafana/prometheus:/etc/prometheus:ro" in volumes
    assert any(RULES in PROMETHEUS.parent.glob(pattern) for pattern in load_yaml(PROMETHEUS)["rule_files"])


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_asks_for_what_a_node_exposes(name: str):
    assert promql.read(ALERTS[name]["expr"]).problems == ()


@pytest.mark.parametrize("name", ALERTS)
def test_the_words_of_an_alert_use_labels_that_it_has(name: str):
    labels = promql.read(ALERTS[name]["expr"]).labels
    words = " ".join(ALERTS[name]["annotations"].values())

    assert set(re.findall(r"\$labels\.(\w+)", words)) <= labels


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_has_a_severity_a_summary_a_description_and_an_entry_in_the_runbook(name: str):
    alert = ALERTS[name]

    assert alert["labels"]["severity"] in {"critical", "warning"}
    assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}
    assert alert["annotations"]["runbook_url"] == f"deploy/runbook.md#{name.lower()}"


def test_the_runbook_has_an_entry_for_each_alert_and_no_other():
    assert set(re.findall(r"^## (\w+)$", RUNBOOK.read_text(encoding="utf-8"), re.MULTILINE)) == set(ALERTS)


@pytest.mark.parametrize("name", ALERTS)
def test_an_entry_of_the_runbook_says_what_it_means_what_to_look_at_and_what_to_do(name: str):
    [entry] = re.findall(
        rf"^## {name}\n\n(.*?)(?=^## |\Z)", RUNBOOK.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    points = re.findall(r"^- ([^:]+):", entry, re.MULTILINE)

    assert not entry.startswith("-"), "what it means comes first"
    assert {"Look at", "Do"} <= set(points)
    assert name == "SidecarAbsent" or {"Still works", "Does not work"} & set(points)


def test_the_runbook_names_panels_that_the_dashboards_have():
    dashboard = "".join(path.read_text(encoding="utf-8") for path in DASHBOARDS)
    named = re.findall(r"[Pp]anel\s+[\"*]([^\"*]+)[\"*]", RUNBOOK.read_text(encoding="utf-8") + str(ALERTS))

    assert len(named) >= 5
    assert [title for title in named if f'"title": "{title}"' not in dashboard] == []


def test_losing_redis_is_announced_as_what_it_is():
    words = " ".join(ALERTS["RedisUnavailable"]["annotations"].values())

    assert "claims are refused, owners keep writing" in words


def test_a_query_for_an_unknown_metric_is_found():
    assert promql.read("rate(sidecar_request_total[5m]) > 0").problems == ("nobody exposes sidecar_request_total",)


def test_labels_that_an_aggregation_dropped_are_gone():
    reading = promql.read(
        "sum by (topic) (sidecar_producer_generation) > 3 unless on (topic) sidecar_producer_owner_info"
    )

    assert (reading.labels, reading.problems) == (frozenset({"topic"}), ())


def test_promtool_accepts_the_configuration_and_the_rules():
    assert promtool("check", "config", "--lint=all", "--lint-fatal", PROMETHEUS).returncode == 0
    assert promtool("check", "rules", "--lint=all", "--lint-fatal", RULES).returncode == 0


def rule_tests() -> list[tuple[str, bool]]:
    """Every case of the unit tests of the rules: the alert and whether it is to fire."""
    cases = [case for test in load_yaml(RULE_TESTS)["tests"] for case in test.get("promql_expr_test", [])]
    names = [re.findall(r'alertname="(\w+)"', case["expr"])[0] for case in cases]
    return [(name, bool(case["exp_samples"])) for name, case in zip(names, cases, strict=True)]


@pytest.mark.parametrize("fires", [True, False], ids=["fires", "silent"])
@pytest.mark.parametrize("name", ALERTS)
def test_there_is_a_case_for_each_alert(name: str, fires: bool):
    assert (name, fires) in rule_tests()


def run_rule_tests(directory: Path, name: str, rules: str) -> subprocess.CompletedProcess[str]:
    """The unit tests that speak of alert `name`, run against `rules` in place of those of the repository."""
    suite = load_yaml(RULE_TESTS)
    suite["tests"] = [test for test in suite["tests"] if f'alertname="{name}"' in str(test)]
    (directory / "rules.yml").write_text(rules, encoding="utf-8")
    (directory / "test.yml").write_text(yaml.safe_dump(suite | {"rule_files": ["rules.yml"]}), encoding="utf-8")
    return promtool("test", "rules", directory / "test.yml")


def test_the_alerts_fire_when_they_should_and_only_then():
    result = promtool("test", "rules", RULE_TESTS)

    assert result.returncode == 0, result.stdout + result.stderr


DAMAGE = {
    "SidecarDown": ("for: 1m", "for: 0m"),
    "SidecarAbsent": ("absent(sidecar_build_info)", "absent(sidecar_build_infos)"),
    "RedisUnavailable": ("for: 30s", "for: 0s"),
    "KafkaUnavailable": ("for: 30s", "for: 0s"),
    "SidecarErrorRatioHigh": ("POLICY_VIOLATION|", ""),
    "SidecarLatencyHigh": ("sidecar_overhead_seconds_bucket", "sidecar_request_duration_seconds_bucket"),
    "RedisEvictionPolicyWrong": ("min by (job)", "min by (job, instance)"),
    "ConfigReloadFailed": ("for: 1m", "for: 0m"),
    "LeaseExpired": ("unless on (job, instance)", "unless on (topic)"),
    "NoOwner": ("sidecar_producer_stranded", "sidecar_producer_waiting"),
    "DuplicateStorm": ("> 0.5", "> 0.1"),
    "ShadowLagGrowing": ("> 10000", "> 10"),
    "UpstreamConnectionErrors": ("[2m]", "[5m]"),
    "ClientUpstreamDivergence": ("rate(sidecar_requests_total[5m])", "sidecar_requests_total"),
    "EventLoopBlocked": ("0.99", "0.999"),
    "SequenceIdsLost": ("for: 1m", "for: 0m"),
    "StaleProducerWriting": ('{reason!~"waiting|redis_down"} unless', " unless"),
    "ShadowClosed": ("max by (job)", "sum by (job)"),
    "OwnershipFlapping": ("max by (job, topic)", "max by (job, instance, topic)"),
}
"""A small change to each alert, after which it fires too often or too seldom."""


@pytest.mark.parametrize("name", ALERTS)
@pytest.mark.parametrize("damage", ["deaf", "altered"])
@pytest.mark.slow  # promtool runs for each
def test_a_damaged_alert_fails_its_tests(tmp_path: Path, name: str, damage: str):
    text = RULES.read_text(encoding="utf-8")
    [alert] = re.findall(rf"alert: {name}\n.*?runbook_url", text, re.DOTALL)
    if damage == "deaf":
        wrong = re.sub(r"        for: \w+\n", "", alert).replace("        labels:", "        for: 1d\n        labels:")
    else:
        old, new = DAMAGE[name]
        assert old in alert
        wrong = alert.replace(old, new)

    before = run_rule_tests(tmp_path, name, text)
    after = run_rule_tests(tmp_path, name, text.replace(alert, wrong))

    assert (before.returncode, after.returncode) == (0, 1), after.stdout + after.stderr
    assert name in after.stdout + after.stderr
