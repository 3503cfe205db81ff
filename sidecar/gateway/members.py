"""Members of groups whose coordinator assigns partitions: their heartbeats, passed to the coordinator of their group.

ConsumerGroupHeartbeat (0-1) (KIP-848), ShareGroupHeartbeat (1) (KIP-932), StreamsGroupHeartbeat (0) (KIP-1071).

Assignments name topics by the ids that they have upstream, and so does Metadata here: nothing is rewritten. A shadow is
a topic like any other to a coordinator, so a group can read one. Refused with 29 TOPIC_AUTHORIZATION_FAILED is a member
that subscribes to a shadow that it may not read, as one that may not DESCRIBE a topic is (`access.groups`). So is an
application of Kafka Streams whose own topics, which the coordinator makes with the rights of the node, would be the
sidecar's (`__sidecar_*`) or a shadow.

A share group's member that subscribes to any shadow is refused with 42 INVALID_REQUEST: brokers keep the states of
records by log, and a shadow's log is its source's. The Java client raises 42 with the reason and ends the membership;
of 29 it drops the reason, and joins again without a pause (`AbstractHeartbeatRequestManager.onErrorResponse`).

A regular expression (KIP-848, version 1) is resolved by the coordinator with the rights of the node, which sees all
topics. It is refused with 128 INVALID_REGULAR_EXPRESSION where that would assign topics that the member may not see: by
`access.groups`, unless the member may DESCRIBE every topic, and here, if there is a shadow that it may not read.
Expressions that clients resolve themselves (`java.util.regex.Pattern`) are lists of names by then. An expression stays
with the coordinator when rights are withdrawn. So answers are looked at too: a member that an expression brought a
topic which it may not see any more gets 128 instead of its assignment. One that named the topic keeps it, as at a
broker.
"""

from collections.abc import Iterable
from typing import Final

from sidecar.cluster.resolver import NameResolver
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway import asking
from sidecar.gateway.access.groups import NOT_EXPANDED, made_topics, not_beaten, streams_topics
from sidecar.gateway.client import Client
from sidecar.gateway.coordinators import Coordinators
from sidecar.gateway.rights import may_see
from sidecar.network.framing import Frame
from sidecar.network.request import Exchange, Request
from sidecar.protocol.caller import CoordinatorKind
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.messages import new_groups, shares
from sidecar.protocol.schema import Message, Values

_HEARTBEATS: Final = {
    message.key: message
    for message in (
        new_groups.CONSUMER_GROUP_HEARTBEAT,
        shares.SHARE_GROUP_HEARTBEAT,
        new_groups.STREAMS_GROUP_HEARTBEAT,
    )
}
HEARTBEAT_KEYS: Final = frozenset(_HEARTBEATS)
"""The APIs that `MembersApi` handles."""


_NO_SHARES: Final = KafkaError(
    ErrorCode.INVALID_REQUEST, "a share group cannot read a shadow topic: subscribe to its source"
)


class MembersApi:
    """Handles the heartbeats of all clients of a node."""

    def __init__(self, upstream: KafkaUpstream, coordinators: Coordinators, resolver: NameResolver) -> None:
        self._upstream = upstream
        self._coordinators = coordinators
        self._resolver = resolver

    async def handle(self, client: Client, exchange: Exchange, request: Request) -> None:
        """One heartbeat, to the coordinator and back."""
        message = _HEARTBEATS[request.key]
        (group,) = asking.leading_text(request)
        try:
            await self._check(client, message, request)
            answer = await self._coordinators.ask(client, group, CoordinatorKind.GROUP, request)
            if message is new_groups.CONSUMER_GROUP_HEARTBEAT:
                await self._check_assigned(client, group, request, answer)
        except KafkaError as error:
            exchange.note_error(error.code)
            await asking.answer(exchange, message, not_beaten(error.code, error.message or None))
        else:
            exchange.answer([answer.view(answer.start, answer.end)])

    async def _check(self, client: Client, message: Message, request: Request) -> None:
        """Raise `KafkaError` if the member would read a shadow that is not for it, or have made what is not."""
        is_share, is_streams = message is shares.SHARE_GROUP_HEARTBEAT, message is new_groups.STREAMS_GROUP_HEARTBEAT
        if not (is_streams or (self._resolver.has_shadows if is_share else self._resolver.has_guards)):
            return
        fields = await asking.fields(message, request)
        for topic in made_topics(fields["topology"]) if is_streams else ():
            if (error := self._resolver.kind(topic.encode()).change_refused) is not None:
                client.note_refusal(topic.encode(), error.code, error.message)
                raise error
        for topic in _subscribed(fields):
            if is_share and self._resolver.is_shadow(topic.encode()):
                client.note_refusal(topic.encode(), _NO_SHARES.code, _NO_SHARES.message)
                raise _NO_SHARES
            if self._resolver.hides(topic.encode(), client.principal):
                client.note_refusal(topic.encode(), ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if fields.get("subscribed_topic_regex") and not self._resolver.may_read_all_shadows(client.principal):
            raise NOT_EXPANDED

    async def _check_assigned(self, client: Client, group: str, request: Request, answer: Frame) -> None:
        """Raise `KafkaError` if an expression brought the member a topic that it may not see any more."""
        is_limited = client.rights is not None and client.rights.enforced
        if not (is_limited or self._resolver.has_guards):
            return
        heartbeat = await asking.read(new_groups.CONSUMER_GROUP_HEARTBEAT, answer, request.version)
        ids = (
            {each["topic_id"] for each in heartbeat["assignment"]["topic_partitions"]}
            if heartbeat["assignment"]
            else set()
        )
        names = self._upstream.view.names
        await asking.learn_ids(self._upstream, ids)
        if all(self._may_see(client, names[each]) for each in ids if each in names):
            return
        if await self._has_expression(client, group, heartbeat["member_id"], request):
            raise NOT_EXPANDED

    def _may_see(self, client: Client, topic: bytes) -> bool:
        return may_see(client, topic.decode()) and not self._resolver.hides(topic, client.principal)

    async def _has_expression(self, client: Client, group: str, member: str, request: Request) -> bool:
        """Whether a member subscribed by an expression; the coordinator keeps it."""
        message = new_groups.CONSUMER_GROUP_DESCRIBE
        coordinator = await self._coordinators.find(group, CoordinatorKind.GROUP)
        asked: Values = {"group_ids": [group], "include_authorized_operations": False}
        described = await asking.one(client, coordinator, request, message, asked)
        members = (each for found in described["groups"] for each in found["members"])
        return any(each["subscribed_topic_regex"] for each in members if each["member_id"] == member)


def _subscribed(fields: Values) -> Iterable[str]:
    if "topology" in fields:
        return streams_topics(fields["topology"])
    return fields["subscribed_topic_names"] or ()
