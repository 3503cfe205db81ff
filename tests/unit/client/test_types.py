"""The SDK tells all its types: to those who check their own programs against it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest


def test_every_type_is_known_to_those_who_import_it(tmp_path: Path) -> None:
    beside = Path(sys.executable).parent  # pyright asks the first `python` on PATH where packages are
    path = {"PATH": f"{beside}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-m", "pyright", "--verifytypes", "sidecar.client", "--ignoreexternal", "--outputjson"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **path}, capture_output=True, text=True, timeout=100, check=False
    )
    found = json.loads(done.stdout)["typeCompleteness"]
    assert found["pyTypedPath"] == str(files("sidecar") / "py.typed")
    unknown = [each["name"] for each in found["symbols"] if each["isExported"] and not each["isTypeKnown"]]
    assert not unknown
    assert found["completenessScore"] == pytest.approx(1)
    assert found["exportedSymbolCounts"]["withKnownType"] > 400


def test_who_imports_the_sdk_does_not_wait_for_what_the_admin_client_alone_needs() -> None:
    told = "import sys, sidecar.client, sidecar.client.sync; print({'aiohttp', 'yarl'} & set(sys.modules) or 'none')"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "none"
