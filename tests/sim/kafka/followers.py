"""A leader's view of its followers: how far they are, high watermark, in-sync replicas (`Partition`, `Replica`).

The high watermark is the least log end of the in-sync replicas, and does not move while there are fewer of them than
min.insync.replicas (KAFKA-15583). The ISR changes only with the controller's consent (AlterPartition, KIP-497); until
it answers, the larger of both sets counts (`maximalIsr`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.kafka import errors

if TYPE_CHECKING:
    from tests.sim.kafka.replica import Replica
    from tests.sim.kafka.topics import PartitionImage

_MOST_BATCHES = 500


class Follower:
    """`leo` and `start` are -1 until the follower has fetched; times are virtual seconds."""

    __slots__ = ("caught_up", "fetched_at", "leo", "parked", "seen_end", "sent_hw", "sent_start", "start", "ticket")

    def __init__(self, caught_up: float) -> None:
        self.leo = -1
        self.caught_up = caught_up
        self.fetched_at = caught_up
        self.seen_end = 0
        self.sent_hw = -1
        self.start = -1
        self.sent_start = -1
        self.ticket = 0
        self.parked = False


class Followers:
    """Of one leader; empty on a follower."""

    __slots__ = ("_asked", "_checking", "_nudging", "_replica", "all", "isr", "proposed")

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self.all: dict[int, Follower] = {}
        self.isr: tuple[int, ...] = ()
        self.proposed: tuple[int, ...] | None = None
        """The ISR that the controller was asked for and has not answered about."""
        self._asked = 0
        self._checking = False
        self._nudging = False

    def reset(self, image: PartitionImage) -> None:
        now = self._replica.broker.cluster.scheduler.now()
        own = self._replica.broker.id
        self.isr = image.isr
        self.proposed = None
        self.all = {each: Follower(now if each in image.isr else -1e9) for each in image.replicas if each != own}
        if self.all:
            self._watch()

    def clear(self) -> None:
        self.all = {}
        self.isr = ()
        self.proposed = None

    def told(self, image: PartitionImage) -> None:
        """The controller changed the ISR in this leader epoch."""
        if image.version <= self._replica.version:
            return
        self._replica.version = image.version
        self.isr = image.isr
        self.proposed = None
        for each in image.replicas:  # new ones begin without another leader epoch
            if each != self._replica.broker.id:
                self.all.setdefault(each, Follower(-1e9))
        self.advance()

    # Fetches of followers ------------------------------------------------------------------------------------------

    def fetched(self, follower: int, epoch: int, offset: int, last_epoch: int, start: int, ticket: int) -> None:
        """A fetch of a follower has come (`ReplicaManager.fetchMessages`, KIP-320 and KIP-595 for `last_epoch`)."""
        replica, log = self._replica, self._replica.log
        state = self.all.get(follower)
        if not replica.leading or state is None or epoch != replica.epoch:
            older = replica.leading and epoch < replica.epoch
            code = errors.FENCED_LEADER_EPOCH if older else errors.NOT_LEADER_OR_FOLLOWER
            self._answer(follower, ticket, epoch, ("error", code))
            return
        if last_epoch >= 0:
            known, end = log.end_of_epoch(last_epoch)
            if known >= 0 and (known < last_epoch or end < offset):
                self._answer(follower, ticket, epoch, ("diverging", known, end))
                return
        if offset > log.end or offset < log.start:
            self._answer(follower, ticket, epoch, ("range", log.start, log.end))
            return
        now = replica.broker.cluster.scheduler.now()
        if offset >= log.end:
            state.caught_up = now
        elif offset >= state.seen_end:
            state.caught_up = max(state.caught_up, state.fetched_at)
        state.leo, state.seen_end, state.fetched_at = offset, log.end, now
        state.start, state.ticket, state.parked = start, ticket, True
        replica.look_at_starts()
        self._maybe_expand(follower, state)
        self.advance()
        if state.parked and (offset < log.end or state.sent_hw < 0):
            self._serve(follower, state)

    def _serve(self, follower: int, state: Follower) -> None:
        replica = self._replica
        state.parked = False
        state.sent_hw, state.sent_start = replica.high_watermark, replica.log.start
        found = replica.log.since(state.leo, _MOST_BATCHES) if state.leo < replica.log.end else []
        answer = ("data", found, replica.high_watermark, replica.log.start)
        self._answer(follower, state.ticket, replica.epoch, answer)

    def _answer(self, follower: int, ticket: int, epoch: int, answer: tuple[object, ...]) -> None:
        replica = self._replica
        key = replica.topic.id, replica.index
        replica.broker.cluster.post(
            replica.broker.id, follower, _deliver, replica.broker.cluster.brokers[follower], key, ticket, epoch, answer
        )

    def appended(self) -> None:
        """The log has grown."""
        end = self._replica.log.end
        for follower, state in self.all.items():
            if state.parked and state.leo < end:
                self._serve(follower, state)
        self.advance()
        if self.all:
            self._watch()

    def start_moved(self) -> None:
        """Followers hear of a new log start with their next answer."""
        if self.all:
            self._nudge_later()

    def low_watermark(self) -> int:
        """`lowWatermarkIfLeader`: the least log start of all replicas that live."""
        live = self._replica.broker.image.live
        return min(self._replica.log.start, *(each.start for index, each in self.all.items() if index in live), 2**63)

    def _nudge_later(self) -> None:
        if not self._nudging and any(map(self._lacks, self.all.values())):
            self._nudging = True
            cluster = self._replica.broker.cluster
            delay = cluster.scheduler.rng.uniform(0.0, cluster.settings.fetch_wait)
            self._replica.broker.later(delay, self._nudge)

    def _lacks(self, state: Follower) -> bool:
        """Whether a follower has not been told where the log is committed, or begins."""
        return state.sent_hw < self._replica.high_watermark or state.sent_start < self._replica.log.start

    def _nudge(self) -> None:
        """Followers that have all data hear of a high watermark with the end of their long poll."""
        self._nudging = False
        for follower, state in self.all.items():
            if state.parked and self._lacks(state):
                self._serve(follower, state)

    # High watermark ------------------------------------------------------------------------------------------------

    def advance(self) -> None:
        """`Partition.maybeIncrementLeaderHW`."""
        replica = self._replica
        lowest = end = replica.log.end
        if not replica.leading or end <= replica.high_watermark or len(self.isr) < replica.min_isr:
            return
        cluster = replica.broker.cluster
        now = cluster.scheduler.now()
        for follower, state in self.all.items():
            if state.leo < lowest and (
                follower in self.isr
                or (self.proposed is not None and follower in self.proposed)
                or self._will_join(follower, state, now, end)
            ):
                lowest = state.leo
        if lowest > replica.high_watermark:
            replica.raise_high_watermark(lowest)
            self._nudge_later()

    def _will_join(self, follower: int, state: Follower, now: float, end: int) -> bool:
        """`shouldWaitForReplicaToJoinIsr`."""
        caught_up = state.leo == end or now - state.caught_up <= self._replica.broker.cluster.settings.replica_lag
        return caught_up and follower in self._replica.broker.image.live

    # In-sync replicas ----------------------------------------------------------------------------------------------

    def _maybe_expand(self, follower: int, state: Follower) -> None:
        """A follower that has the high watermark and this epoch's start joins (`isFollowerInSync`)."""
        replica = self._replica
        if (
            follower not in self.isr
            and self.proposed is None
            and state.leo >= replica.high_watermark
            and state.leo >= replica.epoch_start
            and follower in replica.broker.image.live
        ):
            self._propose((*self.isr, follower))

    def expand(self) -> None:
        """Look again at who may join: Kafka does with each fetch, and followers here wait without fetching anew."""
        for follower, state in self.all.items():
            if state.parked:
                self._maybe_expand(follower, state)

    def _watch(self) -> None:
        """While a follower is behind, look at the ISR every half replica.lag.time.max.ms (`isr-expiration`)."""
        if not self._checking:
            self._checking = True
            self._replica.broker.later(self._replica.broker.cluster.settings.replica_lag / 2, self._check)

    def _check(self) -> None:
        self._checking = False
        replica = self._replica
        if not replica.leading:
            return
        end, now = replica.log.end, replica.broker.cluster.scheduler.now()
        lag = replica.broker.cluster.settings.replica_lag
        behind = [each for each, state in self.all.items() if state.leo != end]
        late = [each for each in behind if each in self.isr and now - self.all[each].caught_up > lag]
        if late and self.proposed is None:
            self._propose(tuple(each for each in self.isr if each not in late))
        if any(each in self.isr for each in behind):
            self._watch()

    def _propose(self, isr: tuple[int, ...]) -> None:
        replica = self._replica
        cluster = replica.broker.cluster
        self.proposed = isr
        self._asked += 1
        cluster.controller.alter_partition(
            replica.broker.id, replica.topic.id, replica.index, replica.epoch, replica.version, isr,
            self._altered, self._asked,
        )  # fmt: skip
        replica.broker.later(cluster.settings.request_timeout, self._unanswered, self._asked)

    def _unanswered(self, asked: int) -> None:
        if self.proposed is not None and asked == self._asked and self._replica.leading:
            self._propose(self.proposed)

    def _altered(self, asked: int, epoch: int, image: PartitionImage | None) -> None:
        """The controller's answer: the new state, or None where it refused. Its change also comes with the image."""
        if asked != self._asked or epoch != self._replica.epoch or not self._replica.leading:
            return
        self.proposed = None
        if image is not None:
            self.told(image)
            self.expand()
        elif self.all:
            self._watch()
            self._replica.broker.later(self._replica.broker.cluster.settings.fetch_wait, self.expand)


def _deliver(broker: object, key: tuple[bytes, int], ticket: int, epoch: int, answer: tuple[object, ...]) -> None:
    replica: Replica | None = broker.replicas.get(key)  # type: ignore[attr-defined]
    if replica is not None:
        replica.fetcher.answered(ticket, epoch, answer)
