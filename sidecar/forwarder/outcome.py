"""What became of a batch that was sent to a partition's leader."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.primitives import new_tuple
from sidecar.protocol.produce import ProduceResult

LONGEST_WAIT_MS: Final = 30_000
"""The longest time a leader may wait for its followers, as lanes share a connection. Lanes retry until the deadline."""


class Outcome(NamedTuple):
    """What became of a batch: Kafka's error code (0: in the log), offset and times (-1: none), its message."""

    error: int
    offset: int = -1
    log_append_time: int = -1
    log_start_offset: int = -1
    message: str | None = None

    @classmethod
    def of(cls, result: ProduceResult) -> Outcome:
        """Converts a leader's answer for a partition."""
        _, _, error, offset, append_time, log_start, message, record_errors = result
        if message is None and record_errors:
            message = next((text for _, text in record_errors if text), None)
        return new_tuple(cls, (error, offset, append_time, log_start, message))

    @classmethod
    def lost(cls, *, sent: bool) -> Outcome:
        """The outcome without an answer. If nothing was sent, it is certain that the batch is not in the log. So it is
        not 6 NOT_LEADER_OR_FOLLOWER, which a leader may also return after an append.
        """
        return cls(ErrorCode.NETWORK_EXCEPTION if sent else ErrorCode.LEADER_NOT_AVAILABLE)


TIMED_OUT: Final = Outcome(ErrorCode.REQUEST_TIMED_OUT)


class Witness(Protocol):
    """Gets a batch's outcome before its client does. `in_order`: if a plain session's batch is given up, no later batch
    may get into the log.
    """

    in_order: bool

    def landed(self, outcome: Outcome) -> None:
        """It is in the log."""

    def failed(self, *, in_doubt: bool) -> None:
        """It was given up. `in_doubt`: it may be in the log nevertheless, or still be appended."""
