"""The models and the code name each other: each action of a model says which function takes that step, or that it is
Kafka's, a client's or the world's, and that function names the action. TLC is not run here: `make model`.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache

import pytest

from tests.unit.docs.pages import ROOT, page
from tools.model import MODELS, Config, configs, judge

MODULES = sorted(MODELS.glob("*.tla"))
DEFINITION = re.compile(r"^(\w+)(?:\([^)]*\))? +==", re.MULTILINE)
IN_CODE = re.compile(r"^\\\* ([\w/]+\.py): ([\w.]+)$", re.MULTILINE)
OF_OTHERS = re.compile(r"^\\\* (?:Kafka|Client|World): ", re.MULTILINE)


@dataclass(frozen=True)
class Action:
    """A definition that `Next` names, and the comment above it."""

    module: str
    name: str
    comment: str


def actions(module: str, text: str) -> list[Action]:
    """In the order of the module."""
    following = re.search(r"^Next ==(.*?)\n\n", text, re.MULTILINE | re.DOTALL)
    assert following is not None
    sets = set(re.findall(r"(?:\\in |\.\.)(\w+)", following[1]))
    named = set(re.findall(r"\w+", following[1])) - sets
    found: list[Action] = []
    for definition in DEFINITION.finditer(text):
        comment = re.search(r"(?:^\\\*.*\n)*\Z", text[: definition.start()], re.MULTILINE)
        assert comment is not None
        if definition[1] in named:
            found.append(Action(module, definition[1], comment[0]))
    return found


ACTIONS = [action for path in MODULES for action in actions(path.stem, path.read_text(encoding="utf-8"))]
each_action = pytest.mark.parametrize("action", ACTIONS, ids=lambda action: f"{action.module}.{action.name}")
each_config = pytest.mark.parametrize("config", configs(large=True), ids=lambda config: config.name)


@cache
def source(path: str, name: str) -> str | None:
    """The text of a function or method of a file, None where there is none."""
    text = (ROOT / path).read_text(encoding="utf-8")
    body = ast.parse(text).body
    *classes, function = name.split(".")
    for one in classes:
        body = next((node.body for node in body if isinstance(node, ast.ClassDef) and node.name == one), [])
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function:
            return ast.get_source_segment(text, node)
    return None


def named_in(text: str) -> set[str]:
    """The actions that a function says it is: `Model: NoteTails`, `Model: Own, Share`."""
    return {name for line in re.findall(r"Model: ((?:\w+(?:, )?)+)", text) for name in line.split(", ")}


def test_there_are_models() -> None:
    assert {path.stem for path in MODULES} >= {"ExclusiveTopic", "Slots", "Tails", "ClientSequences", "KeepAlive"}
    assert len(ACTIONS) > 40


@each_action
def test_an_action_and_its_function_name_each_other(action: Action) -> None:
    places = IN_CODE.findall(action.comment)
    assert places or OF_OTHERS.search(action.comment), "its comment names no function, nor Kafka, Client or World"
    for path, name in places:
        found = source(path, name)
        assert found is not None, f"{path} has no {name}"
        assert action.name in named_in(found), f"{path}: {name} does not say `Model: {action.name}`"


def test_what_the_code_says_of_models_is_in_them() -> None:
    known = {action.name for action in ACTIONS}
    said = {
        (path.name, name)
        for path in (ROOT / "sidecar").rglob("*.py")
        for name in named_in(path.read_text(encoding="utf-8"))
    }
    assert {(file, name) for file, name in said if name not in known} == set()


@each_config
def test_a_configuration_says_what_it_is_for(config: Config) -> None:
    text = config.path.read_text(encoding="utf-8")
    must_fail = config.path.parent.name == "mutants" or config.path.stem.startswith("sanity")
    assert (config.fails is not None) is must_fail
    listed = text.partition("INVARIANTS")[2].split()
    assert listed
    assert config.fails is None or config.fails in listed
    module = (MODELS / f"{config.module}.tla").read_text(encoding="utf-8")
    for invariant in listed:
        assert re.search(rf"^{invariant} +==|^{invariant} ==", module, re.MULTILINE), invariant


@pytest.mark.parametrize("module", [path.stem for path in MODULES])
def test_each_switch_of_a_module_has_a_mutant_and_each_module_a_sanity_property(module: str) -> None:
    of_module = [config for config in configs(large=True) if config.module == module]
    switched: set[str] = set()
    for config in of_module:
        text = config.path.read_text(encoding="utf-8")
        if config.path.parent.name == "mutants":
            switched |= set(re.findall(r"^  (\w+) = FALSE$", text, re.MULTILINE))
    passing = next(config for config in of_module if config.fails is None).path.read_text(encoding="utf-8")
    text = (MODELS / f"{module}.tla").read_text(encoding="utf-8")
    switches = re.findall(r"^  (\w+)", text.partition("\\* Switches.")[2].partition("VARIABLES")[0], re.MULTILINE)
    assert [name for name in switches if f"  {name} = TRUE" in passing and name not in switched] == []
    assert [config for config in of_module if config.path.stem.startswith("sanity")]


@each_config
def test_the_page_lists_each_configuration(config: Config) -> None:
    assert f"`{config.path.relative_to(MODELS / config.module).with_suffix('')}`" in page("model/README.md").text


# The tool -------------------------------------------------------------------------------------------------------------

PASSED = "Model checking completed. No error has been found.\n12 states generated, 1,024 distinct states found, 0\n"
BROKE = "Error: Invariant NoDup is violated.\nState 1: <Init>\nState 2: <Next>\n7 distinct states found, 3"


@pytest.mark.parametrize(
    ("fails", "output", "is_right", "verdict"),
    [
        (None, PASSED, True, "holds"),
        (None, BROKE, False, "WRONG: breaks NoDup, 2 states"),
        ("NoDup", BROKE, True, "breaks NoDup, 2 states"),
        ("InOrder", BROKE, False, "WRONG: breaks NoDup, 2 states"),
        ("NoDup", PASSED, False, "WRONG: holds"),
        (None, "Parsing failed", False, "WRONG: did not run to its end"),
        ("NoDup", "Parsing failed", False, "WRONG: did not run to its end"),
    ],
)
def test_what_tlc_says_is_judged(fails: str | None, output: str, is_right: bool, verdict: str) -> None:
    run = judge(Config("Tails", MODELS / "Tails" / "main.cfg", fails), output, 1.0)
    assert (run.is_right, run.verdict) == (is_right, verdict)
    assert run.states == (0 if "Parsing" in output else 1024 if output is PASSED else 7)
