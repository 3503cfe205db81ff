"""What Helm makes of our chart."""

from __future__ import annotations

import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from tests.slow.go_programs import HELM, program
from tests.unit.deploy.files import CHART, EXAMPLES

KUBERNETES: Final = "1.32"  # which Helm is told to render for; it asks no cluster


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """One command; nothing of this user's own Helm is read."""
    with tempfile.TemporaryDirectory() as home:
        environment = {"PATH": os.environ["PATH"], "HOME": home, "XDG_CACHE_HOME": home}
        command = [program(HELM), *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def template(example: str | None, *arguments: str, chart: Path = CHART) -> subprocess.CompletedProcess[str]:
    """`helm template` as the release `kafka-sidecar` in the namespace `streams`."""
    values = () if example is None else ("--values", EXAMPLES / f"{example}.yaml")
    release = ("kafka-sidecar", chart, "--namespace", "streams", "--kube-version", KUBERNETES)
    return helm("template", *release, *values, *arguments)


@cache
def rendered(example: str | None, *arguments: str) -> list[dict[str, Any]]:
    """The manifests, parsed; nobody may change them."""
    done = template(example, *arguments)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]
