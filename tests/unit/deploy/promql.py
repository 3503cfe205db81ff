"""What is wrong with a PromQL query: it does not parse, or it asks for something no node exposes. Needs no Prometheus.

A query is walked once, from the leaves up, with the labels that every part of it can have; so a grouping, a join or a
legend that names a label which is not there any more is found, and not just a name that nobody exposes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import promql_parser as ast

from tests.unit.deploy.catalogue import TARGET_LABELS, samples

RATES = frozenset({"rate", "irate", "increase"})
SET_OPERATORS = frozenset({"and", "unless"})

_VARIABLE = re.compile(r"\$\{?(\w+)\}?")
_INTERVALS = {"__rate_interval": "20s", "__interval": "15s", "__range": "1h"}
VARIABLE = "VARIABLE_"


@dataclass(frozen=True, slots=True)
class Selection:
    """One series selector of a query and the functions it stands in, from the outermost to the innermost."""

    name: str
    matchers: tuple[tuple[str, str], ...]
    """Label and pattern, a variable `$job` standing as `VARIABLE_job`."""
    functions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a query reads, the labels its result has, and what is wrong with it."""

    selections: tuple[Selection, ...]
    labels: frozenset[str]
    problems: tuple[str, ...]


def substituted(expression: str) -> str:
    """`expression` much as Grafana would send it: durations for its intervals, a marker for the other variables."""
    return _VARIABLE.sub(lambda found: _INTERVALS.get(found[1], f"{VARIABLE}{found[1]}"), expression)


def variables(text: str) -> frozenset[str]:
    """The names of the variables in a query, without Grafana's own."""
    return frozenset(name for name in _VARIABLE.findall(text) if name not in _INTERVALS)


def read(expression: str) -> Reading:
    """Take a query apart and hold it against the catalogue."""
    try:
        tree = ast.parse(substituted(expression))
    except ValueError as error:
        return Reading((), frozenset(), (f"does not parse: {error}",))
    reader = _Reader()
    labels = reader.labels(tree)
    return Reading(tuple(reader.selections), labels, tuple(reader.problems))


class _Reader:
    def __init__(self) -> None:
        self.selections: list[Selection] = []
        self.problems: list[str] = []
        self._samples = samples()

    def labels(self, node: ast.Expr, functions: tuple[str, ...] = ()) -> frozenset[str]:
        """The labels that the result of `node` can have; notes on the way what is wrong below it."""
        match node:
            case ast.VectorSelector():
                return self._selector(node, functions)
            case ast.MatrixSelector():
                return self.labels(node.vector_selector, functions)
            case ast.Call():
                return self._call(node, functions)
            case ast.AggregateExpr():
                return self._aggregate(node, functions)
            case ast.BinaryExpr():
                return self._binary(node, functions)
            case ast.ParenExpr() | ast.UnaryExpr() | ast.SubqueryExpr():
                return self.labels(node.expr, functions)
            case _:
                return frozenset()

    def _selector(self, node: ast.VectorSelector, functions: tuple[str, ...]) -> frozenset[str]:
        name = node.name or ""
        matchers = tuple((matcher.name, matcher.value) for matcher in node.matchers.matchers)
        self.selections.append(Selection(name, matchers, functions))
        sample = self._samples.get(name)
        if sample is None:
            self.problems.append(f"nobody exposes {name or 'a series without a name'}")
            return TARGET_LABELS | {label for label, _ in matchers}
        labels = sample.metric.labels | TARGET_LABELS
        self.problems += [f"{name} has no label {label}" for label, _ in matchers if label not in labels]
        if RATES.intersection(functions) and not sample.rises:
            self.problems.append(f"{name} is a gauge: it has no rate")
        if name.endswith("_bucket") and "histogram_quantile" not in functions:
            self.problems.append(f"{name} is read without histogram_quantile")
        return labels

    def _call(self, node: ast.Call, functions: tuple[str, ...]) -> frozenset[str]:
        name = node.func.name
        below = [self.labels(argument, (*functions, name)) for argument in node.args]
        labels = frozenset().union(*below)
        match name:
            case "histogram_quantile":
                if "le" not in labels:
                    self.problems.append("histogram_quantile over series without le")
                return labels - {"le"}
            case "absent":  # nothing is there, so there is nothing to take labels from
                return frozenset()
            case _:
                return labels

    def _aggregate(self, node: ast.AggregateExpr, functions: tuple[str, ...]) -> frozenset[str]:
        below = self.labels(node.expr, functions)
        if node.modifier is None:
            return frozenset()
        named = frozenset(node.modifier.labels)
        self.problems += [f"groups by {label}, which is not there" for label in sorted(named - below)]
        return named if node.modifier.type == ast.AggModifierType.By else below - named

    def _binary(self, node: ast.BinaryExpr, functions: tuple[str, ...]) -> frozenset[str]:
        left, right = self.labels(node.lhs, functions), self.labels(node.rhs, functions)
        modifier, operator = node.modifier, str(node.op)
        matching = frozenset[str]()
        if modifier and modifier.matching and modifier.matching.type == ast.LabelModifierType.Include:
            matching = frozenset(modifier.matching.labels)
        self.problems += [f"joins on {label}, which one side lacks" for label in sorted(matching - (left & right))]
        if operator == "or":
            return left & right
        if operator in SET_OPERATORS or _is_scalar(node.rhs):
            return left
        if _is_scalar(node.lhs):
            return right
        if modifier and modifier.card == ast.VectorMatchCardinality.ManyToOne:
            return left | frozenset(modifier.group_labels or ())
        return matching or (left & right)


def _is_scalar(node: ast.Expr) -> bool:
    """A number, or the time: it has no labels and takes none away."""
    return isinstance(node, ast.NumberLiteral) or (isinstance(node, ast.Call) and node.func.name == "time")
