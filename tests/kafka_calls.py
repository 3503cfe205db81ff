"""The node's own calls, for tests that speak to Kafka directly: topics made, stamped batches sent, offsets asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from sidecar.changelog.records import RawRecord, build_batch
from sidecar.cli.bench.client import DeleteTopic
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.protocol.caller import UnknownTopicError
from sidecar.protocol.calls.admin import CreateTopics, NewTopic
from sidecar.protocol.calls.logs import Appended, ListOffsets, OffsetAt, ProduceBatch
from sidecar.protocol.calls.transactions import DescribeProducers
from sidecar.protocol.ids import TopicPartition
from sidecar.protocol.messages.logs import DELETE_RECORDS
from sidecar.protocol.messages.transactions import DESCRIBE_TRANSACTIONS
from sidecar.protocol.views import View
from tests.wait import wait_for_async

if TYPE_CHECKING:
    from sidecar.protocol.calls.transactions import ActiveProducer
    from sidecar.protocol.ids import Offset, Stamp
    from sidecar.protocol.schema import Values


class DeleteRecords(View[int], of=DELETE_RECORDS, version=1):
    """Move the start of a partition's log to an offset."""

    partition: TopicPartition
    offset: Offset

    def asked(self) -> Values:
        partition = {"partition_index": self.partition.partition, "offset": self.offset}
        return {"topics": [{"name": self.partition.topic, "partitions": [partition]}], "timeout_ms": 30_000}

    def answered(self, values: Values) -> int:
        return values["topics"][0]["partitions"][0]["error_code"]


class DescribeTransactions(View["list[Values]"], of=DESCRIBE_TRANSACTIONS, version=0):
    """State of transactional ids at their coordinator (KIP-664)."""

    transactional_ids: tuple[str, ...]

    def asked(self) -> Values:
        return {"transactional_ids": self.transactional_ids}

    def answered(self, values: Values) -> list[Values]:
        return values["transaction_states"]


class KafkaCalls:
    """One upstream and what tests do with it. Every method asks the partition's leader."""

    def __init__(self, upstream: KafkaUpstream) -> None:
        self.upstream = upstream

    async def create(self, topic: str, partitions: int = 1, replicas: int = 1, **configs: str) -> str:
        """Create a topic (`retention_ms="1000"` is retention.ms) and wait until every partition's leader serves it."""
        named = {name.replace("_", "."): value for name, value in configs.items()}
        outcome = await self.upstream.call(None, CreateTopics((NewTopic(topic, partitions, replicas, named),), 30_000))
        assert outcome[topic].error == 0, outcome
        await self.served(topic, partitions)
        return topic

    async def served(self, topic: str, partitions: int) -> None:
        """Wait until every partition's leader serves it."""

        async def served() -> bool:
            try:
                leaders = (await self.upstream.layout(topic, refresh=True)).leaders
            except UnknownTopicError:
                return False
            asked = {TopicPartition(topic, index): OffsetAt.LATEST for index in leaders}
            if len(asked) < partitions or min(leaders.values()) < 0:
                return False
            for broker in set(leaders.values()):
                led = {partition: which for partition, which in asked.items() if leaders[partition.partition] == broker}
                answers = await self.upstream.call(broker, ListOffsets(led))
                if any(answer.error for answer in answers.values()):
                    return False
            return True

        await wait_for_async(served, f"leaders of {topic}")

    async def delete(self, topic: str) -> None:
        """Delete a topic and wait until nobody knows it."""
        assert await self.upstream.call(None, DeleteTopic(topic)) == 0

        async def gone() -> bool:
            try:
                await self.upstream.layout(topic, refresh=True)
            except UnknownTopicError:
                return True
            return False

        await wait_for_async(gone, f"{topic} to go")

    async def delete_records(self, partition: TopicPartition, offset: Offset) -> None:
        """Let the log begin at `offset`."""
        assert await self.upstream.call(await self.leader(partition), DeleteRecords(partition, offset)) == 0

    async def leader(self, partition: TopicPartition) -> int:
        return (await self.upstream.layout(partition.topic)).leaders[partition.partition]

    async def produce(
        self, partition: TopicPartition, writer: Stamp | None, sequence: int = 0, value: bytes = b"v", count: int = 1
    ) -> Appended:
        """Send one batch with acks=all, whatever becomes of it."""
        batch = build_batch([RawRecord(b"k", value)] * count, writer, sequence)
        return await self.upstream.call(await self.leader(partition), ProduceBatch(partition, bytes(batch), 10_000))

    async def latest(self, partition: TopicPartition) -> Offset:
        request = ListOffsets({partition: OffsetAt.LATEST})
        listed = (await self.upstream.call(await self.leader(partition), request))[partition]
        assert listed.error == 0
        return listed.offset

    async def producer(self, partition: TopicPartition, writer: Stamp) -> ActiveProducer | None:
        """What the partition remembers of a writer's producer id."""
        request = DescribeProducers({partition.topic: (partition.partition,)})
        answer = (await self.upstream.call(await self.leader(partition), request))[partition]
        assert answer.error == 0, answer
        return answer.of(writer.producer_id)


@asynccontextmanager
async def kafka_calls(bootstrap: str) -> AsyncIterator[KafkaCalls]:
    """Calls to the cluster at `host:port,…`."""
    seeds = [address.rsplit(":", 1) for address in bootstrap.split(",")]
    upstream = KafkaUpstream([(host, int(port)) for host, port in seeds], connect_timeout=5.0, request_timeout=15.0)
    try:
        yield KafkaCalls(upstream)
    finally:
        await upstream.close()
