"""Violations of every kind in logs made by hand are counted exactly, and nothing else is."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from sidecar.cli.pipeline.audit import _as_text
from sidecar.pipeline.audit.facts import Facts, Mark, Writer
from sidecar.pipeline.audit.judge import Audit
from tests.slow.pipeline.audit.made import Log, Reader, judged, naive, owner, sharer

CLEAN = {"duplicates": 0, "regressions": 0, "interleaved": 0, "unowned": 0, "missing": 0}
FIRST, SECOND = (7, 0), (7, 1)
OWNERS = Facts(writers=(owner(*FIRST, 1), owner(*SECOND, 2)))


def violations(found: Audit) -> dict[str, int]:
    return {kind: count for kind, count in found.totals.items() if count}


def test_a_clean_log_passes_and_no_record_is_read_twice(spark: SparkSession) -> None:
    log = Log()
    log.mark(FIRST)
    log.append(FIRST, 0, 1, 5)
    log.append(FIRST, 6)
    log.mark(SECOND)
    log.append(SECOND, 7, 8)
    reader = Reader(spark, log)
    found = judged(spark, log, OWNERS, split=2, reader=reader)
    assert found.totals == CLEAN
    assert found.passes
    assert (found.records, found.gaps, found.examples) == (6, 3, [])
    assert reader.asked == []


def test_a_repeated_id_is_a_duplicate_and_a_lower_new_one_a_regression(spark: SparkSession) -> None:
    log = Log()
    log.append(FIRST, 0, 1, 2, 10, 20)
    log.append(FIRST, 10, 15, 21, 3, 15)
    found = judged(spark, log, OWNERS)
    assert violations(found) == {"duplicates": 2, "regressions": 2}
    told = {(each["kind"], each["offset"], each["sequence_id"], each["detail"]) for each in found.examples}
    assert told == {
        ("duplicates", 5, 10, "first at offset 3"),
        ("duplicates", 9, 15, "first at offset 6"),
        ("regressions", 6, 15, "behind id 20"),
        ("regressions", 8, 3, "behind id 21"),
    }
    assert found.gaps == 22 - 8


def test_ids_count_by_partition_and_by_name_and_over_epochs(spark: SparkSession) -> None:
    log = Log()
    log.append(FIRST, 1, 1, names=("a", "b"))
    log.append(FIRST, 1, partition=1, names="a")
    log.append(SECOND, 1, names="b")
    found = judged(spark, log, OWNERS)
    assert violations(found) == {"duplicates": 1}
    assert found.counts["duplicates"] == {0: 1}


def test_ids_of_nobodys_name_count_by_epoch(spark: SparkSession) -> None:
    log = Log()
    nameless = Facts(writers=(owner(*FIRST, 1, name=None), owner(*SECOND, 2, name=None)))
    log.append(FIRST, 4, 4)
    log.append(SECOND, 4)
    assert violations(judged(spark, log, nameless)) == {"duplicates": 1}


def test_two_writers_of_one_name_beside_each_other_are_told_record_by_record(spark: SparkSession) -> None:
    log = Log()
    shared = Facts(writers=(sharer(7, 0, "1", name="n", opened_at=1), sharer(8, 0, "2", name="n", opened_at=2)))
    for index in range(3):
        log.append((7, 0), 100 + index)
        log.append((8, 0), 50 + 51 * index)
    # 100, 50, 101, 101, 102, 152: both are runs of rising ids
    log.append((7, 0), 100, partition=1)
    log.append((8, 0), 200, partition=1)  # begins above all before it, and what goes on then lies below
    log.append((7, 0), 101, partition=1)
    found = judged(spark, log, shared)
    assert found.counts == {"duplicates": {0: 1}, "regressions": {0: 1, 1: 1}}


def test_a_batch_of_an_older_generation_behind_the_first_of_a_newer_one_is_interleaved(spark: SparkSession) -> None:
    log = Log()
    log.append(FIRST, None)
    log.mark(SECOND)
    log.append(SECOND, None)
    late = log.append(FIRST, None, None)
    log.append(SECOND, None)
    log.append(FIRST, None)
    found = judged(spark, log, OWNERS)
    assert violations(found) == {"interleaved": 2}
    assert [(each["offset"], each["name"]) for each in found.examples] == [(late, "billing")]


def test_a_new_producer_id_of_a_slot_fences_the_one_before_and_another_slot_too(spark: SparkSession) -> None:
    log = Log()
    known = Facts(
        writers=(owner(7, 3, 4), owner(9, 0, 5, rank=1, opened_at=10), sharer(8, 0, "1", name="s", opened_at=11))
    )
    log.append((7, 3), None)
    log.append((9, 0), None)
    log.append((7, 3), None)  # an id that the slot gave up
    log.append((8, 0), None)
    log.append((9, 0), None)  # the owner of before others wrote beside each other
    log.append((8, 0), None)
    assert violations(judged(spark, log, known)) == {"interleaved": 2}


def test_shared_sessions_write_beside_each_other(spark: SparkSession) -> None:
    log = Log()
    known = Facts(writers=(sharer(7, 0, "1", name="a", opened_at=1), sharer(8, 0, "2", name="b", opened_at=2)))
    for index in range(4):
        log.append((7, 0), index)
        log.append((8, 0), index)
    assert judged(spark, log, known).totals == CLEAN


def test_a_batch_that_nobody_owns_counts_from_where_the_topic_was_governed(spark: SparkSession) -> None:
    log = Log()
    log.append((50, 0), None)
    log.append((-1, -1), None)
    log.mark(FIRST)
    log.append((50, 0), None, None)
    log.append((-1, -1), None)
    log.append((-1, -1), None)
    log.append((7, 9), None)  # an epoch that no node opened
    found = judged(spark, log, OWNERS)
    assert violations(found) == {"unowned": 4}
    assert {each["offset"] for each in found.examples} == {3, 5, 7}


def test_where_a_topic_was_governed_from_may_be_known_by_its_changelog_alone(spark: SparkSession) -> None:
    log = Log()
    for _ in range(4):
        log.append((50, 0), None)
    known = Facts(governed={0: 2})
    assert violations(judged(spark, log, known)) == {"unowned": 2}
    assert judged(spark, log, Facts()).totals == CLEAN


def test_what_was_written_between_two_policies_is_nobodys_business(spark: SparkSession) -> None:
    log = Log()
    log.append(FIRST, None)
    log.append((50, 0), None)
    log.mark(SECOND)
    log.append((50, 0), None)
    known = (owner(*FIRST, 1), owner(*SECOND, 2))
    between = Facts(writers=known, ungoverned=((1, 1),))  # opened_ms of the epochs are 0 and 1
    assert violations(judged(spark, log, between)) == {"unowned": 1}
    for_good = Facts(writers=known, ungoverned=((2, None),))
    assert violations(judged(spark, log, for_good)) == {"unowned": 1}


def test_fences_and_keep_alives_after_it_do_not_undo_a_time_between_two_policies(spark: SparkSession) -> None:
    log = Log()
    log.append(FIRST, None)
    log.append((50, 0), None)
    log.append((8, 0), None)
    log.mark((7, 3))  # an epoch that nobody opened: the newest that is known to be is of before
    log.append((50, 0), None)
    known = Facts(
        writers=(replace(owner(*FIRST, 1), last_epoch=3), sharer(8, 0, "1", name="s", opened_at=2)),
        ungoverned=((1, 2),),
    )
    assert violations(judged(spark, log, known)) == {"unowned": 1}


def test_stamped_sequences_begin_at_0_and_leave_none_out(spark: SparkSession) -> None:
    log = Log()
    log.append(FIRST, None, sequence=2)
    log.append(FIRST, None)
    log.append(FIRST, None, sequence=6)
    log.append(SECOND, None, sequence=2**31 - 1)
    log.append(SECOND, None, None)
    found = judged(spark, log, OWNERS)
    assert violations(found) == {"missing": 2}
    assert [each["detail"] for each in found.examples] == [
        "stamped sequence 2 where 0 was next",
        "stamped sequence 6 where 4 was next",
    ]


def test_what_retention_took_is_not_missing(spark: SparkSession) -> None:
    log = Log()
    log.append(FIRST, 0, 1)
    log.append(FIRST, 2, 3)
    log.append(SECOND, 4, 5)
    known = Facts(writers=OWNERS.writers, marks=(Mark(0, "gone", 9, 1, 6), Mark(0, "billing", 5, 5, 6)))
    assert judged(spark, log.cut(2), known).totals == CLEAN
    later = log.cut(3)
    later.append(SECOND, 6, sequence=9)
    assert violations(judged(spark, later, known)) == {"missing": 1}


def test_an_epoch_that_began_within_the_range_begins_at_0(spark: SparkSession) -> None:
    log = Log()
    log.append(FIRST, None, None)
    log.append(SECOND, None, sequence=3)
    assert violations(judged(spark, log.cut(1), OWNERS)) == {"missing": 1}


def test_where_compaction_took_records_no_sequence_and_no_id_is_missed(spark: SparkSession) -> None:
    log = Log()
    log.append(FIRST, 0, 1, 2, 3)
    log.records = [each for each in log.records if each.offset not in (1, 3)]
    known = Facts(writers=OWNERS.writers, marks=(Mark(0, "billing", 3, 3, 4),))
    found = judged(spark, log, known)
    assert found.totals == CLEAN
    assert found.gaps == 1


def test_the_last_id_that_nodes_remember_is_in_the_log(spark: SparkSession) -> None:
    log = Log()
    log.append(FIRST, 0, 1)
    marks = (
        Mark(0, "billing", 1, 1, 2),
        Mark(0, "ledger", 4, 0, 2),  # a name that the log does not have
        Mark(0, "behind", 4, 2, 3),  # behind the range
        Mark(0, "unknown", 4, -1, 2),  # somewhere in front of its end
        Mark(0, "later", 4, -1, 3),
    )
    found = judged(spark, log, Facts(writers=OWNERS.writers, marks=marks))
    assert violations(found) == {"missing": 2}
    assert [(each["name"], each["sequence_id"]) for each in found.examples] == [("unknown", 4), ("ledger", 4)]
    ahead = Facts(writers=OWNERS.writers, marks=(Mark(0, "billing", 2, 1, 2),))
    assert violations(judged(spark, log, ahead)) == {"missing": 1}


def test_an_id_that_nodes_remember_is_missed_though_the_log_goes_on_above_it(spark: SparkSession) -> None:
    """Its end was lost with a leader, and the next one was written on."""
    log = Log()
    log.append(FIRST, 0, 1, 2)
    log.append(SECOND, 5, 6)
    known = Facts(writers=OWNERS.writers, marks=(Mark(0, "billing", 4, 4, 5),))
    found = judged(spark, log, known)
    assert violations(found) == {"missing": 1}
    assert [each["detail"] for each in found.examples] == ["nodes remember this id; the log goes on to 6 without it"]


def test_an_id_whose_writers_name_is_forgotten_is_not_missed(spark: SparkSession) -> None:
    log = Log()
    log.append(FIRST, 0, 1)
    known = Facts(writers=(owner(*FIRST, 1, name=None),), marks=(Mark(0, "billing", 1, 1, 2),))
    assert judged(spark, log, known).totals == CLEAN


def test_malformed_ids_are_counted_and_shown(spark: SparkSession) -> None:
    log = Log()
    log.append(FIRST, 0)
    at = log.spoil(FIRST, "not a decimal number: b'x'")
    log.append(FIRST, 1)
    found = judged(spark, log, OWNERS)
    assert found.totals == CLEAN
    assert found.malformed == 1
    assert [(each["kind"], each["offset"], each["detail"]) for each in found.examples] == [
        ("malformed", at, "not a decimal number: b'x'")
    ]


def test_a_name_has_no_word_to_the_terminal_and_keeps_to_its_line(spark: SparkSession) -> None:
    log = Log()
    log.append(FIRST, 1, 1, names="a\n\x1b[2J\u751f")
    text = _as_text([judged(spark, log, OWNERS)])
    assert "a\\n\\x1b[2J\u751f" in text
    assert len(text.splitlines()) == 2 + 2 + 1 + 2


def test_ids_as_high_as_there_are_leave_no_overflow(spark: SparkSession) -> None:
    log = Log()
    log.append(FIRST, 0, 2**63 - 1)
    assert judged(spark, log, OWNERS).gaps == 2**63 - 2


def test_a_number_in_another_partition_is_no_gap(spark: SparkSession) -> None:
    log = Log()
    for number in range(12):
        if number not in (4, 5, 9):
            log.append(FIRST, number, partition=number % 3)
    found = judged(spark, log, OWNERS)
    assert (found.totals, found.gaps, found.spread) == (CLEAN, 3, 1)


def test_ids_that_an_application_gave_again_in_another_partition_hide_no_more_gaps_than_they_are(
    spark: SparkSession,
) -> None:
    log = Log()
    for number in range(12):
        log.append(FIRST, number, partition=number % 3)
    log.append(FIRST, 12, 13, 20, partition=0)
    log.append(FIRST, 13, 14, partition=1)
    found = judged(spark, log, OWNERS)
    assert (found.totals, found.gaps) == (CLEAN, (20 - 14 - 1) - 1)


def test_partitions_with_more_ids_than_numbers_have_a_counter_each(spark: SparkSession) -> None:
    log = Log()
    log.append(FIRST, 0, 1, 3)
    log.append(FIRST, 0, 2, 3, partition=1)
    found = judged(spark, log, OWNERS)
    assert (found.totals, found.gaps, found.spread) == (CLEAN, 2, 1)


def test_the_verdict_is_json_as_the_contract_says(spark: SparkSession) -> None:
    log = Log()
    log.append(FIRST, 3, 3)
    found = judged(spark, log, OWNERS).as_json()
    assert list(found) == ["topic", "records", "violations", "gaps", "examples"]
    assert found["violations"] == {**CLEAN, "duplicates": 1}
    assert list(found["violations"]) == list(CLEAN)


@pytest.mark.parametrize("seed", range(3))
def test_a_reader_of_every_record_finds_the_same_in_random_logs(spark: SparkSession, seed: int) -> None:
    """300 small logs at a time, one per partition: writers, ids, sequences, fences and markers at random."""
    chosen = random.Random(seed)
    log = Log()
    writers: tuple[Writer, ...] = (
        owner(7, 0, 1, opened_at=1), owner(7, 1, 1, opened_at=3), owner(7, 2, 2, name="ledger", opened_at=5),
        owner(9, 0, 3, rank=1, opened_at=7), sharer(8, 0, "1", name="s", opened_at=2),
        sharer(8, 1, "1", name="t", opened_at=6), sharer(10, 0, "2", name="s", opened_at=4),
        Writer(10, 1, 2, "2", 0, True),
    )  # fmt: skip
    producers = [*((each.producer_id, each.first_epoch) for each in writers), (50, 0), (-1, -1), (10, 2)]
    for partition in range(300):
        # Most logs have few writers in good order, so that each kind stands alone often enough.
        mine = sorted(chosen.sample(range(len(producers)), chosen.randint(1, 4)))
        high = 0
        for _ in range(chosen.randint(1, 14)):
            producer = producers[chosen.choice(mine)]
            if chosen.random() < 0.15:
                log.mark(producer, partition)
                continue
            ids: list[int | None] = []
            for _ in range(chosen.randint(1, 4)):
                high += chosen.choice((0, 1, 1, 1, 3))
                ids.append(None if chosen.random() < 0.1 else max(0, high - chosen.choice((0, 0, 0, 0, 1, 5))))
            names = chosen.choice((None, None, "s", [chosen.choice(("billing", None)) for _ in ids]))
            sequence = chosen.choice((None, None, None, None, None, None, 0, 4, 2**31 - 2))
            log.append(producer, *ids, partition=partition, sequence=sequence, names=names)
    bases = {each.partition: each.base for each in chosen.sample(log.records, len(log.records) // 2)}
    known = Facts(writers=writers, governed={partition: base for partition, base in bases.items() if partition % 3})
    found = judged(spark, log, known, split=5 if seed == 1 else 1_000)
    expected = naive(log, known)
    assert set(expected) == {"duplicates", "regressions", "interleaved", "unowned", "missing"}
    assert {kind: dict(sorted(by.items())) for kind, by in found.counts.items()} == expected
