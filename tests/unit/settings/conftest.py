"""Settings tests start from nothing: no variables of ours, no file in the current directory or in /etc."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

Environment = Callable[..., None]


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.upper().startswith("SIDECAR_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "sidecar.settings.values.CONFIG_FILES", (Path("sidecar.toml"), tmp_path / "etc" / "sidecar.toml")
    )


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Environment:
    """`environment(NODE_ID="2")` sets SIDECAR_NODE_ID."""

    def put(**values: str) -> None:
        for name, value in values.items():
            monkeypatch.setenv(f"SIDECAR_{name}", value)

    return put
