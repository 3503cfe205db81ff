"""Puts a mistake into a process that has imported the product already: the code of one function, in place of its own.

So a mutant costs a fork and the compilation of one module, and no imports. A function that was bound under other names
before, or is wrapped, is the same object. Functions that were called already keep no state in their code. Those that
they returned, as the checks of a table that is made at import, get the code of the inner function.
"""

from __future__ import annotations

import gc
from collections import Counter
from types import CodeType, FunctionType
from typing import TYPE_CHECKING

from tests.mutation.rooms import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.mutation.operators import Mutant

Functions = dict[tuple[str, str, int], list[FunctionType]]
"""By the code's file, name and first line."""


class SwapError(Exception):
    """The mistake cannot be put in here."""


def functions() -> Functions:
    """All functions of the product, to be called when everything is imported."""
    known: Functions = {}
    gc.unfreeze()  # what is frozen is not among the objects
    for value in gc.get_objects():
        if isinstance(value, FunctionType):
            code = value.__code__
            if code.co_filename.startswith(str(ROOT / "sidecar")):
                known.setdefault((code.co_filename, code.co_qualname, code.co_firstlineno), []).append(value)
    return known


def swap(mutant: Mutant, known: Functions) -> None:
    """For ever, in this process. Raises `SwapError`."""
    path = str(ROOT / mutant.path)
    try:
        found = list(_codes(compile(mutant.text(), path, "exec", dont_inherit=True)))
    except (SyntaxError, ValueError) as error:
        raise SwapError(f"{mutant.id}: {error}") from None
    counts = Counter(key for key, _ in found)
    codes = {key: code for key, code in found if counts[key] == 1}
    done = False
    for (file, name, line), same in known.items():
        plain = name.replace("<locals>.", "").removesuffix(".<lambda>")
        if file != path or not f"{mutant.function}.".startswith(f"{plain}."):
            continue
        if (code := codes.get((name, line))) is None:
            if "<locals>" in name:
                continue  # the mistake removes it, or it is one of several lambdas of a line
            raise SwapError(f"{mutant.id}: lost its function")
        for function in same:
            _exchange(function, code)
            done = True
    if not done:
        raise SwapError(f"{mutant.id}: no function has this code")


def _exchange(function: FunctionType, code: CodeType) -> None:
    """Give a function another code, even if that uses fewer variables of the enclosing scope."""
    names = function.__code__.co_freevars
    if code.co_freevars == names:
        function.__code__ = code
        return
    cells = dict(zip(names, function.__closure__ or (), strict=True))
    try:
        closure = tuple(cells[name] for name in code.co_freevars)
    except KeyError as name:
        raise SwapError(f"{code.co_qualname}: {name} of the enclosing scope is new") from None
    mistaken = code.replace(co_qualname=f"{code.co_qualname} with a mistake")  # `functions` passes it over
    other = FunctionType(mistaken, function.__globals__, code.co_name, function.__defaults__, closure)
    other.__kwdefaults__ = function.__kwdefaults__
    instead = f"_instead_of_{id(function)}"
    function.__globals__[instead] = other
    text = f"def within({', '.join(names)}):\n  def f(*a, **k):\n    {names}\n    return {instead}(*a, **k)\n"
    text = text.replace("'", "")
    (within,) = (const for const in compile(text, "instead", "exec").co_consts if isinstance(const, CodeType))
    function.__code__ = next(const for const in within.co_consts if isinstance(const, CodeType))


def _codes(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    """The code of each function, by its name and line."""
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield (const.co_qualname, const.co_firstlineno), const
            yield from _codes(const)
