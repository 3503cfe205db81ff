"""Sessions, which write to governed topics: a session identifies a client by its producer id or its connection."""

import re
from typing import Final, NamedTuple

from sidecar.protocol.ids import ProducerId

_BY_PRODUCER_ID: Final = "pid:"
_BY_CONNECTION: Final = "conn:"
_DEFAULT_NAMES: Final = re.compile(r"(producer-\d+|rdkafka|sarama|kgo|kafkajs|aiokafka-.*|kafka-python-.*|)\Z")


def is_default_name(client_id: str) -> bool:
    """Whether a client id is a library's default: two processes would then have the same name."""
    return _DEFAULT_NAMES.match(client_id) is not None


class Caller(NamedTuple):
    """The client of a producer id: its principal, and its client.id without settings."""

    principal: str
    client_id: str


class Session(str):
    """A session as it is stored and shown: `pid:N`, the idempotent producer N, which survives reconnects and nodes; or
    `conn:NODE-BOOT-NUMBER`, the connection of a client without idempotence, which cannot reconnect as the same session.

    It is a string, so that the path of a batch compares and hashes it without another object. A record may have a text
    of neither kind: "" if a topic has no owner, or an administrator's.
    """

    __slots__ = ()

    @classmethod
    def by_producer_id(cls, producer_id: int) -> "Session":
        """The session of the client to which Kafka gave this producer id."""
        return cls(f"{_BY_PRODUCER_ID}{producer_id}")

    @classmethod
    def by_connection(cls, node_id: int, boot: str, number: int) -> "Session":
        """The session of a connection to a node; `boot` is one start of the node."""
        return cls(f"{_BY_CONNECTION}{node_id}-{boot}-{number}")

    @property
    def is_idempotent(self) -> bool:
        """Whether it is identified by its producer id: it numbers its batches and may reconnect."""
        return self.startswith(_BY_PRODUCER_ID)

    @property
    def is_plain(self) -> bool:
        """Whether it is identified by its connection: it ends with that, so nothing about it is stored."""
        return self.startswith(_BY_CONNECTION)

    @property
    def producer_id(self) -> ProducerId | None:
        """The producer id in its own batches; None for a plain session."""
        return ProducerId(int(self[len(_BY_PRODUCER_ID) :])) if self.is_idempotent else None


NO_SESSION: Final = Session()
"""No session."""
