"""Every mutant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.sim.mutants import (
    deduplication,
    holes,
    keepalive,
    ordinary,
    reading,
    removals,
    sequences,
    space,
    tails,
    takeover,
    words,
)

if TYPE_CHECKING:
    from tests.sim.mutants.mutant import Mutant

MUTANTS: Final[tuple[Mutant, ...]] = (
    *holes.MUTANTS, *takeover.MUTANTS, *tails.MUTANTS, *sequences.MUTANTS, *space.MUTANTS, *keepalive.MUTANTS,
    *deduplication.MUTANTS, *ordinary.MUTANTS, *reading.MUTANTS, *words.MUTANTS,
    *removals.MUTANTS,
)  # fmt: skip
