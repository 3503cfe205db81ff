"""Relays requests about one group or transactional id to its coordinator, and heartbeats of groups whose coordinator
assigns partitions. Reads only the group's name or the transactional id, unless something has to be checked.

Request and answer are forwarded unchanged, on the client's own connection, so a JoinGroup that waits for other members
delays no other client. If there is no coordinator, the answer has the API's own error. One of the sidecar's own
transactional ids is refused with 53 TRANSACTIONAL_ID_AUTHORIZATION_FAILED.

Assignments name topics by their upstream ids, and so does Metadata here: nothing is rewritten. A shadow is an ordinary
topic to a coordinator, so a group can read one. A member that subscribes to a shadow that it may not read is refused
with 29 TOPIC_AUTHORIZATION_FAILED, like one that may not DESCRIBE a topic (`access.groups`).

A regular expression (KIP-848) is resolved by the coordinator with the rights of the node, which sees all topics. It is
refused with 128 INVALID_REGULAR_EXPRESSION if it could assign topics that the member may not see: by `access.groups`,
unless the member may DESCRIBE every topic, and here, if there is a shadow that it may not read. Expressions that
clients resolve themselves (`java.util.regex.Pattern`) arrive as lists of names.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from sidecar.cluster.resolver import TRANSACTIONAL_ID_PREFIX, NameResolver
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway import asking
from sidecar.gateway.access.asked import Divided
from sidecar.gateway.access.groups import NOT_EXPANDED, committed, not_beaten
from sidecar.gateway.client import Client
from sidecar.gateway.coordinators import Coordinators
from sidecar.gateway.guarded_cursors import GuardedCursors
from sidecar.gateway.shadow_rules import ShadowRule
from sidecar.network.framing import Frame
from sidecar.network.request import Exchange, Request
from sidecar.protocol.caller import CoordinatorKind
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.schema import Message, Values

_NONE: Final = -1
_NO_SUBSCRIPTION: Final = KafkaError(
    ErrorCode.INVALID_REQUEST, "a share group cannot read a shadow topic: subscribe to its source"
)


@dataclass(frozen=True, slots=True)
class OneKey:
    """What is looked at of an API about one group or transactional id: which leading string is the group or id, and
    whether the API is refused per partition. `divide`: returns the part of a request that is allowed; None for all.
    """

    key_at: int = 0
    by_partition: bool = False
    divide: Callable[[OneKeyApi, str, Client, Exchange, Request], Awaitable[Divided | None]] | None = None


@dataclass(frozen=True, slots=True)
class OneKeyApi:
    """Handles the requests of one such API, of all clients of a node."""

    upstream: KafkaUpstream
    coordinators: Coordinators
    guards: GuardedCursors
    resolver: NameResolver
    message: Message
    kind: CoordinatorKind
    shadow: ShadowRule
    form: OneKey

    async def handle(self, client: Client, exchange: Exchange, request: Request) -> None:
        """Forward one request to the coordinator, and its answer to the client."""
        *before, key = asking.leading_text(request, self.form.key_at + 1)
        transactional_id = key if self.kind is CoordinatorKind.TRANSACTION else "".join(before)
        if transactional_id.startswith(TRANSACTIONAL_ID_PREFIX):
            await self._refuse(exchange, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return
        divide = self.form.divide
        divided = None if divide is None else await divide(self, key, client, exchange, request)
        ask = partial(self.coordinators.ask, client, key, self.kind)
        try:
            await asking.pass_divided(client, exchange, request, self.message, divided, ask)
        except KafkaError as error:
            await self._refuse(exchange, request, error.code)

    async def _refuse(self, exchange: Exchange, request: Request, code: int) -> None:
        """Answer with an error. Raises `MalformedFrameError`: the broker may have closed because of a malformed one."""
        exchange.note_error(code)
        fields = await asking.fields(self.message, request)
        topics: list[Values] = fields["topics"] if self.form.by_partition else []
        values: Values = {"error_code": code} | dict.fromkeys(("generation_id", "producer_id", "producer_epoch"), _NONE)
        refused = [committed(topic, code) for topic in topics]
        await asking.answer(exchange, self.message, values | {"topics": refused})


async def without_guarded(
    api: OneKeyApi, group: str, client: Client, exchange: Exchange, request: Request
) -> Divided | None:
    """The part of a request that names cursors, without those that the client may not touch. See `OneKey.divide`."""
    return await api.guards.divide(api.message, group, client, exchange, request)


@dataclass(frozen=True, slots=True)
class HeartbeatApi:
    """Handles the heartbeats of one kind of group, of all clients of a node.

    `subscribed`: the topics that the member would read; `made`: those that the coordinator would create for it.
    `check_answer` raises `KafkaError` if the member may not have the coordinator's answer.
    """

    upstream: KafkaUpstream
    coordinators: Coordinators
    resolver: NameResolver
    message: Message
    shadow: ShadowRule
    subscribed: Callable[[Values], Iterable[str]] = lambda fields: fields["subscribed_topic_names"] or ()
    made: Callable[[Values], Iterable[str]] | None = None
    check_answer: Callable[[HeartbeatApi, Client, str, Request, Frame], Awaitable[None]] | None = None

    async def handle(self, client: Client, exchange: Exchange, request: Request) -> None:
        """Forward one heartbeat to the coordinator, and its answer to the client."""
        (group,) = asking.leading_text(request)
        try:
            await self._check(client, request)
            answer = await self.coordinators.ask(client, group, CoordinatorKind.GROUP, request)
            if self.check_answer is not None:
                await self.check_answer(self, client, group, request, answer)
        except KafkaError as error:
            exchange.note_error(error.code)
            await asking.answer(exchange, self.message, not_beaten(error.code, error.message or None))
        else:
            exchange.answer([answer.view(answer.start, answer.end)])

    async def _check(self, client: Client, request: Request) -> None:
        """Raise `KafkaError` if the member would read a shadow that it may not read, or if the coordinator would create
        a topic that it may not create.
        """
        resolver, refuses = self.resolver, self.shadow is ShadowRule.REFUSED
        if self.made is None and not (resolver.has_shadows if refuses else resolver.has_guards):
            return
        fields = await asking.fields(self.message, request)
        for topic in () if self.made is None else self.made(fields):
            if (error := ShadowRule.REFUSED.refusal(resolver, topic, client)) is not None:
                _refuse(client, topic, error)
        for topic in self.subscribed(fields):
            if resolver.hides(topic.encode(), client.principal):
                _refuse(client, topic, KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            if refuses and resolver.is_shadow(topic.encode()):
                _refuse(client, topic, _NO_SUBSCRIPTION)
        if fields.get("subscribed_topic_regex") and not resolver.may_read_all_shadows(client.principal):
            raise NOT_EXPANDED


def _refuse(client: Client, topic: str, error: KafkaError) -> None:
    client.note_refusal(topic.encode(), error.code, error.message or None)
    raise error
