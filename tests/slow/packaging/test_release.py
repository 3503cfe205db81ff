"""`make dist` on this checkout, with this Python: what a release is made of."""

from __future__ import annotations

import hashlib
import struct
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.slow.go_programs import ACTIONLINT, LIMIT_S, program
from tests.slow.packaging.conftest import run
from tests.unit.deploy.files import ROOT
from tools.dist import SUMS, TARGETS, Target, builders, found_pythons, project, wheels

pytestmark = pytest.mark.timeout(LIMIT_S)

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
TAG = f"cp{VERSION.replace('.', '')}"
MACHINES = {"x86_64": 62, "aarch64": 183}
"""EM_X86_64 and EM_AARCH64, in the head of an ELF file."""


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The directory, and what the command said."""
    directory = tmp_path_factory.mktemp("release") / "dist"
    command = [sys.executable, "-m", "tools.dist", "--python", VERSION, str(directory)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S - 100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return directory, done.stdout


def test_it_makes_wheels_for_every_machine_sources_a_chart_and_bills(release: tuple[Path, str]):
    directory, said = release
    version = project()
    wheels = {f"kafka_sidecar-{version}-{TAG}-{TAG}-{target.tag}.whl" for target in TARGETS}
    pure = f"kafka_sidecar-{version}-py3-none-any.whl"
    others = {f"kafka_sidecar-{version}.tar.gz", f"kafka-sidecar-{version}.tgz", SUMS}
    bills = {"kafka-sidecar.cdx.json", "kafka-sidecar-pipeline.cdx.json"}

    assert {path.name for path in directory.iterdir()} == wheels | {pure} | others | bills
    started = {line.split()[-1] for line in said.splitlines() if line.startswith("started")}
    assert started == {pure, *(name for name, target in zip(sorted(wheels), by_name(), strict=True) if target.here)}


def by_name() -> list[Target]:
    return sorted(TARGETS, key=lambda target: target.tag)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.tag)
def test_the_compiled_module_is_for_the_machine_that_the_wheel_names(release: tuple[Path, str], target: Target):
    [wheel] = release[0].glob(f"*-{target.tag}.whl")
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".so")]
        head = archive.read(name)[:20]
        [about] = [archive.read(name).decode() for name in archive.namelist() if name.endswith(".dist-info/WHEEL")]
    machine = target.tag.split("_", 3)[3]

    assert head[:4] == b"\x7fELF"
    assert struct.unpack_from("<H", head, 18) == (MACHINES[machine],)
    assert f"-{machine}-linux-{'musl' if target.musl else 'gnu'}.so" in name
    assert f"Tag: {TAG}-{TAG}-{target.tag}\n" in about


def test_the_same_sources_make_the_same_wheel(release: tuple[Path, str], tmp_path: Path):
    [source] = release[0].glob("*.tar.gz")

    again, _, target = next(wheels(source, tmp_path, found_pythons([VERSION]), builders()))

    assert again.name.endswith(f"-{target.tag}.whl")
    assert again.read_bytes() == (release[0] / again.name).read_bytes()


def test_the_checksums_are_those_of_all_files(release: tuple[Path, str]):
    directory, _ = release
    told = {name: digest for digest, name in (line.split("  ") for line in (directory / SUMS).read_text().splitlines())}

    run("sha256sum", "--check", "--strict", "--quiet", SUMS, cwd=directory)
    assert told.keys() == {path.name for path in directory.iterdir()} - {SUMS}
    assert {len(digest) for digest in told.values()} == {hashlib.sha256().digest_size * 2}


def test_the_sources_of_a_release_hold_what_makes_it(release: tuple[Path, str]):
    [source] = release[0].glob("*.tar.gz")
    with tarfile.open(source) as archive:
        inside = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}

    assert {"tools/dist.py", "requirements/dist.txt", "deploy/helm/kafka-sidecar/Chart.yaml"} <= inside


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path):
    (tmp_path / "letter.txt").write_text("mine")
    command = [sys.executable, "-m", "tools.dist", "--python", VERSION, str(tmp_path)]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 1
    assert "letter.txt" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_a_tag_that_is_no_release_makes_nothing(tmp_path: Path):
    directory = tmp_path / "dist"
    command = [sys.executable, "-m", "tools.dist", "--python", VERSION, "--tag", "v99.0.0", str(directory)]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 1
    assert f"the tag is v99.0.0, pyproject.toml has the version {project()}" in done.stdout
    assert not directory.exists()


def test_a_python_that_is_missing_is_named(tmp_path: Path):
    command = [sys.executable, "-m", "tools.dist", "--complete", "--python", "3.99", str(tmp_path / "dist")]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stdout) == (1, "no Python 3.99 here: no wheels for it\n")


def test_actionlint_has_nothing_to_say_about_the_workflow():
    run(program(ACTIONLINT), ROOT / ".github" / "workflows" / "release.yml", cwd=ROOT)
