"""Sees when a fence has to be renewed before its time: when its marker left the log, or a replica may not know it.

A leader remembers a fence without its marker. A replica that is built from the log does not: its disk was lost, or the
partition was moved to it. So the node looks at the partitions of the topics that it keeps, every two seconds, and
slower if there are many:

- The log begins after the marker, because of retention or DeleteRecords: the next replica would not know the fence.
- The partition has a new replica: compaction may have deleted the marker (delete.retention.ms).
- The leader epoch rose: the new leader is asked whether it knows the fences of all slots (DescribeProducers, KIP-664).

`sidecar.exclusive.keeper` renews the fences, all slots of a topic at once. Nothing is written here.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from sidecar.changelog import SlotName, View, partition_of, partition_slot
from sidecar.cluster.logs import LogReader
from sidecar.exclusive.governed_topics import GovernedTopics
from sidecar.exclusive.partitions import Topic
from sidecar.fencing.topic import RETIRED_KEPT
from sidecar.fencing.witness import Witness
from sidecar.protocol.caller import Channel, Upstream, UpstreamError
from sidecar.protocol.calls.admin import DescribeTopics, TopicDescription
from sidecar.protocol.calls.transactions import PartitionProducers
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import MAX_PRODUCER_EPOCH, ProducerEpoch, ProducerId, Stamp, TopicPartition
from sidecar.takeover.slots import stamp_of
from sidecar.writing.upkeep import Cause

WATCH_S: Final = 2.0
"""The time between two looks at the same partition, in seconds, if there are few."""
_PARTITIONS: Final = 250
"""The number of partitions in one look, which takes about 5 ms of CPU; the next ones follow after a pause."""
_PAUSE_S: Final = 0.25
_CHANNEL: Final = Channel("fence-watch")
_CALL_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Sight:
    """A partition as it was seen: its leader epoch, its replicas, and the first offset of its log."""

    leader_epoch: int
    replicas: frozenset[int]
    start: int


def why_due(fenced_from: Mapping[int, int], before: Mapping[int, Sight], now: Mapping[int, Sight]) -> Cause | None:
    """Return why the fence has to be renewed now. `fenced_from`: by partition, an offset at or before which no marker
    of the newest fence is. Pure.
    """
    if any(index in before and sight.replicas - before[index].replicas for index, sight in now.items()):
        return Cause.REPLICAS  # seen once; the start of the log is seen again
    if any(sight.start > fenced_from.get(index, sight.start) for index, sight in now.items()):
        return Cause.LOG_START
    return None


def newly_led(before: Mapping[int, Sight], now: Mapping[int, Sight]) -> list[int]:
    """Return the partitions whose leader may not know the fence: those that have another one than at the last look, or
    were not looked at before. Pure.
    """
    return [
        index for index, sight in now.items() if index not in before or sight.leader_epoch > before[index].leader_epoch
    ]


def fences_of(view: View, topic: str, topic_id: UUID, indexes: Iterable[int]) -> dict[int, list[Stamp]]:
    """Return, by partition, the least epoch of each producer id that its leader has to know, by the ownership topic.
    Takes time for each slot of the topic and for each of these partitions, not for both: each may have thousands.
    """
    opened = view.opened(topic)

    def stamps(slot: SlotName) -> list[Stamp]:
        entry = opened.get(slot)
        if entry is None or entry.value.topic_id != topic_id.bytes:
            return []
        retired = entry.value.retired_producer_ids[-RETIRED_KEPT:]
        return [stamp_of(entry), *[Stamp(ProducerId(each), ProducerEpoch(MAX_PRODUCER_EPOCH)) for each in retired]]

    everywhere = [fence for slot in opened if partition_of(slot) is None for fence in stamps(slot)]
    return {index: [*everywhere, *stamps(partition_slot(index))] for index in indexes}


def unknown(fences: Iterable[Stamp], known: PartitionProducers) -> Stamp | None:
    """Return a fence that a leader does not know, if there is one. Pure."""
    epochs = {found.stamp.producer_id: found.stamp.epoch for found in known.producers}
    return next((fence for fence in fences if epochs.get(fence.producer_id, -1) < fence.epoch), None)


@dataclass(eq=False)
class FenceWatch:
    """Looks at partitions, and notes in the topics' upkeep what is due. `_lost` is called with a topic's name and the
    reason, if a leader does not know a fence.
    """

    _upstream: Upstream
    _governed: GovernedTopics
    _lost: Callable[[str, BaseException], None]
    _seen: dict[str, tuple[UUID, dict[int, Sight]]] = field(default_factory=dict[str, tuple[UUID, dict[int, Sight]]])

    async def round(self, topics: Sequence[Topic]) -> None:
        """Look at all partitions of these topics once, in slices. Raises what `look` raises, after all slices."""
        names = {topic.name for topic in topics}
        self._seen = {name: seen for name, seen in self._seen.items() if name in names}
        failure: Exception | None = None
        for number, some in enumerate(_groups(topics)):
            if number:
                await asyncio.sleep(_PAUSE_S)
            try:
                await self.look(some)
            except (UpstreamError, KafkaError, TimeoutError) as error:
                failure = error
        if failure is not None:
            raise failure

    async def look(self, topics: Sequence[Topic]) -> None:
        """Look at the partitions of these topics. Raises `UpstreamError`, `KafkaError`."""
        by_name = {topic.name: topic for topic in topics}
        described = await self._upstream.call(None, DescribeTopics(tuple(by_name)), channel=_CHANNEL)
        found = [topic for topic in described.topics if not topic.error and topic.name in by_name]
        for number, some in enumerate(_portions(found)):
            if number:
                await asyncio.sleep(_PAUSE_S)
            await self._look_at(by_name, some)

    async def _look_at(self, topics: Mapping[str, Topic], found: Mapping[str, TopicDescription]) -> None:
        """Look at these partitions of topics: few enough to be worked on at once."""
        starts = await LogReader(self._upstream, _CHANNEL).starts_of(
            {name: each.leaders for name, each in found.items()}
        )
        led: dict[str, tuple[int, ...]] = {}
        news: dict[str, dict[int, Sight]] = {}
        for name, each in found.items():
            topic_id, before = self._seen.get(name, (each.topic_id, {}))
            if topic_id != each.topic_id:
                self._seen.pop(name)
                before = {}
            now = _sights(each, starts, before)
            cause = why_due(topics[name].upkeep.fenced_from, before, now)
            if cause is not None:
                topics[name].upkeep.lapsed(cause)
            if indexes := newly_led(before, now):
                led[name] = tuple(indexes)
            news[name] = now
        await self._ask(topics, found, led)
        for name, now in news.items():  # if it failed before, all is looked at again
            self._seen.setdefault(name, (found[name].topic_id, {}))[1].update(now)

    async def _ask(
        self,
        topics: Mapping[str, Topic],
        found: Mapping[str, TopicDescription],
        led: Mapping[str, tuple[int, ...]],
    ) -> None:
        """Ask leaders whether they know the fences of all slots."""
        leaders = {name: found[name].leaders for name in led}
        answers = await Witness(self._upstream, _CHANNEL, _CALL_S).producers(led, leaders=leaders)
        for name, indexes in led.items():
            fences = fences_of(self._governed.env.changelog.view, name, found[name].topic_id, indexes)
            for index in indexes:
                where = TopicPartition(name, index)
                missing = unknown(fences[index], answers[where])
                if missing is not None and index in topics[name].upkeep.fenced_from:
                    topics[name].upkeep.lapsed(Cause.LOST)
                    message = f"the leader of {where} does not know the fence {missing}; it is renewed"
                    self._lost(name, KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, message))
                    break


def _sights(
    topic: TopicDescription, starts: Mapping[TopicPartition, int], before: Mapping[int, Sight]
) -> dict[int, Sight]:
    """Return what is newer than `before`: a broker's metadata may lag, and a leader may not have answered."""
    return {
        each.index: Sight(each.leader_epoch, frozenset(each.replicas), starts[where])
        for each in topic.partitions
        if (where := TopicPartition(topic.name, each.index)) in starts
        and (each.index not in before or each.leader_epoch >= before[each.index].leader_epoch)
    }


def _groups(topics: Iterable[Topic]) -> Iterator[list[Topic]]:
    """Return the topics in groups of about `_PARTITIONS` partitions."""
    group: list[Topic] = []
    partitions = 0
    for topic in topics:
        group.append(topic)
        partitions += 1 + len(topic.upkeep.fenced_from)
        if partitions >= _PARTITIONS:
            yield group
            group, partitions = [], 0
    if group:
        yield group


def _portions(topics: Iterable[TopicDescription]) -> Iterator[dict[str, TopicDescription]]:
    """Return topics with at most `_PARTITIONS` of their partitions each; small topics remain together."""
    small: dict[str, TopicDescription] = {}
    for topic in topics:
        if len(topic.partitions) <= _PARTITIONS:
            small[topic.name] = topic
            continue
        for first in range(0, len(topic.partitions), _PARTITIONS):
            yield {topic.name: replace(topic, partitions=topic.partitions[first : first + _PARTITIONS])}
    if small:
        yield small
