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

`GuardedCursors` also removes cursors that the client may not touch from OffsetCommit (2-10), OffsetDelete (0) and
TxnOffsetCommit (0-5). The rest of such a request is forwarded (`gateway.groups`).

- Of shadows that the client may not read: 29 TOPIC_AUTHORIZATION_FAILED, as Kafka answers for a topic without READ.
- Written or deleted in a group where another reader has claimed the partition: 22 ILLEGAL_GENERATION
  (`sidecar.resources`), as the coordinator answers a member of an earlier generation. Reading them is allowed.
  DeleteGroups (0-2) of such a group: 68 NON_EMPTY_GROUP, as for a group with members.
- Of an unknown topic id (OffsetCommit 10): 100 UNKNOWN_TOPIC_ID, because the coordinator might know its topic.

If no shadow has an allow list and nothing is claimed, requests are not parsed.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from sidecar.cluster.resolver import NameResolver
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway import asking
from sidecar.gateway.access.asked import Divided, called, ids_in
from sidecar.gateway.access.groups import committed, fetched
from sidecar.gateway.client import Client
from sidecar.gateway.coordinators import Coordinators
from sidecar.network.request import Exchange, Request
from sidecar.protocol import limits
from sidecar.protocol.caller import CoordinatorKind
from sidecar.protocol.errors import STALE_COORDINATOR, ErrorCode, KafkaError
from sidecar.protocol.messages.groups import OFFSET_FETCH
from sidecar.protocol.primitives import RequestReader
from sidecar.protocol.schema import Message, Values
from sidecar.resources.readers import ReaderClaims
from sidecar.shadow.auto_reset import AutoReset

_FIRST_OF_MANY: Final = 8
_FIRST_BY_ID: Final = 10
_GROUP_BYTES: Final = 3
_UNKNOWN: Final = -1


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
            result = left.pop(0) if left else _refused(each, error.code if error else _NOWHERE)
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


_NOWHERE: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE


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
