"""Programs that tests drive and that come from the system, not from a package registry."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecar.local.process import Child


def program(name: str, package: str) -> str:
    """The path of a program. Where it is missing the test is skipped, and fails where `CI` is set."""
    found = shutil.which(name)
    if found is not None:
        return found
    why = f"no {name} on PATH (Debian: package {package})"
    if os.environ.get("CI"):
        pytest.fail(why, pytrace=False)
    pytest.skip(why)


def stop_all(children: Sequence[Child], grace: float) -> None:
    """Ask all to end, then wait for them together: `grace` seconds for the lot, then SIGKILL for those left."""
    for child in children:
        child.terminate()
    deadline = time.monotonic() + grace
    for child in children:
        child.stop(max(0.0, deadline - time.monotonic()))
