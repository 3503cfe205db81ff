"""The mistakes that a module's text allows: one operator on one place of a function, each with a stable id.

| operator | what it does |
|---|---|
| `edge` | moves a bound: `<` for `<=`, and so on |
| `opposite` | turns a comparison round: `==` and `!=`, `<` and `>=`, `in` and `not in`, `is` and `is not` |
| `true`, `false` | a condition is always so |
| `not` | drops a `not` |
| `and-or` | swaps `and` and `or` |
| `part` | drops one part of an `and` or `or` |
| `plus`, `minus` | adds 1 to a number, or takes 1 from it |
| `sign` | swaps `+` and `-` |
| `extreme` | swaps `min` and `max` |
| `return` | returns None; `return-true`, `return-false`: where a function returns a bool |
| `delete` | drops a call, an assignment to an attribute or an element, a `del`, a `raise` |
| `loop` | swaps `break` and `continue` |
| `member` | another member of the same enum |

An id is `dedup/marks.py:Marks.judge:edge:1`: the module, the function, the operator, and its number among those of the
same operator in the function. What only people and metrics read is left alone: hooks, logs, `__repr__`, messages,
annotations, assertions; so is what importing runs: constants, tables, defaults.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from tests.mutation.rooms import ROOT
from tests.sim import lines

if TYPE_CHECKING:
    from collections.abc import Iterator

_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_EDGES: Final = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
_OPPOSITES: Final = {
    ast.Lt: ">=", ast.LtE: ">", ast.Gt: "<=", ast.GtE: "<", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not",
    ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
_SIGNS: Final = {ast.Add: "-", ast.Sub: "+"}
_EXTREMES: Final = {"min": "max", "max": "min"}
_REPORTS: Final = frozenset({"hooks", "_hooks", "log", "_log", "logger", "_logger", "warnings"})
_UNSEEN: Final = frozenset({"__repr__", "__str__"})


@dataclass(frozen=True, slots=True)
class Mutant:
    """A module with one mistake: the bytes from `start` to `end` become `new`. `line` is where the mistake is, and
    `statement` where the statement around it begins.
    """

    path: str
    function: str
    operator: str
    number: int
    line: int
    statement: int
    start: int
    end: int
    new: str

    @property
    def id(self) -> str:
        """As the module says."""
        return f"{self.path.removeprefix('sidecar/')}:{self.function}:{self.operator}:{self.number}"

    def text(self) -> bytes:
        """The module's text with the mistake. It has as many lines as before."""
        source = _source(self.path)
        lost = source[self.start : self.end].count(b"\n")
        return source[: self.start] + self.new.encode() + b"\\\n" * lost + source[self.end :]

    @property
    def change(self) -> str:
        """The mistake in one line: old → new."""
        old = " ".join(_source(self.path)[self.start : self.end].decode().split())
        return f"{old} → {self.new}"

    def diff(self) -> str:
        """The changed lines before and after."""
        before, after = _source(self.path).decode().splitlines(), self.text().decode().splitlines()
        changed = [number for number, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
        first, last = changed[0], changed[-1] + 1
        shown = [f"-{line}" for line in before[first:last]] + [f"+{line}" for line in after[first:last]]
        return "\n".join([f"{self.path}:{first + 1}", *shown])

    def rank(self, seed: int) -> str:
        """The position in a sample, which does not depend on other mutants."""
        return hashlib.sha256(f"{seed}:{self.id}".encode()).hexdigest()


@cache
def _source(path: str) -> bytes:
    return (ROOT / path).read_bytes()


@cache
def mutants(path: str) -> tuple[Mutant, ...]:
    """All of a module."""
    return tuple(_Search(path).search())


@cache
def enums() -> dict[str, tuple[str, ...]]:
    """The members of every enum of the product, by the enum's name."""
    known: dict[str, tuple[str, ...]] = {}
    for path in sorted((ROOT / "sidecar").rglob("*.py")) + sorted((ROOT / "metadata").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ClassDef) and any(
                ast.unparse(base).endswith(("Enum", "Flag")) for base in node.bases
            ):
                names = [
                    target.id
                    for statement in node.body
                    if isinstance(statement, ast.Assign)
                    for target in statement.targets
                    if isinstance(target, ast.Name) and not target.id.startswith("_")
                ]
                known[node.name] = tuple(names)
    return known


def statement_number(mutant: Mutant) -> int:
    """The number of the statement around a mistake in `lines.lines_of`."""
    return lines.lines_of(mutant.path).index(mutant.statement)


class _Search:
    """One walk through a module's functions."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._source = _source(path)
        self._starts = [0]
        for line in self._source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._counts: Counter[tuple[str, str]] = Counter()
        self._function = ""
        self._returns = ""
        self._statement = 0

    def search(self) -> Iterator[Mutant]:
        """In the order of the text."""
        yield from self._definitions(ast.parse(self._source).body, "")

    def _definitions(self, body: list[ast.stmt], within: str) -> Iterator[Mutant]:
        for node in body:
            if isinstance(node, ast.ClassDef):
                yield from self._definitions(node.body, f"{within}{node.name}.")
            elif isinstance(node, _FUNCTIONS) and node.name not in _UNSEEN:
                yield from self._in_function(node, f"{within}{node.name}")

    def _in_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> Iterator[Mutant]:
        outer = self._function, self._returns, self._statement
        self._function, self._returns = name, ast.unparse(node.returns) if node.returns else ""
        yield from self._block(node.body)
        self._function, self._returns, self._statement = outer

    @property
    def _is_new(self) -> bool:
        """Whether an attribute is assigned for the first time: without it everything fails at once."""
        return self._function.endswith("__init__")

    # Statements ---------------------------------------------------------------------------------------------------

    def _block(self, block: list[ast.stmt]) -> Iterator[Mutant]:
        for statement in block:
            if not isinstance(statement, ast.Try):
                self._statement = statement.lineno
            yield from self._of_statement(statement)

    def _of_statement(self, node: ast.stmt) -> Iterator[Mutant]:  # noqa: C901, PLR0912 - a table
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from self._in_function(node, f"{self._function}.{node.name}")
                return
            case ast.ClassDef():
                yield from self._definitions(node.body, f"{self._function}.{node.name}.")
                return
            case ast.Assert() | ast.Raise(ast.Name("AssertionError" | "NotImplementedError")):
                return
            case ast.Raise(ast.Call(ast.Name("AssertionError" | "NotImplementedError"))):
                return
            case ast.Expr(ast.Constant()):
                return
            case ast.Expr(ast.Call() as call) | ast.Expr(ast.Await(ast.Call() as call)):
                if _reports(call):
                    return
                yield self._new("delete", node, "pass")
            case ast.Raise() | ast.Delete():
                yield self._new("delete", node, "pass")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) if not self._is_new:
                yield self._new("delete", node, "pass")
            case ast.AugAssign():
                yield self._new("delete", node, "pass")
                if sign := _SIGNS.get(type(node.op)):
                    yield self._between("sign", node.target, node.value, f" {sign}= ")
            case ast.AnnAssign(target=ast.Attribute() | ast.Subscript(), value=ast.expr()) if not self._is_new:
                yield self._new("delete", node, "pass")
            case ast.Break():
                yield self._new("loop", node, "continue")
            case ast.Continue():
                yield self._new("loop", node, "break")
            case ast.Return(ast.expr() as value):
                yield from self._of_return(value)
            case ast.If() | ast.While():
                yield from self._of_condition(node.test, is_loop=isinstance(node, ast.While))
            case _:
                pass
        yield from self._children(node)

    def _children(self, node: ast.AST) -> Iterator[Mutant]:
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "pattern"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.expr):
                    yield from self._of_expression(child)
                elif isinstance(child, ast.AST) and not isinstance(child, ast.stmt | ast.arguments):
                    yield from self._of_part(child)
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                around = self._statement
                yield from self._block(value)
                self._statement = around

    def _of_part(self, node: ast.AST) -> Iterator[Mutant]:
        """Of what is neither a statement nor an expression: a handler, a case, a keyword, a comprehension."""
        if isinstance(node, ast.comprehension):
            for condition in node.ifs:
                yield from self._of_condition(condition, is_loop=False)
        if isinstance(node, ast.match_case) and node.guard is not None:
            yield from self._of_condition(node.guard, is_loop=False)
        yield from self._children(node)

    def _of_return(self, value: ast.expr) -> Iterator[Mutant]:
        if self._returns == "bool":
            for text in ("True", "False"):
                if not (isinstance(value, ast.Constant) and str(value.value) == text):
                    yield self._new(f"return-{text.lower()}", value, text)
        elif not (isinstance(value, ast.Constant) and value.value is None):
            yield self._new("return", value, "None")

    def _of_condition(self, test: ast.expr, *, is_loop: bool) -> Iterator[Mutant]:
        if isinstance(test, ast.Constant):
            return
        if not is_loop:  # a loop without end is only a slow test
            yield self._new("true", test, "True")
        yield self._new("false", test, "False")

    # Expressions --------------------------------------------------------------------------------------------------

    def _of_expression(self, node: ast.expr) -> Iterator[Mutant]:  # noqa: C901, PLR0912 - a table
        match node:
            case ast.JoinedStr():
                return
            case ast.Call() if _reports(node):
                return
            case ast.Call(ast.Name("cast"), [_, value]):
                yield from self._of_expression(value)
                return
            case ast.Call(ast.Name(name)) if name in _EXTREMES:
                yield self._new("extreme", node.func, _EXTREMES[name])
            case ast.Compare():
                yield from self._of_comparison(node)
            case ast.BoolOp():
                yield from self._of_bool(node)
            case ast.UnaryOp(ast.Not(), operand):
                yield self._new("not", node, f"({self._text(operand)})")
            case ast.UnaryOp(ast.USub(), ast.Constant()):
                pass
            case ast.BinOp() if type(node.op) in _SIGNS and not _is_text(node.left) and not _is_text(node.right):
                yield self._between("sign", node.left, node.right, f" {_SIGNS[type(node.op)]} ")
            case ast.Constant(int() | float() as value) if not isinstance(value, bool):
                yield self._new("plus", node, f"({value} + 1)")
                yield self._new("minus", node, f"({value} - 1)")
            case ast.IfExp():
                yield from self._of_condition(node.test, is_loop=False)
            case ast.Attribute(ast.Name(owner), member):
                members = enums().get(owner, ())
                if member in members and len(members) > 1:
                    other = members[(members.index(member) + 1) % len(members)]
                    yield self._new("member", node, f"{owner}.{other}")
            case _:
                pass
        yield from self._children(node)

    def _of_comparison(self, node: ast.Compare) -> Iterator[Mutant]:
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            if edge := _EDGES.get(type(operator)):
                yield self._between("edge", left, right, f" {edge} ")
            yield self._between("opposite", left, right, f" {_OPPOSITES[type(operator)]} ")
            left = right

    def _of_bool(self, node: ast.BoolOp) -> Iterator[Mutant]:
        word = "and" if isinstance(node.op, ast.And) else "or"
        texts = [self._text(value) for value in node.values]
        other = f" {'or' if word == 'and' else 'and'} "
        yield self._new("and-or", node, f"({other.join(f'({text})' for text in texts)})")
        for left_out in range(len(texts)):
            rest = f" {word} ".join(f"({text})" for index, text in enumerate(texts) if index != left_out)
            yield self._new("part", node, f"({rest})")

    # Places -------------------------------------------------------------------------------------------------------

    def _text(self, node: ast.expr) -> str:
        start, end = self._span(node)
        return " ".join(line.strip() for line in self._source[start:end].decode().splitlines())

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[node.end_lineno - 1] + node.end_col_offset

    def _new(self, operator: str, node: ast.expr | ast.stmt, new: str) -> Mutant:
        return self._mutant(operator, node.lineno, *self._span(node), new)

    def _between(self, operator: str, left: ast.expr, right: ast.expr, new: str) -> Mutant:
        """The operator between two operands; parentheses around these stay."""
        start, end = self._span(left)[1], self._span(right)[0]
        gap = self._source[start:end]
        before, after = len(gap) - len(gap.lstrip(b" )\n\\")), len(gap) - len(gap.rstrip(b" (\n\\"))
        assert left.end_lineno is not None
        return self._mutant(operator, left.end_lineno, start + before, end - after, new.strip())

    def _mutant(self, operator: str, line: int, start: int, end: int, new: str) -> Mutant:
        self._counts[self._function, operator] += 1
        number = self._counts[self._function, operator]
        return Mutant(self._path, self._function, operator, number, line, self._statement, start, end, new)


def _reports(call: ast.Call) -> bool:
    """Whether it tells people or metrics, and nobody else."""
    name = call.func
    while isinstance(name, ast.Attribute):
        if name.attr in _REPORTS:
            return True
        name = name.value
    return isinstance(name, ast.Name) and name.id in _REPORTS


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))
