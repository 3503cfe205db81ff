"""OffsetCommit (2-9), OffsetFetch (1-7), OffsetDelete (0), TxnOffsetCommit (0-3) of shadows that the client may not
read: 29 for those, as Kafka answers for a topic without READ; what else a request names goes on.

A request for all cursors of a group is answered without theirs. Where no shadow is guarded nothing is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sidecar.gateway import asking
from sidecar.network.client import RequestHead
from sidecar.network.framing import Frame
from sidecar.protocol.messages import groups

if TYPE_CHECKING:
    from sidecar.cluster.resolver import NameResolver
    from sidecar.gateway.client import Client
    from sidecar.protocol.schema import Message, Values

_GUARDED: Final = {
    message.key: message
    for message in (groups.OFFSET_COMMIT, groups.OFFSET_FETCH, groups.OFFSET_DELETE, groups.TXN_OFFSET_COMMIT)
}
_HEAD_BYTES: Final = 14
"""From the length prefix to the client id."""


class Divided(NamedTuple):
    """What goes on of a request (None: nothing) and how it begins, the topics that are refused."""

    frame: Frame | None
    head: RequestHead
    refused: list[Values]


class GuardedCursors:
    """Takes requests apart and puts answers together."""

    def __init__(self, resolver: NameResolver) -> None:
        self._resolver = resolver

    def concerns(self, key: int) -> bool:
        """Whether requests of this API have to be looked at now."""
        return self._resolver.has_guards and key in _GUARDED

    def divide(self, client: Client, frame: Frame, head: RequestHead) -> Divided:
        """The request without what the client may not read. Raises `MalformedFrameError`."""
        message = _GUARDED[head.key]
        request = message.decode_request(frame.buffer, head.body, frame.end, head.version)
        topics: list[Any] = request["topics"] or []
        refused = [topic for topic in topics if self._is_denied(topic["name"], client)]
        if not refused:
            return Divided(frame, head, [])
        kept = [topic for topic in topics if topic not in refused]
        if not kept:
            return Divided(None, head, refused)
        name = b"" if client.identity is None else client.identity.name.encode()
        data = message.encode_request(head.version, head.correlation_id, name, request | {"topics": kept})
        body = _HEAD_BYTES + len(name)
        going = RequestHead(head.key, head.version, head.correlation_id, name, body)
        return Divided(Frame(bytearray(data), 0, len(data), True), going, refused)

    def joined(self, client: Client, answer: Frame, head: RequestHead, refused: list[Values]) -> bytes | None:
        """The answer with what was refused, and without what may not be seen; None where it stays as it is."""
        message: Message = _GUARDED[head.key]
        if not refused and message is not groups.OFFSET_FETCH:
            return None
        values = asking.read(message, answer, head.version)
        told: list[Values] = [topic for topic in values["topics"] if not self._is_denied(topic["name"], client)]
        if not refused and len(told) == len(values["topics"]):
            return None
        return message.encode_answer(head.version, head.correlation_id, values | {"topics": [*told, *refused]})

    def _is_denied(self, topic: str, client: Client) -> bool:
        source = self._resolver.source(topic.encode())
        return source is not None and not source.may_be_read_by(client.principal)
