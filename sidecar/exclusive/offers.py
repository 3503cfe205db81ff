"""What clients offer to a governed topic: batches to write, and claims by request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sidecar.dedup.reply import Reply
from sidecar.forwarder.outcome import Outcome
from sidecar.ownership.state import Claimant
from sidecar.protocol.batch import BatchHeader
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.ids import NO_SEQUENCE

NO_BATCH: Final = BatchHeader(0, 0, 2, 0, 0, 0, 0, -1, 0, NO_SEQUENCE, 0)
GRANTED: Final = Outcome(ErrorCode.NONE)


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """A batch to write, or a claim by request (`NO_BATCH`, no bytes), which is only granted. Both are judged alike.

    `alive` returns whether its client is still connected; `reply` is answered once.
    """

    claimant: Claimant
    client: str
    partition: int
    header: BatchHeader
    batch: memoryview
    timeout_ms: int
    alive: Callable[[], bool]
    reply: Reply

    @property
    def is_claim(self) -> bool:
        """Whether there is nothing to write."""
        return self.header is NO_BATCH
