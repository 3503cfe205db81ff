"""`send_all` on a real broker: what it says of each record is what the log holds, also where it loses the topic."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from sidecar.client import ExclusiveProducer, ProducerFencedError, Receipt, Record
from sidecar.client.sync import ExclusiveProducer as SyncProducer
from tests.kafka.client.conftest import Topic
from tests.kafka.client.test_sending import numbers
from tests.logs import read_log
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.services import Services


async def test_thousands_are_written_in_order_each_where_its_receipt_says(
    services: Services, node: NodeProcess, rest: Rest, new_topic: Topic
) -> None:
    topic = await asyncio.to_thread(new_topic, rest, 3, deduplication=True, access_mode="exclusive")
    records = [Record(value, key=b"%d" % (index % 7)) for index, value in enumerate(numbers(15_000))]
    async with ExclusiveProducer(node.bootstrap, topic=topic, name="billing") as producer:
        outcomes = await producer.send_all(iter(records))
        receipts = [each for each in outcomes if isinstance(each, Receipt)]
        assert [each.sequence_id for each in receipts] == list(range(15_000))
    logs = [await asyncio.to_thread(read_log, services.kafka_bootstrap, topic, partition) for partition in range(3)]
    for partition, log in enumerate(logs):
        mine = [(record, at) for record, at in zip(records, receipts, strict=True) if at.partition == partition]
        assert log == [record.value for record, _ in mine]
        offsets = [at.offset for _, at in mine]
        assert offsets == sorted(set(offsets))
    async with ExclusiveProducer(node.bootstrap, topic=topic, name="billing") as producer:  # all of it again
        again = [Record(each.value, each.key, sequence_id=index) for index, each in enumerate(records)]
        assert all(isinstance(each, Receipt) and each.duplicate for each in await producer.send_all(again))


async def test_a_topic_that_is_lost_on_the_way_leaves_each_record_in_the_log_or_refused(
    services: Services, node: NodeProcess, rest: Rest, new_topic: Topic
) -> None:
    topic = await asyncio.to_thread(new_topic, rest, deduplication=True, access_mode="exclusive")
    halfway = asyncio.Event()
    loop = asyncio.get_running_loop()

    def given() -> Iterator[bytes]:
        for number, value in enumerate(numbers(60_000)):
            if number == 20_000:
                loop.call_soon(halfway.set)
            yield value

    async def rival() -> int:
        await halfway.wait()
        async with ExclusiveProducer(
            node.bootstrap, topic=topic, name="rival", mode="exclusive_with_fencing"
        ) as second:
            return (await second.send(b"rival")).offset

    async with ExclusiveProducer(node.bootstrap, topic=topic, name="billing") as producer:
        took = asyncio.create_task(rival())
        outcomes = await producer.send_all(given())
        first_of_rival = await took
    receipts = [each for each in outcomes if isinstance(each, Receipt)]
    refused = outcomes[len(receipts) :]
    assert len(outcomes) == 60_000
    assert len(receipts) >= 10_000
    assert refused, "the rival came too late to be one"
    assert all(isinstance(each, ProducerFencedError) for each in refused)
    log = await asyncio.to_thread(read_log, services.kafka_bootstrap, topic)
    in_doubt = [number for number, each in enumerate(outcomes) if not isinstance(each, Receipt) and each.in_doubt]
    written = len(log) - 1
    assert log == [*numbers(written), b"rival"]
    assert len(receipts) <= written <= len(receipts) + len(in_doubt)
    assert all(each.offset < first_of_rival for each in receipts)


def test_the_twin_does_the_same(services: Services, node: NodeProcess, rest: Rest, new_topic: Topic) -> None:
    topic = new_topic(rest, access_mode="exclusive")
    with SyncProducer(node.bootstrap, topic=topic, name="billing") as producer:
        outcomes = producer.send_all([b"0", Record(b"1"), Record(b"2", partition=5)])
    assert [isinstance(each, Receipt) for each in outcomes] == [True, True, False]
    assert read_log(services.kafka_bootstrap, topic) == [b"0", b"1"]
