"""The controller: which topics there are, who leads, who is in sync, which brokers live (`QuorumController`,
`ReplicationControlManager`, `BrokerHeartbeatManager`).

It never fails here; a broker can be cut off from it. Its changes reach each broker's image in order, each after a delay
of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from tests.sim.kafka import configs, errors
from tests.sim.kafka.errors import RefusedError
from tests.sim.kafka.topics import Image, PartitionImage, TopicConfig, TopicImage
from tests.sim.sources import Life

if TYPE_CHECKING:
    from tests.sim.kafka.cluster import Cluster

CONTROLLER: Final = -1
"""Its place in `Cluster.cut` and `Cluster.post`."""


class Controller:
    """See the module. Methods that brokers call for clients raise `RefusedError`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.topics: dict[str, TopicImage] = {}
        self.live: set[int] = set(cluster.settings.brokers)
        self.written: dict[str, dict[str, str]] = {}
        """By name of a topic: the settings of all topics that had it, as far as no record took them back."""
        self.version = 0
        self.next_producer_id = 0
        self._lost: dict[int, int] = {}
        """Broker that was not heard of since a while -> the number of that silence."""
        self._silences = 0
        self._changed: set[str] = set()

    def image(self) -> Image:
        return Image(self.topics, frozenset(self.live), self.version)

    # Topics --------------------------------------------------------------------------------------------------------

    def create(
        self, name: str, partitions: int, replication: int, wanted: Mapping[str, str | None],
        assignment: Mapping[int, Iterable[int]] | None = None,
    ) -> TopicImage:  # fmt: skip
        """`ReplicationControlManager.createTopic`."""
        topic = self.draft(name, partitions, replication, wanted, assignment)
        self.topics[name] = topic
        self.written.setdefault(name, {}).update(topic.config.own)
        self._cluster.lives[topic.id] = Life(name, topic.id, self._cluster.scheduler.now())
        self._publish(name)
        return topic

    def draft(
        self, name: str, partitions: int, replication: int, wanted: Mapping[str, str | None],
        assignment: Mapping[int, Iterable[int]] | None = None,
    ) -> TopicImage:  # fmt: skip
        """The topic that would be made. Raises `RefusedError` where it may not be."""
        settings = self._cluster.settings
        if not is_legal(name):
            raise RefusedError(errors.INVALID_TOPIC_EXCEPTION, name)
        if name in self.topics:
            raise RefusedError(errors.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if any(_metric(each) == _metric(name) for each in self.topics):
            raise RefusedError(errors.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with another one's metrics")
        config = self._config(wanted)
        partitions = settings.partitions if partitions == -1 else partitions
        replication = settings.replication if replication == -1 else replication
        if partitions <= 0 and not assignment:
            raise RefusedError(
                errors.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
            )
        if not assignment and (replication <= 0 or replication > len(self.live)):
            raise RefusedError(errors.INVALID_REPLICATION_FACTOR, f"{replication} replicas, {len(self.live)} brokers")
        if assignment and sorted(assignment) != list(range(len(assignment))):
            raise RefusedError(errors.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based sequence")
        placed = self._assigned(assignment) if assignment else self._place(partitions, replication)
        topic_id = self._cluster.scheduler.rng.getrandbits(128).to_bytes(16, "big")
        return TopicImage(name, topic_id, config, tuple(self._first(replicas) for replicas in placed))

    def _config(self, wanted: Mapping[str, str | None]) -> TopicConfig:
        return TopicConfig(self._cluster.settings.defaults(), configs.check(wanted))

    def _assigned(self, assignment: Mapping[int, Iterable[int]]) -> list[tuple[int, ...]]:
        """`validateManualPartitionAssignment`: brokers that are there, each once, as many for every partition."""
        placed = [tuple(assignment[index]) for index in sorted(assignment)]
        for replicas in placed:
            known = all(each in self._cluster.brokers for each in replicas)
            if not replicas or not known or len(set(replicas)) < len(replicas) or len(replicas) != len(placed[0]):
                raise RefusedError(errors.INVALID_REPLICA_ASSIGNMENT, f"replicas {replicas}")
        return placed

    def _place(self, partitions: int, replication: int) -> list[tuple[int, ...]]:
        """`StripedReplicaPlacer`, without racks."""
        brokers = sorted(self.live)
        first = self._cluster.scheduler.rng.randrange(len(brokers))
        return [
            tuple(brokers[(first + index + each) % len(brokers)] for each in range(replication))
            for index in range(partitions)
        ]

    def _first(self, replicas: tuple[int, ...]) -> PartitionImage:
        isr = tuple(each for each in replicas if each in self.live)
        return PartitionImage(isr[0], 0, isr, 0, replicas)

    def delete(self, name: str) -> TopicImage:
        """`ReplicationControlManager.deleteTopic`."""
        if name not in self.topics:
            raise RefusedError(errors.UNKNOWN_TOPIC_OR_PARTITION)
        topic = self.topics.pop(name)
        self._cluster.deleted.add(name)
        lives = self._cluster.lives
        lives[topic.id] = lives[topic.id]._replace(died=self._cluster.scheduler.now())
        for broker in self._cluster.brokers.values():
            for (topic_id, index), disk in broker.disks.items():
                if topic_id == topic.id:
                    self._cluster.drop(topic.id, index, disk.log.batches)
        self._publish(name)
        return topic

    def grow(
        self, name: str, count: int, assignment: Mapping[int, Iterable[int]] | None = None, *, dry: bool = False
    ) -> None:
        """`createPartitions`; `dry`: only see whether it could be done."""
        topic = self.topics.get(name)
        if topic is None:
            raise RefusedError(errors.UNKNOWN_TOPIC_OR_PARTITION)
        more = count - len(topic.partitions)
        if more <= 0:
            raise RefusedError(errors.INVALID_PARTITIONS, f"Topic already has {len(topic.partitions)} partition(s).")
        replication = len(topic.partitions[0].replicas)
        if assignment is None:
            placed = self._place(more, replication)
        else:
            placed = self._assigned(assignment)
            if len(placed) != more or len(placed[0]) != replication:
                raise RefusedError(errors.INVALID_REPLICA_ASSIGNMENT, f"{len(placed)} assignments for {more}")
        if dry:
            return
        added = tuple(self._first(replicas) for replicas in placed)
        self.topics[name] = topic._replace(partitions=topic.partitions + added)
        self._publish(name)

    def configure(self, name: str, changes: Mapping[str, str | None], *, dry: bool = False) -> None:
        """IncrementalAlterConfigs; None removes (KIP-339). `dry`: only see whether it could be done."""
        topic = self.topics.get(name)
        if topic is None:
            raise RefusedError(errors.UNKNOWN_TOPIC_OR_PARTITION)
        own = {**topic.config.own, **changes}
        config = self._config({each: value for each, value in own.items() if value is not None})
        if dry:
            return
        self.topics[name] = topic._replace(config=config)
        written = self.written.setdefault(name, {})
        for setting in topic.config.own.keys() - config.own:
            written.pop(setting, None)
        written.update(config.own)
        self._publish(name)

    # Leaders -------------------------------------------------------------------------------------------------------

    def _set(self, topic: TopicImage, index: int, image: PartitionImage) -> TopicImage:
        partitions = list(topic.partitions)
        partitions[index] = image
        self.topics[topic.name] = topic = topic._replace(partitions=tuple(partitions))
        self._changed.add(topic.name)
        return topic

    def elect(self, name: str, index: int, broker: int, *, unclean: bool) -> bool:
        """Make a broker the leader: only one in sync, or, unclean, any live replica, alone in sync then."""
        topic = self.topics[name]
        found = topic.partitions[index]
        if broker not in self.live or broker not in found.replicas or found.leader == broker:
            return False
        in_sync = broker in found.isr
        if not in_sync and not unclean:
            return False
        isr = found.isr if in_sync else (broker,)
        self._set(
            topic, index, found._replace(leader=broker, epoch=found.epoch + 1, isr=isr, version=found.version + 1)
        )
        self._cluster.effect("elected" if in_sync else "elected_unclean")
        self._publish()
        return True

    def reassign(self, name: str, index: int, replicas: tuple[int, ...]) -> None:
        """Other replicas of a partition (KIP-455), in one step; some of them have to be in sync. One that is new has no
        log. The leader epoch rises with another leader, and where a replica goes (`PartitionChangeBuilder`).
        """
        topic = self.topics[name]
        found = topic.partitions[index]
        isr = tuple(each for each in found.isr if each in replicas)
        live = [each for each in replicas if each in isr and each in self.live]
        leader = found.leader if found.leader in replicas else live[0]
        raised = leader != found.leader or not set(found.replicas) <= set(replicas)
        self._set(topic, index, PartitionImage(leader, found.epoch + raised, isr, found.version + 1, replicas))
        self._cluster.effect("reassigned")
        self._publish()

    def _reelect(self, topic: TopicImage, index: int, isr: tuple[int, ...]) -> TopicImage:
        """`PartitionChangeBuilder.electLeader`: the first in-sync live replica; else any where that is allowed."""
        found = topic.partitions[index]
        leader = found.leader if found.leader in self.live else -1
        if leader < 0:
            leader = next((each for each in found.replicas if each in isr and each in self.live), -1)
        if leader < 0 and topic.config.unclean:
            leader = next((each for each in found.replicas if each in self.live), -1)
            if leader >= 0:
                isr = (leader,)
                self._cluster.effect("elected_unclean")
        if leader == found.leader and isr == found.isr:
            return topic
        epoch = found.epoch + (leader != found.leader)
        if leader != found.leader:
            self._cluster.effect("elected" if leader >= 0 else "leaderless")
        return self._set(topic, index, PartitionImage(leader, epoch, isr, found.version + 1, found.replicas))

    def alter_partition(
        self, broker: int, topic_id: bytes, index: int, epoch: int, version: int, isr: tuple[int, ...],
        done: Callable[[int, int, PartitionImage | None], object], asked: int,
    ) -> None:  # fmt: skip
        """A leader asks for another ISR (KIP-497); the answer is the new state, or None."""
        self._cluster.post(broker, CONTROLLER, self._alter, broker, topic_id, index, epoch, version, isr, done, asked)

    def _alter(
        self, broker: int, topic_id: bytes, index: int, epoch: int, version: int, isr: tuple[int, ...],
        done: Callable[[int, int, PartitionImage | None], object], asked: int,
    ) -> None:  # fmt: skip
        topic = next((each for each in self.topics.values() if each.id == topic_id), None)
        image: PartitionImage | None = None
        if topic is not None:
            found = topic.partitions[index]
            right = found.leader == broker and found.epoch == epoch and found.version == version
            if right and all(each in self.live for each in isr):
                image = found._replace(isr=isr, version=version + 1)
                self._set(topic, index, image)
                self._cluster.effect("isr_expanded" if len(isr) > len(found.isr) else "isr_shrunk")
                self._publish()
        self._cluster.post(CONTROLLER, broker, done, asked, epoch, image)

    # Brokers -------------------------------------------------------------------------------------------------------

    def lost(self, broker: int) -> None:
        """No heartbeat of a broker comes any more; the session that began with the last one runs on."""
        if broker in self._lost or broker not in self.live:
            return
        self._silences += 1
        self._lost[broker] = self._silences
        settings = self._cluster.settings
        left = settings.session - self._cluster.scheduler.rng.uniform(0.0, min(settings.heartbeat, settings.session))
        self._cluster.scheduler.call_later(left, self._expire, broker, self._silences)

    def heard(self, broker: int) -> None:
        """Heartbeats come again. A fenced broker becomes live once it has caught up with the metadata."""
        self._lost.pop(broker, None)
        if broker not in self.live:
            cluster = self._cluster
            cluster.scheduler.call_later(
                cluster.delay(cluster.settings.commit) + cluster.delay(cluster.settings.metadata), self._unfence, broker
            )

    def _expire(self, broker: int, silence: int) -> None:
        if self._lost.get(broker) != silence:
            return
        del self._lost[broker]
        self.fence(broker)
        self._cluster.brokers[broker].register()

    def fence(self, broker: int) -> None:
        """`handleBrokerFenced`: it leads nothing any more and leaves every ISR where another one is."""
        if broker not in self.live:
            return
        self._cluster.effect("fenced_broker")
        self.live.discard(broker)
        for topic in list(self.topics.values()):
            changed = topic
            for index, found in enumerate(topic.partitions):
                if broker in found.isr or found.leader == broker:
                    rest = tuple(each for each in found.isr if each != broker) or found.isr
                    changed = self._reelect(changed, index, rest)
        self._publish()

    def _unfence(self, broker: int) -> None:
        """`handleBrokerUnfenced`: partitions without a leader may have one again."""
        if broker in self.live or broker in self._lost or not self._cluster.brokers[broker].reachable:
            return
        self.live.add(broker)
        for topic in list(self.topics.values()):
            changed = topic
            for index, found in enumerate(topic.partitions):
                if found.leader < 0 and broker in found.replicas:
                    changed = self._reelect(changed, index, found.isr)
        self._publish()

    # Publishing ----------------------------------------------------------------------------------------------------

    def _publish(self, *names: str) -> None:
        changed, self._changed = self._changed.union(names), set()
        self.version += 1
        image = self.image()
        cluster = self._cluster
        committed = cluster.delay(cluster.settings.commit)
        for broker in cluster.brokers.values():
            broker.feed.put(image, changed, committed + cluster.delay(cluster.settings.metadata))


def is_legal(name: str) -> bool:
    """`Topic.validate`."""
    return name.isascii() and 0 < len(name) <= 249 and name not in (".", "..") and _has_letters_of_topics(name)


def _has_letters_of_topics(name: str) -> bool:
    return all(letter.isalnum() or letter in "._-" for letter in name)


def _metric(name: str) -> str:
    """Dots and underscores look the same in names of metrics (`Topic.unifyCollisionChars`)."""
    return name.replace(".", "_")
