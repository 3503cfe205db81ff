"""Write `sidecar/client/sync/`: the synchronous twin of each class of the SDK, from its source.

    python -m tools.sync

A twin has the same methods, parameters and docstrings. A coroutine method becomes one that blocks, an asynchronous
generator a generator, `async with` becomes `with`. What each does is in `sidecar/client/sync/twin.py`, by hand; here
is only which method is which. Words and examples that speak of `asyncio` are told otherwise: the tables below.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent
SOURCES: Final = ROOT / "sidecar" / "client"
TARGET: Final = SOURCES / "sync"
CLASSES: Final = {
    "admin": "AdminClient",
    "leadership": "Leadership",
    "producer": "ExclusiveProducer",
    "reader": "ShadowReader",
}
BY_HAND: Final = frozenset({"portal.py", "twin.py"})

_STARTS: Final = frozenset({"start", "__aenter__"})
_ENDS: Final = frozenset({"close", "__aexit__"})
_RENAMED: Final = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "AsyncGenerator": "Generator",
}
_LOSABLE: Final = "lost"
_WORDS: Final = (
    ("Use it in one event loop, once.", "Use it once, from as many threads as you like."),
    ("Cancelling it loses none.", "Interrupting it loses none."),
    ("Cancelled, it does so at once.", "Interrupted, at once."),
    ("Several may be awaited at once:", "Threads may call it at once:"),
    ("Cancelled, it takes back", "Interrupted, it takes back"),
    ("A cancelled `send` takes", "An interrupted `send` takes"),
    ("or cancelled: nothing", "or interrupted: nothing"),
    ("async with", "with"),
    ("async for", "for"),
    ("import asyncio\n", ""),
    ("from contextlib import aclosing", "from contextlib import closing"),
    ("aclosing(", "closing("),
    ("from sidecar.client import", "from sidecar.client.sync import"),
    (
        "from sidecar.client.sync import ExclusiveProducer, Receipt, Record",
        "from sidecar.client import Receipt, Record\nfrom sidecar.client.sync import ExclusiveProducer",
    ),
    ("async def", "def"),
    ("asyncio.run(main())", "main()"),
    ("await ", ""),
)
_LEADS: Final = """\
from sidecar.client.sync import Leadership

def step() -> bool:
    return False  # a bit of what only one may do at a time: whether there is more

with Leadership("localhost:19092", "scheduler", name="host-1") as leadership:
    print(leadership.generation)
    while leadership.is_leader and step():
        pass
"""
_EXAMPLES: Final = {"Leadership": _LEADS}
"""Where the words are not enough."""

_PACKAGE: Final = """\
The SDK for programs that block: the classes of `sidecar.client` under the same names, with the same methods.

```python
from sidecar.client.sync import ExclusiveProducer

with ExclusiveProducer("localhost:19092", topic="orders", name="billing") as producer:
    print(producer.send(b"paid", key=b"order-17"))
```

Errors, receipts and facts are those of `sidecar.client`. Each object has a thread of its own for its event loop, from
`with` to its end. Every thread may call it; a call that is interrupted (Ctrl-C) is cancelled. What is still open when
the interpreter exits is closed, for 5 seconds at most. Make it behind a fork: in a forked child those of the parent
raise RuntimeError, and the parent's connections stay open there until the child ends, which keeps what they own.
"""


class Method(NamedTuple):
    """A method, and whether it is an asynchronous generator, a property, or neither."""

    node: ast.FunctionDef | ast.AsyncFunctionDef
    is_generator: bool
    is_property: bool


def main() -> int:
    """Write every twin."""
    for path, text in render_all().items():
        path.write_text(text)
    return 0


def render_all() -> dict[Path, str]:
    """By file, what it has to contain."""
    files = {TARGET / f"{module}.py": _module(module, name) for module, name in CLASSES.items()}
    files[TARGET / "__init__.py"] = _package()
    return {path: _formatted(text) for path, text in files.items()}


def _package() -> str:
    imports = "\n".join(f"from sidecar.client.sync.{module} import {name}" for module, name in sorted(CLASSES.items()))
    names = ", ".join(f'"{name}"' for name in sorted(CLASSES.values()))
    return f'"""{_PACKAGE}"""\n\n{imports}\n\n__all__ = [{names}]\n'


def _module(module: str, name: str) -> str:
    tree = ast.parse((SOURCES / f"{module}.py").read_text())
    found = next(each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name)
    methods = list(_methods(found))
    base = "LosableTwin" if any(each.node.name == _LOSABLE for each in methods) else "Twin"
    body = [f'class {name}({base}["_{name}"]):', _docstring(found, "    ", _EXAMPLES.get(name))]
    body += [_method(each, name) for each in methods if each.node.name != _LOSABLE]
    text = "\n\n".join(body)
    return (
        f'"""The synchronous twin of `sidecar.client.{module}`: written by `python -m tools.sync`, not by hand."""\n\n'
        "from __future__ import annotations\n\n"
        f"from sidecar.client.{module} import {name} as _{name}\n"
        f"from sidecar.client.sync.twin import {base}\n"
        f"{_imports(tree, text)}\n\n{text}\n"
    )


def _methods(found: ast.ClassDef) -> Iterator[Method]:
    for node in found.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
            not node.name.startswith("_") or node.name.endswith("__")
        ):
            generates = isinstance(node, ast.AsyncFunctionDef) and any(
                isinstance(each, ast.Yield) for each in ast.walk(node)
            )
            decorated = any(isinstance(each, ast.Name) and each.id == "property" for each in node.decorator_list)
            yield Method(node, generates, decorated)


def _imports(tree: ast.Module, text: str) -> str:
    """What the signatures name, from where the source has it."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module != "__future__":
            known |= {each.asname or each.name: f"from {node.module} import {each.name}" for each in node.names}
    known |= {new: known[old].replace(old, new) for old, new in _RENAMED.items() if old in known}
    code = ast.parse(text)
    used = {each.id for each in ast.walk(code) if isinstance(each, ast.Name)}
    return "\n".join(sorted({known[each] for each in used if each in known}))


# Methods --------------------------------------------------------------------------------------------------------------


def _method(method: Method, name: str) -> str:
    node = method.node
    lines = ["    @property"] if method.is_property else []
    returns = (
        "Self"
        if node.name in ("__aenter__", "__aiter__")
        else _renamed(ast.unparse(node.returns))
        if node.returns
        else "None"
    )
    shown = _RENAMED.get(node.name, node.name)
    lines.append(f"    def {shown}({_renamed(ast.unparse(node.args))}) -> {returns}:")
    if ast.get_docstring(node):
        lines.append(_docstring(node, "        "))
    lines += [f"        {line}" for line in _body(method, name)]
    return "\n".join(lines)


def _body(method: Method, name: str) -> list[str]:
    node, twin = method.node, f"self._twin.{method.node.name}"
    call = f"lambda: {twin}({_passed(node.args)})" if _passed(node.args) else twin
    if node.name == "__init__":
        return [f"super().__init__(_{name}({_passed(node.args)}))"]
    if method.is_property:
        return [f"return self._call(lambda: {twin})"]
    if node.name == "__aiter__":
        return ["return self"]
    if node.name == "__aenter__":
        return [f"self._start({twin})", "return self"]
    if node.name == "__anext__":
        return [
            "try:",
            f"    return self._run({twin})",
            "except StopAsyncIteration:",
            "    raise StopIteration from None",
        ]
    if node.name in _STARTS:
        return [f"return self._start({call})"]
    if node.name in _ENDS:
        return [f"self._finish({call})"]
    if method.is_generator:
        return [f"return self._iterate({call})"]
    return [f"return self.{'_run' if isinstance(node, ast.AsyncFunctionDef) else '_call'}({call})"]


def _passed(arguments: ast.arguments) -> str:
    """The parameters, as they are passed on."""
    plain = [each.arg for each in (*arguments.posonlyargs, *arguments.args) if each.arg != "self"]
    assert arguments.vararg is None, "a twin passes on what has a name"
    rest = [] if arguments.kwarg is None else [f"**{arguments.kwarg.arg}"]
    return ", ".join([*plain, *(f"{each.arg}={each.arg}" for each in arguments.kwonlyargs), *rest])


# Words ----------------------------------------------------------------------------------------------------------------


def _docstring(
    node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, indent: str, example: str | None = None
) -> str:
    text = ast.get_docstring(node)
    assert text is not None, f"{node.name} has no docstring"
    if example is not None:
        text = re.sub(r"(?<=```python\n).*?(?=```)", lambda _: example, text, count=1, flags=re.DOTALL)
    text = re.sub(r"(?<!\w)\(await ([^()]*\([^()]*\))\)", r"\1", text)
    for word, instead in _WORDS:
        text = text.replace(word, instead)
    left = re.search(r"\basync\b|\bawait|asyncio|event loop", text)
    assert left is None, (
        f"{node.name}: the twin's docstring speaks of {left and left.group()!r}; add words to tools/sync.py"
    )
    lines = [f"{indent}{line}" if line else "" for line in text.splitlines()]
    body = "\n".join(lines).removeprefix(indent)
    end = f"\n{indent}" if len(lines) > 1 else ""
    return f'{indent}"""{body}{end}"""'


def _renamed(text: str) -> str:
    for old, new in _RENAMED.items():
        text = text.replace(old, new)
    return text


def _formatted(text: str) -> str:
    """As ruff has it: sorted imports, long lines broken."""
    ruff = [sys.executable, "-m", "ruff"]
    name = ["--stdin-filename", str(TARGET / "twin.py")]
    for command in (["check", "--quiet", "--select", "I", "--fix", *name, "-"], ["format", "--quiet", *name, "-"]):
        text = subprocess.run([*ruff, *command], input=text, capture_output=True, text=True, check=True).stdout
    return text


if __name__ == "__main__":
    sys.exit(main())
