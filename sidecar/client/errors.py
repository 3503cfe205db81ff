"""The errors of the SDK, and what each code of Kafka's, of the sidecar's own APIs and of HTTP becomes: three tables.

`retryable` says whether the same call, unchanged, may succeed later. Codes: docs of the sidecar's client.id, Kafka's
protocol, `proto/sidecar/v1/control.proto`, `/openapi.json` of a node.
"""

from __future__ import annotations

from enum import IntEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

from aiokafka.errors import BrokerResponseError, KafkaError, ProducerFenced

from sidecar.protocol.errors import ErrorCode, error_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    class _Fenced(Exception):  # noqa: N818  aiokafka has no types
        pass
else:
    _Fenced = ProducerFenced


class OwnError(IntEnum):
    """What the sidecar's own APIs answer: `Error` of control.proto."""

    INVALID_REQUEST = 1
    NOT_SERVING = 2
    UNAVAILABLE = 3
    HELD = 4
    LOWER_GENERATION = 5
    DEPOSED = 6
    UNKNOWN_RESOURCE = 7
    NOT_AUTHORIZED = 8
    TIMED_OUT = 9
    QUEUE_FULL = 10


class SidecarError(Exception):
    """Base of all errors of the SDK.

    `code` is Kafka's error code (see `sidecar.protocol.errors.ErrorCode`), an `OwnError` where one of the sidecar's own
    APIs gave it, or an `http.HTTPStatus` where the admin port did: 400 and above, which no code of Kafka's is.
    `retryable`: the same call may succeed if it is made again. `in_doubt`: of a record, that it may be in the log
    nonetheless, or may be written yet; where that is False it never is.
    """

    def __init__(self, code: int, message: str = "", *, retryable: bool = False, in_doubt: bool = False) -> None:
        self.code: int = code
        self.message: str = message
        self.retryable: bool = retryable
        self.in_doubt: bool = in_doubt
        Exception.__init__(self, code, message)

    def __str__(self) -> str:
        name = self.code.name if isinstance(self.code, OwnError | HTTPStatus) else error_name(self.code)
        return f"{name} ({int(self.code)})" + (f": {self.message}" if self.message else "")

    def __reduce__(self) -> tuple[object, ...]:
        return _again, (type(self), self.code, self.message, self.retryable, self.in_doubt)


def _again(kind: type[SidecarError], code: int, message: str, retryable: bool, in_doubt: bool) -> SidecarError:
    return kind(code, message, retryable=retryable, in_doubt=in_doubt)


class ProducerFencedError(SidecarError, _Fenced):
    """The topic was lost to somebody else, or by an administrator's word. Final: this producer never writes again;
    create a new one. Also `aiokafka.errors.ProducerFenced`.
    """


class ProducerBusyError(SidecarError):
    """Somebody else owns the topic or waits for it, or writes under the same name."""


class SequenceError(SidecarError):
    """A sequence id that cannot be: given to one record and not to the next, not above the last one, out of range, or
    for a topic without deduplication.
    """


class SidecarUnavailableError(SidecarError):
    """No node answered in time, or the one that did cannot do it now. Whether a record was written is not known where
    `send` raises it with `in_doubt`.
    """


class Meaning(NamedTuple):
    """What a code becomes."""

    error: type[SidecarError]
    retryable: bool


_FINAL: Final = Meaning(SidecarError, False)
_AGAIN: Final = Meaning(SidecarError, True)
_AWAY: Final = Meaning(SidecarUnavailableError, True)
_FENCED: Final = Meaning(ProducerFencedError, False)
_BUSY: Final = Meaning(ProducerBusyError, True)

OF_KAFKA: Final[Mapping[int, Meaning]] = {
    ErrorCode.PRODUCER_FENCED: _FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH: _FENCED,
    ErrorCode.POLICY_VIOLATION: _BUSY,
    ErrorCode.INVALID_RECORD: Meaning(SequenceError, False),
    ErrorCode.LEADER_NOT_AVAILABLE: _AWAY,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: _AWAY,
    ErrorCode.REQUEST_TIMED_OUT: _AWAY,
    ErrorCode.NETWORK_EXCEPTION: _AWAY,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _AWAY,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _AWAY,
    ErrorCode.NOT_COORDINATOR: _AWAY,
    ErrorCode.NOT_ENOUGH_REPLICAS: _AWAY,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _AWAY,
    ErrorCode.KAFKA_STORAGE_ERROR: _AWAY,
    ErrorCode.REPLICA_NOT_AVAILABLE: _AWAY,
    ErrorCode.UNKNOWN_SERVER_ERROR: _AWAY,
    ErrorCode.CORRUPT_MESSAGE: _AGAIN,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _AGAIN,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: _FINAL,
    ErrorCode.MESSAGE_TOO_LARGE: _FINAL,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: _FINAL,
    ErrorCode.INVALID_TIMESTAMP: _FINAL,
    ErrorCode.INVALID_REQUEST: _FINAL,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: _FINAL,
    ErrorCode.INVALID_TXN_STATE: _FINAL,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _FINAL,
    ErrorCode.OPERATION_NOT_ATTEMPTED: _FINAL,
}
"""Kafka's codes; one that is not here is final. 46 is none: the record is in the log. While a producer waits for its
topic 5, 6 and 7 are no errors either, and once it owned it 44 means that it does no more, where that is so.
"""

OF_OWN: Final[Mapping[OwnError, Meaning]] = {
    OwnError.INVALID_REQUEST: _FINAL,
    OwnError.NOT_SERVING: _AWAY,
    OwnError.UNAVAILABLE: _AWAY,
    OwnError.HELD: _BUSY,
    OwnError.LOWER_GENERATION: Meaning(ProducerBusyError, False),
    OwnError.DEPOSED: _FENCED,
    OwnError.UNKNOWN_RESOURCE: _FINAL,
    OwnError.NOT_AUTHORIZED: _FINAL,
    OwnError.TIMED_OUT: _BUSY,
    OwnError.QUEUE_FULL: _BUSY,
}

OF_HTTP: Final[Mapping[HTTPStatus, Meaning]] = {
    HTTPStatus.REQUEST_TIMEOUT: _AWAY,
    HTTPStatus.TOO_MANY_REQUESTS: _AWAY,
    HTTPStatus.BAD_GATEWAY: _AWAY,
    HTTPStatus.SERVICE_UNAVAILABLE: _AWAY,
    HTTPStatus.GATEWAY_TIMEOUT: _AWAY,
    HTTPStatus.CONFLICT: _AGAIN,
}
"""Statuses that may be another one later; all others are final."""


def _meant(code: int, meaning: Meaning, message: str) -> SidecarError:
    return meaning.error(code, message, retryable=meaning.retryable)


def of_kafka(code: int, message: str = "") -> SidecarError:
    """The error for a code that Kafka, or a node in its place, answered."""
    return _meant(code, OF_KAFKA.get(code, _FINAL), message)


def of_own(code: int, message: str = "") -> SidecarError:
    """The error for what one of the sidecar's own APIs answered; a newer node's code is final."""
    known = OwnError(code) if code in set(OwnError) else None
    return SidecarError(code, message) if known is None else _meant(known, OF_OWN[known], message)


def of_http(status: int, message: str = "") -> SidecarError:
    """The error for a status that the admin port answered."""
    known = HTTPStatus(status) if status in set(HTTPStatus) else None
    return SidecarError(status, message) if known is None else _meant(known, OF_HTTP.get(known, _FINAL), message)


def away(message: str) -> SidecarUnavailableError:
    """The error where no answer comes."""
    return SidecarUnavailableError(ErrorCode.NETWORK_EXCEPTION, message, retryable=True)


def code_of(error: KafkaError) -> int | None:
    """Kafka's code behind an error of aiokafka; None where no answer was the cause, -1 of one unknown to it."""
    return error.errno if isinstance(error, BrokerResponseError) else None
