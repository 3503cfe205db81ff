"""What polls brought a moment ago: bounded in bytes and in time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sidecar.fanout.recent import KEPT_S, Kept, Recent
from sidecar.protocol.calls.tails import Fetched


def fetched(size: int) -> Fetched:
    return Fetched(0, size, b"x" * size)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 60)), max_size=60))
def test_the_newest_answers_stay_within_the_bytes_allowed(kept: list[tuple[int, int]]) -> None:
    recent, order = Recent[int](100), dict[int, int]()
    for question, size in kept:
        recent.keep(question, fetched(size), 0.0)
        order.pop(question, None)
        order[question] = size
        while sum(order.values()) > 100:
            del order[next(iter(order))]
        assert recent.questions() == list(order)
        assert recent.kept_bytes == sum(order.values())


def test_an_answer_ages() -> None:
    recent = Recent[str]()
    recent.keep("a", fetched(5), 10.0)
    recent.keep("b", fetched(7), 10.5)
    assert recent.get("a", 10.0 + KEPT_S - 0.01) == Kept(fetched(5), 10.0)
    assert recent.get("a", 10.0 + KEPT_S) is None
    assert recent.age(10.0) == KEPT_S
    assert recent.age(10.0 + KEPT_S) == 0.5
    assert recent.questions() == ["b"]
    assert recent.age(10.5 + KEPT_S) is None
    assert recent.kept_bytes == 0


def test_an_answer_can_be_forgotten() -> None:
    recent = Recent[str]()
    recent.keep("a", fetched(5), 0.0)
    recent.forget("a")
    recent.forget("b")
    assert recent.get("a", 0.0) is None
    assert recent.kept_bytes == 0
