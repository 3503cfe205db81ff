"""Each rule on the inside of nodes finds the facts that break it, and nothing in facts that are fine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.sim.inside import Facts, Work, judge

SLOT = "t", "0"
MARK = 1, "t", 0, b"app"


def work(node: int = 1, epoch: int = 1, generation: int = 1, session: str = "pid:1", **more: Any) -> Work:
    return Work(node, SLOT, (900, epoch), generation, session, **more)


def good() -> Facts:
    return Facts(
        (work(under_way={0: ((0, 2), (2, 1), (2, 1))}), work(2, 2, 2, "pid:2")),
        {MARK: (7, 8)},
        {1: (10, 100), 2: (0, 100)},
        {(1, "t"): (("pid:5", 1.0), ("pid:6", 2.0))},
    )


def found(before: Facts, now: Facts) -> int:
    return len(list(judge(before, now)))


def test_nothing_is_wrong_with_good_facts() -> None:
    assert found(good(), good()) == 0
    assert found(Facts(), good()) == 0


def test_two_nodes_that_stamp_alike() -> None:
    assert found(Facts(), Facts((work(), work(2)))) == 1


def test_two_sessions_under_one_generation() -> None:
    assert found(Facts(), Facts((work(), work(2, 2, session="pid:2")))) == 1
    assert found(Facts(), Facts((work(generation=0), work(2, 2, 0, "pid:2")))) == 0


def test_batches_under_way_that_overlap() -> None:
    assert found(Facts(), Facts((work(under_way={0: ((0, 2), (1, 2))}),))) == 1


def test_a_mark_that_falls_or_was_never_sent() -> None:
    assert found(good(), replace(good(), marks={MARK: (6, 8)})) == 1
    assert found(Facts(), replace(good(), marks={MARK: (7, 6)})) == 1


def test_a_buffer_that_is_owed_bytes_or_holds_too_many() -> None:
    assert found(Facts(), replace(good(), held={1: (-1, 100), 2: (101, 100)})) == 2


def test_a_queue_that_changes_its_order() -> None:
    other = {(1, "t"): (("pid:6", 2.0), ("pid:5", 1.0))}
    assert found(good(), replace(good(), queues=other)) == 1
    came_again = {(1, "t"): (("pid:6", 2.0), ("pid:5", 3.0))}
    assert found(good(), replace(good(), queues=came_again)) == 0


def test_refusals_of_more_partitions_than_a_topic_has() -> None:
    assert found(good(), replace(good(), refused={(1, "t"): 3})) == 0
    assert found(good(), replace(good(), refused={(1, "t"): 4, (2, "t"): 1})) == 1
