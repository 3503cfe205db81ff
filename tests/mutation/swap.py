"""Puts a mistake into a process that has imported the product already: the code of one function, in place of its own.

So a mutant costs a fork and the compilation of one module, and no imports. A function that was bound under other names
before, or is wrapped, is the same object. Functions that were called already keep no state in their code.
"""

from __future__ import annotations

import gc
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
        codes = dict(_outer(compile(mutant.text(), path, "exec", dont_inherit=True)))
    except (SyntaxError, ValueError) as error:
        raise SwapError(f"{mutant.id}: {error}") from None
    done = False
    for (file, name, line), same in known.items():
        if file != path or not f"{mutant.function}.".startswith(f"{name}."):
            continue
        if (code := codes.get((name, line))) is None:
            raise SwapError(f"{mutant.id}: lost its function")
        for function in same:
            if code.co_freevars != function.__code__.co_freevars:
                raise SwapError(f"{mutant.id}: other variables of the enclosing scope")
            function.__code__ = code
            done = True
    if not done:
        raise SwapError(f"{mutant.id}: no function has this code")


def _outer(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    """The code of each function that is not within another one, by its name and line."""
    for const in code.co_consts:
        if not isinstance(const, CodeType):
            continue
        if "<locals>" not in const.co_qualname:
            yield (const.co_qualname, const.co_firstlineno), const
            yield from _outer(const)
