"""Lanes by partition, links by leader, and the bound on what they hold."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING
from zlib import crc32

from sidecar.cluster.view import NO_LEADER
from sidecar.forwarder.brokers import LeaderLink
from sidecar.forwarder.lane import Append, Lane, Owner
from sidecar.forwarder.outcome import Outcome
from sidecar.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from uuid import UUID

    from sidecar.cluster.upstream import KafkaUpstream
    from sidecar.forwarder.sequences import PlainSequences
    from sidecar.protocol.ids import Stamp

_LINKS_PER_LEADER = 4
"""A topic stays on one of them: its partitions share requests, which halves the cost of a request per partition."""


class Forwarder:
    """Carries governed batches to Kafka. `buffer_bytes` bounds what waits or is in flight, over all topics."""

    def __init__(
        self,
        upstream: KafkaUpstream,
        *,
        linger: float,
        buffer_bytes: int,
        request_bytes: int = 1024 * 1024,
        rng: random.Random | None = None,
    ) -> None:
        self.held_bytes = 0
        self.buffer_bytes = buffer_bytes
        self._upstream = upstream
        self._linger = linger
        self._request_bytes = request_bytes
        self._random = rng or random.Random()
        self._links: dict[tuple[int, int], LeaderLink] = {}
        self._drained: asyncio.Event | None = None

    def lane(
        self,
        topic: bytes,
        partition: int,
        stamp: Stamp,
        plain: PlainSequences | None,
        owner: Owner,
        topic_id: UUID | None = None,
    ) -> Lane:
        """A lane for one partition under one slot epoch; ends where the topic was created anew under another id."""
        return Lane(topic, partition, stamp, plain, self, owner, self._random, topic_id)

    def admit(self, size: int) -> bool:
        """Take `size` bytes into the buffer, or say that it is full (the client is answered 19 and comes again)."""
        if self.held_bytes + size > self.buffer_bytes:
            return False
        self.held_bytes += size
        return True

    async def drain(self) -> None:
        """Wait until nothing is held."""
        if self.held_bytes:
            self._drained = asyncio.Event()
            await self._drained.wait()

    def close(self) -> None:
        """Drop all connections."""
        for link in self._links.values():
            link.close()

    # Shipper ------------------------------------------------------------------------------------------------------

    def ship(self, lane: Lane, append: Append) -> None:
        link = self.link_of(lane)
        if link is None:
            outcome = Outcome(ErrorCode.LEADER_NOT_AVAILABLE)
            asyncio.get_running_loop().call_soon(lane.settled, append, outcome)
        else:
            link.ship(lane, append)

    def link_of(self, lane: Lane) -> LeaderLink | None:
        """The connection to the leader of a lane's partition; None while no leader is known."""
        view, route = self._upstream.view, lane.route
        if route is not None and route[0] == view.version:
            return route[1]
        found = view.route(lane.topic)
        if found is not None and lane.topic_id not in (None, found.topic_id):
            lane.foreign_topic()
            return None
        leader = view.leader(lane.topic, lane.partition)
        if leader == NO_LEADER:
            return None
        key = leader, crc32(lane.topic) % _LINKS_PER_LEADER
        link = self._links.get(key)
        if link is None:
            link = self._links[key] = LeaderLink(self._upstream, leader, self._linger, self._request_bytes)
        lane.route = view.version, link
        return link

    def leader_lost(self, topic: bytes) -> None:
        self._upstream.refresh_soon({topic})

    def released(self, size: int) -> None:
        self.held_bytes -= size
        if self.held_bytes == 0 and self._drained is not None:
            self._drained.set()
