"""Situations: each is noticed somewhere, and noticing changes nothing."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests.sim import histories, noticing
from tests.sim.situations import NAMES, table
from tests.sim.worker import Worker

_SEED = 7011
_IN_CORNERS = {
    15: "coordinator ends at work", 9: "ids unknown", 11: "whole behind a failed one", 12: "ends in queue",
    13: "given up in doubt", 16: "raise meets a drop", 19: "raise refused",
}  # fmt: skip
"""Seeds of the mix of corners, and what each was made for: no plain seed of 200 had it before."""


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


def test_corners_bring_what_they_are_for() -> None:
    with Worker(notices=True) as worker:
        for seed, situation in _IN_CORNERS.items():
            outcome = worker.play(histories.make(seed, histories.MIXES["corners"]))
            assert outcome.wrong == []
            assert situation in outcome.situations


def test_a_table_says_how_many_histories_have_a_situation() -> None:
    found = table(Counter({"leader silent": 3}), 300, ["leader silent"])
    assert found.splitlines()[-1].startswith("| Fencing | one leader does not confirm")
    assert found.endswith("| 3 | 1.0 % |")
