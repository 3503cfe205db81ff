"""A follower's fetching from its leader, one round at a time (`ReplicaFetcherThread`, `AbstractFetcherThread`).

The leader epoch of the last record goes with each fetch; where the leader's log has gone another way, the follower
cuts its own (KIP-101, KIP-279, KIP-595) and rebuilds what it remembers of producers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.sim.kafka.broker import Broker
    from tests.sim.kafka.replica import Replica


class Fetcher:
    """Of one follower; idle on a leader. A ticket identifies the answers of an earlier round."""

    __slots__ = ("_replica", "_ticket")

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._ticket = 0

    def begin(self) -> None:
        """Follow the leader that the replica knows now."""
        self._ticket += 1
        if self._replica.leader >= 0:
            self._fetch(self._ticket)

    def stop(self) -> None:
        self._ticket += 1

    def _fetch(self, ticket: int) -> None:
        replica = self._replica
        if ticket != self._ticket or replica.leading or replica.gone:
            return
        broker = replica.broker
        leader = broker.cluster.brokers[replica.leader]
        broker.cluster.post(
            broker.id, replica.leader, _ask, leader, (replica.topic.id, replica.index), broker.id, replica.epoch,
            replica.log.end, replica.log.latest_epoch(), replica.log.start, ticket,
        )  # fmt: skip

    def answered(self, ticket: int, epoch: int, answer: tuple[Any, ...]) -> None:
        replica = self._replica
        if ticket != self._ticket or replica.leading or epoch != replica.epoch or replica.gone:
            return
        kind = answer[0]
        if kind == "data":
            self._take(*answer[1:])
        elif kind == "diverging":
            self._diverged(*answer[1:])
        elif kind == "range":
            self._out_of_range(*answer[1:])
        else:
            self._retry(ticket)
            return
        self._fetch(ticket)

    def _take(self, found: list[Any], high_watermark: int, start: int) -> None:
        replica = self._replica
        log = replica.log
        now = replica.broker.wall_ms()
        for batch in found:
            if batch.base >= log.end:
                replica.take(batch, now)
        replica.advance_start(min(start, log.end))
        replica.raise_high_watermark(min(high_watermark, log.end))

    def _diverged(self, epoch: int, end: int) -> None:
        """`AbstractFetcherThread.getOffsetTruncationState`."""
        log = self._replica.log
        _, own = log.end_of_epoch(epoch)
        self._replica.truncate(end if own < 0 else min(end, own))

    def _out_of_range(self, start: int, end: int) -> None:
        """`handleOutOfRangeError`: behind the leader's end, cut; below its start, begin there."""
        replica = self._replica
        if replica.log.end > end:
            replica.truncate(end)
        else:
            replica.restart_log(start)

    def _retry(self, ticket: int) -> None:
        """The leader does not know yet that it leads, or this follower is late itself (replica.fetch.backoff.ms)."""
        cluster = self._replica.broker.cluster
        self._replica.broker.later(cluster.delay(cluster.settings.retry), self._fetch, ticket)


def _ask(
    leader: Broker, key: tuple[bytes, int], follower: int, epoch: int, offset: int, last_epoch: int, start: int,
    ticket: int,
) -> None:  # fmt: skip
    replica = leader.replicas.get(key)
    if replica is not None:
        replica.followers.fetched(follower, epoch, offset, last_epoch, start, ticket)
        return
    cluster = leader.cluster
    cluster.post(leader.id, follower, _refused, cluster.brokers[follower], key, ticket, epoch)


def _refused(broker: Broker, key: tuple[bytes, int], ticket: int, epoch: int) -> None:
    replica = broker.replicas.get(key)
    if replica is not None:
        replica.fetcher.answered(ticket, epoch, ("error", 3))
