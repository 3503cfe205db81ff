"""`clients/java` as its users build it: with Maven, its own tests against a node, the same jar twice."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.nodes import NodeProcess
from tests.programs import program
from tests.slow.libraries.peers import SOURCES

pytestmark = pytest.mark.timeout(900)
_BUILD_S = 600.0


def maven(directory: Path, *arguments: str) -> str:
    command = [program("mvn", "maven"), "-B", "-ntp", "-f", str(directory), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_S, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy, as Maven writes beside the sources."""
    return shutil.copytree(SOURCES.parent, tmp_path / "java", ignore=shutil.ignore_patterns("target"))


@pytest.mark.parametrize("kafka", ["4.1.1", "3.9.1"])
def test_the_librarys_own_tests_pass_with_each_kafka_clients(project: Path, node: NodeProcess, kafka: str) -> None:
    told = maven(
        project,
        "verify",
        f"-Dkafka.version={kafka}",
        "-Dexcluded=none",
        f"-Dsidecar.bootstrap={node.bootstrap}",
        f"-Dsidecar.admin={node.admin_url}",
    )
    for tests in ("ProtoTest", "NumberingTest", "NodeTest"):
        assert f"-- in sidecar.client.{tests}" in told
    assert "Failures: 0, Errors: 0, Skipped: 0" in told


def test_the_same_sources_make_the_same_jar(project: Path) -> None:
    found: list[str] = []
    for _ in range(2):
        maven(project, "clean", "package", "-DskipTests")
        [jar] = (project / "target").glob("*.jar")
        found.append(hashlib.sha256(jar.read_bytes()).hexdigest())
        with zipfile.ZipFile(jar) as archive:
            assert "sidecar/client/ExclusiveProducer.class" in archive.namelist()
    assert found[0] == found[1]
