"""What a rebuild knows of a partition from portion to portion, and up to where it is told to go. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.dedup.marks import Mark
from sidecar.dedup.recovery import Extent
from sidecar.dedup.snapshots import Saved
from sidecar.jobs.progress import Progress, Row, next_portion, ranges

NOW = 1_700_000_000


def begun(saved: Saved | None, extent: Extent, *, until: int = 100, limit: int = 10, number: int = 0) -> Progress:
    found = Progress(3, until, limit)
    found.go_on_from(saved, extent, number, "orders")
    return found


def test_without_a_snapshot_the_log_is_read_from_its_beginning() -> None:
    assert begun(None, Extent(0, 100, 0)).left == (0, 100)
    assert begun(None, Extent(40, 100, 60)).left == (40, 100)


def test_a_snapshot_is_gone_on_from_and_the_higher_of_two_ids_counts() -> None:
    saved = Saved(50, 7, [Mark(b"a", 9, 44, 5), Mark(b"b", 3, 45, 6)])
    found = begun(saved, Extent(0, 100, 0), number=7)
    assert (found.left, found.began) == ((50, 100), 50)
    found.learn([Row(b"a", 8, 60, 60), Row(b"b", 4, 61, 62), Row(b"c", 0, 63, 63)], 100, NOW)
    assert found.left is None
    assert found.to_save() == Saved(
        100, 7, [Mark(b"a", 9, 44, NOW), Mark(b"b", 4, 61, NOW), Mark(b"c", 0, 63, NOW)], rebuilt=True
    )


@pytest.mark.parametrize("saved", [None, Saved(30, 7, []), Saved(120, 7, [])], ids=["none", "too old", "of a lost log"])
def test_where_nothing_tells_of_what_retention_took_the_ids_are_lost(saved: Saved | None) -> None:
    found = begun(saved, Extent(40, 100, 20))
    assert (found.left, found.outcome) == (None, "lost")
    assert "begins at offset 40" in str(found.problem)


def test_what_a_snapshot_covers_already_is_not_read() -> None:
    found = begun(Saved(90, 7, [Mark(b"a", 9, 44, 5)]), Extent(0, 100, 0), until=80)
    assert (found.left, found.outcome, found.covered) == (None, "known", 90)


def test_of_too_many_names_those_stay_that_came_last() -> None:
    """Those of the log behind those of the snapshot, and these by when they were seen."""
    saved = Saved(50, 7, [Mark(b"old", 9, 44, NOW - 5), Mark(b"older", 3, 45, NOW - 6), Mark(b"back", 5, 1, NOW - 9)])
    found = begun(saved, Extent(0, 100, 0), limit=3)
    found.learn([Row(b"back", 2, 60, 60), Row(b"new", 4, 61, 62)], 70, NOW)
    assert {mark.name: mark.id for mark in found.to_save().marks} == {b"old": 9, b"back": 5, b"new": 4}
    found.learn([Row(b"newest", 1, 80, 80), Row(b"last", 1, 81, 81)], 100, NOW)
    assert {mark.name for mark in found.to_save().marks} == {b"new", b"newest", b"last"}


STARTS, ENDS = {0: 10, 1: 0}, {0: 20, 1: 5}


def test_a_rebuild_ends_where_it_is_told_to_and_else_at_the_end() -> None:
    assert ranges(None, STARTS, ENDS) == ENDS
    assert ranges({"0": 10}, STARTS, ENDS) == {0: 10, 1: 5}
    assert ranges({"0": 20, "1": 0}, STARTS, ENDS) == {0: 20, 1: 0}


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        ({"2": 0}, "no partition 2: it has 0, 1"),
        ({"-1": 0}, "no partition -1"),
        ({"0": 21}, "offset 21 is behind the end of its log, 20"),
        ({"0": 9}, "offset 9 is in front of its log, which begins at 10"),
        ({"0": "9"}, "'9' is no offset"),
        ({"0": True}, "True is no offset"),
        ({"0": 9.5}, "9.5 is no offset"),
    ],
)
def test_offsets_that_a_log_does_not_hold_are_refused(told: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        ranges(told, STARTS, ENDS)


@given(
    todo=st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 100), st.integers(1, 300)), min_size=1),
    size=st.integers(1, 400),
    cuts=st.dictionaries(st.integers(0, 5), st.integers(0, 400)),
)
def test_portions_are_all_of_it_once_in_order_and_never_reach_across_a_cut(
    todo: Mapping[int, tuple[int, int]], size: int, cuts: Mapping[int, int]
) -> None:
    left = {partition: (first, first + length) for partition, (first, length) in todo.items()}
    while left:
        portion = next_portion(left, size, cuts)
        assert portion.keys() == left.keys()
        assert sum(behind - first for first, behind in portion.values()) <= max(size, len(left))
        for partition, (first, behind) in portion.items():
            assert first == left[partition][0]
            assert first < behind <= left[partition][1]
            assert not first < cuts.get(partition, -1) < behind
            left[partition] = behind, left[partition][1]
        left = {partition: (first, behind) for partition, (first, behind) in left.items() if first < behind}


@pytest.mark.parametrize("cut", [0, 10, 50])
def test_a_log_is_cut_where_its_ids_begin_to_count(cut: int) -> None:
    assert next_portion({0: (0, 100)}, 1000, {0: cut})[0] == (0, cut or 100)
