"""What tests of the command line share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tests.http.paper_cli import TOKEN, Running
from tests.http.paper_nodes import Log


@pytest.fixture
def running() -> Iterator[Running]:
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger("critical")
    )  # stdout is the command's alone
    with Running() as found:
        yield found
    structlog.reset_defaults()


@pytest.fixture
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("SIDECAR_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SIDECAR_ADMIN_TOKEN", TOKEN)
    monkeypatch.setenv("SIDECAR_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def log() -> Iterator[Log]:
    yield Log()
    structlog.reset_defaults()
