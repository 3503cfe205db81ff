"""`ShadowReader` against a real node: what it reads, where it goes on, and what it does not take for silence."""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportPrivateImportUsage]

from sidecar.client import NewTopic, ShadowReader, SidecarError, SidecarUnavailableError
from sidecar.client.sync import ExclusiveProducer as SyncProducer
from sidecar.protocol.errors import ErrorCode
from tests.conftest import OwnKafka, StartNode, Unique
from tests.kafka.client.conftest import Topic
from tests.kafka.client.test_examples import example
from tests.kafka.exclusive.producers import RawProducer
from tests.nodes import NodeProcess
from tests.rest import Rest, govern
from tests.services import Services

PAGE = Path(__file__).resolve().parents[3] / "docs" / "use" / "shadow-topics.md"


def write(services: Services, topic: str, *values: str, partition: int = 0, transaction: str = "") -> None:
    settings: dict[str, str | int] = {"bootstrap.servers": services.kafka_bootstrap, "log_level": 0}
    producer = Producer(settings | ({"transactional.id": f"{topic}-w"} if transaction else {}))
    if transaction:
        producer.init_transactions(30)
        producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=partition)
    producer.flush(30)
    if transaction == "abort":
        producer.abort_transaction(30)
    elif transaction:
        producer.commit_transaction(30)


@pytest.fixture
def orders(services: Services, rest: Rest, new_topic: Topic) -> str:
    """Two partitions, three records in the first and one in the second."""
    topic = new_topic(rest, partitions=2)
    write(services, topic, "a", "b", "c")
    write(services, topic, "d", partition=1)
    return topic


@pytest.fixture
def audit(rest: Rest, orders: str, unique: Unique) -> str:
    name = unique("audit")
    assert rest.call("POST", f"/v1/topics/{orders}/shadows", {"name": name})[0] == 201
    return name


async def take(reader: ShadowReader, count: int) -> set[tuple[int, int, bytes | None]]:
    found: set[tuple[int, int, bytes | None]] = set()
    async with asyncio.timeout(30):
        async for record in reader:
            assert record.topic == reader.shadow
            found.add((record.partition, record.offset, record.value))
            if len(found) == count:
                break
    return found


ALL = {(0, 0, b"a"), (0, 1, b"b"), (0, 2, b"c"), (1, 0, b"d")}


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
async def test_nothing_is_left_to_read_where_a_fence_is_last_in_the_log(
    services: Services, node: NodeProcess, rest: Rest, orders: str, audit: str, unique: Unique, isolation: Any
) -> None:
    """The loop that the documentation shows waited for a record that had been read."""
    govern(rest, orders)
    group = unique("g")
    with await asyncio.to_thread(RawProducer, node.bootstrap, "billing") as billing:
        assert (await asyncio.to_thread(billing.send, orders, b"e")).error == 0
        assert rest.call("POST", f"/v1/topics/{orders}/fence")[0] == 200
    found: list[bytes | None] = []
    async with asyncio.timeout(60), ShadowReader(node.bootstrap, audit, group, isolation_level=isolation) as reader:
        async for record in reader:
            found.append(record.value)
            await reader.commit()
            if not any((await reader.lag()).values()):
                break
    assert sorted(each for each in found if each) == [b"a", b"b", b"c", b"d", b"e"]


async def test_what_is_there_is_read_at_once_in_order_and_no_more_is_waited_for(
    services: Services, node: NodeProcess, rest: Rest, orders: str, audit: str, unique: Unique
) -> None:
    govern(rest, orders)
    with await asyncio.to_thread(RawProducer, node.bootstrap, "billing") as billing:  # a fence comes first, and last
        assert (await asyncio.to_thread(billing.send, orders, b"e")).error == 0
        assert rest.call("POST", f"/v1/topics/{orders}/fence")[0] == 200
    group = unique("g")
    async with asyncio.timeout(60), ShadowReader(node.bootstrap, audit, group) as reader:
        first = await reader.read_available(2)
        assert [(each.topic, each.partition, each.offset, each.value) for each in first] == [
            (audit, 0, 0, b"a"), (audit, 0, 1, b"b")]  # fmt: skip
        await reader.commit()
    async with asyncio.timeout(60), ShadowReader(node.bootstrap, audit, group) as reader:
        rest_of_it = await reader.read_available()
        assert [each.value for each in rest_of_it if each.partition == 0][:1] == [b"c"]
        assert sorted(each.value or b"" for each in rest_of_it) == [b"c", b"d", b"e"]
        assert await reader.read_available() == []
        assert set((await reader.lag()).values()) == {0}
        await asyncio.to_thread(write, services, orders, *(str(number) for number in range(1200)))
        sizes = [len(await reader.read_available()) for _ in range(4)]
        assert sizes == [500, 500, 200, 0]
        with pytest.raises(ValueError, match="limit"):
            await reader.read_available(0)


async def test_a_reading_of_what_is_there_that_is_cancelled_has_read_nothing(
    node: NodeProcess, orders: str, audit: str
) -> None:
    async with asyncio.timeout(60), ShadowReader(node.bootstrap, audit) as reader:
        kafka = reader._open()
        first = await reader.read_available(1)
        getmany = kafka.getmany

        async def cut(*partitions: TopicPartition, **settings: Any) -> Any:
            await getmany(*partitions, **settings)
            raise asyncio.CancelledError

        kafka.getmany = cut
        with pytest.raises(asyncio.CancelledError):
            await reader.read_available()
        kafka.getmany = getmany
        assert {each.value for each in [*first, *await reader.read_available()]} == {b"a", b"b", b"c", b"d"}


async def test_of_a_shadow_that_is_closed_nothing_is_there_and_that_is_an_error(
    services: Services, node: NodeProcess, orders: str, audit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.client.reader._IDLE_S", 0.3)
    async with ShadowReader(node.bootstrap, audit) as reader:
        client = AdminClient({"bootstrap.servers": services.kafka_bootstrap, "log_level": 0})
        await asyncio.to_thread(client.delete_topics([orders])[orders].result, 20)

        async def until_the_node_has_heard_of_it() -> None:
            while True:
                with contextlib.suppress(SidecarUnavailableError):
                    await reader.read_available(1)

        with pytest.raises(SidecarError) as closed:
            await asyncio.wait_for(until_the_node_has_heard_of_it(), 60)
        assert closed.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


GROUP = """
import sys
from sidecar.client.sync import ShadowReader
with ShadowReader(sys.argv[1], sys.argv[2], group="first") as reader:
    print(next(reader).value)
"""


def test_the_first_group_of_a_cluster_is_no_reason_to_complain(
    own_kafka: OwnKafka, services: Services, node_process: StartNode
) -> None:
    """Kafka makes the topic of all groups then, and aiokafka logged that there is no coordinator."""
    node = node_process(kafka=own_kafka().bootstrap, redis=services.redis_url)
    with SyncProducer(node.bootstrap, topic="orders", name="billing", create=NewTopic(1, 1)) as producer:
        producer.send(b"first")
    assert Rest(node.admin_url).call("POST", "/v1/topics/orders/shadows", {"name": "audit"})[0] == 201
    program = [sys.executable, "-W", "error", "-c", GROUP, node.bootstrap, "audit"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("b'first'\n", "")


async def test_what_was_looked_at_for_the_lag_is_not_committed_before_it_is_read(
    services: Services, node: NodeProcess, orders: str, audit: str, unique: Unique
) -> None:
    group = unique("g")
    async with ShadowReader(node.bootstrap, audit, group) as reader:
        (first,) = await take(reader, 1)
        assert sum((await reader.lag()).values()) == 3
        await reader.commit()
    async with ShadowReader(node.bootstrap, audit, group) as reader:
        assert await take(reader, 3) == ALL - {first}
        assert await reader.lag() == {0: 0, 1: 0}
        reader.seek(0, 1)
        assert await reader.lag() == {0: 2, 1: 0}
        reader.seek(0, 2)
        assert await take(reader, 1) == {(0, 2, b"c")}


async def test_a_reader_goes_on_where_its_group_stood(
    services: Services, node: NodeProcess, orders: str, audit: str, unique: Unique
) -> None:
    """Its cursors are the shadow's: nothing is kept for the source."""
    group = unique("g")
    async with ShadowReader(node.bootstrap, audit, group) as reader:
        assert (reader.shadow, reader.group, reader.partitions) == (audit, group, {0, 1})
        assert await reader.lag() == {0: 3, 1: 1}
        assert await take(reader, 4) == ALL
        assert await reader.lag() == {0: 0, 1: 0}
        await reader.commit()
    write(services, orders, "e")
    async with ShadowReader([node.bootstrap], shadow=audit, group=group) as reader:
        assert await take(reader, 1) == {(0, 3, b"e")}
    async with ShadowReader(node.bootstrap, audit, group) as reader:
        assert await take(reader, 1) == {(0, 3, b"e")}  # it was not committed
    consumer = AIOKafkaConsumer(bootstrap_servers=services.kafka_bootstrap, group_id=group)
    await consumer.start()
    try:
        committed = [
            await consumer.committed(TopicPartition(topic, partition))
            for topic in (audit, orders)
            for partition in (0, 1)
        ]
    finally:
        await consumer.stop()
    assert committed == [3, 1, None, None]


async def test_a_reader_without_a_group_reads_all_and_keeps_nothing(node: NodeProcess, audit: str) -> None:
    for _ in range(2):
        async with ShadowReader(node.bootstrap, audit) as reader:
            assert await take(reader, 4) == ALL
            with pytest.raises(ValueError, match="without a group"):
                await reader.commit()


async def test_a_reader_seeks(services: Services, node: NodeProcess, orders: str, audit: str) -> None:
    async with ShadowReader(node.bootstrap, audit) as reader:
        await take(reader, 4)
        await reader.seek_to_beginning()
        assert await take(reader, 4) == ALL
        reader.seek(0, 2)
        assert await reader.lag() == {0: 1, 1: 0}
        assert await take(reader, 1) == {(0, 2, b"c")}
        reader.seek(0, 0)
        await reader.seek_to_end()
        assert await reader.lag() == {0: 0, 1: 0}
        write(services, orders, "e")
        assert await take(reader, 1) == {(0, 3, b"e")}
        with pytest.raises(ValueError, match=r"partition 7 .* \[0, 1\]"):
            reader.seek(7, 0)


async def test_where_to_begin_and_which_records_count_is_said(
    services: Services, node: NodeProcess, orders: str, audit: str
) -> None:
    async with ShadowReader(node.bootstrap, audit, offset_reset="latest") as reader:
        assert await reader.lag() == {0: 0, 1: 0}
        write(services, orders, "no", partition=1, transaction="abort")
        write(services, orders, "yes", partition=1, transaction="commit")
        assert await take(reader, 2) == {(1, 1, b"no"), (1, 3, b"yes")}
    async with ShadowReader(node.bootstrap, audit, isolation_level="read_committed") as reader:
        assert await take(reader, 5) == ALL | {(1, 3, b"yes")}


async def test_past_the_nodes_it_reads_nothing_and_moves_no_cursor(
    services: Services, node: NodeProcess, audit: str
) -> None:
    with pytest.raises(SidecarUnavailableError, match="only a node"):
        async with ShadowReader(services.kafka_bootstrap, audit, "g", timeout=10):
            pass
    async with ShadowReader(f"127.0.0.1:1,{node.bootstrap}", audit) as reader:
        assert await take(reader, 4) == ALL
    with pytest.raises(SidecarUnavailableError, match=r"127\.0\.0\.1:1"):
        await ShadowReader("127.0.0.1:1", audit, timeout=5).__aenter__()


async def test_what_is_not_there_is_said_and_not_created(node: NodeProcess, rest: Rest, unique: Unique) -> None:
    name = unique("nothing")
    with pytest.raises(SidecarError) as told:
        async with ShadowReader(node.bootstrap, name, "g"):
            pass
    assert told.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert rest.call("GET", f"/v1/topics/{name}")[0] == 404


async def test_a_shadow_that_is_closed_while_it_is_read_is_no_silence(
    services: Services, node: NodeProcess, orders: str, audit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.client.reader._IDLE_S", 0.3)
    async with ShadowReader(node.bootstrap, audit) as reader:
        assert await take(reader, 4) == ALL
        client = AdminClient({"bootstrap.servers": services.kafka_bootstrap, "log_level": 0})
        await asyncio.to_thread(client.delete_topics([orders])[orders].result, 20)
        with pytest.raises(SidecarError) as told:
            await take(reader, 1)
        assert told.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_reader_that_is_given_up_waiting_misses_nothing(
    services: Services, node: NodeProcess, orders: str, audit: str
) -> None:
    async with ShadowReader(node.bootstrap, audit) as reader:
        await take(reader, 4)
        for _ in range(20):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await anext(reader)
        write(services, orders, "e")
        assert await take(reader, 1) == {(0, 3, b"e")}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"shadow": ""}, "shadow is empty"),
        ({"group": ""}, "group is empty"),
        ({"offset_reset": "none"}, "offset_reset 'none'"),
        ({"isolation_level": "serializable"}, "isolation_level 'serializable'"),
        ({"timeout": 0}, "timeout is 0 s"),
        ({"bootstrap": ""}, "no address"),
    ],
)
async def test_what_makes_no_sense_is_refused_by_name(wrong: dict[str, object], said: str) -> None:
    settings: dict[str, object] = {"bootstrap": "h:1", "shadow": "audit", **wrong}
    with pytest.raises(ValueError, match=said):
        ShadowReader(**settings)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="async with"):
        await anext(ShadowReader("h:1", "audit"))


def test_the_programs_of_the_docs_read_a_shadow_to_its_end(
    services: Services, node: NodeProcess, rest: Rest, new_topic: Topic, unique: Unique
) -> None:
    topic, names = new_topic(rest), [unique("audit"), unique("audit")]
    write(services, topic, "first", "second")
    (block,) = re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for name, program in zip(names, (block, example(ShadowReader.__doc__)), strict=True):
        assert rest.call("POST", f"/v1/topics/{topic}/shadows", {"name": name})[0] == 201
        text = program.replace("127.0.0.1:19092", node.bootstrap).replace("localhost:19092", node.bootstrap)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", text.replace("orders-audit", name)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert [line.split()[-1] for line in done.stdout.splitlines()] == ["b'first'", "b'second'"]
