"""Helm, built by Go from its module in a pinned version, and what it makes of our chart. Go's own client checks the
module against its public log of checksums; the program stays in the cache of this user.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from sidecar.local.jars import cache_directory
from tests.unit.deploy.files import CHART, EXAMPLES

VERSION: Final = "v3.22.0"
KUBERNETES: Final = "1.32"  # which Helm is told to render for; it asks no cluster
_LIMIT_S: Final = 1200.0
_QUIET: Final = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod", "GOWORK": "off"}


def program() -> Path:
    """Where it is; built first where it is not there yet, in a minute or some. Skips the test where there is no Go."""
    found = cache_directory() / f"helm-{VERSION}" / "helm"
    if not found.exists():
        if shutil.which("go") is None:
            pytest.skip("no `go` on PATH, which builds helm")
        found.parent.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=found.parent.parent) as made:
            command = ["go", "install", f"helm.sh/helm/v3/cmd/helm@{VERSION}"]
            environment = {**os.environ, **_QUIET, "GOBIN": made}
            done = subprocess.run(
                command, cwd=made, env=environment, capture_output=True, text=True, timeout=_LIMIT_S, check=False
            )
            assert done.returncode == 0, done.stderr
            found.parent.mkdir(exist_ok=True)
            (Path(made) / "helm").replace(found)
    return found


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """One command; nothing of this user's own Helm is read."""
    with tempfile.TemporaryDirectory() as home:
        environment = {"PATH": os.environ["PATH"], "HOME": home, "XDG_CACHE_HOME": home}
        command = [program(), *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def template(example: str | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`helm template` as the release `kafka-sidecar` in the namespace `streams`."""
    values = () if example is None else ("--values", EXAMPLES / f"{example}.yaml")
    release = ("kafka-sidecar", CHART, "--namespace", "streams", "--kube-version", KUBERNETES)
    return helm("template", *release, *values, *arguments)


@cache
def rendered(example: str | None, *arguments: str) -> list[dict[str, Any]]:
    """The manifests, parsed; nobody may change them."""
    done = template(example, *arguments)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]
