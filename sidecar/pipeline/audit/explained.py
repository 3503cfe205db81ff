"""What an audit counts, and each count in one sentence: for pages and for people at a terminal."""

from __future__ import annotations

from typing import Final

KINDS: Final = ("duplicates", "regressions", "interleaved", "unowned", "missing")
"""The kinds of violations."""

MALFORMED: Final = "malformed"
GAPS: Final = "gaps"

EXPLAINED: Final = {
    "duplicates": "records whose sequence id is earlier in the same partition, under the same name",
    "regressions": "records whose sequence id is new, but below the highest earlier one of their name in the partition",
    "interleaved": "batches of an older generation behind the first batch or the fence of a newer one",
    "unowned": "batches that no node wrote, for example sent to a broker directly, while the topic was governed",
    "missing": "places where records are lost: stamped sequences with a hole, and last ids that nodes remember and the"
    " log does not hold",
    GAPS: "numbers between the lowest and the highest sequence id of a name that no record has; no violation, as"
    " applications may leave numbers out",
    MALFORMED: "records whose sequence id is no decimal number from 0 to 2^63-1; no violation, they count for nothing",
}


def spread_gaps(names: int) -> str:
    """A sentence about gaps for `names` names that have ids in several partitions; empty for 0."""
    if not names:
        return ""
    verb = "name has" if names == 1 else "names have"
    return (
        f"{names:,} {verb} ids in several partitions: they count as one counter, so a number in another partition is no"
        " gap, and there are at least as many gaps as shown"
    )
