"""OffsetCommit (2-9), OffsetFetch (1-7), OffsetDelete (0), TxnOffsetCommit (0-5) of cursors that the client may not
touch. The rest of such a request is passed on.

- Of shadows that the client may not read: 29 TOPIC_AUTHORIZATION_FAILED, as Kafka answers for a topic without READ. A
  request for all cursors of a group is answered without theirs.
- Written or deleted in a group where another reader has claimed the partition: 22 ILLEGAL_GENERATION
  (`sidecar.resources`), as the coordinator answers a member of an earlier generation. Reading them is allowed.
  DeleteGroups (0-2) of such a group: 68 NON_EMPTY_GROUP, as for a group with members.

If no shadow has an allow list and nothing is claimed, requests are not parsed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sidecar.gateway import asking
from sidecar.network.framing import Frame
from sidecar.network.request import Request
from sidecar.network.slices import in_slices
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.messages import groups

if TYPE_CHECKING:
    from sidecar.cluster.resolver import NameResolver
    from sidecar.gateway.client import Client
    from sidecar.protocol.schema import Message, Values
    from sidecar.resources.readers import ReaderClaims

_GUARDED: Final = {
    message.key: message
    for message in (groups.OFFSET_COMMIT, groups.OFFSET_FETCH, groups.OFFSET_DELETE, groups.TXN_OFFSET_COMMIT)
}
_HEAD_BYTES: Final = 14
"""From the length prefix to the client id."""


class Refused(NamedTuple):
    """A topic as the request has it, with those of its partitions that are refused, and why."""

    topic: Values
    code: int


class Divided(NamedTuple):
    """What goes on of a request (None: nothing), and what does not."""

    request: Request | None
    refused: list[Refused]


def refusal_of_deleting(claims: ReaderClaims, client: Client, group: str) -> KafkaError | None:
    """Why a client may not delete a group with its cursors, as far as claims go."""
    if not claims.any or claims.may_delete(group, client):
        return None
    return KafkaError(ErrorCode.NON_EMPTY_GROUP, f"{group} has a reader that has claimed its partitions")


class GuardedCursors:
    """Takes requests apart and puts answers together."""

    def __init__(self, resolver: NameResolver, claims: ReaderClaims) -> None:
        self._resolver = resolver
        self._claims = claims

    def concerns(self, key: int) -> bool:
        """Whether requests of this API have to be looked at now."""
        return key in _GUARDED and (self._resolver.has_guards or (self._claims.any and key != groups.OFFSET_FETCH.key))

    async def divide(self, group: str, client: Client, request: Request) -> Divided:
        """The request without what is not the client's. Raises `MalformedFrameError`."""
        message = _GUARDED[request.key]
        fields = await asking.fields(message, request)
        topics: list[Any] = fields["topics"] or []
        kept: list[Values] = []
        refused: list[Refused] = []
        for topic in topics:
            if self._is_denied(topic["name"], client):
                refused.append(Refused(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            elif message is groups.OFFSET_FETCH:
                kept.append(topic)
            else:
                self._divide_claimed(group, topic, client, kept, refused)
        if not refused:
            return Divided(request, [])
        if not kept:
            return Divided(None, refused)
        name = b"" if client.identity is None else client.identity.name.encode()
        going_on = fields | {"topics": kept}
        data = await in_slices(message.write_request_steps(request.version, request.correlation_id, name, going_on))
        body = _HEAD_BYTES + len(name)
        frame = Frame(bytearray(data), 0, len(data), True)
        going = Request(request.key, request.version, request.correlation_id, name, frame, body)
        return Divided(going, refused)

    async def joined(self, client: Client, answer: Frame, request: Request, refused: list[Values]) -> bytes | None:
        """The answer with what was refused, and without what may not be seen; None where it stays as it is."""
        message: Message = _GUARDED[request.key]
        if not refused and message is not groups.OFFSET_FETCH:
            return None
        values = await asking.read(message, answer, request.version)
        topics: list[Any] = [topic for topic in values["topics"] if not self._is_denied(topic["name"], client)]
        if not refused and len(topics) == len(values["topics"]):
            return None
        by_name = {topic["name"]: topic for topic in topics}
        for topic in refused:
            there = by_name.get(topic["name"])
            if there is None:
                topics.append(topic)
            else:
                there["partitions"] = [*there["partitions"], *topic["partitions"]]
        return await in_slices(
            message.answer_steps(request.version, request.correlation_id, values | {"topics": topics})
        )

    def _divide_claimed(
        self, group: str, topic: Values, client: Client, kept: list[Values], refused: list[Refused]
    ) -> None:
        name: str = topic["name"]
        partitions: list[Any] = topic["partitions"]
        theirs: list[Values] = []
        others: list[Values] = []
        for found in partitions:
            may = self._claims.may_commit(group, name.encode(), found["partition_index"], client)
            (theirs if may else others).append(found)
        if not others:
            kept.append(topic)
            return
        refused.append(Refused(topic | {"partitions": others}, ErrorCode.ILLEGAL_GENERATION))
        if theirs:
            kept.append(topic | {"partitions": theirs})

    def _is_denied(self, topic: str, client: Client) -> bool:
        source = self._resolver.source(topic.encode())
        return source is not None and not source.may_be_read_by(client.principal)
