"""The profiles `demo` and `load` of compose.yaml as processes: their commands, health checks and defaults."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.slow.deploy.conftest import Pair, Start, free_address
from tests.unit.deploy.files import ROOT

STORY = {
    "a topic changes hands": ("sidecar_takeovers_total", {"mode": "wait_for_exclusive"}, 2),
    "it is taken by force": ("sidecar_takeovers_total", {"mode": "exclusive_with_fencing"}, 1),
    "somebody is refused": ("sidecar_produce_fenced_total", {"topic": "demo-orders"}, 1),
    "duplicates are found": ("sidecar_produce_duplicates_total", {"topic": "demo-payments"}, 1),
    "orders are written": ("sidecar_produce_records_total", {"topic": "demo-orders"}, 50),
    "the shadow is read": ("sidecar_shadow_read_bytes_total", {"shadow": "demo-orders-audit"}, 1),
    "two groups have cursors": ("sidecar_shadow_groups", {"shadow": "demo-orders-audit"}, 2),
    "one lags behind": ("sidecar_shadow_max_lag_records", {"shadow": "demo-orders-audit"}, 10),
    "claims are granted": ("sidecar_claims_total", {"outcome": "granted"}, 2),
}
"""What the dashboards show of the demo: a metric, labels, and how much of it at least."""


def test_the_demo_moves_what_the_dashboards_show_and_ends_when_it_is_told_to(pair: Pair, start: Start):
    node = pair.nodes[0]
    demo = start("demo", {}, CLIENT_BOOTSTRAP=node.bootstrap, SIDECAR_ADMIN_URL=node.admin_url, DEMO_TEMPO="20")

    for what, (metric, labels, least) in STORY.items():
        demo.wait_for(lambda: pair.sample(metric, **labels) >= least, what)  # noqa: B023

    assert demo.healthy()
    assert demo.child.stop(grace=20) == 0, demo.output


def test_a_demo_that_cannot_set_its_policies_says_so_and_ends_with_1(pair: Pair, start: Start):
    node = pair.nodes[0]
    demo = start("demo", {}, CLIENT_BOOTSTRAP=node.bootstrap, SIDECAR_ADMIN_URL=f"http://{free_address()}")

    assert demo.child.wait(60) == 1
    assert "cannot begin" in demo.output
    assert not demo.healthy()


def test_the_load_is_written_as_fast_as_asked_for_and_ends_by_itself(pair: Pair, start: Start):
    node = pair.nodes[0]
    load = start(
        "load",
        {},
        CLIENT_BOOTSTRAP=node.bootstrap,
        SIDECAR_ADMIN_URL=node.admin_url,
        LOAD_RECORDS_PER_S="200",
        LOAD_SECONDS="25",
        LOAD_TOPICS="2",
    )

    load.wait_for(load.healthy, "progress")
    load.wait_for(lambda: "written" in load.output, "a report")
    written = [pair.sample("sidecar_produce_records_total", topic=topic) for topic in ("load-0", "load-1")]

    assert load.child.wait(90) == 0, load.output
    assert "200 records/s of 1024 bytes to 2 topics" in load.output
    assert 50 <= min(written) <= max(written) <= 200 * 25, (written, load.output)


@pytest.mark.parametrize(
    ("program", "variable", "value"),
    [
        ("load", "LOAD_RECORDS_PER_S", "0"),
        ("load", "LOAD_RECORD_BYTES", "much"),
        ("load", "LOAD_TOPICS", "101"),
        ("demo", "DEMO_TEMPO", "21"),
    ],
)
def test_a_setting_that_cannot_be_is_named_before_anything_begins(
    program: str, variable: str, value: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(variable, value)
    path = ROOT / "deploy" / "compose" / f"{program}.py"

    result = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False, timeout=60)

    assert result.returncode == 2
    assert f"{variable}={value}: a number from " in result.stderr


def test_the_programs_end_with_0_by_ctrl_c_too(pair: Pair, start: Start):
    node = pair.nodes[0]
    load = start("load", {}, CLIENT_BOOTSTRAP=node.bootstrap, SIDECAR_ADMIN_URL=node.admin_url)
    load.wait_for(load.healthy, "progress")

    os.kill(load.child.pid, signal.SIGINT)

    assert load.child.wait(30) == 0, load.output
