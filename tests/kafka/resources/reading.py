"""Claims of readers as the coordinator appends them, and readers of several clients that only know Kafka."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalGenerationError, TopicAuthorizationFailedError
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient

from sidecar.changelog import Changelog, Key, Record, StampedJournal, claim_key
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.fencing.slot import WriterSlot, transactional_id
from sidecar.v1 import control_pb2 as control
from sidecar.v1 import state_pb2 as state
from tests.kafka.gateway.requests import request
from tests.nodes import NodeProcess
from tests.raw import RawClient
from tests.wait import wait_for

ILLEGAL_GENERATION, TOPIC_AUTHORIZATION_FAILED, NON_EMPTY_GROUP = 22, 29, 68
_PATIENCE = 20.0


@dataclass(frozen=True)
class Claimed:
    """What is claimed: of a group, a topic, a partition or all of them."""

    group: str
    topic: str
    partition: int | None = None

    @property
    def key(self) -> Key:
        return claim_key(self.group, self.resource)

    @property
    def resource(self) -> control.Resource:
        return control.Resource(topic=self.topic, partition=self.partition)


@dataclass
class Coordinator:
    """Has the slot of the claims, as one node at a time does."""

    node: NodeProcess
    journal: StampedJournal

    async def grant(self, place: Claimed, name: str, session: str = "", deposed: tuple[str, ...] = ()) -> None:
        """Hand a claim to a session; the node goes by it when this returns. No session: one on some connection that
        the test has not got, as of a client that asked and reads on other connections.
        """
        record = state.Claim(
            group=place.group,
            resource=place.resource,
            generation=1,
            session=session or f"conn:99-{uuid.uuid4().hex}",
            name=name,
            deposed=deposed,
        )
        await self._append(place, record)

    async def let_go(self, place: Claimed) -> None:
        """Take a claim away."""
        await self._append(place, None)

    async def _append(self, place: Claimed, record: state.Claim | None) -> None:
        """With a claim on something that nobody uses behind it: where that is refused the node has read both."""
        probe = Claimed(f"probe-{uuid.uuid4().hex}", "probe")
        mark = state.Claim(group=probe.group, resource=probe.resource, generation=1, session="conn:99-probe")
        await self.journal.append([Record(place.key, record), Record(probe.key, mark)])
        await asyncio.to_thread(self._wait_for, probe, self.node)
        await self.journal.append([Record(probe.key, None)])

    def _wait_for(self, probe: Claimed, node: NodeProcess) -> None:
        with RawClient(node.bootstrap) as raw:
            asked, refused = commit(probe.group, {(probe.topic, 0): 1}), {(probe.topic, 0): ILLEGAL_GENERATION}
            wait_for(lambda: committed(raw.ask(asked)) == refused, "the claim to be read")


@asynccontextmanager
async def coordinating(node: NodeProcess, kafka: str) -> AsyncIterator[Coordinator]:
    """Takes the slot, fences whoever had it."""
    host, port = kafka.split(",", maxsplit=1)[0].rsplit(":", 1)
    upstream = KafkaUpstream([(host, int(port))], connect_timeout=5.0, request_timeout=15.0)
    changelog = await Changelog.open(upstream, node.cluster)
    try:
        slot = WriterSlot(upstream, transactional_id(node.cluster, "__claims"))
        stamp = await slot.open()
        await slot.fence({changelog.partition.topic: [changelog.partition.partition]})
        yield Coordinator(node, changelog.journal(stamp))
    finally:
        await changelog.close()
        await upstream.close()


# Requests -------------------------------------------------------------------------------------------------------------


def commit(group: str, offsets: dict[tuple[str, int], int], *, version: int = 8) -> Any:
    """An OffsetCommit of somebody who is no member: manual assignment."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, []).append({"partition_index": partition, "committed_offset": offset})
    named = [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]
    generation = "generation_id_or_member_epoch" if version >= 9 else "generation_id"
    return request(8, version, group_id=group, topics=named, **{generation: -1})


def committed(answer: Any) -> dict[tuple[str, int], int]:
    """Error codes by topic and partition: of OffsetCommit, TxnOffsetCommit and OffsetDelete."""
    assert len({topic.name for topic in answer.topics}) == len(answer.topics), "a topic is told of once"
    return {
        (topic.name, found.partition_index): int(found.error_code.value)
        for topic in answer.topics
        for found in topic.partitions
    }


def cursors(kafka: str, group: str) -> dict[tuple[str, int], int]:
    """The group's offsets as Kafka itself has them."""
    admin = AdminClient({"bootstrap.servers": kafka, "log_level": 0})
    (asked,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    found = asked.result(_PATIENCE).topic_partitions or ()
    return {(place.topic, place.partition): place.offset for place in found}


# Readers by manual assignment -----------------------------------------------------------------------------------------


class AiokafkaReader:
    """An unmodified aiokafka consumer of one partition."""

    def __init__(self, bootstrap: str, name: str, group: str, topic: str) -> None:
        self._partition = TopicPartition(topic, 0)
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            client_id=name,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )

    async def start(self) -> None:
        await self._consumer.start()
        self._consumer.assign([self._partition])

    async def read(self, count: int) -> list[bytes]:
        """The next values."""
        async with asyncio.timeout(_PATIENCE):
            return [(await self._consumer.getone()).value or b"" for _ in range(count)]

    async def refusal_of_reading(self) -> int:
        """The error code that reading ends with."""
        try:
            async with asyncio.timeout(_PATIENCE):
                while True:
                    await self._consumer.getone()
        except TopicAuthorizationFailedError:
            return TOPIC_AUTHORIZATION_FAILED

    async def commit(self, offset: int) -> int:
        """The error code of committing."""
        try:
            await self._consumer.commit({self._partition: offset})
        except CommitFailedError as error:
            if isinstance(error.__cause__, IllegalGenerationError):
                return ILLEGAL_GENERATION
            raise
        return 0

    async def close(self) -> None:
        await self._consumer.stop()


class LibrdkafkaReader:
    """An unmodified librdkafka consumer of one partition."""

    def __init__(self, bootstrap: str, name: str, group: str, topic: str) -> None:
        self._partition = Place(topic, 0)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": name,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )

    async def start(self) -> None:
        self._consumer.assign([self._partition])

    async def read(self, count: int) -> list[bytes]:
        """The next values."""
        found: list[bytes] = []
        while len(found) < count:
            message = await asyncio.to_thread(self._consumer.poll, _PATIENCE)
            assert message is not None
            assert message.error() is None, message.error()
            found.append(message.value() or b"")
        return found

    async def refusal_of_reading(self) -> int:
        """The error code that reading ends with."""
        while True:
            message = await asyncio.to_thread(self._consumer.poll, _PATIENCE)
            assert message is not None
            error = message.error()
            if error is not None:
                return error.code()

    async def commit(self, offset: int) -> int:
        """The error code of committing."""
        place = Place(self._partition.topic, 0, offset)
        try:
            await asyncio.to_thread(lambda: self._consumer.commit(offsets=[place], asynchronous=False))
        except KafkaException as error:
            return error.args[0].code()
        return 0

    async def close(self) -> None:
        await asyncio.to_thread(self._consumer.close)
