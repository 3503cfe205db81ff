"""One line of `sidecar doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """Severity: a failure blocks something, a warning nothing."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check: its name, what was found, what to do about it ("" for nothing), and what does not work
    until then ("" for nothing).
    """

    name: str
    level: Level
    detail: str
    remedy: str = ""
    blocks: str = ""


def ok(name: str, detail: str) -> Finding:
    """A check without a problem."""
    return Finding(name, Level.OK, detail)


def warn(name: str, detail: str, remedy: str) -> Finding:
    """It works, but there is a problem."""
    return Finding(name, Level.WARN, detail, remedy)


def fail(name: str, detail: str, remedy: str, blocks: str) -> Finding:
    """It does not work, or not safely. `blocks`: what does not work."""
    return Finding(name, Level.FAIL, detail, remedy, blocks)
