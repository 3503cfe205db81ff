"""What polls brought a moment ago: bounded in bytes and in time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sidecar.fanout.question import Question
from sidecar.fanout.recent import ENTRY_BYTES, KEPT_S, Kept, Recent
from sidecar.protocol.calls.tails import Fetched, Position


def question(number: int) -> Question:
    """Of three partitions in turn."""
    return Question(Position(b"orders", number % 3, -1, number), 0)


def fetched(size: int) -> Fetched:
    return Fetched(0, size, b"x" * size)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 60)), max_size=60))
def test_the_newest_answers_stay_within_the_bytes_allowed(kept: list[tuple[int, int]]) -> None:
    most = 3 * ENTRY_BYTES + 100
    recent, order = Recent(most), dict[int, int]()

    def taken() -> int:
        return sum(order.values()) + len(order) * ENTRY_BYTES

    for number, size in kept:
        recent.keep(question(number), fetched(size), 0.0)
        order.pop(number, None)
        order[number] = size
        while taken() > most:
            del order[next(iter(order))]
        assert [number for number in range(10) if recent.get(question(number), 0.0)] == sorted(order)
        assert recent._bytes == taken()
        for index in range(3):
            assert recent.has((b"orders", index)) == any(number % 3 == index for number in order)


def test_an_answer_ages() -> None:
    recent = Recent()
    recent.keep(question(0), fetched(5), 10.0)
    recent.keep(question(1), fetched(7), 10.5)
    assert recent.get(question(0), 10.0 + KEPT_S - 0.01) == Kept(fetched(5), 10.0)
    assert recent.get(question(0), 10.0 + KEPT_S) is None
    assert recent.age(10.0) == KEPT_S
    assert recent.age(10.0 + KEPT_S) == 0.5
    assert recent._bytes == 7 + ENTRY_BYTES
    assert not recent.has((b"orders", 0))
    assert recent.age(10.5 + KEPT_S) is None
    assert recent._bytes == 0


def test_a_partitions_answers_can_be_forgotten() -> None:
    recent = Recent()
    for number in range(6):
        recent.keep(question(number), fetched(5), 0.0)
    recent.forget((b"orders", 0))
    recent.forget((b"unknown", 0))
    assert [number for number in range(6) if recent.get(question(number), 0.0)] == [1, 2, 4, 5]
    assert recent._bytes == 4 * (5 + ENTRY_BYTES)


def test_of_an_answer_about_many_partitions_only_the_one_that_is_kept_stays() -> None:
    recent, whole = Recent(), bytearray(30_000)
    small, large = (Fetched(0, size, memoryview(whole)[:size]) for size in (180, 20_000))
    kept = recent.keep(question(0), small, 0.0)
    assert (kept, type(kept.element)) == (small, bytes)
    assert recent.get(question(0), 0.0) == Kept(small, 0.0)
    assert recent.keep(question(1), large, 0.0) is large, "most of it is needed: copied it would cost more"
