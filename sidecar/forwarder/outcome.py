"""What became of a batch that was sent to a partition's leader."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.primitives import new_tuple
from sidecar.protocol.produce import ProduceResult

LONGEST_WAIT_MS: Final = 30_000
"""How long a leader may wait for its followers: others share its connection. The lane tries again until the deadline.
"""


class Outcome(NamedTuple):
    """What became of a batch: Kafka's error code (0: in the log), offset and times (-1: none), its message."""

    error: int
    offset: int = -1
    log_append_time: int = -1
    log_start_offset: int = -1
    message: str | None = None

    @classmethod
    def of(cls, result: ProduceResult) -> Outcome:
        """What a leader answered for a partition."""
        _, _, error, offset, append_time, log_start, message, record_errors = result
        if message is None and record_errors:
            message = next((text for _, text in record_errors if text), None)
        return new_tuple(cls, (error, offset, append_time, log_start, message))

    @classmethod
    def lost(cls, *, sent: bool) -> Outcome:
        """No answer came. Where nothing was sent, this leaves no doubt, unlike 6, which a leader also says after an
        append.
        """
        return cls(ErrorCode.NETWORK_EXCEPTION if sent else ErrorCode.LEADER_NOT_AVAILABLE)


TIMED_OUT: Final = Outcome(ErrorCode.REQUEST_TIMED_OUT)


class Witness(Protocol):
    """Hears what becomes of a batch before its client does. `in_order`: where a plain session's batch is given up,
    nothing that came after it may get into the log.
    """

    in_order: bool

    def landed(self, outcome: Outcome) -> None:
        """It is in the log."""

    def failed(self, *, in_doubt: bool) -> None:
        """It was given up; `in_doubt`: it may be in the log all the same, or still get there."""
