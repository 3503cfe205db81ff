"""`clients/go`: its own tests against a node."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.clients import gobuild
from tests.kafka.dedup.conftest import deduplicate
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.services import Services
from tests.slow.libraries.peers import GO
from tests.topics import create_topic

_TEST_S = 300.0


@pytest.mark.timeout(400)
def test_the_librarys_own_tests_pass(node: NodeProcess, services: Services, tmp_path: Path) -> None:
    if reason := gobuild.refusal(GO):
        pytest.skip(reason)
    bare, numbered = (create_topic(services.kafka_bootstrap, 2) for _ in range(2))
    deduplicate(Rest(node.admin_url), numbered, access_mode="exclusive")
    done = subprocess.run(
        ["go", "test", "-count=1", "-tags", "node", "-v", "."],
        cwd=shutil.copytree(GO, tmp_path / "go"),
        env={
            **os.environ,
            **gobuild.QUIET,
            "SIDECAR_BOOTSTRAP": node.bootstrap,
            "SIDECAR_NUMBERED": numbered,
            "SIDECAR_BARE": bare,
        },
        capture_output=True,
        text=True,
        timeout=_TEST_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert "--- SKIP" not in done.stdout
    assert "--- PASS: TestATopicIsLedUnderAGenerationThatNeverFalls" in done.stdout
