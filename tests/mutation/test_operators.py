"""The mistakes that a text allows, and how one is put in: each operator once, on a text of its own."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from tests.mutation import operators
from tests.mutation.known import known, read
from tests.mutation.rooms import ROOMS, ROOT, files
from tests.mutation.swap import SwapError, functions, swap
from tests.sim import lines
from tests.unit.deploy.files import load_yaml

CASES = [
    ("if a < b:\n        go(a)", {"edge": ["a <= b"], "opposite": ["a >= b"], "true": ["True"], "false": ["False"]}),
    ("return a == b", {"opposite": ["a != b"], "return": ["None"]}),
    ("return a is b", {"opposite": ["a is not b"]}),
    ("return not a", {"not": ["(a)"]}),
    ("return a and b", {"and-or": ["((a) or (b))"], "part": ["((b))", "((a))"]}),
    ("return (a) + (b)", {"sign": ["(a) - (b)"]}),
    ("return a + 3", {"sign": ["a - 3"], "plus": ["a + (3 + 1)"], "minus": ["a + (3 - 1)"]}),
    ("return max(a, b)", {"extreme": ["min(a, b)"]}),
    ("a.b = b", {"delete": ["pass"]}),
    ("a += b", {"delete": ["pass"], "sign": ["a -= b"]}),
    ("del a[b]", {"delete": ["pass"]}),
    ("raise ValueError(a)", {"delete": ["pass"]}),
    ("go(\n        a,\n    )", {"delete": ["pass"]}),
    ("for x in a:\n        break", {"loop": ["continue"]}),
    ("return Color.RED", {"member": ["Color.BLUE"]}),
    ("return [x for x in a if x]", {"true": ["True"], "false": ["False"]}),
]
NOTHING = [
    "assert a < b",
    "raise AssertionError",
    "a.hooks.went(a < b)",
    'return f"{a + b}"',
    '"""Says a < b."""',
    "x: a < b",
]


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setattr(operators, "ROOT", tmp_path)
    monkeypatch.setattr(operators, "enums", lambda: {"Color": ("RED", "BLUE")})

    def mutants(body: str) -> list[operators.Mutant]:
        for cached in (operators.mutants, operators._source):
            cached.cache_clear()
        path = tmp_path / "m.py"
        path.write_text(f"def f(a, b):\n    {body}\n")
        return list(operators.mutants("m.py"))

    yield mutants
    for cached in (operators.mutants, operators._source):
        cached.cache_clear()


@pytest.mark.parametrize(("body", "expected"), CASES)
def test_an_operator_makes_its_mistakes(text, body: str, expected: dict[str, list[str]]) -> None:
    made = text(body)
    for operator, changed in expected.items():
        texts = [mutant.text().decode() for mutant in made if mutant.operator == operator]
        assert len(texts) == len(changed), operator
        for mutated, piece in zip(texts, changed, strict=True):
            assert piece in mutated
            assert mutated.count("\n") == f"def f(a, b):\n    {body}\n".count("\n")
            ast.parse(mutated)


@pytest.mark.parametrize("body", NOTHING)
def test_what_only_people_read_is_left_alone(text, body: str) -> None:
    assert [mutant.change for mutant in text(body) if mutant.operator != "return"] == []


def test_ids_are_given_once_and_name_statements_that_are_recorded() -> None:
    for path in (path for room in ROOMS for path in files(room)):
        made = operators.mutants(path)
        assert len({mutant.id for mutant in made}) == len(made)
        assert {mutant.statement for mutant in made} <= set(lines.lines_of(path))


def test_a_mistake_is_put_into_functions_that_were_imported_before() -> None:
    from sidecar.access.rules import next_generation  # noqa: PLC0415 - as late as a test

    code = next_generation.__code__
    (mutant,) = [
        mutant
        for mutant in operators.mutants("sidecar/access/rules.py")
        if mutant.function == "next_generation" and mutant.operator == "extreme"
    ]
    try:
        swap(mutant, functions())
        assert next_generation(5, 3) == 3
    finally:
        next_generation.__code__ = code
    assert next_generation(5, 3) == 6


@pytest.mark.parametrize("operator", ["return", "true"])
def test_a_mistake_is_put_into_functions_that_others_have_returned_before(operator: str) -> None:
    """The rows of the table of rights are made at import. With the second one a variable of the enclosing scope is not
    used any more.
    """
    from sidecar.gateway.access.asked import Asking  # noqa: PLC0415
    from sidecar.gateway.apis.table import ALL_APIS  # noqa: PLC0415
    from sidecar.gateway.rights import WithoutRules  # noqa: PLC0415

    access: Any = ALL_APIS[69].access
    check = access.check
    asking, known = Asking(WithoutRules(), {"group_ids": ["g"]}, 1), functions()
    codes = [(each, each.__code__) for same in known.values() for each in same]
    *_, mutant = [
        mutant
        for mutant in operators.mutants("sidecar/gateway/access/groups.py")
        if mutant.function == "described.check" and mutant.operator == operator
    ]
    assert check(asking) is not None
    try:
        swap(mutant, known)
        assert check(asking) is None
    finally:
        for each, code in codes:
            if each.__code__ is not code:
                each.__code__ = code
    assert check(asking) is not None


def test_a_mistake_without_its_function_is_an_error() -> None:
    with pytest.raises(SwapError):
        swap(operators.mutants("sidecar/access/rules.py")[0], {})


def test_the_list_of_survivors_can_be_read() -> None:
    assert all(entry.reason for entry in known().values())


def test_an_entry_without_a_reason_is_an_error() -> None:
    with pytest.raises(ValueError, match="not an entry"):
        list(read("dedup/marks.py:Marks.judge:edge:1\n  <= → <\n  equivalent:\n"))


def test_every_room_has_its_night() -> None:
    nightly = load_yaml(ROOT / ".github/workflows/nightly.yml")
    assert nightly["jobs"]["mutation"]["strategy"]["matrix"]["room"] == list(ROOMS)
