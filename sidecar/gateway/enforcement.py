"""Enforces Kafka's ACLs on all requests except hot ones, before an API's handler runs. By the row of the API,
elements that the client has no right to are removed from the request, and the answer is completed as on a broker.

The modules do not know of it: they receive the remaining request, and their exchange amends the answer.

If no ACLs are enforced, clients may do everything that the node may do, except changes of the cluster for all clients:
these are for super users only (`ApiSpec.for_super_users`).

The ACLs are read before clients are served, every few seconds, and after each change through this node (`AclMirror`). A
node that has never read them serves no clients, as a broker that starts. A node that can no longer read them uses the
last ones: rights that were revoked in the meantime still apply. A metric shows the age of the ACLs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Generator
from contextlib import suppress
from functools import partial
from typing import Final, Protocol, TypeVar

from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway import asking
from sidecar.gateway.access.asked import Asked, Asking, Check, Divided
from sidecar.gateway.apis.table import ALL_APIS
from sidecar.gateway.client import Client, ColdApi
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

FoundT = TypeVar("FoundT")

_WITHOUT_RULES: Final = WithoutRules()
_NO_REFUSALS: Final = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID})
"""Codes that are no refusal by rights: an unknown topic id is none."""


class AmendedExchange(Exchange):
    """A request whose answer may be held back and amended. `given`: the answer that the client got."""

    __slots__ = ("_kept", "given", "keeps")

    def __init__(self, connection: Connection, request: Request) -> None:
        super().__init__(connection, request)
        self.keeps = False
        self._kept: list[Octets] | None = None
        self.given: list[Octets] | None = None

    def answer(self, parts: list[Octets]) -> None:
        """Send the answer, or keep it if it has to be amended."""
        if self.keeps:
            self._kept = parts
        else:
            self.given = parts
            super().answer(parts)

    def take_kept(self) -> list[Octets] | None:
        """Returns the kept answer, None if the connection was closed without one. The next answer is sent."""
        self.keeps = False
        kept, self._kept = self._kept, None
        return kept


class Enforcement:
    """Enforces the rights of one node's clients."""

    def __init__(self, upstream: KafkaUpstream, mirror: AclMirror | None, super_users: Container[str] = ()) -> None:
        """`mirror`: None if ACLs are not enforced."""
        self._upstream = upstream
        self._mirror = mirror
        self._super_users = super_users

    def rights(self, client: Client) -> Rights | None:
        """The rights of a client that has just connected and may log in later. None if ACLs are not enforced."""
        if self._mirror is None:
            return None
        host, _, _ = client.connection.peer.rpartition(":")
        try:
            address = java_address(host.removeprefix("[").removesuffix("]"))
        except ValueError:  # a socket without an address
            address = host
        return Rights(client, address, self._mirror)

    async def run(self, handle: ColdApi, client: Client, exchange: AmendedExchange, request: Request) -> None:
        """Let a module handle the part of a request to which the client has the rights."""
        api, rights = ALL_APIS.get(request.key), client.rights
        row = None if api is None else api.access
        if rights is None or not rights.enforced:
            may_all = api is None or not api.for_super_users or client.principal in self._super_users
            rights = None if may_all else _WITHOUT_RULES
        if api is None or not isinstance(row, Asked) or rights is None:
            await handle(client, exchange, request)
            return
        message = api.message
        fields = await asking.fields(message, request, whole=False)  # the module decides what else is invalid
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
        if api.changes_acls and self._mirror is not None:
            self._mirror.read_soon()

    def _has(self, topic: str, partition: int | None) -> bool:
        if partition is None:
            return self._upstream.view.route(topic.encode()) is not None
        return bool(self._upstream.has_partition(topic.encode(), partition))


def checked(rights: Rights, check: Check, asked: Asking) -> Generator[None, None, tuple[Divided | None, Denied | None]]:
    """The result of a row's check, in slices, and the first denied action. Others may use `rights` between slices."""
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
    """The topic of a denied action (b"" if none), and the action in words."""
    if denied is None:
        return b"", ""
    operation, kind, name = denied
    on = "the cluster" if name == CLUSTER_NAME else f"{ResourceType(kind).name.lower().replace('_', ' ')} {name}"
    topic = name.encode() if kind == ResourceType.TOPIC else b""
    return topic, f", {Operation(operation).name} on {on}"


async def _in_slices(found: FoundT | Generator[None, None, FoundT]) -> FoundT:
    """The result of a row's function, which may be a generator that runs in slices."""
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
"""Seconds after a change at which the ACLs are read: brokers apply it within milliseconds, each at its own time."""
_CREATES: Final = "auto.create.topics.enable"


class AclHooks(Protocol):
    """Called on failures and on changes."""

    def acls_failed(self, error: Exception) -> None: ...
    def acls_changed(self, count: int) -> None: ...


class AclMirror:
    """The ACLs of the brokers, read again and again. `acls` None: brokers have no authorizer, everything is allowed.
    Implements `rights.Current`.
    """

    def __init__(
        self, upstream: KafkaUpstream, rules: Rules, hooks: AclHooks, take_over: Operation = Operation.ALTER
    ) -> None:
        self.acls: Acls | None = None
        self.take_over = take_over
        self.creates_topics = True
        """Whether brokers create missing topics on Metadata requests, which is Kafka's default."""
        self.changed: Callable[[], None] = lambda: None
        self._upstream = upstream
        self._rules = rules
        self._hooks = hooks
        self._read_at = 0.0
        self._asked = asyncio.Event()

    @property
    def age(self) -> float:
        """Seconds since the ACLs were read; if they never were, since the start of the loop's clock."""
        return asyncio.get_running_loop().time() - self._read_at

    def read_soon(self) -> None:
        """Read the ACLs soon, because they have changed."""
        self._asked.set()

    async def read(self) -> None:
        """Read the ACLs once. Raises `UpstreamError`, `KafkaError`: 31 if this node may not DESCRIBE the cluster."""
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
        """Keep the ACLs current; runs until cancelled."""
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
