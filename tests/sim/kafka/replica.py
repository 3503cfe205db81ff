"""One partition on one broker: leader or follower, its log, what it remembers of producers, and who waits on it
(`Partition`, `ReplicaManager`).

A broker acts on its own image of the cluster. So a leader that was deposed goes on leading until it hears of that:
it appends, and nothing that it appends can be committed, because nobody fetches from it any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.sim.kafka import batches, errors, records
from tests.sim.kafka.batches import Batch
from tests.sim.kafka.errors import RefusedError
from tests.sim.kafka.fetcher import Fetcher
from tests.sim.kafka.followers import Followers
from tests.sim.kafka.log import Log
from tests.sim.kafka.producers import Producers

if TYPE_CHECKING:
    from tests.sim.kafka.broker import Broker
    from tests.sim.kafka.topics import PartitionImage, TopicConfig, TopicImage


class Disk:
    """What outlives a killed process: the log, producer snapshots, the high watermark and the log start as last
    checkpointed.
    """

    __slots__ = ("checkpoint", "log", "next_checkpoint", "next_start", "snapshots", "start")

    def __init__(self) -> None:
        self.log = Log()
        self.snapshots: list[Any] = []
        self.checkpoint = 0
        self.next_checkpoint = 0.0
        self.start = 0
        self.next_start = 0.0

    def checkpoint_start(self, now: float, interval: float) -> None:
        """If it is time for it (`checkpointLogStartOffsets`)."""
        if now >= self.next_start:
            self.start, self.next_start = self.log.start, now + interval


class Waiting:
    """A produce that waits until `required` is below the high watermark (`DelayedProduce`)."""

    __slots__ = ("done", "required")

    def __init__(self, required: int, done: Callable[[int], object]) -> None:
        self.required = required
        self.done = done


class Deleting:
    """A DeleteRecords that waits until all live replicas begin at `before`, or behind it."""

    __slots__ = ("before", "done")

    def __init__(self, before: int, done: Callable[[int, int], object]) -> None:
        self.before = before
        self.done = done


class Appended:
    """Where a batch landed. `time` is -1 on topics with CreateTime; `repeat`: it was there already."""

    __slots__ = ("base", "last", "repeat", "time")

    def __init__(self, base: int, last: int, time: int, *, repeat: bool = False) -> None:
        self.base = base
        self.last = last
        self.time = time
        self.repeat = repeat


class Replica:
    """See the module. `high_watermark` never leaves the log; `leader` is -1 where there is none."""

    def __init__(self, broker: Broker, topic: TopicImage, index: int, disk: Disk) -> None:
        self.broker = broker
        self.topic = topic
        self.index = index
        self.disk = disk
        self.log = disk.log
        self.log.start = min(self.log.start, max(disk.start, self.log.rolls[0]))
        self.producers = Producers()
        self.high_watermark = max(self.log.start, min(disk.checkpoint, self.log.end))
        self.leader = -1
        self.leading = False
        self.epoch = -1
        self.version = -1
        self.epoch_start = 0
        """The log end when this replica became leader: below it, the high watermark may be behind (KIP-207)."""
        self.followers = Followers(self)
        self.fetcher = Fetcher(self)
        self.waiting: list[Waiting] = []
        self.deleting: list[Deleting] = []
        self.watchers: dict[object, Callable[[], object]] = {}
        """Fetches of consumers that wait for something here."""
        self.gone = False
        if self.log.batches or disk.snapshots:
            self.producers.snapshots = disk.snapshots
            self._rebuild(loads=True)
        disk.snapshots = self.producers.snapshots

    def __repr__(self) -> str:
        return f"{self.topic.name}-{self.index}@{self.broker.id}"

    @property
    def config(self) -> TopicConfig:
        return self.topic.config

    @property
    def min_isr(self) -> int:
        """Never more than there are replicas (`Partition.effectiveMinIsr`)."""
        return min(self.config.min_isr, len(self.followers.all) + 1)

    # Roles ---------------------------------------------------------------------------------------------------------

    def apply(self, topic: TopicImage, image: PartitionImage) -> None:
        """`ReplicaManager.applyDelta`: a newer leader epoch makes a leader or a follower of this replica."""
        self.topic = topic
        if image.epoch < self.epoch:
            return
        if image.epoch == self.epoch:
            if self.leading:
                self.followers.told(image)
            return
        self.epoch = image.epoch
        self.leader = image.leader
        if image.leader == self.broker.id:
            self._lead(image)
        else:
            self._follow(image)

    def _lead(self, image: PartitionImage) -> None:
        """`Partition.makeLeader`."""
        self.broker.trace("leads", self, self.epoch)
        self.leading = True
        self.version = image.version
        self.epoch_start = self.log.end
        self.log.begin_epoch(self.epoch, self.log.end)
        self.fetcher.stop()
        self.followers.reset(image)
        self.followers.advance()
        self._poke()
        self.broker.coordinators_lead(self)

    def _follow(self, image: PartitionImage) -> None:
        """`Partition.makeFollower`: waiting requests are answered that this is no leader."""
        was = self.leading
        self.leading = False
        self.version = image.version
        self.followers.clear()
        if was:
            self.broker.trace("follows", self, self.epoch)
        self.broker.coordinators_resign(self)
        self._give_up(errors.NOT_LEADER_OR_FOLLOWER)
        self.fetcher.begin()

    def remove(self) -> None:
        """The topic was deleted."""
        self.gone = True
        self._drop(self.log.batches)
        self.leading = False
        self.followers.clear()
        self.fetcher.stop()
        self.broker.coordinators_resign(self)
        self._give_up(errors.UNKNOWN_TOPIC_OR_PARTITION)

    def _drop(self, lost: list[Batch]) -> None:
        self.broker.cluster.drop(self.topic.id, self.index, lost)

    def _give_up(self, code: int) -> None:
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each.done(code)
        deleting, self.deleting = self.deleting, []
        for each in deleting:
            each.done(code, -1)
        self._poke()

    # Appending -----------------------------------------------------------------------------------------------------

    def append_data(self, batch: Batch, acks: int) -> Appended:
        """A client's batch (`Partition.appendRecordsToLeader`, `UnifiedLog.append`). Raises `RefusedError`."""
        self.check_leader()
        self._check_replicas(acks)
        config = self.config
        batches.check(batch, config.max_message_bytes)
        now = self.broker.wall_ms()
        records.check(batch, config, now)
        if batch.pid >= 0:
            # UL 1362-1369: the window is looked at before the epoch and the sequence are
            known = self.producers.duplicate(batch)
            if known is not None:
                self.broker.trace("repeat", self, known)
                # UL 1211-1216: its time is returned with CreateTime too
                return Appended(known.base, known.last, known.max_ts, repeat=True)
            self.producers.check_data(batch)
        batch = batches.placed(batch, self.log.end, self.epoch, now if config.log_append_time else None)
        self._write(batch, now)
        return Appended(batch.base, batch.last, now if config.log_append_time else -1)

    def append_marker(self, batch: Batch) -> Appended:
        """A coordinator's marker, always with acks=all (KA 1820). Raises `RefusedError`."""
        self.check_leader()
        self._check_replicas(-1)
        self.producers.check_marker(batch)
        return self._append_own(batch)

    def append_note(self, batch: Batch, acks: int = -1) -> Appended:
        """A record of this broker's coordinator in its own partition. Raises `RefusedError`."""
        self.check_leader()
        self._check_replicas(acks)
        return self._append_own(batch)

    def _append_own(self, batch: Batch) -> Appended:
        now = self.broker.wall_ms()
        batch = batches.placed(batch, self.log.end, self.epoch, now if self.config.log_append_time else None)
        self._write(batch, now)
        return Appended(batch.base, batch.last, -1)

    def check_leader(self) -> None:
        if not self.leading:
            raise RefusedError(errors.NOT_LEADER_OR_FOLLOWER)

    def check_epoch(self, epoch: int) -> None:
        """What a request says of the leader epoch that it knows (KIP-320); -1 says nothing."""
        if epoch < 0 or epoch == self.epoch:
            return
        raise RefusedError(errors.FENCED_LEADER_EPOCH if epoch < self.epoch else errors.UNKNOWN_LEADER_EPOCH)

    def _check_replicas(self, acks: int) -> None:
        if acks == -1 and len(self.followers.isr) < self.min_isr:
            raise RefusedError(errors.NOT_ENOUGH_REPLICAS, f"{len(self.followers.isr)} in sync")

    def _write(self, batch: Batch, now: int) -> None:
        batch.at = self.broker.cluster.scheduler.now()
        self.take(batch, now)
        self.broker.trace("append", self, batch)
        if self.broker.cluster.appended is not None:
            self.broker.cluster.appended(self, batch)
        self.followers.appended()

    def take(self, batch: Batch, now: int) -> None:
        """Into the log and the memory of producers, as leader or follower."""
        config = self.config
        end = self.log.end
        if self.log.append(batch, now, config.segment_bytes, config.segment_ms):
            self.producers.snapshot(end)
        aborted = self.producers.appended(batch)
        if aborted is not None:
            self.log.aborted.append(aborted)

    def when_replicated(self, last: int, done: Callable[[int], object]) -> Waiting | None:
        """Call `done` with an error code once the high watermark is behind `last`; None: it was called already."""
        waiting = Waiting(last + 1, done)
        if self.high_watermark >= waiting.required:
            done(self._replicated())
            return None
        self.waiting.append(waiting)
        return waiting

    def forget(self, waiting: Waiting) -> None:
        """Its time ran out."""
        if waiting in self.waiting:
            self.waiting.remove(waiting)

    def _replicated(self) -> int:
        """`Partition.checkEnoughReplicasReachOffset`: the ISR may have shrunk meanwhile."""
        return errors.NONE if len(self.followers.isr) >= self.min_isr else errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    # Reading -------------------------------------------------------------------------------------------------------

    def raise_high_watermark(self, offset: int) -> None:
        """Committed up to here. The disk hears of it every few seconds (`checkpointHighWatermarks`)."""
        if offset <= self.high_watermark:
            return
        now = self.broker.cluster.scheduler.now()
        if now >= self.disk.next_checkpoint:
            self.disk.checkpoint = self.high_watermark
            self.disk.next_checkpoint = now + self.broker.cluster.settings.hw_checkpoint
        self.high_watermark = offset
        if self.waiting:
            ready = [each for each in self.waiting if each.required <= offset]
            if ready:
                self.waiting = [each for each in self.waiting if each.required > offset]
                code = self._replicated()
                for each in ready:
                    each.done(code)
        self._poke()

    def _poke(self) -> None:
        for watcher in tuple(self.watchers.values()):
            watcher()

    def stable_offset(self) -> int:
        """Never in front of the log start (`UnifiedLog.maybeIncrementFirstUnstableOffset`)."""
        return max(self.log.start, self.producers.stable(self.high_watermark))

    # The log is cut ------------------------------------------------------------------------------------------------

    def truncate(self, offset: int) -> None:
        """A follower drops what its leader does not have; producers are what the rest of the log says of them."""
        if offset >= self.log.end:
            self.log.truncate(offset)
            return
        self.broker.cluster.effect("truncated")
        self.broker.trace("truncates", self, offset)
        self._drop([batch for batch in self.log.batches if batch.last >= offset])
        self.log.truncate(offset)
        self.high_watermark = min(self.high_watermark, self.log.end)
        self._rebuild(loads=False)

    def _rebuild(self, *, loads: bool) -> None:
        expiration = self.broker.cluster.settings.producer_expiration_ms
        self.producers.restore(self.log, self.broker.wall_ms(), expiration, loads=loads)

    def restart_log(self, offset: int) -> None:
        """The leader's log begins behind the end of this one."""
        self._drop(self.log.batches)
        self.log.restart_at(offset)
        self.producers.forget()
        self.high_watermark = offset

    def advance_start(self, offset: int) -> None:
        """Retention, DeleteRecords, or a leader that says so."""
        cluster = self.broker.cluster
        self.disk.checkpoint_start(cluster.scheduler.now(), cluster.settings.start_checkpoint)
        gone = self.log.advance_start(offset)
        if gone is None:
            return
        bases, batches = gone
        cluster.cleaned(self.topic.id, self.index, batches)
        cluster.begins_at(self.topic.id, self.index, offset)
        self.producers.segments_deleted(bases)
        self.high_watermark = max(self.high_watermark, offset)
        self.followers.start_moved()
        self._poke()

    def delete_before(self, offset: int, done: Callable[[int, int], object]) -> Deleting:
        """`Partition.deleteRecordsOnLeader`; -1 is the high watermark. `done` will get an error code and the low
        watermark: ask `look_at_starts`. Raises `RefusedError`.
        """
        if not self.config.deleted:
            raise RefusedError(errors.POLICY_VIOLATION)
        offset = self.high_watermark if offset == -1 else offset
        if not 0 <= offset <= self.high_watermark:
            raise RefusedError(errors.OFFSET_OUT_OF_RANGE)
        self.advance_start(offset)
        deleting = Deleting(offset, done)
        self.deleting.append(deleting)
        return deleting

    def look_at_starts(self, about: Deleting | None = None) -> bool:
        """Whether live replicas begin where somebody waits for (`DelayedDeleteRecords`); who does is called."""
        if self.deleting:
            low = self.followers.low_watermark()
            ready = [each for each in self.deleting if each.before <= low]
            self.deleting = [each for each in self.deleting if each.before > low]
            for each in ready:
                each.done(errors.NONE, low)
        return about not in self.deleting
