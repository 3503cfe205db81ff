"""One node: composes the rooms, starts them in order, drains them on SIGTERM, reads its settings again on SIGHUP.

Start: HTTP side (alive, not ready) → Kafka → changelog → Redis → clients. Redis may be down at the start; the
node waits for Kafka. A Redis that evicts keys, unsafe internal topics, or a node id in use end the start with a message
that says what to do.
"""

from __future__ import annotations

import asyncio
import gc
import time
from contextlib import suppress
from functools import partial
from typing import Final

import structlog

from metadata import MetadataError, MetadataMisconfigured, MetadataUnavailable, NodeIdTaken
from sidecar.changelog import Changelog, ChangelogError
from sidecar.cluster.nodes import NodeDirectory
from sidecar.exclusive.client_policies import ClientPolicies
from sidecar.gateway.enforcement import AclMirror
from sidecar.gateway.handler import Gateway
from sidecar.network.idling import ClientWatch
from sidecar.node.apis import open_gateway
from sidecar.node.connecting import (
    ClientSockets,
    StartError,
    advertised,
    client_listeners,
)
from sidecar.node.gauges import observe
from sidecar.node.limits import (
    admission_of_clients,
    answer_memory,
    bound_clients,
    idle_watch,
    quotas,
    request_memory,
)
from sidecar.node.one_redis import NOT_NOW, OneRedis, OtherRedisError
from sidecar.node.parts import Parts
from sidecar.node.port import NodeState
from sidecar.node.reload import Reloader
from sidecar.node.rooms import compose
from sidecar.node.view import NodeView
from sidecar.node.view.node import AdminFactory, AdminService
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.metadata import MetadataRequest
from sidecar.settings import DEDUPLICATES_ALL
from sidecar.settings.loaded import LoadedSettings
from sidecar.telemetry.lag import LagSampler
from sidecar.telemetry.logs import configure

_KAFKA_RETRY_S: Final = 1.0
_REFRESH_S: Final = 30.0
DRAIN_S: Final = 10.0
"""The part of `process.END_S` (seconds) in which requests in flight may finish; the rest is for closing."""


class Node(Parts):
    """A node with its settings. `start`, then `drain` and `stop`."""

    def __init__(self, loaded: LoadedSettings, admin: AdminFactory | None = None) -> None:
        super().__init__(loaded)
        settings = self.settings
        self._listening = ClientSockets(settings, client_listeners(settings, self.upstream, self.hooks), self.hooks)
        self._redis_keeps = True
        self.reloader = Reloader(loaded, self._take, self._reloaded)
        self._lag = LagSampler(partial(self.metrics.observe, "event_loop_lag_seconds"))
        self._admin = self._make_admin(admin)
        self._background: list[asyncio.Task[None]] = []
        self._log = structlog.get_logger()

    def _make_admin(self, make: AdminFactory | None) -> AdminService | None:
        """Raises `StartError`."""
        try:
            return make(NodeView(self), self.metrics, self.settings) if make else None
        except ValueError as error:
            raise StartError(f"{error}. See the settings SIDECAR_ADMIN_SSL_… and SIDECAR_ADMIN_CLIENT_SSL_…") from None

    # Start --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Returns when clients are served. Raises `StartError`."""
        settings = self.settings
        if settings.deduplication:
            self._log.warning("deduplication_by_default", problem=DEDUPLICATES_ALL)
        self._lag.start()
        gateway = Gateway(
            self.upstream,
            settings.node_id,
            self.boot,
            settings.max_request_bytes,
            self.hooks,
            self._listening.listeners,
            admission_of_clients(settings, self.hooks),
            request_memory(settings, self.metrics),
            answers=answer_memory(settings, self.metrics),
            quotas=quotas(settings, self.metrics),
            acted=self.hooks.acted,
        )
        bound_clients(self._listening, settings, self.metrics)
        await self._bind(gateway)
        await self._reach_kafka()
        changelog = await self._open_changelog()
        await self._check_redis()
        await self._check_one_redis(OneRedis(changelog, self.store, gateway.tasks, settings.cluster, settings.node_id))
        rooms = self.rooms = compose(self, gateway, changelog)
        observe(self, rooms)
        try:
            await rooms.membership.join()
        except NodeIdTaken as error:
            raise StartError(f"{error}. Give this node another SIDECAR_NODE_ID, or stop the other one") from None
        except MetadataError as error:
            raise StartError(str(error)) from None
        await self._read_on(changelog)
        if rooms.acls is not None:
            await self._read_acls(rooms.acls)
        ownerships = await open_gateway(self, rooms)
        if rooms.quotas is not None:
            await rooms.quotas.try_to_read()
        await self._listening.start()
        watch = ClientWatch(lambda: [client.connection for client in gateway.clients.values()])
        idle = idle_watch(settings, gateway)
        self._background += [
            rooms.loops.start(name, work)
            for name, work in {
                "metadata": self._refresh,
                "silent clients": watch.run,
                "idle clients": idle.run,
                "keep-alive": rooms.keeper.run,
                "snapshots": rooms.governed.keep_ids,
                "policies of clients": ClientPolicies(rooms.governed).run,
                "claims": rooms.claims.run,
                "shadows": rooms.shadow_keeper.run,
                "cursors": rooms.cursors.keep,
                "ownerships": ownerships.run,
                "news of claims": ownerships.hear,
                "refusals": gateway.refusals.run,
                "settings": self.reloader.run,
            }.items()
        ]
        if rooms.acls is not None:
            self._background.append(rooms.loops.start("ACLs", rooms.acls.run))
        if rooms.quotas is not None:
            self._background.append(rooms.loops.start("client quotas", rooms.quotas.run))
        self.state, self.problem = NodeState.SERVING, ""
        gc.collect()
        gc.freeze()  # objects of the start live as long as the node
        self._log.info("serving", listeners=[str(each) for each in self.listeners])

    async def _bind(self, gateway: Gateway) -> None:
        """Bind all addresses; clients wait until the listeners start. Raises `StartError`."""
        try:
            if self._admin is not None:
                await self._admin.start()
            ports = await self._listening.bind(gateway)
        except OSError as error:
            setting = "SIDECAR_LISTENERS" if self.settings.listeners else "SIDECAR_LISTEN"
            raise StartError(
                f"cannot listen: {error}. Choose another address by {setting} and SIDECAR_ADMIN_LISTEN"
            ) from None
        self.nodes = NodeDirectory(advertised(self.settings, ports))

    def _kafka_answers(self, *, yes: bool) -> None:
        """Set the gauge `kafka_up` during the start; afterwards it shows the state of the changelog's tailer."""
        self.metrics.read_gauge("kafka_up", lambda: float(yes))

    async def _reach_kafka(self) -> None:
        self._kafka_answers(yes=False)
        while True:
            try:
                await self.upstream.brokers()
            except (UpstreamError, KafkaError) as error:
                self.problem = f"Kafka does not answer: {error}"
                self._log.warning("kafka_unreachable", problem=str(error), retry_in_s=_KAFKA_RETRY_S)
                await asyncio.sleep(_KAFKA_RETRY_S)
            else:
                self._kafka_answers(yes=True)
                return

    async def _open_changelog(self) -> Changelog:
        self.problem = "reading the changelog"
        while True:
            try:
                changelog = await Changelog.open(
                    self.upstream, self.settings.cluster, on_error=self.hooks.changelog_error
                )
                try:
                    await changelog.tailer.read_to_end(60.0)
                except BaseException:
                    await changelog.close()  # else it would go on reading, beside the next one
                    raise
            except ChangelogError as error:
                raise StartError(str(error)) from None
            except (UpstreamError, KafkaError, TimeoutError) as error:
                self._kafka_answers(yes=False)
                self.problem = f"the changelog cannot be read: {error}"
                self._log.warning("changelog_unreadable", problem=str(error), retry_in_s=_KAFKA_RETRY_S)
                await asyncio.sleep(_KAFKA_RETRY_S)
            else:
                return changelog

    async def _read_on(self, changelog: Changelog) -> None:
        """Read the records that others wrote without waiting for this node, as it was not live yet."""
        self.problem = "reading the changelog"
        while True:
            try:
                await changelog.tailer.read_to_end(60.0)
            except ChangelogError as error:
                raise StartError(str(error)) from None
            except TimeoutError:
                self._log.warning("changelog_unreadable", problem="its leader does not answer", retry_in_s=0)
            else:
                return

    async def _read_acls(self, acls: AclMirror) -> None:
        """Read the ACLs; until then clients' permissions are unknown, so none is served."""
        self.problem = "reading the ACLs"
        while True:
            try:
                await acls.read()
            except (UpstreamError, KafkaError) as error:
                self.problem = f"the ACLs cannot be read: {error}. This node's principal needs DESCRIBE on the cluster"
                self._log.warning("acls_unreadable", problem=self.problem, retry_in_s=_KAFKA_RETRY_S)
                await asyncio.sleep(_KAFKA_RETRY_S)
            else:
                break
        if acls.acls is None:
            self._log.warning("acls_not_enforced", problem="brokers have no authorizer: clients may do everything")

    async def _check_redis(self) -> None:
        try:
            await self.store.check_server()
            self.metrics.read_gauge("redis_noeviction", lambda: float(self._redis_keeps))
            if (cluster_id := self.upstream.view.cluster_id) is not None:
                await self.store.note_kafka(cluster_id)
        except MetadataUnavailable as error:
            self.hooks.redis_failed(error)
        except MetadataError as error:  # not a Redis server, or one that is not usable
            raise StartError(str(error)) from None

    async def _check_one_redis(self, one: OneRedis) -> None:
        """Raise `StartError` if other nodes of the cluster run with another Redis."""
        self.one_redis = one
        try:
            await one.join()
        except OtherRedisError as error:
            raise StartError(str(error)) from None
        except NOT_NOW as error:
            self._log.warning("redis_not_compared", problem=str(error), retry_in_s=_REFRESH_S)

    async def _refresh(self) -> None:
        """Refresh the list of brokers even if no client asks for it; check Redis too."""
        while True:
            await asyncio.sleep(_REFRESH_S)
            try:
                await self.upstream.metadata(MetadataRequest((), allow_auto_topic_creation=False))
            except (UpstreamError, KafkaError) as error:
                self._log.warning("kafka_unreachable", problem=str(error), retry_in_s=_REFRESH_S)
            await self._look_at_redis()

    async def _look_at_redis(self) -> None:
        """Check Redis again. A serving node continues with a Redis that may evict keys, and logs it."""
        with suppress(MetadataError):  # the heartbeat reports it; the refresh continues in any case
            try:
                await self.store.check_server()
            except MetadataMisconfigured as error:
                self._log.error("redis_misconfigured", problem=str(error))
                self._redis_keeps = False
            else:
                self._redis_keeps = True
            self.metrics.read_gauge("redis_noeviction", lambda: float(self._redis_keeps))
        one = self.one_redis
        if one is not None and (one.problem or not one.is_settled):
            with suppress(*NOT_NOW):
                try:
                    await one.join()
                except OtherRedisError as error:
                    one.problem = str(error)
                    self._log.error("other_redis", problem=one.problem)

    # Settings that change --------------------------------------------------------------------------------------------

    def _take(self, loaded: LoadedSettings) -> None:
        """Apply reloaded settings; only those named in `sidecar.settings.loaded.RELOADABLE` differ."""
        self.loaded = loaded
        self.settings = settings = loaded.settings
        configure(settings.log_level, settings.log_format, node_id=settings.node_id)
        if self._admin is not None:
            self._admin.take(settings)
        rooms = self.rooms
        if rooms is not None:
            grace, limit = settings.disconnect_grace_ms / 1000, settings.queue_limit
            rooms.governed.limit(disconnect_grace=grace, queue_limit=limit)
            rooms.claims.limit(
                disconnect_grace=grace, queue_limit=limit, principal_limit=settings.max_claims_per_principal
            )
            rooms.forwarder.buffer_bytes = settings.retry_buffer_bytes

    def _reloaded(self, *, success: bool) -> None:
        self.metrics.count("config_reload", "success" if success else "failure")
        self.settings_good = success
        if success:
            self.settings_read = time.time()

    # End ----------------------------------------------------------------------------------------------------------

    async def drain(self) -> bool:
        """Move clients to other nodes: accept nothing new, finish requests in flight. Returns False if they did not
        finish within `DRAIN_S`.
        """
        self.state, self.problem = NodeState.DRAINING, "the node is shutting down: it finishes what is in flight"
        self._log.info("draining")
        bound = asyncio.timeout(DRAIN_S)
        try:
            async with bound:
                await self._finish()
        except TimeoutError:
            if not bound.expired():
                raise
            reason = f"what is in flight did not finish within {DRAIN_S:g} seconds"
            self._log.error("cut_off", reason=reason, left=self.left())
            return False
        return True

    async def _finish(self) -> None:
        rooms = self.rooms
        if rooms is not None:
            rooms.membership.step_aside()
        await self._listening.close()
        if rooms is not None:
            await rooms.membership.beat_now()
            await rooms.governed.drain()
            await rooms.claims.drain()
            await rooms.forwarder.drain()
            await rooms.gateway.finish()

    def left(self) -> dict[str, object]:
        """Return what is not finished, for the log."""
        found: dict[str, object] = {"problem": self.problem}
        if (rooms := self.rooms) is not None:
            found["held_bytes"] = rooms.forwarder.held_bytes
            found["unanswered"] = rooms.gateway.unanswered_by_api()
            found["topics"] = len(rooms.governed.served_topics())
        return found

    async def stop(self) -> None:
        """Close everything; may be called after a failed start."""
        self.problem = "the node is shutting down: it closes its connections"
        self._lag.stop()
        await self._listening.close()
        for task in self._background:
            task.cancel()
        rooms = self.rooms
        if self.one_redis is not None:
            self.one_redis.close()
        if rooms is not None:
            await rooms.gateway.close()
            await rooms.cursors.close()
            await rooms.membership.leave()
            rooms.forwarder.close()
            await rooms.changelog.close()
        if self._admin is not None:
            await self._admin.stop()
        await self.upstream.close()
        await self.store.aclose()
        self._log.info("stopped")
