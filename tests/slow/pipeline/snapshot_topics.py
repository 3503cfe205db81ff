"""What jobs and nodes see of a topic's snapshots, for tests: read, spoilt, lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from zlib import crc32

from metadata import MetadataStore
from sidecar.changelog import Appender, RawRecord
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.dedup import snapshots
from sidecar.dedup.snapshots import Saved
from sidecar.jobs.states import Before, States, look
from sidecar.settings import Settings, resolve
from tests.kafka.gates import forget_redis
from tests.logs import read_messages

_PARTITIONS = 8


def settings_of(kafka: str, redis: str, cluster: str) -> Settings:
    """The settings of a job beside these nodes."""
    return resolve({"bootstrap_servers": kafka, "redis_url": redis, "cluster": cluster}, None).settings


def chunks_of(kafka: str, cluster: str, topic: str) -> dict[bytes, bytes]:
    """The newest value of each key of a topic's snapshots, as far as it was not taken away."""
    messages = read_messages(kafka, f"__sidecar_{cluster}_snapshots", crc32(topic.encode()) % _PARTITIONS)
    newest = {message.key() or b"": message.value() for message in messages}
    prefix = f"{topic}/".encode()
    return {key: value for key, value in newest.items() if value is not None and key.startswith(prefix)}


@dataclass
class Job:
    """A job beside the nodes of a cluster, on one topic."""

    settings: Settings
    before: Before
    upstream: KafkaUpstream
    store: MetadataStore

    async def states(self) -> States:
        """What a job knows that begins now."""
        found = States(self.before, self.upstream, self.store)
        await found.read()
        return found

    async def redis_copy(self, partition: int = 0) -> Saved | None:
        """What Redis has."""
        values = await self.store.snapshots(self.before.topic, self.before.topic_id, [partition])
        found = snapshots.of_value(values[partition], self.before.topic_id) if partition in values else None
        return None if found is None else found[0]


@asynccontextmanager
async def open_job(kafka: str, redis: str, cluster: str, topic: str) -> AsyncIterator[Job]:
    """A job that looks at the topic now."""
    settings = settings_of(kafka, redis, cluster)
    servers = [(server.host, server.port) for server in settings.bootstrap_servers]
    upstream = KafkaUpstream(servers, connect_timeout=5.0, request_timeout=15.0)
    try:
        async with MetadataStore(redis, cluster) as store:
            yield Job(settings, await look(upstream, settings, topic), upstream, store)
    finally:
        await upstream.close()


async def lose_snapshots(kafka: str, redis: str, cluster: str, topic: str) -> None:
    """Redis is emptied, and so is the snapshot topic of what it has of a topic."""
    await forget_redis(redis, cluster)
    async with open_job(kafka, redis, cluster, topic) as job:
        appender, log = Appender(job.upstream, job.before.internal.ids), job.before.internal.snapshots_of(topic)
        for key in await asyncio.to_thread(chunks_of, kafka, cluster, topic):
            await appender.append(log, [RawRecord(key, None)])
