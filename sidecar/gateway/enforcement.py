"""Enforces Kafka's ACLs on all requests but the hot ones, before an API's module runs: by `access`, what a client may
not have is taken out of its request, and the answer is put together as a broker's.

The modules know nothing of it: they are handed what is left, and answer an exchange that changes the answer on its way.

Where no ACLs are enforced everything is allowed that the node may do, but for what changes the cluster for everybody:
that is for super users alone (`OPERATORS_ALONE`).

The ACLs are read before clients are served, every few seconds, and after each change that passes here (`AclMirror`). A
node that has never read them serves nobody, as a broker does that starts. One that cannot read them any more goes by
those that it read last: rights that were taken meanwhile hold on, which the age of the ACLs shows in the metrics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Generator
from contextlib import suppress
from functools import partial
from typing import Final, Protocol, TypeVar

from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway import asking
from sidecar.gateway.access.asked import Asked, Asking, Check, Divided
from sidecar.gateway.access.table import ACCESS
from sidecar.gateway.client import Client
from sidecar.gateway.rights import Denied, Rights, WithoutRules
from sidecar.network.request import Connection, Exchange, Request
from sidecar.network.slices import in_slices
from sidecar.protocol.api import api_name
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.calls.admin import ConfigResource, DescribeConfigs, Resource
from sidecar.protocol.calls.security import DescribeAcls
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.primitives import Octets
from sidecar.protocol.schema import Message, Values
from sidecar.security.acls import CLUSTER_NAME, Acls, Operation, ResourceType, Rules, java_address

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


# The mirror -----------------------------------------------------------------------------------------------------------

EVERY_S: Final = 3.0
_AFTER_CHANGE_S: Final = (0.0, 0.1, 0.3, 1.0)
"""When to read after a change: brokers follow the controller within milliseconds, each at its own time."""
_CREATES: Final = "auto.create.topics.enable"


class AclHooks(Protocol):
    """Called on failures and on changes."""

    def acls_failed(self, error: Exception) -> None: ...
    def acls_changed(self, count: int) -> None: ...


class AclMirror:
    """`acls` is None as long as brokers have no authorizer: everything is allowed then. Implements `rights.Current`."""

    def __init__(
        self, upstream: KafkaUpstream, rules: Rules, hooks: AclHooks, take_over: Operation = Operation.ALTER
    ) -> None:
        self.acls: Acls | None = None
        self.take_over = take_over
        self.creates_topics = True
        """Whether brokers make topics that Metadata asks for; so it is by Kafka's default."""
        self.changed: Callable[[], None] = lambda: None
        self._upstream = upstream
        self._rules = rules
        self._hooks = hooks
        self._read_at = 0.0
        self._asked = asyncio.Event()

    @property
    def age(self) -> float:
        """Seconds since the ACLs were read; since the loop's clock began where they never were."""
        return asyncio.get_running_loop().time() - self._read_at

    def read_soon(self) -> None:
        """They have been changed."""
        self._asked.set()

    async def read(self) -> None:
        """Read them once. Raises `UpstreamError`, `KafkaError`: 31 where this node may not DESCRIBE the cluster."""
        answer = await self._upstream.ask_any(DescribeAcls())
        if answer.error == ErrorCode.SECURITY_DISABLED and self.acls is None:
            self._read_at = asyncio.get_running_loop().time()
            return
        if answer.error:
            raise KafkaError(answer.error, answer.message or "brokers do not show their ACLs")
        if self.acls is None:
            await self._look_whether_topics_are_created()
        before = Acls(rules=self._rules) if self.acls is None else self.acls
        found = await in_slices(before.replaced_steps(answer.bindings))
        self._read_at = asyncio.get_running_loop().time()
        if found is not self.acls:
            self.acls = found
            self._hooks.acls_changed(len(found.bindings))
            self.changed()

    async def _look_whether_topics_are_created(self) -> None:
        for broker in await self._upstream.brokers():
            resource = Resource(ConfigResource.BROKER, str(broker))
            config = (await self._upstream.call(broker, DescribeConfigs((resource,), (_CREATES,)))).get(resource)
            if config is not None and not config.error:
                self.creates_topics = config.values.get(_CREATES) != "false"
                return

    async def run(self) -> None:
        """Keep them current, for ever."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(EVERY_S):
                    await self._asked.wait()
            pauses = _AFTER_CHANGE_S if self._asked.is_set() else (0.0,)
            self._asked.clear()
            for pause in pauses:
                await asyncio.sleep(pause)
                try:
                    await self.read()
                except (UpstreamError, KafkaError) as error:
                    self._hooks.acls_failed(error)
