"""The product in a clean environment, as the Dockerfile makes it and without the compiled module: it serves."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from sidecar.local.ports import HOST, free_ports
from sidecar.local.process import Child, Command
from tests.conftest import Unique
from tests.services import Services
from tests.slow.packaging.conftest import UV, Installed, run
from tests.unit.deploy.files import ROOT

pytestmark = pytest.mark.timeout(900)

WRITE = """
import asyncio, sys
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from sidecar.client import AdminClient, ExclusiveProducer

async def main(nodes, url, topic):
    admin = AIOKafkaAdminClient(bootstrap_servers=nodes)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 1, 1)])
    await admin.close()
    async with AdminClient(url) as admin:
        await admin.set_policy(topic, access_mode="exclusive", deduplication=True)
    async with ExclusiveProducer(nodes, topic, "first") as producer:
        print(await producer.send(b"one"))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(params=["image", pytest.param("pure", marks=pytest.mark.slow)])
def installed(request: pytest.FixtureRequest) -> Installed:
    return request.getfixturevalue(request.param)


def test_it_says_its_version(installed: Installed, tmp_path: Path):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

    assert run(installed.sidecar, "--version", cwd=tmp_path).strip() == f"sidecar, version {version}"


def test_it_stands_on_the_pinned_packages_alone(installed: Installed, tmp_path: Path):
    listed = run(UV, "pip", "freeze", "--python", installed.directory, cwd=tmp_path)
    names = set(re.findall(r"^([\w.-]+)==", listed, re.MULTILINE))
    pinned = set(re.findall(r"^([\w.-]+)==", (ROOT / "requirements" / "runtime.txt").read_text(), re.MULTILINE))

    assert names <= pinned
    assert re.search(r"^kafka-sidecar\b", listed, re.MULTILINE)


def test_the_image_has_the_compiled_module_and_the_other_its_twin(image: Installed, pure: Installed, tmp_path: Path):
    told = "import sidecar.protocol.records as records; print(records._walker.__name__)"

    assert run(image.python, "-I", "-c", told, cwd=tmp_path).strip() == "sidecar.protocol._records"
    assert run(pure.python, "-I", "-c", told, cwd=tmp_path).strip() == "sidecar.protocol._records_pure"


def test_a_command_that_needs_an_extra_names_it(installed: Installed, tmp_path: Path):
    command = [installed.sidecar, "demo"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)

    assert result.returncode == 1
    assert "the wheel's extra `local`" in result.stderr


def test_it_serves_and_a_record_is_written_through_it(
    installed: Installed, services: Services, unique: Unique, tmp_path: Path
):
    serve_and_write(installed, services, unique, tmp_path)


def test_other_versions_of_python_serve_too(
    other_python: Installed, services: Services, unique: Unique, tmp_path: Path
):
    assert re.search(r"-cp31[23]-cp31[23]-", other_python.wheel.name)
    serve_and_write(other_python, services, unique, tmp_path)


def serve_and_write(installed: Installed, services: Services, unique: Unique, tmp_path: Path) -> None:
    """Start a node in a directory that it cannot write to, write a record by the client library, end it."""
    client, admin = free_ports(2)
    nodes, url = f"{HOST}:{client}", f"http://{HOST}:{admin}"
    settings = {
        "BOOTSTRAP_SERVERS": services.kafka_bootstrap,
        "REDIS_URL": services.redis_url,
        "CLUSTER": unique("installed"),
        "LISTEN": nodes,
        "ADMIN_LISTEN": f"{HOST}:{admin}",
        "ADMIN_URL": url,
    }
    environment = {f"SIDECAR_{name}": value for name, value in settings.items()}
    here = tmp_path / "read-only"
    here.mkdir(mode=0o555)
    command = (str(installed.sidecar), "serve")
    log = tmp_path / "log"
    child = Child.start(Command("node", command, log, {**environment, "PYTHONDONTWRITEBYTECODE": "1"}, here))

    def healthy() -> bool:
        check = [installed.sidecar, "healthcheck"]
        variables = {**os.environ, **environment}
        return (
            subprocess.run(check, cwd=here, env=variables, capture_output=True, check=False, timeout=60).returncode == 0
        )

    try:
        child.wait_until(healthy, 60)
        receipt = run(installed.python, "-c", WRITE, nodes, url, unique("orders"), cwd=here)
        with urllib.request.urlopen(url, timeout=10) as page:
            assert b"<title>" in page.read()
        status: dict[str, Any] = json.loads(run(installed.sidecar, "status", "-o", "json", cwd=here, **environment))
        assert child.stop(grace=30) == 0, child.log_text()
    finally:
        child.kill()

    assert re.search(r"Receipt\(partition=0, offset=\d, sequence_id=0, duplicate=False, generation=1\)", receipt)
    assert status
