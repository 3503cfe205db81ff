"""The first difference of two records is found, named and told; one that somebody accepted is passed over."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.behaviour.archive import About, ArchiveError, create, read
from tests.sim.behaviour.differences import (
    CHECKER,
    MISSING,
    MORE,
    ORDER,
    OTHERWISE,
    TIME,
    Rule,
    differences,
    label,
    parting,
    rules,
    story,
)  # fmt: skip
from tests.sim.behaviour.entries import Entry, Record


def script(at: int, topic: str, reply: str = ":1", name: str = "claim") -> Entry:
    return Entry(at, "script", ("node-1", name, ("1", "key", topic), (f"{reply}\r\n", ())))


def record_of(*entries: Entry, wrong: tuple[str, ...] = ()) -> Record:
    return Record(("seed 1: a world", "  0.000  freeze node      node=1"), wrong, entries, ())


A, B, C = script(10, "owned"), script(20, "shared"), script(30, "split")


@pytest.mark.parametrize(
    ("now", "sort"),
    [
        ((A, B._replace(at=22), C), None),
        ((A, script(20, "shared", ":0"), C), OTHERWISE),
        ((A, C), MISSING),
        ((A, B), MISSING),
        ((A, script(15, "guarded"), B, C), MORE),
        ((A, B, C, script(40, "guarded")), MORE),
        ((A, C._replace(at=20), B._replace(at=30)), ORDER),
        ((A, B._replace(at=23), C), TIME),
        ((A, script(15, "x", name="serve"), script(21, "shared", ":0"), C), MORE),
    ],
)
def test_a_difference_is_of_its_sort(now: tuple[Entry, ...], sort: str | None) -> None:
    old, new = record_of(A, B, C), record_of(*now)
    first = next(differences(old, new), None)
    assert (first and first.sort) == sort
    if first is not None:
        told = story(1, first, old, new)
        assert told.startswith(f"seed 1: script {'serve' if 'x' in str(now) else 'claim'}, {sort}\n")
        assert "then: " in told
        assert "now : " in told
        assert "the history: freeze node node=1" in told


def test_what_the_checker_says_is_behaviour_too() -> None:
    old, new = record_of(A), record_of(A, wrong=("a record is lost",))
    (only,) = differences(old, new)
    assert only.sort == CHECKER
    assert "now : a record is lost" in story(1, only, old, new)
    assert label(only, old, new) == "the checker: judged otherwise"


def test_behind_an_accepted_difference_the_records_are_compared_on(tmp_path: Path) -> None:
    path = tmp_path / "accepted.toml"
    path.write_text('[[accepted]]\nreason = "refused"\ntext = "shared: it replies :0"\nseeds = "1, 4-6"\n')
    allowed = rules(path)
    old, new = record_of(A, B, C), record_of(A, script(20, "shared", ":0"), C)
    assert parting(5, old, new, allowed).first is None
    assert parting(5, old, new, allowed).accepted == ("refused",)
    assert parting(2, old, new, allowed).first is not None
    other = record_of(A, script(20, "shared", ":0"))
    first = parting(1, old, other, allowed).first
    assert first is not None
    assert (first.sort, first.then) == (MISSING, C)


def test_a_rule_for_a_seed_accepts_all_of_it() -> None:
    whole = Rule("another order", frozenset({1}), None)
    assert parting(1, record_of(A, B), record_of(C), [whole]).first is None


@pytest.mark.parametrize("table", ['text = "x"', 'reason = "why"'])
def test_a_rule_needs_a_reason_and_what_it_is_about(tmp_path: Path, table: str) -> None:
    path = tmp_path / "accepted.toml"
    path.write_text(f"[[accepted]]\n{table}\n")
    with pytest.raises(ValueError, match="needs a reason"):
        rules(path)


def test_an_archive_gives_back_what_was_put_in(tmp_path: Path) -> None:
    path, about = tmp_path / "record.zip", About("abc", "usual")
    with create(path, about) as archive:
        for seed in (10, 2):
            archive.add(seed, b"%d" % seed)
    with read(path) as archive:
        assert (archive.about, archive.seeds, archive.record(10)) == (about, [2, 10], b"10")
    path.write_bytes(b"nothing")
    with pytest.raises(ArchiveError, match="no record"), read(path):
        pass
