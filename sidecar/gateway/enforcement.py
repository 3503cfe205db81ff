"""Enforces Kafka's ACLs on all requests but the hot ones, before an API's module runs: by `access`, what a client may
not have is taken out of its request, and the answer is put together as a broker's.

The modules know nothing of it: they are handed what is left, and answer an exchange that changes the answer on its way.

Where no ACLs are enforced everything is allowed that the node may do, but for what changes the cluster for everybody:
that is for super users alone (`OPERATORS_ALONE`).
"""

from collections.abc import Awaitable, Callable, Container, Generator
from functools import partial
from typing import Final, TypeVar

from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway import asking
from sidecar.gateway.access.asked import Asked, Asking, Check, Divided
from sidecar.gateway.access.table import ACCESS
from sidecar.gateway.acl_mirror import AclMirror
from sidecar.gateway.client import Client
from sidecar.gateway.rights import Denied, Rights, WithoutRules
from sidecar.network.request import Connection, Exchange, Request
from sidecar.network.slices import in_slices
from sidecar.protocol.api import api_name
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.primitives import Octets
from sidecar.protocol.schema import Message, Values
from sidecar.security.acls import CLUSTER_NAME, Operation, ResourceType, java_address

Handle = Callable[[Client, Exchange, Request], Awaitable[None]]

FoundT = TypeVar("FoundT")

_CHANGES: Final = frozenset({30, 31})
"""CreateAcls and DeleteAcls: what follows them goes by the new rules as soon as brokers have them."""


OPERATORS_ALONE: Final = frozenset({20, 30, 31, 33, 37, 44, 51})
"""Also without ACLs: DeleteTopics, AlterConfigs, IncrementalAlterConfigs and CreatePartitions, where they name Kafka's
own topics or brokers; CreateAcls, DeleteAcls, AlterUserScramCredentials.
"""
_WITHOUT_RULES: Final = WithoutRules()
_NO_REFUSALS: Final = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID})
"""An id of no topic is not refused by rights."""


class AmendedExchange(Exchange):
    """A request whose answer may be kept back to be changed. `given`: the one that its client got."""

    __slots__ = ("_kept", "given", "keeps")

    def __init__(self, connection: Connection, request: Request) -> None:
        super().__init__(connection, request)
        self.keeps = False
        self._kept: list[Octets] | None = None
        self.given: list[Octets] | None = None

    def answer(self, parts: list[Octets]) -> None:
        """Give the answer, or keep it where it has to be changed."""
        if self.keeps:
            self._kept = parts
        else:
            self.given = parts
            super().answer(parts)

    def take_kept(self) -> list[Octets] | None:
        """The answer that was given; None where there is none, as the connection was closed. The next one is sent."""
        self.keeps = False
        kept, self._kept = self._kept, None
        return kept


class Enforcement:
    """Of one node's clients."""

    def __init__(self, upstream: KafkaUpstream, mirror: AclMirror | None, super_users: Container[str] = ()) -> None:
        """`mirror`: None where ACLs are not enforced."""
        self._upstream = upstream
        self._mirror = mirror
        self._super_users = super_users

    def rights(self, client: Client) -> Rights | None:
        """Of a client that has just connected; who it is shows later. None where ACLs are not enforced."""
        if self._mirror is None:
            return None
        host, _, _ = client.connection.peer.rpartition(":")
        try:
            address = java_address(host.removeprefix("[").removesuffix("]"))
        except ValueError:  # a socket without an address
            address = host
        return Rights(client, address, self._mirror)

    async def run(self, handle: Handle, client: Client, exchange: AmendedExchange, request: Request) -> None:
        """Have a module handle a request, as far as its client may ask."""
        row, rights = ACCESS[request.key], client.rights
        if rights is None or not rights.enforced:
            may_all = request.key not in OPERATORS_ALONE or client.principal in self._super_users
            rights = None if may_all else _WITHOUT_RULES
        if not isinstance(row, Asked) or rights is None:
            await handle(client, exchange, request)
            return
        message = row.message
        fields = await asking.fields(message, request, whole=False)  # the module behind it may look
        creates = self._mirror is None or self._mirror.creates_topics
        asked = Asking(rights, fields, request.version, self._has, creates, partial(asking.topic_name, self._upstream))
        if row.ids is not None:
            await asking.learn_ids(self._upstream, row.ids(fields))
        if row.in_doubt is not None and (names := [*await _in_slices(row.in_doubt(asked))]):
            await self._upstream.find_leaders(name.encode() for name in names)
        divided, denied = await in_slices(checked(rights, row.check, asked))
        if divided is not None and divided.code not in _NO_REFUSALS:
            which = "super users alone may do that" if rights is _WITHOUT_RULES else "Kafka's ACLs do not allow it"
            topic, action = _words(denied)
            client.note_refusal(topic, divided.code, f"{api_name(request.key)} by {client.principal}{action}: {which}")
        if divided is None:
            await handle(client, exchange, request)
        elif divided.fields is None:
            exchange.note_error(divided.code)
            await asking.answer(exchange, message, divided.amend({}))
        else:
            if divided.code:
                exchange.note_error(divided.code)
            going_on = request
            if divided.fields is not fields:
                going_on = await asking.rewritten(client, request, message, divided.fields)
            exchange.keeps = True
            await handle(client, exchange, going_on)
            await _amend(message, exchange, divided.amend)
        if request.key in _CHANGES and self._mirror is not None:
            self._mirror.read_soon()

    def _has(self, topic: str, partition: int | None) -> bool:
        if partition is None:
            return self._upstream.view.route(topic.encode()) is not None
        return bool(self._upstream.has_partition(topic.encode(), partition))


def checked(rights: Rights, check: Check, asked: Asking) -> Generator[None, None, tuple[Divided | None, Denied | None]]:
    """What a row's check finds, in slices, and the first action that was denied. Others may ask `rights` meanwhile."""
    rights.denied = None
    found = check(asked)
    while isinstance(found, Generator):
        try:
            next(found)
        except StopIteration as ended:
            found = ended.value
        else:
            denied = rights.denied
            yield
            rights.denied = denied
    return found, rights.denied


def _words(denied: Denied | None) -> tuple[bytes, str]:
    """The topic that a denied action was about, b"" for none, and the action in words."""
    if denied is None:
        return b"", ""
    operation, kind, name = denied
    on = "the cluster" if name == CLUSTER_NAME else f"{ResourceType(kind).name.lower().replace('_', ' ')} {name}"
    topic = name.encode() if kind == ResourceType.TOPIC else b""
    return topic, f", {Operation(operation).name} on {on}"


async def _in_slices(found: FoundT | Generator[None, None, FoundT]) -> FoundT:
    """What a row finds, at once or in slices."""
    return await in_slices(found) if isinstance(found, Generator) else found


async def _amend(message: Message, exchange: AmendedExchange, amend: Callable[[Values], Values]) -> None:
    parts = exchange.take_kept()
    if parts is None or exchange.connection.closed:
        return
    answer = b"".join(parts)
    values = await in_slices(message.read_answer_steps(answer, 0, len(answer), exchange.version))
    await asking.answer(exchange, message, amend(values))
