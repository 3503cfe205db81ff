"""How many records lie behind a cursor: counted from a real log, as far as it takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from sidecar.cluster.logs import LogReader
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.ids import TopicPartition
from sidecar.shadow.auto_reset import Backlogs, Stretch
from tests.conftest import Unique
from tests.kafka.shadow.groups import write
from tests.kafka_calls import KafkaCalls, kafka_calls
from tests.services import Services
from tests.wait import wait_until

RECORDS = 3_000
_PADDING = {"linger.ms": 0, "batch.num.messages": 100}


class SlowLog(LogReader):
    """A log each read of which waits for `may_go`; `reads` has their offsets, those of bound readers too."""

    def __init__(self, kafka: KafkaCalls, topic_id: UUID | None = None) -> None:
        super().__init__(kafka.upstream, topic_id=topic_id)
        self.kafka = kafka
        self.may_go = asyncio.Event()
        self.reads: list[int] = []

    def bound(self, topic_id: UUID) -> SlowLog:
        bound = SlowLog(self.kafka, topic_id)
        bound.may_go, bound.reads = self.may_go, self.reads
        return bound

    async def fetch(self, partition: TopicPartition, offset: int, max_bytes: int) -> bytes:
        await self.may_go.wait()
        self.reads.append(offset)
        return await super().fetch(partition, offset, min(max_bytes, 8_192))


@pytest.fixture
async def kafka(services: Services) -> AsyncIterator[KafkaCalls]:
    async with kafka_calls(services.kafka_bootstrap) as calls:
        yield calls


@pytest.fixture
async def stretch(services: Services, kafka: KafkaCalls, unique: Unique) -> Stretch:
    topic = await kafka.create(unique("orders"), 1)
    await asyncio.to_thread(write, services.kafka_bootstrap, topic, RECORDS, **_PADDING)
    layout = await kafka.upstream.layout(topic, refresh=True)
    return Stretch(layout.topic_id, TopicPartition(topic, 0), 0)


async def test_a_count_goes_on_where_nobody_waits_for_it(kafka: KafkaCalls, stretch: Stretch) -> None:
    log = SlowLog(kafka)
    backlogs = Backlogs(log)
    assert await backlogs.passes(stretch, RECORDS, RECORDS - 1, wait=0.01) is None
    log.may_go.set()
    await wait_until(lambda: len(log.reads) > 1, "the count to go on")
    assert await backlogs.passes(stretch, RECORDS, RECORDS - 1, wait=20) is True
    reads = len(log.reads)
    assert await backlogs.passes(stretch, RECORDS, RECORDS - 1, wait=0) is True
    assert len(log.reads) == reads  # what was counted is known
    await backlogs.close()


async def test_all_who_ask_together_are_told_by_one_count(kafka: KafkaCalls, stretch: Stretch) -> None:
    log = SlowLog(kafka)
    log.may_go.set()
    backlogs = Backlogs(log)
    asked = [backlogs.passes(stretch, RECORDS, 10, wait=20) for _ in range(5)]
    assert await asyncio.gather(*asked) == [True] * 5
    assert len(log.reads) == 1
    await backlogs.close()


async def test_a_count_ends_once_it_is_above_the_limit_and_goes_on_from_there(
    services: Services, kafka: KafkaCalls, stretch: Stretch
) -> None:
    log = SlowLog(kafka)
    log.may_go.set()
    backlogs = Backlogs(log)
    assert await backlogs.passes(stretch, RECORDS, 10, wait=20) is True
    assert len(log.reads) == 1
    assert await backlogs.passes(stretch, RECORDS, RECORDS - 2, wait=20) is True
    whole = len(log.reads)
    assert whole > 5
    await asyncio.to_thread(write, services.kafka_bootstrap, stretch.partition.topic, 1)
    assert await backlogs.passes(stretch, RECORDS + 1, RECORDS, wait=20) is True
    assert len(log.reads) <= whole + 2  # only what has come
    await backlogs.close()


async def test_offsets_that_do_not_differ_enough_are_not_read(kafka: KafkaCalls, stretch: Stretch) -> None:
    log = SlowLog(kafka)
    backlogs = Backlogs(log)
    assert await backlogs.passes(stretch, RECORDS, RECORDS, wait=0) is False
    assert len(log.reads) == 0


async def test_a_log_that_is_not_there_is_an_error_each_time(kafka: KafkaCalls, stretch: Stretch) -> None:
    backlogs = Backlogs(LogReader(kafka.upstream))
    nowhere = stretch._replace(partition=TopicPartition(stretch.partition.topic, 7))
    for _ in range(2):
        with pytest.raises(KafkaError):
            await backlogs.passes(nowhere, 100, 10, wait=20)
    await backlogs.close()
