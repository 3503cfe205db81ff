"""One line of `sidecar doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is: a failure blocks something, a warning nothing."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, what was seen, what to do about it ("" where nothing has to be done), and what does not work
    until then ("" where everything does).
    """

    name: str
    level: Level
    detail: str
    remedy: str = ""
    blocks: str = ""


def ok(name: str, detail: str) -> Finding:
    """All is well."""
    return Finding(name, Level.OK, detail)


def warn(name: str, detail: str, remedy: str) -> Finding:
    """It works, but."""
    return Finding(name, Level.WARN, detail, remedy)


def fail(name: str, detail: str, remedy: str, blocks: str) -> Finding:
    """It does not work, or not safely. `blocks`: what does not."""
    return Finding(name, Level.FAIL, detail, remedy, blocks)
