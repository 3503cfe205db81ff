"""Where two records of a seed part, of which sort that is, and whether somebody has said that it may be so.

Only the first difference of a seed counts: what follows from it is another history.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.sim.behaviour.entries import Entry, Record, Teller, context

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SAME_MOMENT_US: Final = 2
"""Moments that are no further apart are the same: sums of the same times may differ in their last digit."""
_AHEAD: Final = 60
_CONTEXT: Final = 10
"""Related entries that a story tells before its difference, out of these:"""
_LOOKED_AT: Final = 1000

OTHERWISE: Final = "otherwise"
MORE: Final = "one more"
MISSING: Final = "missing"
ORDER: Final = "in another order"
TIME: Final = "at another time"
CHECKER: Final = "judged otherwise"


@dataclass(frozen=True, slots=True)
class Difference:
    """`then` and `now`: what stands in the records at `places`, None behind their end. One that is missing, or is one
    more, stands before what comes next in the other record.
    """

    sort: str
    then: Entry | None
    now: Entry | None
    places: tuple[int, int]

    @property
    def is_about_then(self) -> bool:
        """Whether what it is about stands in the record of then."""
        return self.sort == MISSING

    @property
    def entry(self) -> Entry | None:
        """The one that it is about; None where that is what the checker said."""
        return self.then if self.is_about_then else self.now


@dataclass(frozen=True, slots=True)
class Rule:
    """A difference that may be: of these seeds, or that has this text in what was or is there."""

    reason: str
    seeds: frozenset[int] | None
    text: re.Pattern[str] | None

    def allows(self, seed: int, sentences: Sequence[str]) -> bool:
        """Whether it is one of those."""
        if self.seeds is not None and seed not in self.seeds:
            return False
        return self.text is None or any(map(self.text.search, sentences))


def rules(path: Path) -> list[Rule]:
    """Of a file with tables `[[accepted]]`: `reason`, and `seeds` ("3, 10-19"), `text` (a regular expression), or both.
    Raises ValueError.
    """
    found: list[Rule] = []
    for table in tomllib.loads(path.read_text()).get("accepted", ()):
        if not table.get("reason") or not table.keys() & {"seeds", "text"}:
            raise ValueError(f"{path}: an accepted difference needs a reason, and seeds or a text: {table}")
        seeds = frozenset(numbers(table["seeds"])) if "seeds" in table else None
        found.append(Rule(table["reason"], seeds, re.compile(table["text"]) if "text" in table else None))
    return found


def numbers(text: str) -> Iterator[int]:
    """`3, 10-19` in full."""
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        yield from range(int(first), int(last or first) + 1)


def differences(old: Record, new: Record) -> Iterator[Difference]:
    """All, as if each were accepted: the records are compared on behind it."""
    then, now, i, j = old.entries, new.entries, 0, 0
    while i < len(then) and j < len(now):
        one, other = then[i], now[j]
        if one.content == other.content:
            if abs(one.at - other.at) > SAME_MOMENT_US:
                yield Difference(TIME, one, other, (i, j))
            i, j = i + 1, j + 1
            continue
        sort = _sort(then, i, now, j)
        yield Difference(sort, one, other, (i, j))
        i, j = i + (sort != MORE), j + (sort != MISSING)
    for place in range(i, len(then)):
        yield Difference(MISSING, then[place], None, (place, len(now)))
    for place in range(j, len(now)):
        yield Difference(MORE, None, now[place], (len(then), place))
    if old.wrong != new.wrong:
        yield Difference(CHECKER, None, None, (len(then), len(now)))


def _sort(then: Sequence[Entry], i: int, now: Sequence[Entry], j: int) -> str:
    comes = any(entry.content == then[i].content for entry in now[j + 1 : j + _AHEAD])
    came = any(entry.content == now[j].content for entry in then[i + 1 : i + _AHEAD])
    if comes and came:
        return ORDER
    if comes != came:
        return MORE if comes else MISSING
    if then[i].subject == now[j].subject:
        return OTHERWISE
    return MISSING if then[i].at < now[j].at else MORE


@dataclass(frozen=True, slots=True)
class Parting:
    """The first difference of a seed that no rule allows, None without one; `accepted`: the reasons of those before."""

    first: Difference | None
    accepted: tuple[str, ...]


def parting(seed: int, old: Record, new: Record, allowed: Sequence[Rule]) -> Parting:
    """Where the records of a seed part."""
    accepted: list[str] = []
    tells = Teller(old), Teller(new)
    for difference in differences(old, new):
        shown = (
            None if difference.sort == MORE else difference.then,
            None if difference.sort == MISSING else difference.now,
        )
        sides = zip(tells, shown, strict=True)
        sentences = [tell.sentence(entry) for tell, entry in sides if entry is not None]
        rule = next((rule for rule in allowed if rule.allows(seed, sentences)), None)
        if rule is None:
            return Parting(difference, tuple(accepted))
        accepted.append(rule.reason)
        if rule.text is None:
            break  # of this seed everything
    return Parting(None, tuple(accepted))


def label(difference: Difference, old: Record, new: Record) -> str:
    """For counting."""
    entry = difference.entry
    if entry is None:
        return f"the checker: {difference.sort}"
    return f"{Teller(old if difference.is_about_then else new).label(entry)}, {difference.sort}"


def story(seed: int, difference: Difference, old: Record, new: Record) -> str:
    """The difference, and what went before it, for people."""
    entry = difference.entry
    head = f"seed {seed}: {label(difference, old, new)}"
    if entry is None:
        sides = (("then", old.wrong), ("now ", new.wrong))
        return "\n  ".join([head, *(f"{name}: {'; '.join(wrong) or 'nothing is wrong'}" for name, wrong in sides)])
    record, place = (old, difference.places[0]) if difference.is_about_then else (new, difference.places[1])
    before = record.entries[max(0, place - _LOOKED_AT) : place]
    lines = [head, new.history[0].partition(": ")[2]]
    lines += [_line(at, text) for at, text in context(Teller(record), record, entry, before, _CONTEXT)]
    then = _side("then", Teller(old), difference.then, not_there=difference.sort == MORE)
    now = _side("now ", Teller(new), difference.now, not_there=difference.sort == MISSING)
    lines += [then, now]
    if difference.sort == OTHERWISE and then.partition(": ")[2] == now.partition(": ")[2]:
        assert difference.then is not None
        assert difference.now is not None
        lines.append(_line(None, f"they differ in what is not shown: {_parted(difference.then, difference.now)}"))
    return "\n  ".join(lines)


def _line(at: int | None, text: str) -> str:
    return f"{'' if at is None else f'{at / 1e6:.4f}':>9}  {text}"


def _side(name: str, tell: Teller, entry: Entry | None, *, not_there: bool) -> str:
    if entry is None:
        return _line(None, f"{name}: nothing more")
    return _line(entry.at, f"{name}: {'nothing; what comes next: ' if not_there else ''}{tell.sentence(entry)}")


def _parted(then: Entry, now: Entry) -> str:
    one, other = (repr(entry.what) for entry in (then, now))
    pairs = enumerate(zip(one, other, strict=False))
    place = next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))
    return " | ".join(ascii(text[max(0, place - 8) : place + 32]) for text in (one, other))
