"""The errors of the SDK, and three tables: which error each code of Kafka, of the sidecar's APIs and of HTTP becomes.

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
    """The error codes of the sidecar's own APIs: `Error` of control.proto."""

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

    `code` is Kafka's error code (see `sidecar.protocol.errors.ErrorCode`), an `OwnError` from one of the sidecar's own
    APIs, or an `http.HTTPStatus` from the admin port (400 and above, unlike all of Kafka's codes). `retryable`: the
    same call may succeed if it is repeated. `in_doubt`: the record may be in the log nonetheless, or may still be
    written; if False, it is not and never will be.
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
    """Another session or an administrator took the topic away. Final: this producer never writes again; create a new
    one. It is also an `aiokafka.errors.ProducerFenced`.
    """


class ProducerBusyError(SidecarError):
    """Another session owns the topic or waits for it, or writes under the same name."""


class SequenceError(SidecarError):
    """An invalid sequence id: given to one record and not to the next, not above the last one, out of range, or for a
    topic without deduplication.
    """


class SidecarUnavailableError(SidecarError):
    """No node answered in time, or the node that answered cannot do it now. If `send` raises it with `in_doubt`, it is
    not known whether the record was written.
    """


class Meaning(NamedTuple):
    """The error that a code becomes."""

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
"""By Kafka's code; codes that are not listed are final. 46 DUPLICATE_SEQUENCE_NUMBER is no error: the record is in the
log. 5, 6 and 7 are no errors while a producer waits for its topic. After 44 a producer that owned the topic checks
whether it still does.
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
"""Statuses after which a repeated request may succeed; all others are final."""


def _meant(code: int, meaning: Meaning, message: str) -> SidecarError:
    return meaning.error(code, message, retryable=meaning.retryable)


def of_kafka(code: int, message: str = "") -> SidecarError:
    """The error for a code that Kafka, or a node in its place, answered."""
    return _meant(code, OF_KAFKA.get(code, _FINAL), message)


def of_own(code: int, message: str = "") -> SidecarError:
    """The error for a code of the sidecar's own APIs; an unknown code, from a newer node, is final."""
    known = OwnError(code) if code in set(OwnError) else None
    return SidecarError(code, message) if known is None else _meant(known, OF_OWN[known], message)


def of_http(status: int, message: str = "") -> SidecarError:
    """The error for a status that the admin port answered."""
    known = HTTPStatus(status) if status in set(HTTPStatus) else None
    return SidecarError(status, message) if known is None else _meant(known, OF_HTTP.get(known, _FINAL), message)


def away(message: str) -> SidecarUnavailableError:
    """The error if there is no answer."""
    return SidecarUnavailableError(ErrorCode.NETWORK_EXCEPTION, message, retryable=True)


def code_of(error: KafkaError) -> int | None:
    """Kafka's code of an error of aiokafka: None if no answer caused it, -1 if aiokafka does not know the code."""
    return error.errno if isinstance(error, BrokerResponseError) else None
