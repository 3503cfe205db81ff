"""Topics that a hot request names by ids of which no name is known (KIP-516): looked up once, then refused."""

from typing import Final

from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.topic_ids import Ids, stand_in, unknown_ids

_NO_SUCH_ID: Final = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
"""Brokers say no more either."""
_NOT_NOW: Final = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "Kafka cannot be asked now")


def refused_ids(ids: Ids | None, *, asked: bool) -> dict[bytes, KafkaError]:
    """The topics of a request whose ids are not known, by what stands for their names. `asked`: Kafka was, for them."""
    return dict.fromkeys(map(stand_in, unknown_ids(ids)), _NO_SUCH_ID if asked else _NOT_NOW)
