"""What a Produce request takes of Kafka's rights: WRITE on each topic, and on the transactional id of transactional
batches (`KafkaApis.handleProduceRequest`). Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sidecar.gateway.access import MESSAGES
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.security.acls import Operation

if TYPE_CHECKING:
    from sidecar.gateway.rights import Rights
    from sidecar.network.framing import Frame
    from sidecar.protocol.produce import ProduceRequest

_ATTRIBUTES: Final = 22
"""Where the lower byte of a batch's attributes stands in it."""
_TRANSACTIONAL: Final = 0x10
_TOPIC: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_ID: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_NOT_ITS_TOPIC: Final = KafkaError(_TOPIC, MESSAGES[_TOPIC])
_NOT_ITS_ID: Final = KafkaError(_ID, MESSAGES[_ID])


def denied_topics(rights: Rights, frame: Frame, fields: ProduceRequest) -> dict[bytes, KafkaError]:
    """The topics that the client may not write to; all of them where it brings transactional batches under a
    transactional id that is not its own. Positions in `fields` are those of the frame.
    """
    if not rights.enforced:
        return {}
    name = fields.transactional_id
    if name is not None and _is_transactional(frame, fields) and not rights.transactional_id(Operation.WRITE, name):
        return {part.topic: _NOT_ITS_ID for part in fields.parts}
    return dict.fromkeys(rights.refused(Operation.WRITE, fields.parts), _NOT_ITS_TOPIC)


def _is_transactional(frame: Frame, fields: ProduceRequest) -> bool:
    buffer = frame.buffer
    return any(
        part.end - part.start > _ATTRIBUTES and buffer[part.start + _ATTRIBUTES] & _TRANSACTIONAL
        for part in fields.parts
    )
