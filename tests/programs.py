"""Programs that tests drive and that come from the system, not from a package registry."""

from __future__ import annotations

import os
import shutil

import pytest


def program(name: str, package: str) -> str:
    """The path of a program. Where it is missing the test is skipped, and fails where `CI` is set."""
    found = shutil.which(name)
    if found is not None:
        return found
    why = f"no {name} on PATH (Debian: package {package})"
    if os.environ.get("CI"):
        pytest.fail(why, pytrace=False)
    pytest.skip(why)
