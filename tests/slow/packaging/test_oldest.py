"""The oldest versions that pyproject.toml allows: what is claimed for them is run with them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.deploy.files import ROOT


@pytest.mark.timeout(1800)
def test_the_product_works_with_the_oldest_dependencies_that_it_allows(tmp_path: Path):
    command = [sys.executable, "-m", "tools.oldest", str(tmp_path)]

    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1700)

    assert result.returncode == 0, result.stdout[-10_000:] + result.stderr
    assert " passed" in result.stdout
