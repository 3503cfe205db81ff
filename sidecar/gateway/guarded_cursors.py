"""OffsetCommit (2-10), OffsetDelete (0), TxnOffsetCommit (0-5) of cursors that the client may not touch. The rest of
such a request is passed on. `gateway.offset_fetch` asks here which cursors a client may see.

- Of shadows that the client may not read: 29 TOPIC_AUTHORIZATION_FAILED, as Kafka answers for a topic without READ.
- Written or deleted in a group where another reader has claimed the partition: 22 ILLEGAL_GENERATION
  (`sidecar.resources`), as the coordinator answers a member of an earlier generation. Reading them is allowed.
  DeleteGroups (0-2) of such a group: 68 NON_EMPTY_GROUP, as for a group with members.
- Of a topic whose id nobody knows (OffsetCommit 10): 100 UNKNOWN_TOPIC_ID, as the coordinator might know whose it is.

If no shadow has an allow list and nothing is claimed, requests are not parsed.
"""

from collections.abc import Iterable
from typing import Any, Final

from sidecar.cluster.resolver import NameResolver
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway import asking
from sidecar.gateway.access.asked import Divided, called, ids_in
from sidecar.gateway.access.groups import committed
from sidecar.gateway.client import Client
from sidecar.network.request import Exchange, Request
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.messages import groups
from sidecar.protocol.schema import Values
from sidecar.resources.readers import ReaderClaims

_GUARDED: Final = {
    message.key: message for message in (groups.OFFSET_COMMIT, groups.OFFSET_DELETE, groups.TXN_OFFSET_COMMIT)
}


def refusal_of_deleting(claims: ReaderClaims, client: Client, group: str) -> KafkaError | None:
    """Why a client may not delete a group with its cursors, as far as claims go."""
    if not claims.any or claims.may_delete(group, client):
        return None
    return KafkaError(ErrorCode.NON_EMPTY_GROUP, f"{group} has a reader that has claimed its partitions")


class GuardedCursors:
    """Takes requests apart and puts answers together."""

    def __init__(self, upstream: KafkaUpstream, resolver: NameResolver, claims: ReaderClaims) -> None:
        self._upstream = upstream
        self._resolver = resolver
        self._claims = claims

    @property
    def has_shadows(self) -> bool:
        """Whether there is a shadow that not everybody may read."""
        return self._resolver.has_guards

    def concerns(self, key: int) -> bool:
        """Whether requests of this API have to be looked at now."""
        return key in _GUARDED and (self._resolver.has_guards or self._claims.any)

    async def learn(self, ids: Iterable[bytes]) -> None:
        """Look the names of ids up that are not known."""
        await asking.learn_ids(self._upstream, ids)

    def named(self, topic: Values) -> str | None:
        """Which topic an element of a request or an answer is about; None for an id that is not known."""
        topic_id: bytes | None = topic.get("topic_id")
        return topic["name"] if topic_id is None else asking.topic_name(self._upstream, topic_id)

    def refusal(self, client: Client, topic: Values) -> int:
        """Why a client may not see the cursors of a topic that it names; 0 where it may."""
        if self.named(topic) is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED if self.is_hidden(client, topic) else ErrorCode.NONE

    def is_hidden(self, client: Client, topic: Values) -> bool:
        """Whether a topic is a shadow that the client may not read."""
        name = self.named(topic)
        return name is not None and self._resolver.hides(name.encode(), client.principal)

    async def divide(self, group: str, client: Client, exchange: Exchange, request: Request) -> Divided | None:
        """The request without what is not the client's; None where all of it is. Raises `MalformedFrameError`."""
        fields = await asking.fields(_GUARDED[request.key], request)
        topics: list[Any] = fields["topics"]
        await self.learn(ids_in(topics))
        kept: list[Values] = []
        refused: list[Values] = []
        for topic in topics:
            code, others = self.refusal(client, topic), topic["partitions"]
            if not code:
                theirs, others = self._by_claim(group, topic, client)
                if theirs or not others:
                    kept.append(topic | {"partitions": theirs})
                code = ErrorCode.ILLEGAL_GENERATION if others else ErrorCode.NONE
            if code:
                exchange.note_error(code)
                refused.append(committed(topic | {"partitions": others}, code))

        def amend(answer: Values) -> Values:
            found: list[Any] = [*answer.get("topics", ())]
            known = {_key(topic): topic for topic in found}
            for topic in refused:
                there = known.get(_key(topic))
                if there is None:
                    found.append(topic)
                else:
                    there["partitions"] = [*there["partitions"], *topic["partitions"]]
            return answer | {"topics": found}

        return Divided(fields | {"topics": kept} if kept else None, amend) if refused else None

    def _by_claim(self, group: str, topic: Values, client: Client) -> tuple[list[Values], list[Values]]:
        """The partitions of a topic whose cursors the client may write, and those that another reader has claimed."""
        name = (self.named(topic) or "").encode()
        theirs: list[Values] = []
        others: list[Values] = []
        for found in topic["partitions"]:
            may = self._claims.may_commit(group, name, found["partition_index"], client)
            (theirs if may else others).append(found)
        return theirs, others


def _key(topic: Values) -> tuple[Any, ...]:
    return (*called(topic).values(),)
