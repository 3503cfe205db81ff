"""The checker sees each kind of violation, and nothing else."""

from __future__ import annotations

import pytest

from tests.slow.faults.checker import Attempt, Floors, Key, Kind, Logged, Told, check, summary

pytestmark = pytest.mark.smoke


def key(number: int, *, name: str = "billing", partition: int = 0) -> Key:
    return Key(partition, name, number)


def log(*ids: int) -> list[Logged]:
    return [Logged(key(number), offset) for offset, number in enumerate(ids)]


def acknowledged(*ids: int) -> list[Attempt]:
    return [Attempt(key(number), Told.OK) for number in ids]


def kinds(records: list[Logged], history: list[Attempt], **options: object) -> list[Kind]:
    found = check(records, history, Floors(), **options)  # type: ignore[arg-type]
    return [violation.kind for violation in found]


def test_a_log_of_what_was_acknowledged_is_in_order() -> None:
    assert kinds(log(0, 1, 5), [Attempt(key(0), Told.OK, 0), *acknowledged(1, 5)]) == []


def test_a_lost_record_is_seen() -> None:
    assert kinds(log(0), acknowledged(0, 1)) == [Kind.LOST]


def test_a_record_in_another_partition_is_lost_and_a_phantom() -> None:
    elsewhere = [Logged(key(0), 0), Logged(key(1, partition=1), 0)]
    assert kinds(elsewhere, acknowledged(0, 1)) == [Kind.LOST, Kind.PHANTOM]


def test_a_doubled_record_is_seen() -> None:
    assert kinds(log(0, 1, 0), acknowledged(0, 1)) == [Kind.TWICE, Kind.FALLING]


def test_ids_that_fall_are_seen() -> None:
    assert kinds(log(1, 0), acknowledged(0, 1)) == [Kind.FALLING]


def test_names_and_partitions_count_apart() -> None:
    records = [Logged(key(1), 0), Logged(key(0, name="audit"), 1), Logged(key(0, partition=1), 0)]
    assert kinds(records, [Attempt(record.key, Told.OK, record.offset) for record in records]) == []


def test_a_record_that_nobody_sent_is_seen() -> None:
    assert kinds(log(0, 1), acknowledged(0)) == [Kind.PHANTOM]


def test_a_timeout_is_no_verdict_in_either_direction() -> None:
    timeout = [Attempt(key(1), Told.INFO)]
    assert kinds(log(0, 1), [*acknowledged(0), *timeout]) == []
    assert kinds(log(0), [*acknowledged(0), *timeout]) == []


def test_a_record_of_which_every_attempt_was_refused_must_not_be_there() -> None:
    refused = [Attempt(key(1), Told.FAIL)]
    assert kinds(log(0, 1), [*acknowledged(0), *refused]) == [Kind.REFUSED]
    assert kinds(log(0, 1), [*acknowledged(0, 1), *refused]) == []
    assert kinds(log(0, 1), [*acknowledged(0), *refused, Attempt(key(1), Told.INFO)]) == []


def test_a_wrong_offset_is_seen() -> None:
    assert kinds(log(0, 1), [*acknowledged(0), Attempt(key(1), Told.OK, 0)]) == [Kind.MISPLACED]


def test_what_was_never_finished_is_seen() -> None:
    assert kinds(log(0), acknowledged(0), unfinished=[key(1)]) == [Kind.UNFINISHED]


def test_what_was_written_before_ids_counted_is_judged_only_where_it_comes_again() -> None:
    assert kinds(log(3, 2, 4), acknowledged(2, 3, 4), since=2) == []
    assert kinds(log(3, 2, 3), acknowledged(2, 3), since=2) == [Kind.TWICE]


@pytest.mark.parametrize(("floors", "faults"), [(Floors(acknowledged=3), 0), (Floors(faults=2), 1)])
def test_a_run_that_saw_too_little_fails(floors: Floors, faults: int) -> None:
    found = check(log(0, 1), acknowledged(0, 1), floors, faults=faults)
    assert [violation.kind for violation in found] == [Kind.TOO_LITTLE]


def test_an_empty_run_fails() -> None:
    assert kinds([], []) == [Kind.TOO_LITTLE]


def test_the_summary_counts_and_names() -> None:
    told = summary(check(log(0), acknowledged(0, 1, 2), Floors()))
    assert told.startswith("2 LOST\n")
    assert "billing:2 in partition 0" in told
