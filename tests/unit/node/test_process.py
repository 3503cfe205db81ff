"""A node that cannot start: the process ends and says why."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "settings",
    [
        {"SECURITY_PROTOCOL": "SSL", "SSL_CERTIFICATE": "missing.pem"},
        {"KAFKA_SECURITY_PROTOCOL": "SSL", "KAFKA_SSL_CA": "missing.pem"},
    ],
)
def test_a_file_that_cannot_be_read_is_named_and_ends_the_start(settings: dict[str, str], tmp_path: Path) -> None:
    given = {f"SIDECAR_{name}": value for name, value in settings.items()}
    given |= {"SIDECAR_LISTEN": "127.0.0.1:0", "SIDECAR_ADMIN_LISTEN": "127.0.0.1:0", "SIDECAR_LOG_FORMAT": "json"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SIDECAR_")}
    command = [sys.executable, "-m", "sidecar", "serve"]
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment | given, capture_output=True, text=True, timeout=60, check=False
    )
    said = ended.stdout + ended.stderr
    assert ended.returncode == 1
    assert "cannot_start" in said
    assert "missing.pem cannot be read: No such file or directory" in said
    assert "Traceback" not in said
