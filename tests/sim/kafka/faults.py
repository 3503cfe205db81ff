"""What can be done to a cluster as a whole: links cut, leaders elected, coordinators moved, markers held back.

What can be done to one broker stands in `broker` (kill, start, stop, freeze, thaw, metadata_lag, refuse, throttle,
empty_fetches). Each is counted in `Cluster.effects` when it took effect, not when it was asked for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.sim.kafka import cleaner
from tests.sim.kafka.controller import CONTROLLER, Controller
from tests.sim.kafka.errors import RefusedError
from tests.sim.kafka.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from tests.sim.kafka.transaction import AT_REST, NO_EPOCH, State
from tests.sim.sources import Life

if TYPE_CHECKING:
    from tests.sim.kafka.batches import Batch
    from tests.sim.kafka.broker import Broker
    from tests.sim.kafka.replica import Replica
    from tests.sim.kafka.settings import ClusterSettings, Scheduler, Span

MarkerPredicate = Callable[[str, int, str], bool]
"""Of a marker: topic, partition, transactional id."""


class Faults:
    """The part of `Cluster` that breaks things."""

    scheduler: Scheduler
    settings: ClusterSettings
    controller: Controller
    brokers: dict[int, Broker]

    def __init__(self) -> None:
        self.effects: Counter[str] = Counter()
        self.trace: Callable[[float, str], None] | None = None
        self.appended: Callable[[Replica, Batch], None] | None = None
        """Sees each batch that a leader has appended."""
        self.dropped: dict[tuple[bytes, int], list[Batch]] = {}
        """By topic id and partition: what some replica had and has no more, but for retention and compaction."""
        self._cleaned: dict[tuple[bytes, int], dict[tuple[int, int], Batch]] = {}
        """By topic id and partition: batches as they were before cleaning, by base offset and leader epoch."""
        self._removed: dict[tuple[bytes, int], dict[int, float]] = {}
        """When compaction first took a record, by offset."""
        self._starts: dict[tuple[bytes, int], list[tuple[float, int]]] = {}
        """When a replica first began so far behind, and where."""
        self.deleted: set[str] = set()
        """Names of topics that were; some are there again."""
        self.lives: dict[bytes, Life] = {}
        """By topic id."""
        self.misled: list[tuple[str, int, bytes, int]] = []
        """Batches of Produce requests that were refused although nothing was wrong: topic, partition, bytes, error."""
        self.cuts: set[tuple[int, int]] = set()
        self._messages: dict[tuple[int, int], list[Callable[[], object]]] = {}
        self._hold_marker: MarkerPredicate | None = None
        self._markers: list[Callable[[], object]] = []

    def effect(self, name: str) -> None:
        """A fault has shown an effect."""
        self.effects[name] += 1
        if self.trace is not None:
            self.trace(self.scheduler.now(), f"effect {name}")

    def drop(self, topic: bytes, partition: int, batches: list[Batch]) -> None:
        """A replica loses these: it follows a leader without them, or its topic is gone."""
        if batches:
            self.dropped.setdefault((topic, partition), []).extend(batches)

    def removed(self, topic: bytes, partition: int, offsets: list[int]) -> None:
        """A replica compacts these records away."""
        known = self._removed.setdefault((topic, partition), {})
        for offset in offsets:
            known.setdefault(offset, self.scheduler.now())

    def begins_at(self, topic: bytes, partition: int, offset: int) -> None:
        """A replica does not have anything in front of this any more."""
        starts = self._starts.setdefault((topic, partition), [])
        if not starts or starts[-1][1] < offset:
            starts.append((self.scheduler.now(), offset))

    def gone_at(self, topic: bytes, partition: int, offset: int) -> float:
        """From when on a record was missing in the log of some replica."""
        where = topic, partition
        cut = next((at for at, start in self._starts.get(where, ()) if start > offset), math.inf)
        return min(cut, self._removed.get(where, {}).get(offset, math.inf))

    def cleaned(self, topic: bytes, partition: int, batches: list[Batch]) -> None:
        """A replica cleans these away, or parts of them. What is kept is the oldest form of each."""
        known = self._cleaned.setdefault((topic, partition), {})
        for batch in batches:
            known.setdefault((batch.base, batch.epoch), batch)

    def before_cleaning(self, topic: bytes, partition: int) -> list[Batch]:
        """What `cleaned` was given."""
        return list(self._cleaned.get((topic, partition), {}).values())

    def delay(self, span: Span) -> float:
        low, high = span  # as `uniform` has it
        return low + (high - low) * self.scheduler.rng.random()

    def transaction_partition(self, transactional_id: str) -> int:
        """`TransactionStateManager.partitionFor`."""
        return java_hash(transactional_id) % self.settings.transaction_partitions

    def group_partition(self, group: str) -> int:
        """`GroupCoordinator.partitionFor`."""
        return java_hash(group) % self.settings.offsets_partitions

    # Links ---------------------------------------------------------------------------------------------------------

    def cut(self, a: int, b: int = CONTROLLER) -> None:
        """Nothing passes between two brokers, or a broker and the controller, until it is healed. What was under way
        comes then (TCP sends it again).
        """
        self.cuts.add((min(a, b), max(a, b)))
        for broker in (a, b):
            if min(a, b) == CONTROLLER and broker != CONTROLLER:
                self.controller.lost(broker)

    def heal(self, a: int, b: int = CONTROLLER) -> None:
        """The link works again."""
        link = min(a, b), max(a, b)
        if link not in self.cuts:
            return
        self.cuts.discard(link)
        for message in self._messages.pop(link, []):
            self.scheduler.call_later(self.delay(self.settings.link), message)
        if link[0] == CONTROLLER:
            broker = self.brokers[link[1]]
            broker.feed.pump()
            broker.register()

    def heal_all(self) -> None:
        for a, b in sorted(self.cuts):
            self.heal(a, b)

    def is_cut(self, a: int, b: int) -> bool:
        return (a, b) in self.cuts if a < b else (b, a) in self.cuts

    def hold(self, a: int, b: int, message: Callable[[], object]) -> None:
        self.effect("cut")
        self._messages.setdefault((min(a, b), max(a, b)), []).append(message)

    # Leaders -------------------------------------------------------------------------------------------------------

    def elect(self, topic: str, partition: int, broker: int, unclean: bool = False) -> bool:
        """Make a broker the leader. False where it cannot be: not live, no replica, or not in sync (unless unclean)."""
        return self.controller.elect(topic, partition, broker, unclean=unclean)

    def move_coordinator(self, key: str, *, group: bool = False) -> bool:
        """Another in-sync broker coordinates this transactional id, or group, and all that share its partition."""
        topic = CONSUMER_OFFSETS if group else TRANSACTION_STATE
        index = self.group_partition(key) if group else self.transaction_partition(key)
        found = self.controller.topics[topic].partitions[index]
        others = [each for each in found.isr if each != found.leader and each in self.controller.live]
        moved = bool(others) and self.elect(topic, index, self.scheduler.rng.choice(others))
        if moved:
            self.effect("coordinator_moved")
        return moved

    def raise_epoch(self, transactional_id: str, epoch: int) -> bool:
        """As after so many InitProducerId: the id is at rest under a higher epoch of the same producer id."""
        index = self.transaction_partition(transactional_id)
        leader = self.controller.topics[TRANSACTION_STATE].partitions[index].leader
        if leader < 0 or not self.brokers[leader].alive:
            return False
        found = self.brokers[leader].transactions
        try:
            shard, transaction = found.find(transactional_id)
        except RefusedError:
            return False
        if transaction is None or transaction.pending is not None or transaction.facts.state not in AT_REST:
            return False
        facts = transaction.facts
        if facts.epoch >= epoch:
            return False
        raised = facts._replace(epoch=epoch, last_epoch=NO_EPOCH, state=State.EMPTY, partitions=frozenset())
        transaction.pending = State.EMPTY
        found.write(shard, transaction, raised, lambda _: None)
        return True

    # Markers -------------------------------------------------------------------------------------------------------

    def hold_markers(self, predicate: MarkerPredicate = lambda topic, partition, transactional_id: True) -> None:
        """Keep back the transaction markers that it names, until `release`."""
        self._hold_marker = predicate

    def release(self) -> None:
        """Markers go on their way, in any order."""
        self._hold_marker = None
        held, self._markers = self._markers, []
        for send in held:
            self.scheduler.call_later(self.delay(self.settings.markers), send)

    def holds_marker(self, topic: str, partition: int, transactional_id: str, send: Callable[[], object]) -> bool:
        """Asked by a coordinator before it sends a marker; `send` is called later if True."""
        if self._hold_marker is None or not self._hold_marker(topic, partition, transactional_id):
            return False
        self.effect("marker_held")
        self._markers.append(send)
        return True

    # Logs ----------------------------------------------------------------------------------------------------------

    def compact(self, topic: str) -> None:
        """Run the cleaner on every replica of a topic, whatever its dirty ratio; the active segment stays."""
        self._each_replica(topic, cleaner.compact)

    def retain(self, topic: str) -> None:
        """Apply retention on every replica of a topic now."""
        self._each_replica(topic, cleaner.retain)

    def roll(self, topic: str) -> None:
        """Close the active segment of every replica of a topic."""
        self._each_replica(topic, cleaner.roll)

    def expire_producers(self) -> None:
        """The scan of producer.id.expiration.check.interval.ms on every broker now."""
        for broker in self.brokers.values():
            broker.expire_producers()

    def _each_replica(self, topic: str, job: Callable[[Replica], object]) -> None:
        for broker in self.brokers.values():
            for replica in list(broker.replicas.values()):
                if replica.topic.name == topic:
                    job(replica)


def java_hash(text: str) -> int:
    """`Utils.abs(String.hashCode())`, for text of the Basic Multilingual Plane."""
    value = 0
    for letter in text:
        value = (31 * value + ord(letter)) & 0xFFFFFFFF
    return value & 0x7FFFFFFF
