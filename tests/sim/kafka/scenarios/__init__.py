"""What a broker answers, as scenarios that run alike on the simulation and on a real cluster.

Each takes a `Talk` and returns answers that can be compared: producer ids are left out, topics are fresh, epochs are
relative to the first one. They need one broker and no faults.
"""

from __future__ import annotations

from typing import Final

from tests.sim.kafka.scenarios import batches, fences, fetch, groups, metadata, offsets, sequences, topics, transactions
from tests.sim.kafka.scenarios.common import ONE_BROKER, SCENARIOS, Scenario

FAMILIES: Final = (batches, sequences, fences, transactions, fetch, offsets, metadata, topics, groups)
"""Each enters its scenarios when it is imported."""

__all__ = ["FAMILIES", "ONE_BROKER", "SCENARIOS", "Scenario"]
