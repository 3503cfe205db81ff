"""The last sequence ids of a topic as its nodes have saved them, in the snapshot topic and in Redis. Writes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from zlib import crc32

from metadata import MetadataError, MetadataStore
from sidecar.changelog import read_batches
from sidecar.changelog.records import LoggedBatch, UnreadableBatchError
from sidecar.changelog.topics import SNAPSHOT_PARTITIONS
from sidecar.dedup.snapshots import Collector, Saved, of_value
from sidecar.jobs.session import Say
from sidecar.pipeline.audit.facts import Mark
from sidecar.pipeline.errors import PipelineError
from sidecar.pipeline.kafka import Kafka
from sidecar.settings import Settings


def batches_of(kafka: Kafka, topic: str, partition: int) -> Iterator[LoggedBatch]:
    """All that an internal topic holds in a partition. Raises `PipelineError` for what no node wrote."""
    start, end = kafka.starts(topic).get(partition, 0), kafka.ends(topic).get(partition, 0)
    try:
        for records in kafka.read(topic, partition, start, end):
            yield from read_batches(bytes(records))
    except UnreadableBatchError as error:
        raise PipelineError(f"{topic}-{partition}: {error}. No node wrote that: is it the right cluster?") from None


def marks_of(kafka: Kafka, snapshots: str, topic: str, topic_id: bytes, settings: Settings, say: Say) -> Iterator[Mark]:
    """The last ids of a topic by the newest snapshot of each partition, of the topic `snapshots` or of Redis."""
    collector = Collector(topic, topic_id)
    count = min(len(kafka.partitions(snapshots)), SNAPSHOT_PARTITIONS)
    for batch in batches_of(kafka, snapshots, crc32(topic.encode()) % count):
        for _, record in batch.records:
            collector.add(record)
    partitions = kafka.partitions(topic)
    copies = _copies(settings, topic, topic_id, partitions, say)
    for partition in partitions:
        both = [each for each in (collector.newest(partition), copies.get(partition)) if each is not None]
        saved = max(both, key=lambda each: each.covered, default=None)
        for mark in saved.marks if saved is not None else ():
            name = mark.name.decode(errors="replace")
            yield Mark(partition, name, mark.id, mark.offset, saved.covered if saved is not None else 0)


def _copies(settings: Settings, topic: str, topic_id: bytes, partitions: Sequence[int], say: Say) -> dict[int, Saved]:
    """Redis' copies of the snapshots; none where it is away: the snapshot topic has them too."""

    async def ask() -> dict[int, bytes]:
        async with MetadataStore(
            settings.redis_url, settings.cluster, command_timeout_ms=settings.redis_timeout_ms
        ) as store:
            return await store.snapshots(topic, topic_id, partitions)

    try:
        values = asyncio.run(ask())
    except MetadataError as error:
        say(f"Redis has no word in this ({error}): the last ids are those of the snapshot topic alone")
        return {}
    found = {partition: of_value(value, topic_id) for partition, value in values.items()}
    return {partition: kept[0] for partition, kept in found.items() if kept is not None}
