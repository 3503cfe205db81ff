"""Checks Kafka's rights for Produce requests: WRITE on each topic, and on the transactional id of transactional batches
(`KafkaApis.handleProduceRequest`). A client that deposes others, by its client.id or by the topic's policy, or that
names a generation, also needs the operation of the setting `take_over_operation`. Pure.
"""

from collections.abc import Callable
from typing import Final

from metadata.ownership import AccessMode
from sidecar.cluster.resolver import TRANSACTIONAL_ID_PREFIX
from sidecar.gateway.rights import Rights
from sidecar.network.framing import Frame
from sidecar.policy.identity import ClientIdentity
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.produce import ProduceRequest
from sidecar.security.acls import Operation

_ATTRIBUTES: Final = 22
"""The offset of the lower byte of the attributes in a batch."""
_TRANSACTIONAL: Final = 0x10
_TOPIC: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_ID: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_NOT_ITS_TOPIC: Final = KafkaError(_TOPIC)
_NOT_ITS_ID: Final = KafkaError(_ID)
"""Without a message, as by brokers."""

_NO_TAKE_OVER: Final = KafkaError(
    _TOPIC,
    "not authorized to depose other producers of this topic or name a generation:"
    " that takes ALTER on it, unless the node has SIDECAR_TAKE_OVER_OPERATION=WRITE",
)
_DEPOSES: Final = AccessMode.EXCLUSIVE_WITH_FENCING


def denied_topics(
    rights: Rights,
    identity: ClientIdentity | None,
    frame: Frame,
    fields: ProduceRequest,
    policy_mode: Callable[[str], AccessMode],
) -> dict[bytes, KafkaError]:
    """The topics that the client may not write to; all of them if it sends transactional batches with a transactional
    id that it may not use. Positions in `fields` are offsets in the frame; `policy_mode` returns a topic's mode if the
    client names none.
    """
    if not rights.enforced:
        return {}
    name = fields.transactional_id
    if name is not None and _is_transactional(frame, fields) and not rights.transactional_id(Operation.WRITE, name):
        return {part.topic: _NOT_ITS_ID for part in fields.parts}
    denied = dict.fromkeys(rights.refused(Operation.WRITE, fields.parts), _NOT_ITS_TOPIC)
    asked = None if identity is None else identity.mode
    names_generation = identity is not None and identity.generation is not None
    for topic in {part.topic for part in fields.parts} - denied.keys():
        name = topic.decode(errors="replace")
        deposes = names_generation or (asked or policy_mode(name)) is _DEPOSES
        if deposes and not rights.may_own(name, deposes=True):
            denied[topic] = _NO_TAKE_OVER
    return denied


def refused_transaction(transactional_id: str) -> KafkaError | None:
    """Why a transactional id is refused, if it is. From version 12 on a batch alone would add its partition to the
    transaction of a slot (KIP-890), whose producer id and epoch are visible in every batch of its topic.
    """
    if not transactional_id.startswith(TRANSACTIONAL_ID_PREFIX):
        return None
    return KafkaError(_ID, f"transactional ids {TRANSACTIONAL_ID_PREFIX}* belong to the sidecar")


def _is_transactional(frame: Frame, fields: ProduceRequest) -> bool:
    buffer = frame.buffer
    return any(
        part.end - part.start > _ATTRIBUTES and buffer[part.start + _ATTRIBUTES] & _TRANSACTIONAL
        for part in fields.parts
    )
