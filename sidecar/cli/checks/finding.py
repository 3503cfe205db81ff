"""One line of `sidecar doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is. A node can run with warnings; it cannot, or not safely, with a failure."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, what was seen, and what to do about it ("" where nothing has to be done)."""

    name: str
    level: Level
    detail: str
    remedy: str = ""


def ok(name: str, detail: str) -> Finding:
    """All is well."""
    return Finding(name, Level.OK, detail)


def warn(name: str, detail: str, remedy: str) -> Finding:
    """It works, but."""
    return Finding(name, Level.WARN, detail, remedy)


def fail(name: str, detail: str, remedy: str) -> Finding:
    """It does not work, or not safely."""
    return Finding(name, Level.FAIL, detail, remedy)
