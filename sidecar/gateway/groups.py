"""Consumer groups, passed to their coordinators: only the group's name is read.

OffsetCommit (2-10), JoinGroup (0-9), Heartbeat (0-4), LeaveGroup (0-5), SyncGroup (0-5), OffsetDelete (0) and
TxnOffsetCommit (0-5) name one group: the request and the answer pass as they are, on the client's own connection, so a
JoinGroup that waits for other members delays no other client. If there is no coordinator, the answer has the API's own
error. DescribeGroups (0-6) and DeleteGroups (0-2) name many: split and merged. `gateway.guarded_cursors` refuses
cursors that the client may not touch; OffsetFetch is in `gateway.offset_fetch`.

ConsumerGroupDescribe (0-1), ShareGroupDescribe (1), StreamsGroupDescribe (0) and DescribeShareGroupOffsets (0-1) name
many, too; AlterShareGroupOffsets (0) and DeleteShareGroupOffsets (0) one. Heartbeats of their members are in
`gateway.members`. A group with a shadow that an allow list hides from the client is described by 29
TOPIC_AUTHORIZATION_FAILED alone, as one with a topic that it may not DESCRIBE. No share group gets an offset of a
shadow, which it could not read (`gateway.share`): refused with 29, beside what else the request names.

Offsets of a transaction under one of the sidecar's transactional ids are refused with 53
TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from sidecar.cluster.resolver import TRANSACTIONAL_ID_PREFIX, NameResolver
from sidecar.gateway import asking
from sidecar.gateway.access.groups import committed
from sidecar.gateway.client import Client
from sidecar.gateway.coordinators import Coordinators, Keyed
from sidecar.gateway.guarded_cursors import GuardedCursors
from sidecar.network.request import Exchange, Request
from sidecar.protocol.caller import CoordinatorKind
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.messages import groups, new_groups, shares
from sidecar.protocol.schema import Message, Values

_NO_SHARES: Final = KafkaError(
    ErrorCode.TOPIC_AUTHORIZATION_FAILED, "a share group cannot read a shadow topic, so it has no offset there"
)
_NO_GENERATION: Final = -1
_OPERATIONS_UNKNOWN: Final = -(2**31)


@dataclass(frozen=True, slots=True)
class _Grouped:
    """An API about one group: whether it is refused partition by partition, and which leading string is the group."""

    message: Message
    by_partition: bool = False
    group_at: int = 0


_GROUPED: Final = {
    form.message.key: form
    for form in (
        _Grouped(groups.OFFSET_COMMIT, by_partition=True),
        _Grouped(groups.JOIN_GROUP),
        _Grouped(groups.HEARTBEAT),
        _Grouped(groups.LEAVE_GROUP),
        _Grouped(groups.SYNC_GROUP),
        _Grouped(groups.OFFSET_DELETE),
        _Grouped(shares.ALTER_SHARE_GROUP_OFFSETS),
        _Grouped(shares.DELETE_SHARE_GROUP_OFFSETS),
        _Grouped(groups.TXN_OFFSET_COMMIT, by_partition=True, group_at=1),
    )
}
GROUP_KEYS: Final = frozenset(_GROUPED)
"""The APIs that `GroupsApi` handles."""


class GroupsApi:
    """Handles the requests that name one group, of all clients of a node."""

    def __init__(self, coordinators: Coordinators, guards: GuardedCursors, resolver: NameResolver) -> None:
        self._coordinators = coordinators
        self._guards = guards
        self._resolver = resolver

    async def handle(self, client: Client, exchange: Exchange, request: Request) -> None:
        """One request, to the coordinator and back."""
        form = _GROUPED[request.key]
        *before, group = asking.leading_text(request, form.group_at + 1)
        if before and before[0].startswith(TRANSACTIONAL_ID_PREFIX):
            await _refuse(form, exchange, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return
        going_on: Request | None = request
        refused: list[Values] = []
        if self._guards.concerns(request.key):  # it may name cursors that are not its client's
            going_on, theirs = await self._guards.divide(group, client, request)
            for each in theirs:
                exchange.note_error(each.code)
                refused.append(committed(each.topic, each.code))
        if going_on is None:
            await asking.answer(exchange, form.message, {"topics": refused})
            return
        try:
            answer = await self._coordinators.ask(client, group, CoordinatorKind.GROUP, going_on)
        except KafkaError as error:
            await _refuse(form, exchange, request, error.code)
            return
        joined = await self._guards.joined(answer, request, refused)
        exchange.answer([answer.view(answer.start, answer.end) if joined is None else joined])

    async def handle_share_offsets(self, client: Client, exchange: Exchange, request: Request) -> None:
        """AlterShareGroupOffsets: topics that are no shadows go on to the coordinator."""
        message, resolver = shares.ALTER_SHARE_GROUP_OFFSETS, self._resolver
        fields: Values = await asking.fields(message, request) if resolver.has_shadows else {"topics": ()}
        refused = [topic for topic in fields["topics"] if resolver.is_shadow(topic["topic_name"].encode())]
        if not refused:
            await self.handle(client, exchange, request)
            return
        exchange.note_error(_NO_SHARES.code)
        for topic in refused:
            client.note_refusal(topic["topic_name"].encode(), _NO_SHARES.code, _NO_SHARES.message)
        answer: Values = {"error_code": ErrorCode.NONE, "responses": []}
        if kept := [topic for topic in fields["topics"] if not resolver.is_shadow(topic["topic_name"].encode())]:
            going_on = await asking.rewritten(client, request, message, fields | {"topics": kept})
            try:
                frame = await self._coordinators.ask(client, fields["group_id"], CoordinatorKind.GROUP, going_on)
            except KafkaError as error:
                await _refuse(_GROUPED[request.key], exchange, request, error.code)
                return
            answer = await asking.read(message, frame, request.version)
        if not answer["error_code"]:
            answer = answer | {"responses": [*answer["responses"], *map(_not_shared, refused)]}
        await asking.answer(exchange, message, answer)


def _not_shared(topic: Values) -> Values:
    error = {"error_code": _NO_SHARES.code, "error_message": _NO_SHARES.message}
    partitions = [error | {"partition_index": each["partition_index"]} for each in topic["partitions"]]
    return {"topic_name": topic["topic_name"], "partitions": partitions}


async def _refuse(form: _Grouped, exchange: Exchange, request: Request, code: int) -> None:
    """Raises `MalformedFrameError`: a broker may have hung up on it for that."""
    exchange.note_error(code)
    fields = await asking.fields(form.message, request)
    topics: list[Values] = fields["topics"] if form.by_partition else []
    values: Values = {"error_code": code, "generation_id": _NO_GENERATION}
    await asking.answer(exchange, form.message, values | {"topics": [committed(topic, code) for topic in topics]})


def _described(message: Message, keys: str = "group_ids") -> Keyed:
    return Keyed(
        message,
        CoordinatorKind.GROUP,
        keys=keys,
        results="groups",
        key="group_id",
        refusal=lambda group, error: {
            "error_code": error.code,
            "error_message": error.message or None,
            "group_id": group,
            "authorized_operations": _OPERATIONS_UNKNOWN,
        },
    )


DESCRIBED: Final = _described(groups.DESCRIBE_GROUPS, keys="groups")
CONSUMERS_DESCRIBED: Final = _described(new_groups.CONSUMER_GROUP_DESCRIBE)
SHARES_DESCRIBED: Final = _described(shares.SHARE_GROUP_DESCRIBE)
STREAMS_DESCRIBED: Final = _described(new_groups.STREAMS_GROUP_DESCRIBE)
SHARE_OFFSETS: Final = Keyed(
    shares.DESCRIBE_SHARE_GROUP_OFFSETS,
    CoordinatorKind.GROUP,
    keys="groups",
    results="groups",
    key="group_id",
    refusal=lambda group, error: {
        "group_id": group,
        "error_code": error.code,
        "error_message": error.message or None,
    },
    named_by="group_id",
)
DELETED: Final = Keyed(
    groups.DELETE_GROUPS,
    CoordinatorKind.GROUP,
    keys="groups_names",
    results="results",
    key="group_id",
    refusal=lambda group, error: {"group_id": group, "error_code": error.code},
)


def hidden(
    resolver: NameResolver,
    topics_of: Callable[[Values], Iterable[str]],
    said: str,
    client: Client,
    group: Values,
) -> KafkaError | None:
    """Why a client may not see a group that was described: it has a shadow that an allow list hides from the client."""
    if not resolver.has_guards or not any(resolver.hides(each.encode(), client.principal) for each in topics_of(group)):
        return None
    return KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, said)
