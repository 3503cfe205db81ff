"""Fences while things break: coordinators that die, stall or answer anything, brokers that come back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sidecar.cluster.upstream import KafkaUpstream
from sidecar.fencing.slot import FencingLimits, WriterSlot
from sidecar.fencing.witness import FencingRefusedError
from sidecar.local import Kafka
from sidecar.protocol.caller import CoordinatorKind, FencedError
from sidecar.protocol.calls.transactions import (
    NO_STAMP,
    AddPartitionsToTxn,
    EndTxn,
    InitializedProducer,
    InitProducerId,
)
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.ids import Stamp, TopicPartition
from tests.conftest import Unique
from tests.kafka_calls import KafkaCalls, kafka_calls
from tests.services import Services
from tests.wait import wait_for_async

PATIENT = FencingLimits(deadline=60.0, call=5.0)
PASSING = [
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.REQUEST_TIMED_OUT,
]
FATAL_FOR_THE_HOLDER = [
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.PRODUCER_FENCED,
]
REFUSALS = [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED, 30_000]


class Misanswering(KafkaUpstream):
    """A real upstream; the request goes to Kafka, and `wrong` times its answer is exchanged for `code`."""

    code = 0
    wrong = 0
    request: type = EndTxn

    def _exchange(self, request: Any, answer: Any) -> Any:
        if not self.wrong or type(request) is not self.request:
            return answer
        self.wrong -= 1
        if isinstance(request, AddPartitionsToTxn):
            return dict.fromkeys(answer, self.code)
        return InitializedProducer(self.code, NO_STAMP) if isinstance(request, InitProducerId) else self.code

    async def call(self, broker_id: int | None, request: Any, **options: Any) -> Any:
        return self._exchange(request, await super().call(broker_id, request, **options))

    async def call_pair(self, broker_id: int, first: Any, second: Any, **options: Any) -> Any:
        answers = await super().call_pair(broker_id, first, second, **options)
        return self._exchange(first, answers[0]), self._exchange(second, answers[1])


@pytest.fixture
async def upstream(services: Services) -> Any:
    host, port = services.kafka_bootstrap.split(",")[0].rsplit(":", 1)
    made = Misanswering([(host, int(port))], connect_timeout=5.0, request_timeout=15.0)
    yield made
    await made.close()


@pytest.fixture
async def kafka(upstream: Misanswering) -> KafkaCalls:
    return KafkaCalls(upstream)


@pytest.fixture
async def topic(kafka: KafkaCalls, unique: Unique) -> str:
    return await kafka.create(unique("orders"), 3)


async def refused_everywhere(kafka: KafkaCalls, topic: str, partitions: int, stale: Stamp, current: Stamp) -> None:
    for index in range(partitions):
        partition = TopicPartition(topic, index)
        assert await judged(kafka, partition, stale) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await judged(kafka, partition, current) == ErrorCode.NONE


async def judged(kafka: KafkaCalls, partition: TopicPartition, writer: Stamp) -> int:
    """What the leader says of a batch; a broker that was asked for the leaders may not have heard of a new one yet."""
    found: list[int] = []

    async def by_leader() -> bool:
        found.append((await kafka.produce(partition, writer)).error)
        if found[-1] not in (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            return True
        await kafka.upstream.layout(partition.topic, refresh=True)
        return False

    await wait_for_async(by_leader, f"the leader of {partition}", 60)
    return found[-1]


@pytest.mark.parametrize("request_type", [InitProducerId, AddPartitionsToTxn, EndTxn], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("code", PASSING, ids=lambda code: code.name)
async def test_an_answer_that_passes_by_itself_is_waited_out(
    upstream: Misanswering, kafka: KafkaCalls, topic: str, request_type: type, code: ErrorCode
) -> None:
    stale = await WriterSlot(upstream, f"sidecar.test.{topic}").open()
    slot = WriterSlot(upstream, f"sidecar.test.{topic}")
    upstream.request, upstream.code, upstream.wrong = request_type, code, 2
    await slot.open()
    await slot.fence({topic: range(3)})
    assert upstream.wrong == 0
    await refused_everywhere(kafka, topic, 3, stale, slot.stamp)


@pytest.mark.parametrize("request_type", [AddPartitionsToTxn, EndTxn], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("code", FATAL_FOR_THE_HOLDER, ids=lambda code: code.name)
async def test_an_answer_that_says_fenced_ends_the_slot(
    upstream: Misanswering, topic: str, request_type: type, code: ErrorCode
) -> None:
    slot = WriterSlot(upstream, f"sidecar.test.{topic}")
    writer = await slot.open()
    upstream.request, upstream.code, upstream.wrong = request_type, code, 1
    with pytest.raises(FencedError) as fenced:
        await slot.keep_alive({topic: range(3)})
    assert (fenced.value.code, fenced.value.writer) == (code, writer)
    with pytest.raises(FencedError):
        await slot.keep_alive({topic: range(3)})


@pytest.mark.parametrize("request_type", [InitProducerId, AddPartitionsToTxn, EndTxn], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("code", REFUSALS)
async def test_a_refusal_that_stays_is_told_at_once(
    upstream: Misanswering, topic: str, request_type: type, code: int
) -> None:
    slot = WriterSlot(upstream, f"sidecar.test.{topic}")
    upstream.request, upstream.code, upstream.wrong = request_type, code, 1

    async def take_over() -> None:
        await slot.open()
        await slot.fence({topic: range(3)})

    with pytest.raises(FencingRefusedError) as refused:
        await take_over()
    assert refused.value.code == code
    assert upstream.wrong == 0
    await take_over()


async def test_a_coordinator_that_forgot_the_open_transaction_is_given_it_again(
    upstream: Misanswering, kafka: KafkaCalls, topic: str
) -> None:
    stale = await WriterSlot(upstream, f"sidecar.test.{topic}").open()
    slot = WriterSlot(upstream, f"sidecar.test.{topic}")
    await slot.open()
    upstream.request, upstream.code, upstream.wrong = EndTxn, ErrorCode.INVALID_TXN_STATE, 2
    await slot.fence({topic: range(3)})
    await refused_everywhere(kafka, topic, 3, stale, slot.stamp)


async def test_a_slot_outlives_its_coordinator(kafka_cluster: Kafka, unique: Unique) -> None:
    async with kafka_calls(kafka_cluster.bootstrap) as kafka:
        topic = await kafka.create(unique("orders"), 3, replicas=3)
        name = f"sidecar.test.{topic}"
        stale = await WriterSlot(kafka.upstream, name).open()
        slot = WriterSlot(kafka.upstream, name, limits=PATIENT)
        held = await slot.open()
        await slot.fence({topic: range(3)})
        coordinator = await kafka.upstream.coordinator(name, CoordinatorKind.TRANSACTION)
        kafka_cluster.kill(coordinator)
        try:
            await slot.keep_alive({topic: range(3)})
            assert slot.stamp == held
            assert await kafka.upstream.coordinator(name, CoordinatorKind.TRANSACTION) != coordinator
            await slot.open()
            await slot.fence({topic: range(3)})
            await kafka.upstream.layout(topic, refresh=True)
            await refused_everywhere(kafka, topic, 3, stale, slot.stamp)
            await refused_everywhere(kafka, topic, 3, held, (await slot.raise_epoch()))
        finally:
            await asyncio.to_thread(kafka_cluster.restart, coordinator)


async def test_a_fence_waits_for_a_coordinator_that_stalls(kafka_cluster: Kafka, unique: Unique) -> None:
    async with kafka_calls(kafka_cluster.bootstrap) as kafka:
        topic = await kafka.create(unique("orders"), 3, replicas=3)
        slot = WriterSlot(kafka.upstream, f"sidecar.test.{topic}", limits=PATIENT)
        held = await slot.open()
        await slot.fence({topic: range(3)})
        coordinator = await kafka.upstream.coordinator(slot.transactional_id, CoordinatorKind.TRANSACTION)
        kafka_cluster.pause(coordinator)
        try:
            fencing = asyncio.create_task(slot.keep_alive({topic: range(3)}))
            done, _ = await asyncio.wait([fencing], timeout=0.5)
            assert not done
        finally:
            kafka_cluster.resume(coordinator)
        await fencing
        assert slot.stamp == held
