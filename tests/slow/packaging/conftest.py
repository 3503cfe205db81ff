"""What users get: a source distribution and wheels, and the environment that the Dockerfile makes of one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.slow.packaging import dockerfile
from tests.unit.deploy.files import DOCKERFILE, ROOT

UV = Path(sys.executable).parent / "uv"
LIST = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
FILES = tuple(
    name
    for name in subprocess.run(LIST, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    if name and (ROOT / name).is_file()
)
"""What is committed, or would be by `git add --all`."""
LIMIT_S = 300


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """What a command prints. Fails with all it said where it ends with anything but 0."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("SIDECAR_", "VIRTUAL_ENV"))}
    result = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={**variables, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
    return result.stdout


@dataclass(frozen=True, slots=True)
class Distributions:
    """One build: the source distribution, a wheel made of the checkout, one made of the source distribution."""

    source: Path
    wheel: Path
    rebuilt: Path


def build(directory: Path, source: Path, *kinds: str, **environment: str) -> list[Path]:
    """`uv build` with the tools of this environment, so that nothing is downloaded."""
    arguments = ["--no-build-isolation", "--python", sys.executable, "--out-dir", str(directory)]
    run(UV, "build", *arguments, *kinds, str(source), cwd=directory.parent, **environment)
    return sorted(path for path in directory.iterdir() if path.suffix in {".gz", ".whl"})


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    directory = tmp_path_factory.mktemp("distributions")
    source, wheel = build(directory / "first", ROOT, "--sdist", "--wheel")
    if source.suffix == ".whl":
        source, wheel = wheel, source
    [rebuilt] = build(directory / "second", source, "--wheel")
    return Distributions(source, wheel, rebuilt)


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment with the product and what it needs, and nothing else."""

    directory: Path
    wheel: Path

    @property
    def python(self) -> Path:
        return self.directory / "bin" / "python"

    @property
    def sidecar(self) -> Path:
        return self.directory / "bin" / "sidecar"


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """What the build stage of the Dockerfile makes: its commands on the files that it copies, under another root."""
    root = tmp_path_factory.mktemp("image")
    context = root / "src"
    stage = [each for each in dockerfile.parse(DOCKERFILE.read_text(encoding="utf-8")) if each.stage == 0]
    copied = dockerfile.sources(tuple(stage))
    patterns = dockerfile.ignore_patterns()
    for name in FILES:
        if any(name == each or name.startswith(f"{each}/") for each in copied):
            assert dockerfile.admitted(name, patterns), name
            (context / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, context / name)
    environment = dict(re.findall(r"(UV_\w+)=(\S+)", " ".join(each.arguments for each in stage if each.name == "ENV")))
    environment["PATH"] = f"{UV.parent}:{os.environ['PATH']}"
    ran = 0
    for each in stage:
        command = re.sub(r"--mount=\S+ ", "", each.arguments).strip()
        if each.name == "RUN" and command.startswith("uv "):
            script = command.replace("/app/", f"{root}/app/").replace("/dist", f"{root}/dist")
            run("sh", "-euc", script, cwd=context, **environment)
            ran += 1
    assert ran == 2
    [wheel] = (root / "dist").glob("*.whl")
    return Installed(root / "app" / ".venv", wheel)


@pytest.fixture(scope="session", params=["3.12", "3.13"])
def other_python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """A wheel that another Python compiled for itself, installed there; build tools and packages are downloaded."""
    directory = tmp_path_factory.mktemp("other")
    find = [UV, "python", "find", "--no-python-downloads", "--system", request.param]
    found = subprocess.run(find, cwd=directory, capture_output=True, text=True, check=False, timeout=30)
    if found.returncode:
        pytest.skip(f"no Python {request.param} here")
    python, environment = found.stdout.strip(), directory / "environment"
    constraints = ["--build-constraints", ROOT / "requirements" / "dev.txt", "--require-hashes"]
    run(UV, "build", "--wheel", "--python", python, "--out-dir", directory / "dist", *constraints, ROOT, cwd=directory)
    [wheel] = (directory / "dist").glob("*.whl")
    run(UV, "venv", "--no-project", "--python", python, environment, cwd=directory)
    install = [UV, "pip", "install", "--python", environment, "--no-deps"]
    run(*install, "--require-hashes", "-r", ROOT / "requirements" / "runtime.txt", cwd=directory)
    run(*install, wheel, cwd=directory)
    return Installed(environment, wheel)


@pytest.fixture(scope="session")
def pure(distributions: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The same on a machine where nothing can be compiled, from the source distribution."""
    directory = tmp_path_factory.mktemp("pure")
    [wheel] = build(directory / "dist", distributions.source, "--wheel", CC="false")
    environment = directory / "environment"
    run(UV, "venv", "--no-project", "--python", sys.executable, environment, cwd=directory)
    install = [UV, "pip", "install", "--python", environment, "--no-deps"]
    run(*install, "--require-hashes", "-r", ROOT / "requirements" / "runtime.txt", cwd=directory)
    run(*install, wheel, cwd=directory)
    return Installed(environment, wheel)
