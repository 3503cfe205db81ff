"""One batch that is sent to a partition's leader, and its outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.primitives import new_tuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.forwarder.sequences import SequenceSpace
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
        ...

    def failed(self, *, in_doubt: bool) -> None:
        """It was given up; `in_doubt`: it may be in the log all the same, or still get there."""
        ...


class Append:
    """One batch on its way. `sequence` is the stamped one, None while a plain session's batch has no number; of an
    idempotent session's batch it knows the space and the client's own sequences there. `witness`: somebody who keeps
    count of what is in the log.
    """

    __slots__ = (
        "attempts", "batch", "client_records", "client_sequence", "deadline", "done", "error", "in_doubt",
        "is_appended", "order", "records", "sequence", "size", "space", "stamped", "upstream_timeout_ms", "witness",
    )  # fmt: skip

    def __init__(
        self,
        batch: memoryview,
        records: int,
        deadline: float,
        upstream_timeout_ms: int,
        done: Callable[[Outcome], None],
    ) -> None:
        self.batch = batch
        self.size = len(batch)
        self.records = self.client_records = records
        self.witness: Witness | None = None
        self.sequence: int | None = None
        self.space: SequenceSpace | None = None
        self.client_sequence = -1
        self.deadline = deadline
        if not 0 <= upstream_timeout_ms <= LONGEST_WAIT_MS:
            upstream_timeout_ms = 0 if upstream_timeout_ms < 0 else LONGEST_WAIT_MS
        self.upstream_timeout_ms = upstream_timeout_ms
        self.done = done
        self.attempts = 0
        self.order = 0
        self.stamped = False
        self.in_doubt = False
        self.is_appended = False
        """A leader said that it had it, though perhaps not all its replicas."""
        self.error = TIMED_OUT

    def belongs(self, space: SequenceSpace, client_sequence: int) -> None:
        """It is an idempotent session's: stamped by its space, which hears when it is in the log."""
        self.space = space
        self.client_sequence = client_sequence
        self.sequence = space.stamped(client_sequence)
        space.sent()
