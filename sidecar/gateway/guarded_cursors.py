"""Removes cursors that the client may not touch from OffsetCommit, OffsetDelete and TxnOffsetCommit, and completes the
answers. The rest of such a request is forwarded (`gateway.groups`).

- Of shadows that the client may not read: 29 TOPIC_AUTHORIZATION_FAILED, as Kafka answers for a topic without READ.
- Written or deleted in a group where another reader has claimed the partition: 22 ILLEGAL_GENERATION
  (`sidecar.resources`), as the coordinator answers a member of an earlier generation. Reading them is allowed.
- Of an unknown topic id: 100 UNKNOWN_TOPIC_ID, because the coordinator might know its topic.

If no shadow has an allow list and nothing is claimed, requests are not parsed.
"""

from typing import Any

from sidecar.cluster.resolver import NameResolver
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway import asking
from sidecar.gateway.access.asked import Divided, called, ids_in
from sidecar.gateway.access.groups import committed
from sidecar.gateway.client import Client
from sidecar.network.request import Exchange, Request
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.schema import Message, Values
from sidecar.resources.readers import ReaderClaims


class GuardedCursors:
    """Splits requests into allowed and refused cursors, and completes the answers."""

    def __init__(self, upstream: KafkaUpstream, resolver: NameResolver, claims: ReaderClaims) -> None:
        self.upstream = upstream
        self.resolver = resolver
        self._claims = claims

    def named(self, topic: Values) -> str | None:
        """The topic of an element in a request or answer; None for an unknown id."""
        topic_id: bytes | None = topic.get("topic_id")
        return topic["name"] if topic_id is None else asking.topic_name(self.upstream, topic_id)

    def refusal(self, client: Client, topic: Values) -> int:
        """The error code if a client may not see the cursors of a topic; 0 if it may."""
        if self.named(topic) is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED if self.is_hidden(client, topic) else ErrorCode.NONE

    def is_hidden(self, client: Client, topic: Values) -> bool:
        """Whether a topic is a shadow that the client may not read."""
        name = self.named(topic)
        return name is not None and self.resolver.hides(name.encode(), client.principal)

    async def divide(
        self, message: Message, group: str, client: Client, exchange: Exchange, request: Request
    ) -> Divided | None:
        """The request without cursors that the client may not touch; None if there are none. Raises
        `MalformedFrameError`.
        """
        if not (self.resolver.has_guards or self._claims.any):
            return None
        fields = await asking.fields(message, request)
        topics: list[Any] = fields["topics"]
        await asking.learn_ids(self.upstream, ids_in(topics))
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
        """A topic's partitions whose cursors the client may write, and those that another reader has claimed."""
        name = (self.named(topic) or "").encode()
        theirs: list[Values] = []
        others: list[Values] = []
        reader = client.reader
        for found in topic["partitions"]:
            may = self._claims.may_commit(group, name, found["partition_index"], reader)
            (theirs if may else others).append(found)
        return theirs, others


def _key(topic: Values) -> tuple[Any, ...]:
    return (*called(topic).values(),)
