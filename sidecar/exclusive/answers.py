"""The answers to batches that are not forwarded, and the errors of a topic's works."""

from typing import Final

from metadata import MetadataError, MetadataUnavailable
from sidecar.changelog import FAILURES as KAFKA_FAILURES
from sidecar.forwarder.outcome import Outcome
from sidecar.forwarder.sequences import Verdict
from sidecar.ownership.step import BUSY
from sidecar.protocol.caller import FencedError
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.takeover.slots import GenerationError
from sidecar.takeover.takeover import LostRaceError

_REPEAT: Final = Outcome(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
_GAP: Final = Outcome(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
_STALE: Final = Outcome(ErrorCode.INVALID_PRODUCER_EPOCH, message="the client has already raised its producer epoch")
_REFUSED: Final = Outcome(
    ErrorCode.POLICY_VIOLATION,
    message="this batch was refused before: its sequences count as used; a client sends its records in new batches",
)
_UNHEARD: Final = Outcome(
    ErrorCode.LEADER_NOT_AVAILABLE,
    message="the batch before this one was refused; a client that knows of that sends this one again",
)
SEQUENCE_ANSWERS: Final = {
    Verdict.REFUSED: _REFUSED,
    Verdict.UNHEARD: _UNHEARD,
    Verdict.REPEAT: _REPEAT,
    Verdict.ASTRIDE: _GAP,
    Verdict.FORGOTTEN: _GAP,
    Verdict.STRAY: _GAP,
    Verdict.WAIT: _GAP,
    Verdict.STALE: _STALE,
}
_AS_THEY_ARE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
MOVED: Final = Outcome(ErrorCode.NOT_LEADER_OR_FOLLOWER, message="another node serves the topic, or is about to")
NO_REDIS: Final = "Redis does not answer: the topic cannot change its owner now; try again"


class QueueFoundError(Exception):
    """Other sessions waited for the topic at the previous node: a newcomer is judged again."""


FAILURES: Final = (GenerationError, QueueFoundError, LostRaceError, MetadataError, *KAFKA_FAILURES)
"""The expected errors of a work; each leaves the topic unchanged."""


def failure_of(error: Exception) -> Outcome:
    """The outcome of batches that waited for a failed operation; raises unexpected errors again."""
    if not isinstance(error, FAILURES):
        raise error
    if isinstance(error, MetadataUnavailable):
        return Outcome(ErrorCode.LEADER_NOT_AVAILABLE, message=NO_REDIS)
    if isinstance(error, KafkaError) and not isinstance(error, FencedError) and error.code in _AS_THEY_ARE:
        return Outcome(error.code, message=error.message)
    return BUSY
