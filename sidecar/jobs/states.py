"""Reads the deduplication state of one topic outside of any node (its snapshots in Kafka and their copies in Redis) and
writes it by compare-and-max.

A snapshot is written with its own copy number (`sidecar.dedup.snapshots`), so nodes and other rebuilds may write at
the same time. After each write the snapshot topic is read again to its end. If a node wrote a snapshot meanwhile that
was not known here, the own one is deleted. A state is copied to Redis once it is in Kafka.

`look` reads in an order that matters. The ends of the logs come first: the changelog, read after them, knows the epoch
of every batch before those ends. Snapshots are read last: they cover the writers that the changelog has forgotten.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from metadata import MetadataStore, MetadataUnavailable
from sidecar.changelog import (
    FAILURES,
    Appender,
    AppendRefusedError,
    InternalTopics,
    RawRecord,
    Tailer,
    TopicNames,
    View,
    unpack_offsets,
)
from sidecar.cluster.logs import LogReader
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.dedup import snapshots
from sidecar.dedup.names import WriterNames
from sidecar.dedup.recovery import Extent, scan
from sidecar.dedup.snapshots import Collector, Found, Saved
from sidecar.network.backoff import Retry
from sidecar.pipeline.errors import PipelineError, UnknownTopicError
from sidecar.policy.policies import PolicyBook, PolicyFields
from sidecar.protocol.caller import Upstream
from sidecar.protocol.calls import admin
from sidecar.protocol.errors import ErrorCode, KafkaError, error_name, no_topic
from sidecar.settings import Settings
from sidecar.takeover.slots import writer_names
from sidecar.v1 import state_pb2 as state

T = TypeVar("T")

_READ_S: Final = 60.0
_DEADLINE_S: Final = 30.0
_WRITE_TXN_MARKERS: Final = 27
"""The API key of requests between brokers: every broker serves it, no node does."""


@dataclass(frozen=True, slots=True)
class Before:
    """What is read of one topic before its log. `ends`: the ends of the logs at that time. `ids_from`: of every
    partition, as in `sidecar.dedup.recovery.Extent`.
    """

    topic: str
    topic_id: bytes
    kafka_cluster_id: str
    internal: InternalTopics
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    ids_from: Mapping[int, int]
    writers: WriterNames
    is_compacted: bool


async def again(call: Callable[[], Awaitable[T]], what: str) -> T:
    """Repeat until it is answered: a leader may have moved, or a topic may just have been created. Raises
    `RetryTimeoutError`.
    """
    retry = Retry(what, _DEADLINE_S)
    while True:
        try:
            return await call()
        except KafkaError as error:
            if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            await retry.pause(error)
        except FAILURES as error:
            await retry.pause(error)


async def look(upstream: KafkaUpstream, settings: Settings, topic: str) -> Before:
    """Read all of it. Raises `PipelineError` if there is nothing to rebuild, and the errors of reading Kafka."""
    if _WRITE_TXN_MARKERS not in await upstream.call(None, admin.ApiVersions()):
        raise PipelineError("--bootstrap names a node: name Kafka's own brokers, whose snapshot topic is written")
    described = await upstream.call(None, admin.DescribeTopics((topic, *TopicNames.of(settings.cluster).all)))
    found = {each.name: each for each in described.topics}
    internal = _internal(found, settings.cluster)
    ours = found[topic]
    if ours.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise UnknownTopicError(no_topic(topic))
    if ours.error:
        raise PipelineError(f"topic {topic}: {error_name(ours.error)}")
    partitions = [each.index for each in ours.partitions]
    logs = LogReader(upstream)
    ends = await again(lambda: logs.ends(topic, partitions), f"the ends of {topic}")
    starts = await again(lambda: logs.starts(topic, partitions), f"the starts of {topic}")
    view = await _view(upstream, internal)
    _check_policy(view, settings, topic)
    return Before(
        topic=topic,
        topic_id=ours.topic_id.bytes,
        kafka_cluster_id=described.cluster_id or "",
        internal=internal,
        starts=starts,
        ends=ends,
        ids_from=_ids_from(view, topic, ours.topic_id.bytes, ends),
        writers=writer_names(view, topic),
        is_compacted=await _is_compacted(upstream, topic),
    )


def _internal(found: Mapping[str, admin.TopicDescription], cluster: str) -> InternalTopics:
    names = TopicNames.of(cluster)
    for name in names.all:
        if found[name].error:
            raise UnknownTopicError(
                f"topic {name}: {error_name(found[name].error)}. Nodes of the cluster {cluster!r} keep it in the Kafka"
                " that they are in front of: name that by --bootstrap, and the cluster by --cluster"
            )
    ids = {name: found[name].topic_id for name in names.all}
    return InternalTopics(names, ids, (), len(found[names.snapshots].partitions))


async def _view(upstream: KafkaUpstream, internal: InternalTopics) -> View:
    tailer = Tailer(upstream, internal.ownership, internal.ids[internal.names.ownership])
    tailer.start()
    try:
        await tailer.read_to_end(_READ_S)
    finally:
        await tailer.close()
    return tailer.view


def _check_policy(view: View, settings: Settings, topic: str) -> None:
    """Raises `PipelineError` for a topic that has no sequence ids."""
    shadow = view.shadow(topic)
    if shadow is not None:
        raise PipelineError(f"{topic} is a shadow and has no sequence ids of its own: rebuild {shadow.value.source}")
    policies = {entry.key.topic: PolicyFields.of_record(entry.value) for entry in view.policies()}
    book = PolicyBook(policies, PolicyFields(deduplication=True) if settings.deduplication else None)
    policy = book.effective(topic)
    if policy is None or not policy.deduplication:
        raise PipelineError(f"{topic} has no deduplication: `sidecar topic set {topic} --dedup` gives it some")


def _ids_from(view: View, topic: str, topic_id: bytes, ends: Mapping[int, int]) -> dict[int, int]:
    """The offset of each partition from which on no id may be missing, as the next takeover will use it."""
    serving = view.serving(topic)
    value = state.Serving() if serving is None else serving.value
    if value.topic_id != topic_id or not value.HasField("ids_from"):
        return dict(ends)  # its ids begin with the next takeover, later than this
    known = unpack_offsets(value.ids_from)
    return {index: known.get(index, 0) for index in ends}


async def _is_compacted(upstream: KafkaUpstream, topic: str) -> bool:
    resource = admin.Resource(admin.ConfigResource.TOPIC, topic)
    answer = (await upstream.call(None, admin.DescribeConfigs((resource,)))).get(resource)
    if answer is None or answer.error:
        return True  # unknown: every offset is looked up
    return "compact" in (answer.values.get("cleanup.policy") or "")


_REDIS_TRIES: Final = 3
_REDIS_PAUSE_S: Final = 0.3


class States:
    """The snapshots of one topic. `redis_lacks`: the partitions whose newest snapshot could not be copied to Redis."""

    def __init__(self, before: Before, upstream: Upstream, store: MetadataStore) -> None:
        self.redis_lacks: set[int] = set()
        self.extents: dict[int, Extent] = {}
        self._before = before
        self._topic = before.topic
        self._log = before.internal.snapshots_of(before.topic)
        self._upstream = upstream
        self._logs = LogReader(upstream)
        self._appender = Appender(upstream, before.internal.ids)
        self._store = store
        self._collector = Collector(before.topic, before.topic_id)
        self._scanned = 0
        self._copies: dict[int, Saved] = {}

    async def read(self) -> None:
        """Read all snapshots, and the present extents of the logs. If Redis is unreachable, only Kafka is read."""
        await self._read_on()
        try:
            values = await self._asked(
                lambda: self._store.snapshots(self._topic, self._before.topic_id, sorted(self._before.ends))
            )
        except MetadataUnavailable:
            values = {}
        for partition, value in values.items():
            kept = snapshots.of_value(value, self._before.topic_id)
            if kept is not None:
                self._copies[partition] = kept[0]

    async def _read_on(self) -> None:
        self._scanned = await again(
            lambda: scan(self._logs, self._log, self._collector, self._scanned), f"read {self._log}"
        )
        # Asked after the scan: what a snapshot covers was in the log when it was written.
        partitions = sorted(self._before.ends)
        ends = await again(lambda: self._logs.ends(self._topic, partitions), f"the ends of {self._topic}")
        starts = await again(lambda: self._logs.starts(self._topic, partitions), f"the starts of {self._topic}")
        ids_from = self._before.ids_from
        self.extents = {index: Extent(starts[index], ends[index], ids_from[index]) for index in partitions}

    def best(self, partition: int) -> Saved | None:
        """The snapshot that a node would continue from."""
        extent = self.extents[partition]
        copy = self._copies.get(partition)
        candidates = [] if copy is None else [copy]
        candidates += [found.saved for found in self._collector.whole(partition)]
        return snapshots.best(each for each in candidates if each.covered <= extent.end)

    def in_topic(self, partition: int) -> Found | None:
        """The snapshot in the snapshot topic that equals the best one, if there is one."""
        newest = self.best(partition)
        found = [each for each in self._collector.whole(partition) if newest and each.saved.order == newest.order]
        return max(found, key=lambda each: each.position, default=None)

    def known_number(self, partition: int) -> int:
        """The highest number of a complete snapshot; a rebuilt snapshot gets this number."""
        numbers = [found.saved.number for found in self._collector.whole(partition)]
        copy = self._copies.get(partition)
        return max([*numbers, 0 if copy is None else copy.number])

    async def put(self, partition: int, saved: Saved) -> bool:
        """Write a state that continues the best one known here. False if there is a better one by now, from which the
        rebuild has to continue. Raises `PipelineError` if Kafka refuses it.
        """
        await self._check_topic()
        copy = snapshots.new_copy()
        chunks = snapshots.encode(self._before.topic_id, saved, int(time.time() * 1000))
        for record in snapshots.to_records(self._topic, partition, chunks, copy):
            await self._append(record)
        await self._read_on()
        mine = next((each for each in self._collector.whole(partition) if each.copy == copy), None)
        newest = self.best(partition)
        if mine is None or newest is None or newest.order != mine.saved.order:
            for record in snapshots.to_records(self._topic, partition, chunks, copy):
                await self._append(record._replace(value=None))
            await self._read_on()
            return False
        await self.copy_to_redis(partition)
        for record in self._collector.outdone(partition, mine):
            await self._append(record)
        await self._read_on()
        return True

    async def copy_to_redis(self, partition: int) -> None:
        """Copy the best snapshot of the snapshot topic to Redis, unless Redis has one that is as good. If Redis is
        unreachable, the partition is added to `redis_lacks`.
        """
        found, copy = self.in_topic(partition), self._copies.get(partition)
        if found is None or (copy is not None and copy.order >= found.saved.order):
            return
        chunks = snapshots.encode(self._before.topic_id, found.saved, int(time.time() * 1000))
        topic_id = self._before.topic_id
        value = snapshots.to_value(snapshots.to_records(self._topic, partition, chunks), found.position)
        try:
            kept = await self._asked(
                lambda: self._store.keep_snapshot(self._topic, partition, topic_id, found.saved.order, value)
            )
        except MetadataUnavailable:
            self.redis_lacks.add(partition)
            return
        self.redis_lacks.discard(partition)
        if kept:
            self._copies[partition] = found.saved

    async def _asked(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call Redis, a few times if it is unreachable: all these commands may be repeated."""
        for _ in range(_REDIS_TRIES - 1):
            try:
                return await call()
            except MetadataUnavailable:
                await asyncio.sleep(_REDIS_PAUSE_S)
        return await call()

    async def _check_topic(self) -> None:
        layout = await again(lambda: self._upstream.layout(self._topic, refresh=True), f"the id of {self._topic}")
        if layout.topic_id.bytes != self._before.topic_id:
            raise PipelineError(f"{self._topic} was deleted and created anew meanwhile: run this again for the new one")

    async def _append(self, record: RawRecord) -> None:
        try:
            await self._appender.append(self._log, [record])
        except AppendRefusedError as error:
            is_denied = error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            raise PipelineError(f"{error}{': its ACLs have to allow Write' if is_denied else ''}") from None
