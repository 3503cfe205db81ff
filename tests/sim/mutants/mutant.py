"""What a mutant is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.history import History
    from tests.sim.mutants.edits import Edit

FAILED: Final = "failed"
"""The check of a history that could not be played to its end."""
_ANY_NONSENSE: Final = frozenset({FAILED, "broken_protocol", "stuck"})


@dataclass(frozen=True, slots=True)
class Mutant:
    """The product with one mistake. `does`: what it does wrong, in a sentence. `of`: where the mistake is from.

    `found_by` makes the history of a seed; one of the first `seeds` of them finds the mistake. `by`: the checks that
    count; by itself, any but those for what hangs or raises, as any nonsense does. `world`: edits that the product
    without the mistake has as well, such as a smaller circle of sequences.
    """

    name: str
    of: str
    does: str
    edits: tuple[Edit, ...]
    found_by: Callable[[int], History]
    seeds: int = 20
    by: tuple[str, ...] = ()
    world: tuple[Edit, ...] = ()

    def counts(self, rule: str) -> bool:
        """Whether it is caught by this check."""
        return rule in self.by if self.by else rule not in _ANY_NONSENSE

    @property
    def where(self) -> str:
        """The modules that it is in."""
        return ", ".join(dict.fromkeys(edit.path for edit in self.edits))
