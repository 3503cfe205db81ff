"""Which lines of the product histories run: a collector of our own, as a history is a fork and there are thousands.

`watch` has the packages named imported with a mark in front of each statement of their functions, which costs a tenth
of what a tracing function does. What importing runs counts for nothing, nor what is for type checkers or only says
that something cannot be: so the share is that of the lines that a history may run. The table has the other one, too.
"""

from __future__ import annotations

import ast
import sys
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = (
    "exclusive", "policy", "takeover", "writing", "fencing", "dedup", "forwarder", "changelog", "resources", "shadow",
)  # fmt: skip
MARKS: Final[dict[str, bytearray]] = {}
"""By file, relative to the project: a byte for each statement, 1 where it ran in this process or before its fork."""
_NAME: Final = "__marks__"
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


class _Loader(SourceFileLoader):
    """Compiles a module with marks."""

    def get_code(self, fullname: str) -> CodeType | None:
        path = Path(self.get_filename(fullname))
        tree = ast.parse(path.read_text(), path)
        for number, (block, statement) in enumerate(list(_statements(tree))):
            place = next(index for index, each in enumerate(block) if each is statement)
            mark = ast.parse(f"{_NAME}[{number}] = 1").body[0]
            for node in ast.walk(mark):
                ast.copy_location(node, statement)
            block.insert(place, mark)
        return compile(tree, path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        file = str(Path(self.get_filename(module.__name__)).relative_to(ROOT))
        vars(module)[_NAME] = MARKS[file] = bytearray(len(lines_of(file)))
        super().exec_module(module)


class _Finder(MetaPathFinder):
    def __init__(self, packages: Collection[str]) -> None:
        self._packages = packages

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        parts = fullname.split(".")
        if parts[0] != "sidecar" or len(parts) < 2 or parts[1] not in self._packages:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def watch(packages: Collection[str] = PACKAGES) -> None:
    """From here on. Raises RuntimeError where one of the packages is imported already."""
    early = [name for name in sys.modules if name.startswith(tuple(f"sidecar.{each}" for each in packages))]
    if early:
        raise RuntimeError(f"imported too early: {early}")
    sys.meta_path.insert(0, _Finder(packages))


def add(known: dict[str, bytes], more: Mapping[str, bytes | bytearray]) -> None:
    """What ran here or there."""
    for file, marks in more.items():
        before = known.get(file, b"")
        both = int.from_bytes(before, "big") | int.from_bytes(marks, "big")
        known[file] = both.to_bytes(len(marks), "big")


@cache
def lines_of(file: str) -> tuple[int, ...]:
    """The line in which each statement of a file's functions begins, by its number."""
    return tuple(statement.lineno for _, statement in _statements(ast.parse((ROOT / file).read_text())))


def _statements(tree: ast.AST) -> Iterator[tuple[list[ast.stmt], ast.stmt]]:
    """The statements of all functions, each with the block in which it stands."""
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTIONS):
            yield from _in(node.body)


def _in(block: list[ast.stmt]) -> Iterator[tuple[list[ast.stmt], ast.stmt]]:
    for node in list(block):
        if _says_nothing(node):
            continue
        if not isinstance(node, ast.Try):
            yield block, node
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            continue  # their own functions
        for name in ("body", "orelse", "finalbody"):
            yield from _in(getattr(node, name, []))
        for each in [*getattr(node, "handlers", ()), *getattr(node, "cases", ())]:
            yield from _in(each.body)


def _says_nothing(node: ast.stmt) -> bool:
    """Docstrings and bodies of protocols, names of outer scopes, types, and what cannot be."""
    match node:
        case ast.Expr(ast.Constant()) | ast.Global() | ast.Nonlocal() | ast.AnnAssign(value=None) | ast.Pass():
            return True
        case ast.Raise(ast.Call(ast.Name(name))) | ast.Raise(ast.Name(name)):
            return name in ("NotImplementedError", "AssertionError")
    return False


# What to print ----------------------------------------------------------------------------------------------------


def report(known: Mapping[str, bytes]) -> str:
    """A table by package, and below it the lines that never ran."""
    rows, rest = [f"{'package':<12} {'lines':>6} {'run':>6}   share  with what importing runs"], list[str]()
    totals: dict[str, tuple[int, int, int]] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / "sidecar" / package).rglob("*.py")):
            file = str(path.relative_to(ROOT))
            marks = known.get(file, bytes(len(lines_of(file))))
            for name in (package, "all"):
                lines, run, imported = totals.get(name, (0, 0, 0))
                totals[name] = lines + len(marks), run + sum(marks), imported + _imported(file)
            if not all(marks):
                rest.append(f"  {file}: {', '.join(_spans(lines_of(file), marks))}")
    rows += [
        f"{name:<12} {lines:>6} {run:>6}  {_share(run, lines)}  {_share(run + imported, lines + imported)}"
        for name, (lines, run, imported) in totals.items()
    ]
    return "\n".join([*rows, "", "never run:", *rest])


def _share(run: int, lines: int) -> str:
    return f"{100 * run / max(1, lines):4.1f} %"


def _imported(file: str) -> int:
    """How many statements importing a file runs: those that `coverage` counts besides."""
    tree = ast.parse((ROOT / file).read_text())
    blocks = [tree.body, *(node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]
    return sum(not (isinstance(node, ast.If) or _says_nothing(node)) for block in blocks for node in block)


def _spans(lines: Sequence[int], marks: bytes) -> Iterator[str]:
    """Lines without a mark, neighbours as one span."""
    start = before = 0
    for line, mark in [*sorted(zip(lines, marks, strict=True)), (0, 1)]:
        if not mark:
            start, before = start or line, line
        elif start:
            yield str(start) if start == before else f"{start}-{before}"
            start = 0
