"""What the run says, and what the node without metrics leaves out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.operation import counting, report
from benchmarks.operation.counting import Round
from benchmarks.operation.resting import Resting
from benchmarks.operation.run import Results

UNMETERED = Path(counting.__file__).with_name("unmetered")
COUNT = """
import json
from sidecar.telemetry.hooks import NodeMetrics

metrics = NodeMetrics({0: "Produce"}, "1")
metrics.client_connected()
metrics.takeover("exclusive", 0.1)
metrics.governed_produce("orders", 5, 100)
metrics.read_gauge("live_nodes", lambda: 1)
counts = [metrics.client_connections, metrics.takeover_seconds.count, len(metrics.topic_series()), len(metrics.gauges)]
print(json.dumps(counts))
"""

AROUND = {"cores": 2, "cpu": "a CPU", "kafka": "4.1.1", "java": 17, "python": "3.11"}


def counted(**variables: str) -> list[int]:
    environment = {**os.environ, "PYTHONPATH": str(UNMETERED), **variables}
    done = subprocess.run([sys.executable, "-c", COUNT], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_the_node_without_metrics_counts_nothing_and_still_answers_what_it_is_asked() -> None:
    clients, takeovers, topics, gauges = counted(BENCH_UNMETERED="1")
    assert (clients, takeovers, topics) == (0, 0, 0)
    assert gauges >= 1


def test_nobody_else_stops_counting() -> None:
    assert counted()[:3] == [1, 1, 1]


def results(*, start: float = 800.0, ready: float = 58.0) -> Results:
    return Results(
        starts=[start, start + 300, start - 200],
        commands={name: [100.0, 120.0, 90.0] for name in ("import of the command line", "`sidecar healthcheck`")},
        resting=Resting(ready, 1_000, 78.0, [30.0, 31.0]),
        counting={
            "with": [Round(1.1, 80.0), Round(2.2, 90.0)],
            "without": [Round(1.0, 80.0), Round(2.0, 60.0)],
        },
        seconds=60.0,
    )


def test_the_cost_of_counting_is_the_median_of_the_rounds_own_ratios() -> None:
    _, batches, alone = report.counting(results())
    assert batches[-1] == "1.10"
    assert alone[-1] == "1.25"


def test_aims_are_kept_or_missed_by_the_medians() -> None:
    told = verdicts(results(start=1_100.0, ready=58.0))
    assert told["start to ready ≤ 1 s"] == "missed"
    assert told["memory at rest ≤ 60 MB"] == "kept"
    assert verdicts(results(ready=60.1))["memory at rest ≤ 60 MB"] == "missed"


def verdicts(of: Results) -> dict[str, str]:
    return {row[0]: row[2] for row in report.aims(of)[1:]}


def test_memory_is_told_by_topic() -> None:
    assert any("78.0 MB, 20.0 kB a topic" in row for row in report.aims(results()))


def test_a_run_is_written_for_people_and_for_later(tmp_path: Path) -> None:
    assert "≤ 150 ms" in report.terminal(results(), AROUND)
    assert "| aim | found |" in report.document(results(), AROUND)
    report.write_json(tmp_path / "run.json", results(), AROUND)
    assert json.loads((tmp_path / "run.json").read_text())["counting"]["with"][0] == {"per_gb": 1.1, "per_batch": 80.0}
