"""What writes to a governed topic: a session, which is a client by its producer id or by its connection."""

import re
from typing import Final, NamedTuple

from sidecar.protocol.ids import ProducerId

_BY_PRODUCER_ID: Final = "pid:"
_BY_CONNECTION: Final = "conn:"
_DEFAULT_NAMES: Final = re.compile(r"(producer-\d+|rdkafka|sarama|kgo|kafkajs|aiokafka-.*|kafka-python-.*|)\Z")


def is_default_name(client_id: str) -> bool:
    """Whether it is what a client library takes where it is given none: two processes would bear the same name."""
    return _DEFAULT_NAMES.match(client_id) is not None


class Caller(NamedTuple):
    """Whose a producer id is: the principal that its client logged in with, and the client.id without settings."""

    principal: str
    client_id: str


class Session(str):
    """A session as it is stored and shown: `pid:N`, the idempotent producer N, which survives reconnects and nodes; or
    `conn:NODE-BOOT-NUMBER`, the connection of a client without idempotence, which never comes back.

    It is its own text: a batch's way compares and hashes it without another object. A record may hold a text of
    neither kind: "" where a topic has no owner, or an administrator's.
    """

    __slots__ = ()

    @classmethod
    def by_producer_id(cls, producer_id: int) -> "Session":
        """Of the client to which Kafka gave this producer id."""
        return cls(f"{_BY_PRODUCER_ID}{producer_id}")

    @classmethod
    def by_connection(cls, node_id: int, boot: str, number: int) -> "Session":
        """Of the client behind a connection to one start (`boot`) of a node."""
        return cls(f"{_BY_CONNECTION}{node_id}-{boot}-{number}")

    @property
    def is_idempotent(self) -> bool:
        """By its producer id: it numbers its batches, and may come back."""
        return self.startswith(_BY_PRODUCER_ID)

    @property
    def is_plain(self) -> bool:
        """By its connection: it ends with that, so nothing has to be remembered of it."""
        return self.startswith(_BY_CONNECTION)

    @property
    def producer_id(self) -> ProducerId | None:
        """Under which it writes where there is no policy; None for a session by its connection."""
        return ProducerId(int(self[len(_BY_PRODUCER_ID) :])) if self.is_idempotent else None


NO_SESSION: Final = Session()
"""Nobody."""
