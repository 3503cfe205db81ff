"""What the hooks of a node log."""

from __future__ import annotations

from structlog.testing import capture_logs

from sidecar.node.hooks import NodeHooks
from sidecar.telemetry.hooks import NodeMetrics
from sidecar.writing.upkeep import Cause


def test_rejections_of_one_kind_are_logged_up_to_the_limit_and_the_rest_is_counted() -> None:
    metrics = NodeMetrics({}, "1.0")
    hooks = NodeHooks(metrics, log_limit=3)
    with capture_logs() as logged:
        for number in range(5):
            hooks.client_rejected(f"10.0.0.1:{number}", "app", "malformed", "no such thing")
        hooks.client_rejected("10.0.0.1:5", "app", "too_many", "elements")
    assert [event["reason"] for event in logged] == ["malformed"] * 3 + ["too_many"]
    assert metrics.counted["log_events_left_out"] == {(): 2}


def test_a_mechanism_that_nodes_do_not_know_adds_no_series_of_its_own() -> None:
    metrics = NodeMetrics({}, "1.0")
    hooks = NodeHooks(metrics, log_limit=3)
    series = set(metrics.counted["authentications"])
    hooks.login_done("SCRAM-SHA-256")
    hooks.login_done("GSSAPI")
    hooks.login_refused("10.0.0.1:1", "GSSAPI", "no such mechanism")
    found = metrics.counted["authentications"]
    assert {key: value for key, value in found.items() if value} == {
        ("SCRAM-SHA-256", "success"): 1,
        ("_other", "success"): 1,
        ("_other", "failure"): 1,
    }
    assert set(found) - series == {("_other", "success"), ("_other", "failure")}


def test_renewed_fences_are_counted_by_cause_and_only_early_ones_are_logged() -> None:
    metrics = NodeMetrics({}, "1.0")
    hooks = NodeHooks(metrics, log_limit=3)
    with capture_logs() as logged:
        hooks.ownership.fence_renewed("orders", None)
        hooks.ownership.fence_renewed("orders", Cause.REPLICAS)
    assert [(event["event"], event["reason"]) for event in logged] == [("fence_renewed", "a replica was added")]
    renewals = {cause: count for (cause,), count in metrics.counted["fence_renewals"].items()}
    assert renewals == {"log_start": 0, "lost": 0, "replicas": 1, "time": 1}
