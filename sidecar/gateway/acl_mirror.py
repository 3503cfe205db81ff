"""Kafka's ACLs as this node knows them: read before clients are served, every few seconds, and after each change that
passes here.

A node that has never read them serves nobody, as a broker does that starts. One that cannot read them any more goes by
those that it read last: rights that were taken meanwhile hold on, which the age of the ACLs shows in the metrics.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from sidecar.cluster.upstream import KafkaUpstream
from sidecar.network.slices import in_slices
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.calls.admin import ConfigResource, DescribeConfigs, Resource
from sidecar.protocol.calls.security import DescribeAcls
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.security.acls import Acls, Operation, Rules

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
