"""The catalog of policies: frozen snapshot of names, bodies and versions. It does not interpret the bodies.

A name is a topic or a prefix (`payments.*`); the body is text that the caller understands. Each change, a deletion too,
has its own version, counted per cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .ownership import check_int64

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy; `version` is that of the change that wrote it, 1 or more."""

    body: str
    version: int

    def __post_init__(self) -> None:
        check_int64(self.version, "policy version")
        if not self.body:
            raise ValueError("an empty body stands for a deleted policy")


@dataclass(frozen=True, slots=True)
class Under:
    """The condition of a change: the highest generation of `resources` is one of `generations` (None: any). `known` is
    the highest one that the caller has read.
    """

    generations: frozenset[int] | None
    known: int
    resources: tuple[str, ...]

    def __post_init__(self) -> None:
        for number in (*(self.generations or ()), self.known):
            check_int64(number, "generation")


ANY: Final = Under(None, 0, ())


@dataclass(frozen=True, slots=True)
class Policies:
    """All policies by name, complete up to `version` (0: none was ever set)."""

    version: int
    by_name: Mapping[str, Policy]

    def __post_init__(self) -> None:
        check_int64(self.version, "policy version")
        for name, policy in self.by_name.items():
            if not name or policy.version > self.version:
                raise ValueError(f"policy {name!r} has version {policy.version}, the catalog {self.version}")

    def arguments(self) -> list[str]:
        """As the scripts take it: version, then name and "<version> <body>" of each."""
        arguments = [str(self.version)]
        for name, policy in self.by_name.items():
            arguments += (name, f"{policy.version} {policy.body}")
        return arguments
