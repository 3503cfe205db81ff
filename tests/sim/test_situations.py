"""Situations: each is noticed somewhere, and noticing changes nothing."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from tests.sim import corners, crossings, histories, noticing
from tests.sim.history import History
from tests.sim.situations import NAMES, table
from tests.sim.worker import Worker

Corner: TypeAlias = Callable[[random.Random, History], History]

_SEED = 7011
_PLAIN = replace(histories.MIXES["corners"], corners=0.0)
_CORNERS: Final[dict[Corner, tuple[int, str]]] = {
    corners._dropped_raise: (1, "raise meets a drop"), corners._ends_at_work: (1, "coordinator ends at work"),
    corners._failed_in_front: (0, "whole behind a failed one"), corners._ghost: (2, "meets its ghost"),
    corners._given_up: (4, "given up in doubt"), corners._leaderless: (2, "record without leader"),
    corners._lost_ids: (0, "ids unknown"), corners._moved_in_silence: (2, "silent with a successor"),
    corners._queue_ends: (0, "ends in queue"), corners._refused_raise: (2, "raise refused"),
    corners._stops: (0, "stops before record"), corners._two_coordinators: (3, "two coordinators"),
}  # fmt: skip
"""A seed of corners, and the situation that each was made for."""


def test_every_situation_is_noticed_somewhere_and_nothing_else_is() -> None:
    source = Path(noticing.__file__).read_text()
    looked_for = set(re.findall(r'_note\(\s*"([^"]+)"', source)) | set(re.findall(r'found\["([^"]+)"\]', source))
    looked_for |= set(re.findall(r'"([^"]+)" if .* else "[^"]+"', source)) & set(NAMES)
    looked_for |= set(re.findall(r'"[^"]+" if .* else "([^"]+)"', source)) & set(NAMES)
    assert looked_for == set(NAMES)


def test_what_is_looked_at_is_there() -> None:
    for owner, name, _ in noticing._LOOKS:
        assert callable(getattr(owner, name))


def test_noticing_changes_no_history() -> None:
    history = histories.make(_SEED)
    with Worker() as blind, Worker(notices=True) as noticing_worker:
        plain, noticed = blind.play(history), noticing_worker.play(history)
    assert (plain.digest, plain.steps, plain.effects) == (noticed.digest, noticed.steps, noticed.effects)
    assert not plain.situations
    assert noticed.situations


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker(notices=True) as made:
        yield made


@pytest.mark.parametrize("corner", _CORNERS, ids=lambda corner: corner.__name__)
def test_a_corner_brings_what_it_is_for(worker: Worker, corner: Corner) -> None:
    seed, situation = _CORNERS[corner]
    outcome = worker.play(crossings.thinned(random.Random(f"{seed} corner"), histories.make(seed, _PLAIN), corner))
    assert outcome.wrong == []
    assert situation in outcome.situations


def test_a_table_says_how_many_histories_have_a_situation() -> None:
    found = table(Counter({"leader silent": 3}), 300, ["leader silent"])
    assert found.splitlines()[-1].startswith("| [Fencing](architecture.md#fencing) | one leader does not confirm")
    assert found.endswith("| 3 | 1.0 % |")
