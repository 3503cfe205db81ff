"""Programs that Go builds from their modules, in pinned versions. Go's own client checks a module against its public
log of checksums; the program stays in the cache of this user.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from sidecar.local.jars import cache_directory

if TYPE_CHECKING:
    from collections.abc import Callable

HELM: Final = "helm.sh/helm/v3/cmd/helm@v3.22.0"
ACTIONLINT: Final = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"
LIMIT_S: Final = 1500
"""For a test that may be the first to need one: Helm takes a minute or some."""
BUILD_LIMIT_S: Final = 3600
"""For one program; Kubernetes takes ten minutes of two cores."""
_QUIET: Final = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod", "GOWORK": "off"}


def program(package: str) -> Path:
    """Where it is, built first where it is not there yet. Skips the test where there is no Go."""
    name = package.partition("@")[0].rpartition("/")[2]

    def build(directory: Path) -> None:
        _go("install", package, within=directory, GOBIN=str(directory))

    return _kept(name, package.partition("@")[2], build)


def program_of_module(name: str, package: str, module: str, **variables: str) -> Path:
    """The same for a program whose `module` (`path@version`) replaces others, which `go install` refuses: it is built
    in a module of ours. What Kubernetes' module requires as v0.0.0 has its own version, with 0 for 1.
    `variables` of its package `k8s.io/component-base/version`: a build from there would not know its version.
    """
    version = module.partition("@")[2]

    def build(directory: Path) -> None:
        _go("mod", "init", "programs", within=directory)
        found = json.loads(_go("mod", "download", "-json", module, within=directory))
        unnumbered = re.findall(r"(\S+) v0\.0\.0$", Path(found["GoMod"]).read_text(encoding="utf-8"), re.MULTILINE)
        its = version.replace("v1.", "v0.", 1)
        replaced = [f"-replace={each}={each}@{its}" for each in sorted(set(unnumbered))]
        _go("mod", "edit", f"-require={module}", *replaced, within=directory)
        _go("get", f"{package}@{version}", within=directory)
        linked = [f"-X k8s.io/component-base/version.{each}={value}" for each, value in variables.items()]
        _go("build", "-ldflags", " ".join(linked), "-o", name, package, within=directory)

    return _kept(name, version, build)


def _kept(name: str, version: str, build: Callable[[Path], None]) -> Path:
    found = cache_directory() / f"{name}-{version}" / name
    if not found.exists():
        if shutil.which("go") is None:
            pytest.skip(f"no `go` on PATH, which builds {name}")
        found.parent.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=found.parent.parent) as made:
            build(Path(made))
            found.parent.mkdir(exist_ok=True)
            (Path(made) / name).replace(found)
    return found


def _go(*arguments: str, within: Path, **environment: str) -> str:
    done = subprocess.run(
        ["go", *arguments],
        cwd=within,
        env={**os.environ, **_QUIET, **environment},
        capture_output=True,
        text=True,
        timeout=BUILD_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
