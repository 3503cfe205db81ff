"""Dockerfile: clean for hadolint. What the image does is tested where there is an engine, in tests/slow/deploy."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.unit.deploy.files import DOCKERFILE


def hadolint(text: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    assert program, "hadolint is missing: it belongs to the dev group"
    return subprocess.run([program, "-"], input=text, capture_output=True, text=True, check=False, timeout=60)


def test_hadolint_has_nothing_to_say():
    result = hadolint(DOCKERFILE.read_text(encoding="utf-8"))

    assert (result.returncode, result.stdout) == (0, "")
