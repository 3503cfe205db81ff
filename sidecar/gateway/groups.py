"""Forwards requests about groups and the end of transactions to their coordinators; reads only the group's name or the
transactional id.

OffsetCommit (2-10), JoinGroup (0-9), Heartbeat (0-4), LeaveGroup (0-5), SyncGroup (0-5), OffsetDelete (0) and
TxnOffsetCommit (0-5) name one group: request and answer are forwarded unchanged, on the client's own connection, so a
JoinGroup that waits for other members delays no other client. If there is no coordinator, the answer has the API's own
error. DescribeGroups (0-6) and DeleteGroups (0-2) name many: split and merged. `gateway.offset_fetch` refuses
cursors that the client may not touch; it also handles OffsetFetch.

ConsumerGroupDescribe (0-1), ShareGroupDescribe (1), StreamsGroupDescribe (0) and DescribeShareGroupOffsets (0-1) name
many, too; AlterShareGroupOffsets (0) and DeleteShareGroupOffsets (0) name one. A group with a shadow that an allow list
hides from the client is described only by 29 TOPIC_AUTHORIZATION_FAILED, as one with a topic that it may not DESCRIBE.
Offsets of share groups for a shadow, which they cannot read (`gateway.share`), are refused with the same error; the
rest of the request is forwarded.

AddOffsetsToTxn (0-4) and EndTxn (0-5) name one transactional id. From version 5 on EndTxn answers with the producer id
and epoch of the next transaction (KIP-890). One of the sidecar's own transactional ids is refused with 53
TRANSACTIONAL_ID_AUTHORIZATION_FAILED in these and in TxnOffsetCommit.

Heartbeats of groups whose coordinator assigns partitions are forwarded to the coordinator:
ConsumerGroupHeartbeat (0-1) (KIP-848), ShareGroupHeartbeat (1) (KIP-932), StreamsGroupHeartbeat (0) (KIP-1071).

Assignments name topics by their upstream ids, and so does Metadata here: nothing is rewritten. A shadow is an ordinary
topic to a coordinator, so a group can read one. A member that subscribes to a shadow that it may not read is refused
with 29 TOPIC_AUTHORIZATION_FAILED, like one that may not DESCRIBE a topic (`access.groups`). So is an application of
Kafka Streams if its internal topics would have the name of a sidecar's topic (`__sidecar_*`) or of a shadow: the
coordinator creates them with the node's rights.

A share group's member that subscribes to any shadow is refused with 42 INVALID_REQUEST: brokers keep the states of
records by log, and a shadow's log is its source's. For INVALID_REQUEST the Java client raises the reason and ends the
membership. For 29 it drops the reason, and joins again at once (`AbstractHeartbeatRequestManager.onErrorResponse`).

A regular expression (KIP-848, version 1) is resolved by the coordinator with the rights of the node, which sees all
topics. It is refused with 128 INVALID_REGULAR_EXPRESSION if it could assign topics that the member may not see: by
`access.groups`, unless the member may DESCRIBE every topic, and here, if there is a shadow that it may not read.
Expressions that clients resolve themselves (`java.util.regex.Pattern`) arrive as lists of names. The coordinator keeps
an expression when rights are revoked, so answers are checked too: a member whose expression brought a topic that it may
no longer see gets 128 instead of its assignment. A member that named the topic keeps it, as on a broker.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from sidecar.cluster.resolver import TRANSACTIONAL_ID_PREFIX, NameResolver
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway import asking
from sidecar.gateway.access import groups as access
from sidecar.gateway.access.asked import TOPIC, Divided, error_fields, refused_topic, some
from sidecar.gateway.access.groups import NOT_EXPANDED, committed, made_topics, not_beaten, streams_topics
from sidecar.gateway.client import Client
from sidecar.gateway.coordinators import Coordinators, Keyed
from sidecar.gateway.offset_fetch import GuardedCursors, refusal_of_deleting
from sidecar.gateway.rights import may_see
from sidecar.network.framing import Frame
from sidecar.network.request import Exchange, Request
from sidecar.protocol.caller import CoordinatorKind
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.messages import groups, new_groups, shares, transactions
from sidecar.protocol.schema import Message, Values
from sidecar.resources.readers import ReaderClaims

_NO_SHARES: Final = KafkaError(
    ErrorCode.TOPIC_AUTHORIZATION_FAILED, "a share group cannot read a shadow topic, so it has no offset there"
)
_NO_SHARES_THERE: Final = {"error_code": _NO_SHARES.code, "error_message": _NO_SHARES.message}
_NONE: Final = -1
_OPERATIONS_UNKNOWN: Final = -(2**31)


@dataclass(frozen=True, slots=True)
class _Single:
    """An API about one group or transactional id: the kind of its coordinator, whether it is refused per partition, and
    which leading string is the group or id.
    """

    message: Message
    kind: CoordinatorKind = CoordinatorKind.GROUP
    by_partition: bool = False
    key_at: int = 0


_SINGLE: Final = {
    form.message.key: form
    for form in (
        _Single(groups.OFFSET_COMMIT, by_partition=True),
        _Single(groups.JOIN_GROUP),
        _Single(groups.HEARTBEAT),
        _Single(groups.LEAVE_GROUP),
        _Single(groups.SYNC_GROUP),
        _Single(groups.OFFSET_DELETE),
        _Single(shares.ALTER_SHARE_GROUP_OFFSETS),
        _Single(shares.DELETE_SHARE_GROUP_OFFSETS),
        _Single(groups.TXN_OFFSET_COMMIT, by_partition=True, key_at=1),
        _Single(transactions.ADD_OFFSETS_TO_TXN, CoordinatorKind.TRANSACTION),
        _Single(transactions.END_TXN, CoordinatorKind.TRANSACTION),
    )
}
SINGLE_KEYS: Final = frozenset(_SINGLE)
"""The APIs that `GroupsApi` handles."""


_HEARTBEATS: Final = {
    message.key: message
    for message in (
        new_groups.CONSUMER_GROUP_HEARTBEAT,
        shares.SHARE_GROUP_HEARTBEAT,
        new_groups.STREAMS_GROUP_HEARTBEAT,
    )
}
HEARTBEAT_KEYS: Final = frozenset(_HEARTBEATS)
"""The APIs that `GroupsApi.handle_heartbeat` handles."""
_NO_SUBSCRIPTION: Final = KafkaError(
    ErrorCode.INVALID_REQUEST, "a share group cannot read a shadow topic: subscribe to its source"
)


class GroupsApi:
    """Handles the requests that name one group or transactional id, of all clients of a node."""

    def __init__(
        self, upstream: KafkaUpstream, coordinators: Coordinators, guards: GuardedCursors, resolver: NameResolver
    ) -> None:
        self._upstream = upstream
        self._coordinators = coordinators
        self._guards = guards
        self._resolver = resolver

    async def handle(self, client: Client, exchange: Exchange, request: Request) -> None:
        """Forward one request to the coordinator, and its answer to the client."""
        form = _SINGLE[request.key]
        *before, key = asking.leading_text(request, form.key_at + 1)
        transactional_id = key if form.kind is CoordinatorKind.TRANSACTION else "".join(before)
        if transactional_id.startswith(TRANSACTIONAL_ID_PREFIX):
            await _refuse(form, exchange, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return
        divided = None
        if request.key == shares.ALTER_SHARE_GROUP_OFFSETS.key and self._resolver.has_shadows:
            divided = await self._without_shadows(client, exchange, request)
        elif self._guards.concerns(request.key):  # it may name cursors that the client may not touch
            divided = await self._guards.divide(key, client, exchange, request)
        ask = partial(self._coordinators.ask, client, key, form.kind)
        try:
            await asking.pass_divided(client, exchange, request, form.message, divided, ask)
        except KafkaError as error:
            await _refuse(form, exchange, request, error.code)

    async def _without_shadows(self, client: Client, exchange: Exchange, request: Request) -> Divided | None:
        def refused(topic: Values) -> Values | None:
            name: bytes = topic["topic_name"].encode()
            if not self._resolver.is_shadow(name):
                return None
            error = error_fields(TOPIC) if self._resolver.hides(name, client.principal) else _NO_SHARES_THERE
            client.note_refusal(name, _NO_SHARES.code, _NO_SHARES.message)
            return refused_topic(topic, error)

        fields = await asking.fields(shares.ALTER_SHARE_GROUP_OFFSETS, request)
        divided = some(fields, ("topics", "responses"), refused)
        if divided is not None:
            exchange.note_error(_NO_SHARES.code)
        return divided

    # Heartbeats -------------------------------------------------------------------------------------------------------

    async def handle_heartbeat(self, client: Client, exchange: Exchange, request: Request) -> None:
        """Forward one heartbeat to the coordinator, and its answer to the client."""
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
        """Raise `KafkaError` if the member would read a shadow that it may not read, or if its topology would create a
        topic that it may not create.
        """
        is_share, is_streams = message is shares.SHARE_GROUP_HEARTBEAT, message is new_groups.STREAMS_GROUP_HEARTBEAT
        if not (is_streams or (self._resolver.has_shadows if is_share else self._resolver.has_guards)):
            return
        fields = await asking.fields(message, request)
        for topic in made_topics(fields["topology"]) if is_streams else ():
            if (error := self._resolver.change_refused(topic.encode(), client.principal)) is not None:
                client.note_refusal(topic.encode(), error.code, error.message)
                raise error
        for topic in _subscribed(fields):
            if self._resolver.hides(topic.encode(), client.principal):
                client.note_refusal(topic.encode(), ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if is_share and self._resolver.is_shadow(topic.encode()):
                client.note_refusal(topic.encode(), _NO_SUBSCRIPTION.code, _NO_SUBSCRIPTION.message)
                raise _NO_SUBSCRIPTION
        if fields.get("subscribed_topic_regex") and not self._resolver.may_read_all_shadows(client.principal):
            raise NOT_EXPANDED

    async def _check_assigned(self, client: Client, group: str, request: Request, answer: Frame) -> None:
        """Raise `KafkaError` if an expression brought the member a topic that it may no longer see."""
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
        if all(may_see(client, self._resolver, names[each].decode()) for each in ids if each in names):
            return
        if await self._has_expression(client, group, heartbeat["member_id"], request):
            raise NOT_EXPANDED

    async def _has_expression(self, client: Client, group: str, member: str, request: Request) -> bool:
        """Whether a member subscribed by an expression; asks the coordinator, which stores it."""
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


async def _refuse(form: _Single, exchange: Exchange, request: Request, code: int) -> None:
    """Answer with an error. Raises `MalformedFrameError`: the broker may have closed because of a malformed request."""
    exchange.note_error(code)
    fields = await asking.fields(form.message, request)
    topics: list[Values] = fields["topics"] if form.by_partition else []
    values: Values = {"error_code": code} | dict.fromkeys(("generation_id", "producer_id", "producer_epoch"), _NONE)
    await asking.answer(exchange, form.message, values | {"topics": [committed(topic, code) for topic in topics]})


def _described(
    message: Message,
    keys: str = "group_ids",
    topics_of: Callable[[Values], Iterable[str]] = lambda _group: (),
    said: str = "",
) -> Keyed:
    unknown = {"authorized_operations": _OPERATIONS_UNKNOWN}
    kind = CoordinatorKind.GROUP
    return Keyed(message, kind, keys, "groups", "group_id", unknown, topics_of=topics_of, said=said)


def keyed(claims: ReaderClaims) -> tuple[Keyed, ...]:
    """The APIs that name many groups."""
    group, shared = CoordinatorKind.GROUP, shares.DESCRIBE_SHARE_GROUP_OFFSETS
    may_delete = partial(refusal_of_deleting, claims)
    return (
        _described(groups.DESCRIBE_GROUPS, keys="groups"),
        _described(new_groups.CONSUMER_GROUP_DESCRIBE, topics_of=access.assigned_topics, said=access.ASSIGNED),
        _described(shares.SHARE_GROUP_DESCRIBE),
        _described(new_groups.STREAMS_GROUP_DESCRIBE, topics_of=access.used_topics, said=access.USED),
        Keyed(shared, group, keys="groups", results="groups", key="group_id", named_by="group_id"),
        Keyed(groups.DELETE_GROUPS, group, "groups_names", "results", "group_id", may_name=may_delete),
    )
