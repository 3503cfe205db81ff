"""Reads `known.txt`: mutants that survive, each with its change and the reason.

An entry is three lines: the id, the change, and the reason:

    equivalent: why nothing differs that anyone may rely on
    survives: what goes wrong that no test notices
    simulator: which of its checks notices it; no unit test does
    elsewhere: the unit test of another room that notices it; those of its own room (`--near`) do not
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE: Final = Path(__file__).with_name("known.txt")
KINDS: Final = ("equivalent", "survives", "simulator", "elsewhere")


@dataclass(frozen=True, slots=True)
class Known:
    """An entry. `change`: the mutant's, so that an entry whose code has changed is noticed."""

    id: str
    change: str
    kind: str
    reason: str


def read(text: str) -> Iterator[Known]:
    """Raises ValueError for a text of another form."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    for name, change, why in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        kind, _, reason = why.partition(": ")
        if kind not in KINDS or not reason or name.count(":") != 3:
            raise ValueError(f"not an entry of {FILE.name}: {name!r}, {why!r}")
        yield Known(name, change, kind, reason)


def known() -> dict[str, Known]:
    """The file, by id. Raises ValueError where an id is there twice."""
    entries = list(read(FILE.read_text(encoding="utf-8")))
    by_id = {entry.id: entry for entry in entries}
    if len(by_id) < len(entries):
        raise ValueError(f"{FILE.name} has an id twice")
    return by_id
