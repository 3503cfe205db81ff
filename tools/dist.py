"""`make dist`: everything that a release is made of, checked, in dist/.

    python -m tools.dist [--complete] [--tag vX.Y.Z] [--python 3.13]… [DIRECTORY]

A source distribution; from it a wheel for each Python, machine and C library, and one without a compiled module for
every other; the chart; bills of materials; SHA256SUMS. A C compiler for all of these machines comes from
requirements/dist.txt. The same commit makes the same files.

A wheel for this machine is installed into an empty environment, and its command is started. One for another is not run
here: it is resolved together with all it needs for that machine, and the workflow of the release runs it there.
Without `--complete` a Python that is missing here is named, and its wheels are left out. `--tag` fails unless the
version, the changelog and the commit are those of a release.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tools import sbom
from tools.changelog import problems
from tools.chart import package
from tools.oldest import blocks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT: Final = Path(__file__).resolve().parents[1]
UV: Final = Path(sys.executable).with_name("uv")
PYTHONS: Final = ("3.11", "3.12", "3.13")
"""Those that a release has wheels for: the classifiers of pyproject.toml."""
SUMS: Final = "SHA256SUMS"
_COMPILED: Final = ("aiokafka",)
"""What has no wheel for musl: it is compiled there, with the headers of zlib, when it is installed."""
_ENVIRONMENT: Final = ROOT / ".dist"
_LIMIT_S: Final = 900
_CHECK: Final = """
import importlib.util, sys
from sidecar.protocol import _records_pure, records
compiled = importlib.util.find_spec("sidecar.protocol._records") is not None
assert compiled == (sys.argv[1] == "compiled"), compiled
assert (records._walker is _records_pure) == (not compiled)
"""


@dataclass(frozen=True, slots=True)
class Target:
    """A machine and its C library: the tag of a wheel, what the compiler and uv call it."""

    tag: str
    compiler: str
    resolver: str

    @property
    def musl(self) -> bool:
        return self.tag.startswith("musllinux")

    @property
    def here(self) -> bool:
        """Whether a wheel for it runs on this machine."""
        return self.musl == (platform.libc_ver()[0] != "glibc") and self.tag.endswith(platform.machine())


TARGETS: Final = (
    Target("manylinux_2_17_x86_64", "x86_64-linux-gnu.2.17", "x86_64-manylinux_2_28"),
    Target("manylinux_2_17_aarch64", "aarch64-linux-gnu.2.17", "aarch64-manylinux_2_28"),
    Target("musllinux_1_2_x86_64", "x86_64-linux-musl", "x86_64-unknown-linux-musl"),
    Target("musllinux_1_2_aarch64", "aarch64-linux-musl", "aarch64-unknown-linux-musl"),
)


class DistError(Exception):
    """What a command that failed said."""


def run(*command: str | Path, cwd: Path = ROOT, environment: Mapping[str, str] | None = None) -> str:
    """What a command prints.

    Raises:
        DistError: it ended with anything but 0.

    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SIDECAR_", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=inherited | dict(environment or {}),
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    if done.returncode:
        raise DistError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def project() -> str:
    """The version of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def found_pythons(wanted: Sequence[str]) -> dict[str, Path]:
    """The interpreters that are on this machine, by version; nothing is downloaded."""
    found: dict[str, Path] = {}
    for version in wanted:
        try:
            path = run(UV, "python", "find", "--no-project", "--no-python-downloads", "--system", version)
        except DistError:
            continue
        found[version] = Path(path.strip())
    return found


def builders() -> Path:
    """The Python of an environment with the compiler and what checks tags."""
    python = _ENVIRONMENT / "bin" / "python"
    run(UV, "venv", "--quiet", "--no-project", "--clear", "--python", sys.executable, _ENVIRONMENT)
    pins = ROOT / "requirements" / "dist.txt"
    run(UV, "pip", "install", "--quiet", "--python", python, "--no-deps", "--require-hashes", "-r", pins)
    return python


def build(kind: str, source: Path, into: Path, python: Path | str, **environment: str) -> Path:
    """One distribution, with the pinned build tools; its path."""
    epoch = run("git", "log", "-1", "--format=%ct").strip()
    before = {*into.iterdir()}
    pins = ("--build-constraints", ROOT / "requirements" / "dev.txt", "--require-hashes")
    command = (UV, "build", "--quiet", kind, "--python", python, "--out-dir", into, "--no-create-gitignore")
    run(*command, *pins, source, environment={"SOURCE_DATE_EPOCH": epoch, **environment})
    [made] = {*into.iterdir()} - before
    return made


def wheels(source: Path, into: Path, pythons: dict[str, Path], compiler: Path) -> Iterator[tuple[Path, str, Target]]:
    """A wheel for each Python and machine."""
    for version, python in pythons.items():
        for target in TARGETS:
            words = f"{compiler} -m ziglang cc -target {target.compiler} -g0 -s"
            yield build("--wheel", source, into, python, CC=words, WHEEL_PLATFORM=target.tag), version, target


def check_tag(wheel: Path, target: Target, tools: Path) -> None:
    """Raises DistError where the compiled module needs more of a C library than the wheel's name says.

    The compiler calls musl's library libc.so, which musl's loader takes for itself; auditwheel knows Alpine's name.
    """
    told = run(tools.with_name("auditwheel"), "show", wheel)
    said = re.sub(r"\s+", " ", told)
    machine = target.tag.split("_", 3)[3]
    musl = (f'"linux_{machine}"', "references no external versioned symbols", '{ "libc.so": null }')
    if not all(words in said for words in (musl if target.musl else (f'"{target.tag}"',))):
        raise DistError(f"{wheel.name} says {target.tag}, auditwheel says otherwise: {said}")


def check_installed(wheel: Path, python: Path, *, compiled: bool) -> None:
    """Install a wheel into an empty environment, and start it."""
    with tempfile.TemporaryDirectory() as made:
        home = Path(made)
        environment, here = home / "environment", home / "here"
        here.mkdir()
        run(UV, "venv", "--quiet", "--no-project", "--python", python, environment)
        inside = environment / "bin" / "python"
        install = (UV, "pip", "install", "--quiet", "--python", inside, "--no-deps")
        run(*install, "--require-hashes", "-r", ROOT / "requirements" / "runtime.txt")
        run(*install, wheel)
        told = run(environment / "bin" / "sidecar", "--version", cwd=here).strip()
        if told != f"sidecar, version {project()}":
            raise DistError(f"{wheel.name}: sidecar --version says {told!r}")
        run(environment / "bin" / "sidecar", "check-config", cwd=here)
        run(inside, "-I", "-c", _CHECK, "compiled" if compiled else "pure", cwd=here)


def check_resolved(wheel: Path, version: str, target: Target) -> None:
    """Whether an installer on that machine takes the wheel, and finds one for all that it needs but `_COMPILED`."""
    with tempfile.TemporaryDirectory() as made:
        pins = Path(made) / "pins.txt"
        left = {name: block for name, block in blocks("runtime.txt").items() if not (target.musl and name in _COMPILED)}
        pins.write_text("".join(left.values()), encoding="utf-8")
        place = ("--target", f"{made}/there", "--python-platform", target.resolver, "--python-version", version)
        install = (UV, "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", *place)
        run(*install, "--require-hashes", "-r", pins)
        run(*install, wheel)


def sums(directory: Path) -> Path:
    """SHA256SUMS, as `sha256sum --check` reads it."""
    path = directory / SUMS
    files = sorted(each for each in directory.iterdir() if each != path)
    lines = [f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in files]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def say(text: str) -> None:
    """A line of progress."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def make(directory: Path, pythons: dict[str, Path]) -> None:
    """Everything, checked, into an empty directory."""
    tools = builders()
    source = build("--sdist", ROOT, directory, sys.executable)
    say(f"built      {source.name}")
    for wheel, version, target in wheels(source, directory, pythons, tools):
        check_tag(wheel, target, tools)
        if target.here:
            check_installed(wheel, pythons[version], compiled=True)
        else:
            check_resolved(wheel, version, target)
        say(f"{'started   ' if target.here else 'not run   '} {wheel.name}")
    pure = build("--wheel", source, directory, sys.executable, CC="false")
    check_installed(pure, Path(sys.executable), compiled=False)
    say(f"started    {pure.name}")
    for path in (package(ROOT / "deploy" / "helm" / "kafka-sidecar", directory), *sbom.write(directory)):
        say(f"built      {path.name}")
    say(f"built      {sums(directory).name}")


def main(arguments: list[str]) -> int:
    """As the module says; 1 where something is missing or wrong."""
    parser = argparse.ArgumentParser(prog="python -m tools.dist")
    parser.add_argument("directory", nargs="?", type=Path, default=ROOT / "dist")
    parser.add_argument("--complete", action="store_true", help="fail where a Python of the release is missing here")
    parser.add_argument("--tag", help="fail unless this is the tag of the commit, of the version and of the changelog")
    parser.add_argument("--python", action="append", help="only this version; may be given again")
    chosen = parser.parse_args(arguments)
    pythons = found_pythons(chosen.python or PYTHONS)
    wrong = [f"no Python {each} here: no wheels for it" for each in chosen.python or PYTHONS if each not in pythons]
    if chosen.tag:
        dirty = run("git", "status", "--porcelain")
        wrong += problems(chosen.tag, project(), (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), dirty)
    before = sorted(chosen.directory.glob("*"))
    foreign = [each.name for each in before if not each.name.startswith(("kafka_sidecar-", "kafka-sidecar", SUMS))]
    if foreign:
        say(f"{chosen.directory} has other files, which nobody checked: {', '.join(foreign)}")
        return 1
    for each in wrong:
        say(each)
    if wrong and (chosen.complete or chosen.tag):
        return 1
    with tempfile.TemporaryDirectory() as made:
        try:
            make(Path(made), pythons)
        except DistError as error:
            say(str(error))
            return 1
        for old in before:
            old.unlink()
        shutil.copytree(made, chosen.directory, dirs_exist_ok=True)
        chosen.directory.chmod(0o755)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
