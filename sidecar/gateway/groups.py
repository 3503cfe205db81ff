"""Consumer groups, passed to their coordinators: only the group's name is read.

OffsetCommit (2-10), JoinGroup (0-9), Heartbeat (0-4), LeaveGroup (0-5), SyncGroup (0-5), OffsetDelete (0) and
TxnOffsetCommit (0-5) name one group: the request and the answer pass as they are, on the client's own connection, so a
JoinGroup that waits for other members delays no other client. If there is no coordinator, the answer has the API's own
error. DescribeGroups (0-6) and DeleteGroups (0-2) name many: split and merged. `gateway.guarded_cursors` refuses
cursors that the client may not touch; OffsetFetch is in `gateway.offset_fetch`.

ConsumerGroupDescribe (0-1), ShareGroupDescribe (1), StreamsGroupDescribe (0) and DescribeShareGroupOffsets (0-1) name
many, too; AlterShareGroupOffsets (0) and DeleteShareGroupOffsets (0) one. Heartbeats of their members are in
`gateway.members`. A group with a shadow that an allow list hides from the client is described by 29
TOPIC_AUTHORIZATION_FAILED alone, as one with a topic that it may not DESCRIBE.

Offsets of a transaction under one of the sidecar's transactional ids are refused with 53
TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sidecar.cluster.resolver import TRANSACTIONAL_ID_PREFIX
from sidecar.gateway import asking
from sidecar.gateway.access.asked import called
from sidecar.gateway.coordinators import Keyed
from sidecar.protocol.api import APIS
from sidecar.protocol.caller import CoordinatorKind
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.first_fields import leading_text
from sidecar.protocol.messages import groups, new_groups, shares

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sidecar.cluster.resolver import NameResolver
    from sidecar.gateway.client import Client
    from sidecar.gateway.coordinators import Coordinators
    from sidecar.gateway.guarded_cursors import GuardedCursors
    from sidecar.network.request import Exchange, Request
    from sidecar.protocol.schema import Message, Values

_NO_GENERATION: Final = -1
_OPERATIONS_UNKNOWN: Final = -(2**31)


@dataclass(frozen=True, slots=True)
class _Grouped:
    """An API about one group: how to refuse a request, and which of its leading strings is the group."""

    message: Message
    refuse: Callable[[Callable[[], Values], int], Values]
    group_at: int = 0


def _in_front(_request: Callable[[], Values], code: int) -> Values:
    return {"error_code": code}


def _joined(_request: Callable[[], Values], code: int) -> Values:
    return {"error_code": code, "generation_id": _NO_GENERATION}


def _per_partition(fields: Callable[[], Values], code: int) -> Values:
    def refused(topic: Values) -> Values:
        partitions: list[Any] = topic["partitions"]
        indexes = [{"partition_index": found["partition_index"], "error_code": code} for found in partitions]
        return {**called(topic), "partitions": indexes}

    return {"topics": [refused(topic) for topic in fields()["topics"]]}


_GROUPED: Final = {
    form.message.key: form
    for form in (
        _Grouped(groups.OFFSET_COMMIT, _per_partition),
        _Grouped(groups.JOIN_GROUP, _joined),
        _Grouped(groups.HEARTBEAT, _in_front),
        _Grouped(groups.LEAVE_GROUP, _in_front),
        _Grouped(groups.SYNC_GROUP, _in_front),
        _Grouped(groups.OFFSET_DELETE, _in_front),
        _Grouped(shares.ALTER_SHARE_GROUP_OFFSETS, _in_front),
        _Grouped(shares.DELETE_SHARE_GROUP_OFFSETS, _in_front),
        _Grouped(groups.TXN_OFFSET_COMMIT, _per_partition, group_at=1),
    )
}
GROUP_KEYS: Final = frozenset(_GROUPED)
"""The APIs that `GroupsApi` handles."""


class GroupsApi:
    """Handles the requests that name one group, of all clients of a node."""

    def __init__(self, coordinators: Coordinators, guards: GuardedCursors) -> None:
        self._coordinators = coordinators
        self._guards = guards

    async def handle(self, client: Client, exchange: Exchange, request: Request) -> None:
        """One request, to the coordinator and back."""
        form = _GROUPED[request.key]
        flexible = APIS[request.key].is_flexible(request.version)
        *before, group = leading_text(
            request.frame.buffer, request.body, request.frame.end, flexible=flexible, count=form.group_at + 1
        )
        if before and before[0].startswith(TRANSACTIONAL_ID_PREFIX):
            await _refuse(form, exchange, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return
        if self._guards.concerns(request.key):
            await self._guarded(client, exchange, form, request, group)
            return
        try:
            answer = await self._coordinators.ask(client, group, CoordinatorKind.GROUP, request)
        except KafkaError as error:
            await _refuse(form, exchange, request, error.code)
        else:
            exchange.answer([answer.view(answer.start, answer.end)])

    async def _guarded(self, client: Client, exchange: Exchange, form: _Grouped, request: Request, group: str) -> None:
        """A request that may name cursors that are not its client's."""
        divided = await self._guards.divide(group, client, request)
        refused: list[Values] = []
        for each in divided.refused:
            exchange.note_error(each.code)
            refused += _per_partition(partial(_of_one, each.topic), each.code)["topics"]
        if divided.request is None:
            await asking.answer(exchange, form.message, {"topics": refused})
            return
        try:
            answer = await self._coordinators.ask(client, group, CoordinatorKind.GROUP, divided.request)
        except KafkaError as error:
            await _refuse(form, exchange, request, error.code)
            return
        joined = await self._guards.joined(answer, request, refused)
        exchange.answer([answer.view(answer.start, answer.end) if joined is None else joined])


def _of_one(topic: Values) -> Values:
    return {"topics": [topic]}


async def _refuse(form: _Grouped, exchange: Exchange, request: Request, code: int) -> None:
    exchange.note_error(code)
    fields = await asking.fields(form.message, request)
    await asking.answer(exchange, form.message, form.refuse(lambda: fields, code))


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
