"""Where the node answers otherwise than Kafka, by design: the only cells that may differ from direct Kafka.

Pure data. A cell listed here passes only if the client is told within its time, with the named error; hanging, or
another error, is a failure. Against Kafka directly the same scenario has to work in full.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """`why` goes into the report."""

    why: str


REFUSALS: dict[str, Refusal] = {
    "group-protocol-consumer": Refusal(
        "KIP-848 groups need topic ids, which the node does not serve; it answers 35 at once, naming "
        "group.protocol=classic, and the client says so"
    ),
}
