"""A real Prometheus with the configuration and the alerts of this repository, only quicker."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from sidecar.local.ports import free_ports
from tests.programs import program
from tests.unit.deploy.files import COMPOSE, PROMETHEUS, RULES, load_yaml
from tests.wait import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.nodes import NodeProcess

WINDOW = "90s"
"""What a panel's ranges are here: all that happened in the scene is in them."""
Series = dict[str, Any]


@dataclass(frozen=True)
class Prometheus:
    """A running one."""

    url: str

    def api(self, path: str, **parameters: str) -> Any:
        """The data of an answer. Raises `HTTPError` for a query that it does not understand."""
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(address, timeout=20) as answer:
            return json.load(answer)["data"]

    def query(self, query: str, at: float | None = None) -> list[Series]:
        """The result as of `at` (Unix seconds), or as of now."""
        return self.api("query", query=query, **({} if at is None else {"time": str(at)}))["result"]

    def firing(self) -> set[tuple[str, str]]:
        """Alerts that fire now: name, and node where it says one."""
        alerts = self.api("alerts")["alerts"]
        return {
            (alert["labels"]["alertname"], alert["labels"].get("instance", ""))
            for alert in alerts
            if alert["state"] == "firing"
        }

    def scrapes(self, node: NodeProcess) -> int:
        """How often a node has answered it."""
        try:
            found = self.query(f'count_over_time(sidecar_build_info{{instance="{instance(node)}"}}[10m])')
        except (urllib.error.URLError, ConnectionError):
            return 0
        return int(found[0]["value"][1]) if found else 0


def instance(node: NodeProcess) -> str:
    """What Prometheus calls a node."""
    return node.admin_url.removeprefix("http://")


@contextmanager
def running_prometheus(directory: Path, nodes: list[NodeProcess]) -> Iterator[Prometheus]:
    """Scrapes these nodes every second and judges every second; what an alert waits for is cut to a second."""
    (directory / "rules").mkdir()
    rules = re.sub(r"\bfor: \w+", "for: 1s", RULES.read_text(encoding="utf-8"))
    (directory / "rules" / RULES.name).write_text(rules, encoding="utf-8")
    configuration = load_yaml(PROMETHEUS)
    times = [name for name in configuration["global"] if name != "external_labels"]
    configuration["global"].update(dict.fromkeys(times, "1s"))
    [job] = [job for job in configuration["scrape_configs"] if job["job_name"] == "sidecar"]
    job["static_configs"] = [{"targets": [instance(node) for node in nodes]}]
    configuration["scrape_configs"] = [job]
    (directory / "prometheus.yml").write_text(yaml.safe_dump(configuration), encoding="utf-8")
    features = [word for word in load_yaml(COMPOSE)["services"]["prometheus"]["command"] if "--enable-feature" in word]
    [port] = free_ports(1)
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                program("prometheus", "prometheus"),
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                *features,
            ],
            stdout=log,
            stderr=log,
        )
        try:
            found = Prometheus(f"http://127.0.0.1:{port}")
            wait_for(lambda: all(found.scrapes(node) for node in nodes), "a first scrape of every node", 30)
            yield found
        finally:
            process.terminate()
            process.wait(20)
