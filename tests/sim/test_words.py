"""What an operator said holds in the end: each rule with words that break it (`words`, `sources`)."""

from __future__ import annotations

from typing import Any

import pytest

from sidecar.node.port import ConflictError, UnavailableError
from tests.sim.host import Host
from tests.sim.sources import Sources
from tests.sim.words import Fields, Word, Words, differing, judge

KEY = "shadow/mirror"


def word(began: float, ended: float, *says: Fields, done: bool = True) -> Word:
    return Word(KEY, says, began, ended, done)


def holds(value: object, *words: Word, **more: Any) -> bool:
    """Whether nothing is wrong where the limit is this in the end."""
    said = Words(said=list(words), initial={KEY: {"limit": 0}}, **more)
    return not list(judge(said, {KEY: {"limit": value}}))


def test_the_last_word_holds() -> None:
    first, second = word(0, 1, {"limit": 1}), word(2, 3, {"limit": 2})
    assert holds(2, first, second)
    assert not holds(1, first, second)
    assert not holds(0, first)


def test_of_two_at_once_either_may_hold() -> None:
    assert holds(1, word(0, 2, {"limit": 1}), word(1, 3, {"limit": 2}))
    assert holds(2, word(0, 2, {"limit": 1}), word(1, 3, {"limit": 2}))


def test_a_word_that_failed_may_hold_until_another_one_is_acknowledged() -> None:
    failed = word(0, 1, {"limit": 5}, done=False)
    assert holds(5, failed)
    assert holds(0, failed)
    assert not holds(5, failed, word(2, 3, {"limit": 1}))


def test_nothing_of_a_dead_node_comes_later() -> None:
    node = Host("node-1")
    dead = Word(KEY, ({"limit": 5},), 0.0, host=node)
    later = word(2, 3, {"limit": 1})
    assert holds(5, dead, later)
    node.died_at = 1.0
    assert not holds(5, dead, later)


def test_what_is_made_and_fails_may_be_there_or_not() -> None:
    failed = word(0, 1, {"limit": 5}, {"limit": None}, done=False)
    assert holds(None, failed)
    assert not holds(7, failed)


def test_what_others_had_a_say_in_is_not_judged() -> None:
    first, second = word(0, 1, {"limit": 1}), word(2, 3, {"limit": 2})
    assert holds(1, first, second, unsaid={KEY})
    assert holds(1, first, second, lost=True)


def test_a_client_makes_a_policy_of_a_topic_that_has_none() -> None:
    deleted = Words(said=[Word("policy/owned", ({"access_mode": None},), 0.0, 1.0, done=True)])
    assert not list(judge(deleted, {"policy/owned": {"access_mode": "shared"}}))
    assert list(judge(deleted, {"policy/owned": {"access_mode": "exclusive"}}))


async def test_a_word_that_nothing_was_done_for_is_none() -> None:
    words = Words()

    async def raises(error: Exception) -> None:
        raise error

    for error in (ConflictError("taken"), UnavailableError("away")):
        with pytest.raises(type(error)):
            await words.during(Host("node-1"), KEY, {"limit": 1}, raises(error), makes=True)
    (failed,) = words.said
    assert (failed.done, failed.says) == (False, ({"limit": 1}, {"limit": None}))


def test_a_node_that_goes_by_something_else_than_the_last_record_is_found() -> None:
    log: dict[str, Fields] = {KEY: {"limit": 1}}
    assert not list(differing(log, {1: {KEY: {"limit": 1}}}))
    assert list(differing(log, {1: {KEY: {"limit": 1}}, 2: {KEY: {"limit": 2}}}))


def test_a_shadow_that_is_made_again_shows_its_new_source_and_for_a_moment_the_former_one() -> None:
    sources = Sources()
    sources.note("mirror", "owned", 0.0)
    sources.note("mirror", "owned", 1.0)
    assert not sources.has_changed("mirror")
    sources.note("mirror", "", 5.0)
    sources.note("mirror", "shared", 6.0)
    assert sources.has_changed("mirror")
    assert [sorted(each.name for each in sources.at("mirror", moment)) for moment in (-1.0, 3.0, 6.5, 8.0)] == [
        [], ["owned"], ["owned", "shared"], ["shared"],
    ]  # fmt: skip
    assert not sources.moved


def test_a_shadow_that_becomes_one_of_another_topic_is_noticed_also_of_the_same_name() -> None:
    sources = Sources()
    sources.note("mirror", "owned", 0.0, b"1")
    sources.note("mirror", "owned", 1.0, b"2")
    assert len(sources.moved) == 1
