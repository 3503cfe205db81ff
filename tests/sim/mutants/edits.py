"""A mistake as a change of the product's text, made while it is imported.

The text stands exactly once in its module, else `EditError`: a mutant that lost its place is no test of anything.
Installed before the product is imported, in the process of a worker; nothing is written to disk.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import CodeType, ModuleType

_ROOT: Final = Path(__file__).parents[3]


class EditError(Exception):
    """An edit does not fit the product any more."""


@dataclass(frozen=True, slots=True)
class Edit:
    """`old` becomes `new` in one module; `path` is relative to the repository. Indentation counts."""

    path: str
    old: str
    new: str

    @property
    def module(self) -> str:
        """The module's name."""
        return self.path.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")


def edited(path: str, edits: Iterable[Edit]) -> str:
    """The text of a module with its edits, which must compile. Raises `EditError`."""
    text = (_ROOT / path).read_text(encoding="utf-8")
    for edit in edits:
        if (count := text.count(edit.old)) != 1:
            raise EditError(f"{path} has {count} times, not once: {edit.old!r}")
        text = text.replace(edit.old, edit.new)
    try:
        compile(text, path, "exec")
    except SyntaxError as error:
        raise EditError(f"{path} does not compile with its edits: {error}") from None
    return text


def texts(edits: Iterable[Edit]) -> dict[str, tuple[str, str]]:
    """Path and text by module. Raises `EditError`."""
    by_path: dict[str, list[Edit]] = defaultdict(list)
    for edit in edits:
        by_path[edit.path].append(edit)
    return {found[0].module: (path, edited(path, found)) for path, found in by_path.items()}


def install(edits: Iterable[Edit]) -> None:
    """For ever, in this process. Raises `EditError`, also where a module was imported before."""
    found = texts(edits)
    if early := sorted(found.keys() & sys.modules.keys()):
        raise EditError(f"imported before it could be edited: {early}")
    if found:
        sys.meta_path.insert(0, _Finder(found))


class _Finder:
    """Finds the edited modules, and no others."""

    def __init__(self, found: Mapping[str, tuple[str, str]]) -> None:
        self._found = found

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in self._found:
            return None
        where, text = self._found[name]
        file = str(_ROOT / where)
        return spec_from_file_location(name, file, loader=_Loader(name, file, text))


class _Loader(SourceFileLoader):
    """Loads a text that is not the file's; no cache of bytecode is read or written."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        found: Any = self.source_to_code(self._text.encode(), self.path)
        return found
