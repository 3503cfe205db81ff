"""Rules that one edit cannot break, as another rule does the same: shown by the mutant that switches off both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Redundant:
    """`of`: the rule, by its name in a model or its hole. `both`: the mutant without it and without what stands in."""

    of: str
    why: str
    both: str


REDUNDANT: Final = (
    Redundant(
        "model LookAgain",
        "a session that was deposed meanwhile is refused by the list of deposed ones, and keeps no generation.",
        "a deposed session goes on",
    ),
    Redundant(
        "hole 4, one broker asked",
        "no takeover has fewer partitions than any epoch of the topic wrote to.",
        "one broker's partitions",
    ),
    Redundant(
        "hole 5, the empty answer alone",
        "a log whose marker was not read is no log that was read: the takeover fails.",
        "an empty answer is the end",
    ),
    Redundant(
        "model FenceData, the markers alone",
        "the marker is looked for in every log, so a takeover without markers never serves.",
        "no fence",
    ),
    Redundant(
        "failing node in-flight-is-new, the judgement alone",
        "ids that are under way in another slot are waited for before they are judged.",
        "in flight is new",
    ),
    Redundant(
        "model KeepCoord, the renewal at the coordinator alone",
        "a takeover that gets another producer id fences the former one on every partition.",
        "renewals pass the coordinator by",
    ),
    Redundant(
        "model StampChangelog, the refusal by Kafka alone",
        "nodes pass over a record of the ownership topic that is below the highest epoch they saw of its producer id.",
        "stale records of the ownership topic count",
    ),
)
