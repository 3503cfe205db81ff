"""Kafka's client quotas for what a node sends in its own name: governed batches, polls that readers share.

Brokers tie quotas to the user and the client id of a connection. What travels on a client's own connection has the
client's id, and its user if the node logs in there with a delegation token; brokers count it. What travels in another
name is counted here, at the rates that Kafka has for the client. `security.client_quotas` has the rules: which quota
holds, which clients share its rate, how long a client has to wait. Rates are those of one node, as Kafka's are those of
one broker.

The quotas are read before clients are served, and then every few seconds. If brokers do not show them (the node's
principal needs DESCRIBE_CONFIGS on the cluster), none are enforced; if they no longer show them, the last ones are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol

from sidecar.cluster.brokers import CLIENT_ID
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway.client import MOST_FETCHED, Client
from sidecar.network.slices import in_slices
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.calls.admin import ConfigResource, DescribeConfigs, Resource
from sidecar.protocol.calls.security import DescribeClientQuotas
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.security.client_quotas import WINDOW_MS, WINDOWS, ClientQuotas, Limit, Quota, Who, Window

EVERY_S: Final = 5.0
MOST_RATES: Final = 10_000
"""The limit of stored rates; the longest unused is forgotten."""
_COUNT, _SIZE_S = "quota.window.num", "quota.window.size.seconds"
UNKNOWN_USER: Final = "\0"
"""The node's user at brokers if the node cannot know it: no quota has its name, those of the default user hold."""


class SentAs(IntEnum):
    """In whose name a client's traffic reaches brokers."""

    CLIENT = 0
    """On the client's own connections."""
    NODE_FOR_CLIENT = 1
    """The same, logged in as the node: the source of a shadow, which the client may not be allowed to read."""
    NODE = 2
    """On the node's connections, with the node's client id."""


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """The quotas of one client that this node counts, each by `SentAs`."""

    producer: tuple[Limit | None, ...]
    consumer: tuple[Limit | None, ...]


class QuotaHooks(Protocol):
    """Called on failures, on changes, and when a client is over a quota; implementations never raise."""

    def client_quotas_failed(self, error: Exception) -> None: ...
    def client_quotas_changed(self, count: int) -> None: ...
    def over_client_quota(self, quota: str, level: str, seconds: float) -> None: ...


class KafkaQuotas:
    """The quotas as brokers described them last, and the rates of this node's clients."""

    def __init__(self, upstream: KafkaUpstream, user: str, hooks: QuotaHooks, changed: Callable[[], None]) -> None:
        """`user`: the node's at brokers, or `UNKNOWN_USER`. `changed`: called when other quotas were read."""
        self.quotas = ClientQuotas()
        self.is_read = False
        """Whether the last reading succeeded."""
        self._problem = ""
        self._upstream = upstream
        self._user = user
        self._hooks = hooks
        self._changed = changed
        self._windows = WINDOWS, WINDOW_MS
        self._rates: dict[tuple[Quota, Who], Window] = {}
        """The longest unused first. A client can have any number of client ids, and so of rates."""

    def limits(self, client: Client) -> ClientLimits | None:
        """The quotas of a client that has its principal and its client id; None if this node counts none of them."""
        if not self.quotas or client.identity is None or not client.is_known:
            return None
        user, name = client.principal.partition(":")[2], client.identity.name
        own = self._user if client.links.user is None else user
        who, seen = Who(user, name), (Who(own, name), Who(self._user, name), Who(self._user, CLIENT_ID))
        producer, consumer = (tuple(self.quotas.uncounted(quota, who, each) for each in seen) for quota in Quota)
        return ClientLimits(producer, consumer) if any((*producer, *consumer)) else None

    def most_fetched(self, limits: ClientLimits) -> int:
        """The most bytes of records in one answer that a client without other traffic does not have to wait for, as
        brokers bound a Fetch of such a client (`getMaxValueInQuotaWindow`).
        """
        limit, (windows, window_ms) = limits.consumer[SentAs.NODE], self._windows
        return (
            MOST_FETCHED
            if limit is None
            else min(MOST_FETCHED, int(limit.per_second * (windows - 1) * window_ms) // 1000)
        )

    def use(self, limit: Limit, size: int) -> float:
        """Count bytes; returns by how many seconds those who share the quota are over it."""
        now = int(asyncio.get_running_loop().time() * 1000)
        key = limit.quota, limit.shared_by
        rate = self._rates.pop(key, None) or Window(*self._windows)
        if len(self._rates) >= MOST_RATES:
            del self._rates[next(iter(self._rates))]
        self._rates[key] = rate
        seconds = rate.use(size, limit.per_second, now) / 1000
        if seconds:
            self._hooks.over_client_quota(limit.quota, limit.level, seconds)
        return seconds

    async def read(self) -> None:
        """Read the quotas once. Raises `UpstreamError`, `KafkaError`: 31 CLUSTER_AUTHORIZATION_FAILED if this node may
        not DESCRIBE_CONFIGS on the cluster.
        """
        asked = DescribeClientQuotas
        if not self._upstream.serves(asked.api_key, asked.api_version):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "not every broker serves DescribeClientQuotas")
        answer = await self._upstream.ask_any(asked())
        if answer.error:
            raise KafkaError(answer.error, answer.message or "brokers do not show their client quotas")
        found = await in_slices(ClientQuotas.of_steps(answer.entries))
        if found and not self.quotas:
            await self._read_windows()
        self.is_read = True
        if found != self.quotas:
            self.quotas = found
            self._hooks.client_quotas_changed(len(found))
            self._changed()

    async def _read_windows(self) -> None:
        """Brokers may have other windows than Kafka's default; those of the first one that answers are taken."""
        for broker in await self._upstream.brokers():
            resource = Resource(ConfigResource.BROKER, str(broker))
            config = (await self._upstream.call(broker, DescribeConfigs((resource,), (_COUNT, _SIZE_S)))).get(resource)
            if config is not None and not config.error:
                count, size_s = (int(config.values.get(name) or 0) for name in (_COUNT, _SIZE_S))
                self._windows = max(1, count or WINDOWS), size_s * 1000 or WINDOW_MS
                return

    async def run(self) -> None:
        """Keep the quotas current; runs until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            await self.try_to_read()

    async def try_to_read(self) -> None:
        """As `read`; a failure changes nothing, and is reported if it is another one than the last time."""
        try:
            await self.read()
            self._problem = ""
        except (UpstreamError, KafkaError) as error:
            self.is_read = False
            if str(error) != self._problem:
                self._problem = str(error)
                self._hooks.client_quotas_failed(error)
