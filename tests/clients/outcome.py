"""What can come of a cell, and when it counts as passed. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from .absences import ABSENCES


class Outcome(Enum):
    """The values are those of the workers' answers."""

    OK = "ok"
    ABSENT = "n/a"
    FAILED = "failed"


class Route(Enum):
    """How clients reach Kafka."""

    NODE = "node"
    DIRECT = "direct"


@dataclass(frozen=True, slots=True)
class Result:
    """One cell of the report. `detail` is a note, a reason or an error; `trace` what a failure needs besides."""

    outcome: Outcome
    detail: str = ""
    trace: str = ""
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """True for all but failures: an absence that is not listed never gets to be one of those."""
        return self.outcome is not Outcome.FAILED


def failed(detail: str, trace: str = "", seconds: float = 0.0) -> Result:
    """A failure that the worker itself could not see."""
    return Result(Outcome.FAILED, detail, trace, seconds)


def judge(client: str, feature: str, answer: Mapping[str, Any], seconds: float) -> Result:
    """The result of what a worker answered: absent passes only where the table says so, and there nothing else does."""
    outcome = Outcome(answer["outcome"])
    result = Result(outcome, answer["detail"], answer.get("trace", ""), seconds)
    absent = (client, feature) in ABSENCES
    if outcome is Outcome.FAILED:
        return result
    if (outcome is Outcome.ABSENT) != absent:
        return failed(f"{outcome.value}, but the table of absences says otherwise: {result.detail}", seconds=seconds)
    return result
