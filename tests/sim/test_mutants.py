"""Mutants (`tests.sim.mutants`): each still has its place in the product, and the simulator finds some of each kind.

`make mutants` plays all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sim.mutants.all import MUTANTS
from tests.sim.mutants.edits import Edit, EditError, edited, install, texts
from tests.sim.mutants.mutant import Mutant
from tests.sim.mutants.redundant import REDUNDANT
from tests.sim.mutants.run import Lanes, hunt

FOUND_AT_ONCE = ("half a circle", "claims are believed", "no tails")
"""Under the first seed."""
MODELS = ("ExclusiveTopic", "Slots", "Tails", "ClientSequences", "SequenceSpace", "KeepAlive")
ELSEWHERE = {
    "Near": "half a circle",
    "JudgeClaim": "claims are believed",
    "OwnMarker": "one marker for all slots",
    "CountDoubt": "lost is unsent",
    "CepPerPartition_loss": "one client epoch for all partitions",
}
"""Rules of models whose mutants have the name of a hole, or of the rule's other trace."""


@pytest.fixture(scope="module")
def clean() -> Iterator[Lanes]:
    found = Lanes()
    yield found
    found.close()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_still_has_its_place_in_the_product(mutant: Mutant) -> None:
    assert texts(mutant.world + mutant.edits)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_has_a_history_of_any_number(mutant: Mutant) -> None:
    """A hunt that finds nothing plays all that it declares, and `--history` or `--seeds` may name more."""
    assert mutant.found_by(100) == mutant.found_by(100)


def test_names_are_given_once() -> None:
    assert Counter(mutant.name for mutant in MUTANTS).most_common(1)[0][1] == 1


def test_what_is_redundant_has_a_mutant_without_both() -> None:
    assert {each.both for each in REDUNDANT} <= {mutant.name for mutant in MUTANTS}


@pytest.mark.parametrize("model", MODELS)
def test_every_rule_that_a_model_switches_off_has_a_mutant(model: str) -> None:
    rules = {path.stem for path in (Path(__file__).parents[2] / "model" / model / "mutants").glob("*.cfg")}
    assert rules
    there = {mutant.of for mutant in MUTANTS} | {each.of for each in REDUNDANT}
    assert {rule for rule in rules if f"model {rule}" not in there} <= ELSEWHERE.keys()
    assert set(ELSEWHERE.values()) <= {mutant.name for mutant in MUTANTS}


@pytest.mark.parametrize("name", FOUND_AT_ONCE)
def test_a_mutant_is_found_and_the_product_is_not(clean: Lanes, name: str) -> None:
    mutant = next(each for each in MUTANTS if each.name == name)
    found = hunt(mutant, clean, seeds=8)
    assert found.is_right, found


def test_an_edit_whose_text_is_gone_or_there_twice_fails() -> None:
    path = "sidecar/forwarder/sequences.py"
    for old in ("no such text", "MODULUS"):
        with pytest.raises(EditError, match="times, not once"):
            edited(path, [Edit(path, old, "")])


def test_an_edit_that_is_no_python_fails() -> None:
    path = "sidecar/forwarder/sequences.py"
    with pytest.raises(EditError, match="does not compile"):
        edited(path, [Edit(path, "MODULUS: Final = 2**31", "MODULUS: Final = (")])


def test_an_edit_of_a_module_that_is_imported_already_fails() -> None:
    path = "tests/sim/mutants/edits.py"
    with pytest.raises(EditError, match="imported before"):
        install([Edit(path, "A mistake as a change", "A change")])
