"""Programs that Go builds from their modules, in pinned versions. Go's own client checks a module against its public
log of checksums; the program stays in the cache of this user.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import pytest

from sidecar.local.jars import cache_directory

HELM: Final = "helm.sh/helm/v3/cmd/helm@v3.22.0"
ACTIONLINT: Final = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"
LIMIT_S: Final = 1500
"""For a test that may be the first to need one: Helm takes a minute or some."""
_QUIET: Final = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod", "GOWORK": "off"}


def program(package: str) -> Path:
    """Where it is, built first where it is not there yet. Skips the test where there is no Go."""
    path, version = package.split("@")
    name = path.rpartition("/")[2]
    found = cache_directory() / f"{name}-{version}" / name
    if not found.exists():
        if shutil.which("go") is None:
            pytest.skip(f"no `go` on PATH, which builds {name}")
        found.parent.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=found.parent.parent) as made:
            environment = {**os.environ, **_QUIET, "GOBIN": made}
            done = subprocess.run(
                ["go", "install", package],
                cwd=made,
                env=environment,
                capture_output=True,
                text=True,
                timeout=LIMIT_S - 100,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            found.parent.mkdir(exist_ok=True)
            (Path(made) / name).replace(found)
    return found
