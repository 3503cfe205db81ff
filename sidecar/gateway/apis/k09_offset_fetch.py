"""OffsetFetch (1-10): the committed offsets of groups, requested from their coordinators. From version 8 on a request
names many groups (KIP-709), each with its own coordinator: split and merged. From version 10 on topics are named by id
(KIP-848).

A request about one group and its answer are forwarded unchanged, unless one of these has to be checked:

- Cursors of shadows that the client may not read: 29 TOPIC_AUTHORIZATION_FAILED; left out if all offsets of a group
  are requested.
- Shadows whose cursors are reset when they lag too far: the end of the log replaces the committed offset (PIP-180;
  `sidecar.shadow.auto_reset`).
- Ids in answers, if Kafka's ACLs decide which of them the client sees: the names are looked up.

If such a request names an unknown id, its partitions get 100 UNKNOWN_TOPIC_ID, as from a broker. A group without a
coordinator gets 15 COORDINATOR_NOT_AVAILABLE; the others get their offsets.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from sidecar.gateway import asking
from sidecar.gateway.access.asked import GROUP, Asked, Asking, Divided, Operation, ids_in, whole
from sidecar.gateway.access.groups import fetched, permitted, why_refused
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule, SharedLinks
from sidecar.gateway.client import Client
from sidecar.gateway.coordinators import Coordinators
from sidecar.gateway.guarded_cursors import GuardedCursors
from sidecar.network.request import Exchange, Request
from sidecar.protocol import limits
from sidecar.protocol.caller import CoordinatorKind
from sidecar.protocol.errors import STALE_COORDINATOR, ErrorCode, KafkaError
from sidecar.protocol.messages.groups import OFFSET_FETCH
from sidecar.protocol.primitives import RequestReader
from sidecar.protocol.schema import Values
from sidecar.shadow.auto_reset import AutoReset

_FIRST_OF_MANY: Final = 8
_FIRST_BY_ID: Final = 10
_GROUP_BYTES: Final = 3
_UNKNOWN: Final = -1


def _group_fetched(asking: Asking, group: Values) -> Divided:
    """The allowed part of a group in OffsetFetch: of the request before version 8, of one element since."""
    topics: list[Values] | None = group["topics"]
    if not asking.rights.group(Operation.DESCRIBE, group["group_id"]):
        refused = [fetched(topic, GROUP) for topic in topics or ()] if asking.version < 2 else []
        return whole({"group_id": group["group_id"], "error_code": GROUP, "topics": refused}, GROUP)
    may = permitted(asking, Operation.DESCRIBE)
    if topics is None:
        return Divided(group, lambda answer: answer | {"topics": [each for each in answer["topics"] if may(each)]})
    codes = [why_refused(asking, topic) for topic in topics if not may(topic)]
    hidden = [fetched(topic, why_refused(asking, topic)) for topic in topics if not may(topic)]

    def amend(answer: Values) -> Values:
        return answer if answer.get("error_code") else answer | {"topics": [*answer["topics"], *hidden]}

    return Divided(group | {"topics": [topic for topic in topics if may(topic)]}, amend, min(codes, default=0))


def _offset_fetch(asking: Asking) -> Divided | None:
    if "groups" not in asking.fields:
        divided = _group_fetched(asking, asking.fields)
        return divided if divided.code or asking.fields["topics"] is None else None
    found = [_group_fetched(asking, group) for group in asking.fields["groups"]]
    kept = [each.fields for each in found if each.fields is not None]
    code = next((each.code for each in found if each.code), 0)
    if not code and all(group["topics"] is not None for group in kept):
        return None

    def amend(answer: Values) -> Values:
        """Brokers answer in the order of the request."""
        left = iter(answer.get("groups", ()))
        return answer | {"groups": [each.amend({} if each.fields is None else next(left)) for each in found]}

    return Divided(asking.fields | {"groups": kept} if kept else None, amend, code)


def _ids_fetched(fields: Values) -> Iterable[bytes]:
    return (topic_id for group in fields.get("groups", ()) for topic_id in ids_in(group["topics"]))


class OffsetFetchApi:
    """Handles the requests of all clients of a node."""

    def __init__(self, coordinators: Coordinators, guards: GuardedCursors, shadows: AutoReset) -> None:
        self._coordinators = coordinators
        self._guards = guards
        self._shadows = shadows

    async def handle(self, client: Client, exchange: Exchange, request: Request) -> None:
        """Forward one request to the coordinators, and answer it."""
        group = _only_group(request)
        if group is None or self._looks_inside(client, request):
            await self._merged(client, exchange, request)
            return
        try:
            answer = await self._coordinators.ask(client, group, CoordinatorKind.GROUP, request)
        except KafkaError as error:
            exchange.note_error(error.code)
            fields = await asking.fields(OFFSET_FETCH, request)
            (element,) = _groups(fields)
            await _answer(exchange, [_refused(element, error.code)], 0)
        else:
            exchange.answer([answer.view(answer.start, answer.end)])

    def _looks_inside(self, client: Client, request: Request) -> bool:
        if self._guards.resolver.has_guards or self._shadows.limits:
            return True
        return request.version >= _FIRST_BY_ID and client.rights is not None

    async def _merged(self, client: Client, exchange: Exchange, request: Request) -> None:
        """Ask each coordinator once, and answer the groups in the order of the request."""
        fields = await asking.fields(OFFSET_FETCH, request)
        wanted = _groups(fields)
        await asking.learn_ids(self._guards.upstream, _ids(wanted))
        refused: list[list[Values]] = []
        by_name: dict[str, list[Values]] = {}
        for each in wanted:
            kept, hidden = self._divided(client, each)
            refused.append(hidden)
            by_name.setdefault(each["group_id"], []).append(kept)
        brokers, failed = await self._coordinators.by_broker(list(by_name), CoordinatorKind.GROUP)
        asked = [[each for group in some for each in by_name[group]] for some in brokers.values()]
        answers = await asyncio.gather(*(self._ask(client, request, fields, some) for some in asked))
        found: dict[str, list[Values]] = {group: [] for group in by_name}
        for results, _ in answers:
            for each in results:
                found.setdefault(each["group_id"], []).append(each)
        await asking.learn_ids(self._guards.upstream, _ids(each for results in found.values() for each in results))
        shown: list[Values] = []
        for each, hidden in zip(wanted, refused, strict=True):
            left, error = found[each["group_id"]], failed.get(each["group_id"])
            result = (
                left.pop(0) if left else _refused(each, error.code if error else ErrorCode.COORDINATOR_NOT_AVAILABLE)
            )
            shown.append(await self._shown(client, result, hidden))
        for code in {each.get("error_code", 0) for each in shown} | {_code(hidden) for hidden in refused}:
            if code:
                exchange.note_error(code)
        await _answer(exchange, shown, max((throttle_ms for _, throttle_ms in answers), default=0))

    def _divided(self, client: Client, group: Values) -> tuple[Values, list[Values]]:
        """The forwarded part of a group's request, and the answers for the refused topics."""
        kept: list[Values] = []
        hidden: list[Values] = []
        for topic in group["topics"] or ():
            code = self._guards.refusal(client, topic)
            if code:
                hidden.append(fetched(topic, code))
            else:
                kept.append(topic)
        return (group | {"topics": kept} if hidden else group), hidden

    async def _ask(
        self, client: Client, request: Request, fields: Values, some: list[Values]
    ) -> tuple[list[Values], int]:
        """One coordinator's answer about some groups, and its throttle time in ms."""
        of_many = "groups" in fields
        values = fields | {"groups": some} if of_many else some[0]
        going_on = await asking.rewritten(client, request, OFFSET_FETCH, values)
        try:
            answer = await self._coordinators.ask(client, some[0]["group_id"], CoordinatorKind.GROUP, going_on)
        except KafkaError as error:
            for each in some[1:]:
                self._coordinators.lost(client, each["group_id"], CoordinatorKind.GROUP)
            return [_refused(each, error.code) for each in some], 0
        found = await asking.read(OFFSET_FETCH, answer, request.version)
        results: list[Values] = found["groups"] if of_many else [found | {"group_id": some[0]["group_id"]}]
        for each in results:
            if each.get("error_code", 0) in STALE_COORDINATOR:
                self._coordinators.forget(each["group_id"], CoordinatorKind.GROUP)
        return results, found.get("throttle_time_ms", 0)

    async def _shown(self, client: Client, result: Values, hidden: list[Values]) -> Values:
        """The client's answer for a group."""
        if result.get("error_code"):
            return result
        topics = [topic for topic in result["topics"] if not self._guards.is_hidden(client, topic)]
        await asyncio.gather(*(self._reset(result["group_id"], topic) for topic in topics))
        return result | {"topics": [*topics, *hidden]}

    async def _reset(self, group: str, topic: Values) -> None:
        """Replace a shadow's cursors that lag too far by the ends of its log."""
        name = self._guards.named(topic)
        if name is None or name not in self._shadows.limits:
            return
        partitions: list[Any] = topic["partitions"]
        committed = {
            found["partition_index"]: found["committed_offset"]
            for found in partitions
            if not found["error_code"] and found["committed_offset"] >= 0
        }
        ends = await self._shadows.reset(group, name, committed)
        for found in partitions:
            if (end := ends.get(found["partition_index"])) is not None:
                # Metadata and leader epoch belong to the committed offset.
                found |= {"committed_offset": end, "committed_leader_epoch": _UNKNOWN, "metadata": ""}


def _only_group(request: Request) -> str | None:
    """The only group of a request; None if it names many or none. Raises `MalformedFrameError`."""
    flexible = OFFSET_FETCH.form(request.version).flexible
    reader = RequestReader(request.frame.buffer, request.body, request.frame.end, limits.elements(request.key))
    reader.tags(flexible)
    if request.version >= _FIRST_OF_MANY and reader.array(flexible, element_bytes=_GROUP_BYTES) != 1:
        return None
    return reader.text(flexible)


def _groups(fields: Values) -> list[Values]:
    """The groups in a request; before version 8, the request itself."""
    return fields.get("groups", [fields])


def _ids(groups: Iterable[Values]) -> Iterable[bytes]:
    return (topic_id for group in groups for topic_id in ids_in(group["topics"]))


def _code(hidden: list[Values]) -> int:
    return next((each["error_code"] for topic in hidden for each in topic["partitions"]), 0)


def _refused(group: Values, code: int) -> Values:
    """The error is in the group's field (from version 2 on) and in each partition: not every client checks both."""
    topics = [fetched(topic, code) for topic in group["topics"] or ()]
    return {"group_id": group["group_id"], "error_code": code, "topics": topics}


async def _answer(exchange: Exchange, groups: list[Values], throttle_ms: int) -> None:
    values = {"groups": groups} if exchange.version >= _FIRST_OF_MANY else groups[0]
    await asking.answer(exchange, OFFSET_FETCH, values | {"throttle_time_ms": throttle_ms})


SPEC = ApiSpec(
    ApiKey.OFFSET_FETCH, (1, 10), Route.GROUPS, Asked(_offset_fetch, ids=_ids_fetched), ShadowRule.OWN,
    links=SharedLinks(since=3), cold=lambda _, of: OffsetFetchApi(of.coordinators, of.guards, of.auto_reset).handle,
)  # fmt: skip
