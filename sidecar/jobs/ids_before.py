"""What a rebuild has to know of a topic before it reads the log: where that begins and ends, and what the changelog
says of it.

The order of the questions matters. Where the log ends is asked first: every batch in front of that was written under an
epoch that the changelog, read after it, knows. Snapshots are read last (`states`): a writer that the changelog has
forgotten is covered by one of these. Creates and changes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from sidecar.changelog import FAILURES, InternalTopics, Tailer, TopicNames, View, unpack_offsets
from sidecar.cluster.logs import LogReader
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.dedup.names import WriterNames
from sidecar.exclusive.policies import PolicyBook, PolicyFields
from sidecar.exclusive.slots import writer_names
from sidecar.network.backoff import Retry
from sidecar.pipeline.errors import PipelineError, UnknownTopicError
from sidecar.protocol.calls.admin import (
    ApiVersions,
    ConfigResource,
    DescribeConfigs,
    DescribeTopics,
    Resource,
    TopicDescription,
)
from sidecar.protocol.errors import ErrorCode, KafkaError, error_name, no_topic
from sidecar.settings import Settings
from sidecar.v1 import state_pb2 as state

T = TypeVar("T")

_READ_S: Final = 60.0
_DEADLINE_S: Final = 30.0
_WRITE_TXN_MARKERS: Final = 27
"""Of brokers among each other: every broker serves it, no node does."""


@dataclass(frozen=True, slots=True)
class Before:
    """Of one topic. `ends`: of the logs when they were asked for. `ids_from`: as `sidecar.dedup.recovery.Extent` has
    it, of every partition.
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
    """Until it is answered: a leader may have moved, a topic may just have been created. Raises `RetryTimeoutError`."""
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
    """Ask for everything. Raises `PipelineError` where there is nothing to rebuild, and what reading Kafka raises."""
    if _WRITE_TXN_MARKERS not in await upstream.call(None, ApiVersions()):
        raise PipelineError("--bootstrap names a node: name Kafka's own brokers, whose snapshot topic is written")
    described = await upstream.call(None, DescribeTopics((topic, *TopicNames.of(settings.cluster).all)))
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


def _internal(found: Mapping[str, TopicDescription], cluster: str) -> InternalTopics:
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
    """From which offset of each partition on no id may be missed: as the next takeover will have it."""
    serving = view.serving(topic)
    value = state.Serving() if serving is None else serving.value
    if value.topic_id != topic_id or not value.HasField("ids_from"):
        return dict(ends)  # its ids begin with the next takeover, after this
    known = unpack_offsets(value.ids_from)
    return {index: known.get(index, 0) for index in ends}


async def _is_compacted(upstream: KafkaUpstream, topic: str) -> bool:
    resource = Resource(ConfigResource.TOPIC, topic)
    answer = (await upstream.call(None, DescribeConfigs((resource,)))).get(resource)
    if answer is None or answer.error:
        return True  # unknown: every offset is looked up
    return "compact" in (answer.values.get("cleanup.policy") or "")
