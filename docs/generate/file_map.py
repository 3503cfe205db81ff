"""docs/internals/file-map.md: every module of the product with the first sentence of its docstring."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from docs.generate import markdown

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT: Final = Path(__file__).resolve().parents[2]
_ROOMS: Final = ("sidecar", "metadata")
_OF_APIS: Final = re.compile(r"k\d+_")
_ENOUGH: Final = 4
_BEFORE: Final = """
    Every module of the product with the first sentence of its docstring. [Architecture](architecture.md) says how they
    work together. `sidecar/gateway/apis` has a module for each API, found by the API's key; the
    [table of APIs](../reference/api-table.md) shows what it says.
    """


def page() -> str:
    """Package by package, in the order of their paths."""
    lines = ["# File map", "", *markdown.note("the docstrings of the modules"), *markdown.prose(_BEFORE)]
    for room in _ROOMS:
        for package in sorted(path.parent for path in (_ROOT / room).rglob("__init__.py")):
            lines += _package(package)
    return markdown.page(lines)


def _package(package: Path) -> Iterator[str]:
    modules = sorted(path for path in package.glob("*.py") if _is_listed(path.name))
    if not modules:
        return
    sentence = first_sentence(package / "__init__.py")
    yield from (f"## `{package.relative_to(_ROOT)}/`", "", *([sentence, ""] if sentence else []))
    yield from (f"- `{path.relative_to(_ROOT)}`: {first_sentence(path)}" for path in modules)
    yield ""


def _is_listed(name: str) -> bool:
    return not re.search(r"^__(init|main)__|_pb2", name) and not _OF_APIS.match(name)


def first_sentence(path: Path) -> str:
    """Of a module's docstring, up to a colon if words enough are before it; nothing where there is no docstring."""
    text = " ".join((ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split())
    sentence = re.match(r".+?(?:(?<!e\.g)(?<!i\.e)[.?](?=\s|$)|$)", text)
    head, _, rest = (sentence[0] if sentence else "").partition(": ")
    return f"{head}." if rest and len(head.split()) >= _ENOUGH else f"{head}: {rest}" if rest else head
