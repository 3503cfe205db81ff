"""Records of an ExclusiveProducer: once each, in order, over restarts, lost answers and refusals."""

from __future__ import annotations

import asyncio
import struct

import pytest

from sidecar.client import (
    ExclusiveProducer,
    Receipt,
    SequenceError,
    SidecarError,
    SidecarUnavailableError,
)
from tests.conftest import StartNode, Unique
from tests.kafka.client.conftest import Topic
from tests.kafka.client.proxy import PRODUCE, Proxy
from tests.logs import read_log, read_messages
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for_async


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


async def send_all(producer: ExclusiveProducer, records: list[bytes], **settings: object) -> list[Receipt]:
    """All at once; the order is that of the list."""
    return await asyncio.gather(*[producer.send(each, **settings) for each in records])  # type: ignore[arg-type]


def error_of(answer: bytes) -> int:
    """The error of the only partition in an answer to Produce (versions 3 to 8)."""
    (topic,) = struct.unpack_from(">h", answer, 8)
    return struct.unpack_from(">h", answer, 8 + 2 + topic + 8)[0]


def with_error(answer: bytes, code: int) -> bytes:
    (topic,) = struct.unpack_from(">h", answer, 8)
    changed = bytearray(answer)
    struct.pack_into(">hq", changed, 8 + 2 + topic + 8, code, -1)
    return bytes(changed)


# Sequence ids ---------------------------------------------------------------------------------------------------------


async def test_an_application_goes_on_where_it_stopped(
    services: Services, node: NodeProcess, rest: Rest, new_topic: Topic
) -> None:
    topic = await asyncio.to_thread(new_topic, rest, deduplication=True)
    async with ExclusiveProducer(node.bootstrap, topic=topic, name="zähler/eu") as producer:
        assert (producer.last_sequence_id, producer.last_sequence_ids) == (-1, {})
        first = await producer.send(b"0")
        assert first == Receipt(0, first.offset, 0, False, 1)
        assert [each.sequence_id for each in await send_all(producer, numbers(4, 1))] == [1, 2, 3, 4]
        assert producer.last_sequence_id == 4
    async with ExclusiveProducer(node.bootstrap, topic=topic, name="zähler/eu") as producer:
        assert (producer.last_sequence_id, producer.last_sequence_ids, producer.generation) == (4, {0: 4}, 2)
        resumed = await producer.send(b"5")
        assert (resumed.sequence_id, resumed.duplicate, resumed.generation) == (5, False, 2)
    messages = await asyncio.to_thread(read_messages, services.kafka_bootstrap, topic)
    found = [(message.value(), dict(message.headers() or [])) for message in messages]
    assert found == [(b"%d" % number, {"sidecar-sequence-id": b"%d" % number}) for number in range(6)]


async def test_an_application_that_sends_everything_again_is_told_what_was_there(
    services: Services, node: NodeProcess, rest: Rest, new_topic: Topic
) -> None:
    topic = await asyncio.to_thread(new_topic, rest, 2, deduplication=True)
    async with ExclusiveProducer(node.bootstrap, topic=topic, name="billing") as producer:
        assert not any(each.duplicate for each in await send_all(producer, numbers(6)))
    async with ExclusiveProducer(node.bootstrap, topic=topic, name="billing", initial_sequence_id=0) as producer:
        again = await send_all(producer, numbers(10))
    assert [each.sequence_id for each in again] == list(range(10))
    assert [each.duplicate for each in again] == [True] * 6 + [False] * 4
    assert all((each.offset == -1) is each.duplicate for each in again)
    for partition in (0, 1):
        found = await asyncio.to_thread(read_log, services.kafka_bootstrap, topic, partition)
        assert found == [b"%d" % number for number in range(partition, 10, 2)]
        offsets = [each.offset for each in again if each.partition == partition and not each.duplicate]
        assert offsets == sorted(offsets)


async def test_ids_that_are_given_may_have_holes_and_have_to_go_on(
    node: NodeProcess, rest: Rest, new_topic: Topic
) -> None:
    topic = await asyncio.to_thread(new_topic, rest, deduplication=True)
    async with ExclusiveProducer(node.bootstrap, topic=topic, name="billing", initial_sequence_id=99) as producer:
        assert (await producer.send(b"a")).sequence_id == 99  # PIP-6: the id of the first record
        for number in (1_000, 2_000):
            receipt = await producer.send(b"b", sequence_id=number)
            assert (receipt.sequence_id, receipt.duplicate) == (number, False)
        for given in (2_000, 5, -1, None):
            with pytest.raises(SequenceError) as refused:
                await producer.send(b"c", sequence_id=given)
            assert (refused.value.code, refused.value.retryable) == (87, False)
        assert (await producer.send(b"d", sequence_id=2_001)).sequence_id == 2_001
        assert producer.last_sequence_ids == {0: 2_001}


async def test_without_deduplication_records_bear_no_id(
    services: Services, node: NodeProcess, rest: Rest, new_topic: Topic
) -> None:
    topic = await asyncio.to_thread(new_topic, rest, 2, access_mode="exclusive")
    async with ExclusiveProducer(node.bootstrap, topic=topic, name="billing") as producer:
        assert (producer.last_sequence_id, producer.last_sequence_ids) == (-1, {})
        receipts = await send_all(producer, numbers(4), partition=0)
        assert {(each.sequence_id, each.duplicate) for each in receipts} == {(-1, False)}
        with pytest.raises(SequenceError, match=f"sidecar topic set {topic} --dedup"):
            await producer.send(b"x", sequence_id=4)
        assert {each.partition for each in await send_all(producer, numbers(4))} == {0, 1}
    messages = await asyncio.to_thread(read_messages, services.kafka_bootstrap, topic)
    found = [(message.value(), dict(message.headers() or [])) for message in messages]
    assert found[:4] == [(each, {}) for each in numbers(4)]
    with pytest.raises(SequenceError, match="has no deduplication"):
        await ExclusiveProducer(node.bootstrap, topic=topic, name="billing", initial_sequence_id=4).start()


# Order ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [None, "zstd"])
async def test_each_partition_has_its_records_in_the_order_of_the_calls(
    services: Services, node: NodeProcess, rest: Rest, new_topic: Topic, compression: str | None
) -> None:
    topic = await asyncio.to_thread(new_topic, rest, 3, deduplication=True)
    async with ExclusiveProducer(node.bootstrap, topic=topic, name="billing", compression=compression) as producer:  # type: ignore[arg-type]
        receipts = await send_all(producer, [each * 50 for each in numbers(600, 1000)])
    for partition in range(3):
        found = await asyncio.to_thread(read_log, services.kafka_bootstrap, topic, partition)
        mine = [each for each in receipts if each.partition == partition]
        assert found == [b"%d" % (each.sequence_id + 1000) * 50 for each in mine]
        assert [each.offset for each in mine] == list(range(mine[0].offset, mine[0].offset + len(mine)))


async def test_keys_go_where_javas_client_puts_them(node: NodeProcess, rest: Rest, new_topic: Topic) -> None:
    topic = await asyncio.to_thread(new_topic, rest, 3, deduplication=True)
    async with ExclusiveProducer(node.bootstrap, topic=topic, name="billing") as producer:
        found = [(await producer.send(None, key=key)).partition for key in (b"a", b"b", b"hello", b"order-17")]
    assert found == [murmur2(key) % 3 for key in (b"a", b"b", b"hello", b"order-17")]


def murmur2(data: bytes) -> int:
    """Kafka's `Utils.murmur2`, made positive."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(data)
    for at in range(0, len(data) - len(data) % 4, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        h = (h * m & mask) ^ ((k ^ (k >> 24)) * m & mask)
    if rest := data[len(data) - len(data) % 4 :]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return (h ^ (h >> 15)) & 0x7FFFFFFF


# Failures -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deduplication", [True, False])
async def test_a_record_that_is_refused_leaves_the_producer_at_work(
    services: Services, node: NodeProcess, rest: Rest, new_topic: Topic, deduplication: bool
) -> None:
    """A refused batch takes no sequences: what follows goes out under the same ones."""
    small = {"max.message.bytes": "2000"}
    topic = await asyncio.to_thread(new_topic, rest, 1, small, access_mode="exclusive", deduplication=deduplication)
    async with ExclusiveProducer(node.bootstrap, topic=topic, name="billing") as producer:
        await producer.send(b"0")
        outcomes = await asyncio.gather(
            producer.send(b"x" * 70_000), *[producer.send(each) for each in numbers(3, 1)], return_exceptions=True
        )
        refused, *after = outcomes
        assert isinstance(refused, SidecarError)
        assert (refused.code, refused.retryable) == (10, False)
        assert [each.generation for each in after if isinstance(each, Receipt)] == [1, 1, 1]
        if deduplication:
            assert producer.last_sequence_id == 4
    assert await asyncio.to_thread(read_log, services.kafka_bootstrap, topic) == numbers(4)


async def test_a_record_near_the_brokers_limit_is_written_and_one_above_is_told_both_sizes(
    node: NodeProcess, rest: Rest, new_topic: Topic
) -> None:
    """A node refuses a large frame as the first one of a connection: the first record may be large all the same."""
    topic = await asyncio.to_thread(new_topic, rest, 1, {"max.message.bytes": "1000000"}, access_mode="exclusive")
    async with ExclusiveProducer(node.bootstrap, topic=topic, name="billing", timeout=20) as producer:
        first = await producer.send(bytes(999_000))
        with pytest.raises(SidecarError, match=r"a batch of 10000\d\d bytes.* max.message.bytes is 1000000") as refused:
            await producer.send(bytes(1_000_000))
        assert (refused.value.code, refused.value.retryable) == (10, False)
        assert (await producer.send(b"1")).offset == first.offset + 1


async def test_a_compacted_topic_is_owned_too_and_wants_keys(node: NodeProcess, rest: Rest, new_topic: Topic) -> None:
    compacted = {"cleanup.policy": "compact"}
    topic = await asyncio.to_thread(new_topic, rest, 1, compacted, access_mode="exclusive")
    async with ExclusiveProducer(node.bootstrap, topic=topic, name="billing") as producer:
        with pytest.raises(SidecarError, match="needs a key") as refused:
            await producer.send(b"0")
        assert (type(refused.value), refused.value.code, refused.value.retryable) == (SidecarError, 87, False)
        assert (await producer.send(b"1", key=b"k")).generation == 1


async def test_a_lost_answer_is_asked_for_again(
    services: Services, hidden: tuple[NodeProcess, int], behind: Proxy, hidden_rest: Rest, new_topic: Topic
) -> None:
    topic = await asyncio.to_thread(new_topic, hidden_rest)
    lost = 0

    def lose(key: int, answer: bytes) -> bytes | None:
        nonlocal lost
        if key == PRODUCE and error_of(answer) == 0 and not lost:
            lost += 1
            return None
        return answer

    async with ExclusiveProducer(f"127.0.0.1:{hidden[1]}", topic=topic, name="billing") as producer:
        behind.edit = lose
        receipts = [await producer.send(each) for each in numbers(3)]
        assert (lost, producer.generation) == (1, 1)
        assert [each.offset - receipts[0].offset for each in receipts] == [0, 1, 2]
    assert await asyncio.to_thread(read_log, services.kafka_bootstrap, topic) == numbers(3)


async def test_a_session_that_lost_its_place_goes_on_as_a_new_one_and_writes_nothing_twice(
    services: Services, hidden: tuple[NodeProcess, int], behind: Proxy, hidden_rest: Rest, new_topic: Topic
) -> None:
    """A batch is in the log, and its client is told 45 instead: it cannot know. A new session sends again what has
    no outcome; the ids tell the node what was there.
    """
    topic = await asyncio.to_thread(new_topic, hidden_rest, 2, deduplication=True)
    changed: list[bytes] = []

    def deny(key: int, answer: bytes) -> bytes:
        if key == PRODUCE and not changed and error_of(answer) == 0:
            changed.append(answer)
            return with_error(answer, 45)
        return answer

    async with ExclusiveProducer(f"127.0.0.1:{hidden[1]}", topic=topic, name="billing") as producer:
        await send_all(producer, numbers(2))
        behind.edit = deny
        receipts = await send_all(producer, numbers(40, 2))
        assert len(changed) == 1
        assert [each.sequence_id for each in receipts] == list(range(2, 42))
        assert not any(each.duplicate for each in receipts)  # nobody but this very send wrote them
        told = [{each.generation for each in receipts if each.partition == partition} for partition in (0, 1)]
        assert {1} in told or told == [{2}, {2}]  # the other partition's batch had its answer before
        assert {2} in told
        assert producer.generation == hidden_rest.topic(topic)["generation"] == 2
        assert (await producer.send(b"42")).generation == 2
    for partition in (0, 1):
        found = await asyncio.to_thread(read_log, services.kafka_bootstrap, topic, partition)
        assert found == [b"%d" % number for number in range(partition, 43, 2)]


async def test_without_ids_what_may_be_in_the_log_fails_instead(
    services: Services, hidden: tuple[NodeProcess, int], behind: Proxy, hidden_rest: Rest, new_topic: Topic
) -> None:
    topic = await asyncio.to_thread(new_topic, hidden_rest)
    changed: list[bytes] = []

    def deny(key: int, answer: bytes) -> bytes:
        if key == PRODUCE and not changed and error_of(answer) == 0:
            changed.append(answer)
            return with_error(answer, 45)
        return answer

    async with ExclusiveProducer(f"127.0.0.1:{hidden[1]}", topic=topic, name="billing") as producer:
        behind.edit = deny
        with pytest.raises(SidecarError, match="not known") as unknown:
            await producer.send(b"0")
        assert (unknown.value.code, unknown.value.retryable) == (45, False)
        assert (await producer.send(b"1")).generation == 2
    assert await asyncio.to_thread(read_log, services.kafka_bootstrap, topic) == numbers(2)


async def test_a_node_that_dies_in_mid_traffic_loses_and_repeats_nothing(
    services: Services, node_process: StartNode
) -> None:
    """With ids and without."""
    node = await asyncio.to_thread(node_process, LEASE_MS="500")
    topics = [await asyncio.to_thread(create_topic, services.kafka_bootstrap, 2) for _ in range(2)]
    for topic, deduplication in zip(topics, (True, False), strict=True):
        policy = {"access_mode": "exclusive", "deduplication": deduplication}
        status, _ = await asyncio.to_thread(Rest(node.admin_url).call, "PUT", f"/v1/topics/{topic}/policy", policy)
        assert status == 200
    receipts: list[Receipt] = []
    over = asyncio.Event()

    async def write(producer: ExclusiveProducer, partition: int) -> int:
        count = 0
        while not over.is_set():
            receipts.append(await producer.send(b"%d" % count, partition=partition))
            count += 1
        return count

    async def seen(count: int) -> None:
        await wait_for_async(lambda: asyncio.sleep(0, len(receipts) > count), "records", timeout=20)

    async with (
        ExclusiveProducer(node.bootstrap, topic=topics[0], name="billing") as first,
        ExclusiveProducer(node.bootstrap, topic=topics[1], name="billing") as second,
    ):
        lanes = [(producer, partition) for producer in (first, second) for partition in (0, 1)]
        writers = [asyncio.create_task(write(*lane)) for lane in lanes]
        await seen(40)
        await asyncio.to_thread(node.kill)
        await asyncio.to_thread(node.start)
        await seen(len(receipts) + 40)
        over.set()
        counts = await asyncio.gather(*writers)
        assert (first.generation, second.generation) == (1, 1)
    assert not any(each.duplicate for each in receipts)
    for (producer, partition), count in zip(lanes, counts, strict=True):
        found = await asyncio.to_thread(read_log, services.kafka_bootstrap, producer.topic, partition)
        assert found == numbers(count)


# Given up -------------------------------------------------------------------------------------------------------------


async def test_a_send_that_is_given_up_before_it_left_is_not_written(
    services: Services, hidden: tuple[NodeProcess, int], behind: Proxy, hidden_rest: Rest, new_topic: Topic
) -> None:
    topic = await asyncio.to_thread(new_topic, hidden_rest, deduplication=True)
    async with ExclusiveProducer(f"127.0.0.1:{hidden[1]}", topic=topic, name="billing") as producer:
        await producer.send(b"0")  # its connection is there
        asked = behind.asked[PRODUCE]
        behind.silent = True
        leaves = asyncio.create_task(producer.send(b"1"))
        await wait_for_async(lambda: asyncio.sleep(0, behind.asked[PRODUCE] > asked), "the record to leave")
        stays = asyncio.create_task(producer.send(b"2"))
        follows = asyncio.create_task(producer.send(b"3"))
        await asyncio.sleep(0)
        for task in (leaves, stays):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        behind.silent = False
        behind.cut()
        receipt = await follows
        assert (receipt.sequence_id, receipt.duplicate) == (3, False)
        assert producer.last_sequence_id == 3
    assert await asyncio.to_thread(read_log, services.kafka_bootstrap, topic) == [b"0", b"1", b"3"]


async def test_a_send_ends_in_time_and_its_id_may_be_given_again(
    services: Services, hidden: tuple[NodeProcess, int], behind: Proxy, hidden_rest: Rest, new_topic: Topic
) -> None:
    topic = await asyncio.to_thread(new_topic, hidden_rest, deduplication=True)
    async with ExclusiveProducer(f"127.0.0.1:{hidden[1]}", topic=topic, name="billing") as producer:
        assert producer._sender is not None
        producer._sender._timeout = 0.3
        behind.silent = True
        with pytest.raises(SidecarUnavailableError, match="no answer within") as late:
            await producer.send(b"7", sequence_id=7)
        assert (late.value.code, late.value.retryable, late.value.in_doubt) == (7, True, True)
        behind.silent = False
        behind.cut()
        for _ in range(100):  # until the connections are back
            try:
                receipt = await producer.send(b"7", sequence_id=7)
                break
            except SidecarUnavailableError:
                pass
        assert (receipt.sequence_id, receipt.duplicate) == (7, True)  # the first try arrived
    assert await asyncio.to_thread(read_log, services.kafka_bootstrap, topic) == [b"7"]


async def test_a_producer_closes_although_its_node_says_nothing(
    hidden: tuple[NodeProcess, int], behind: Proxy, hidden_rest: Rest, new_topic: Topic
) -> None:
    topic = await asyncio.to_thread(new_topic, hidden_rest)
    async with ExclusiveProducer(f"127.0.0.1:{hidden[1]}", topic=topic, name="billing") as producer:
        producer._timeout = 0.3
        behind.silent = True
        stuck = asyncio.create_task(producer.send(b"0"))
        await asyncio.sleep(0)
    with pytest.raises(SidecarUnavailableError):
        await stuck
    await wait_for_async(lambda: asyncio.sleep(0, behind.open == 0), "every connection to be closed")


async def test_what_was_sent_arrives_before_the_producer_closes(
    services: Services, node: NodeProcess, rest: Rest, new_topic: Topic
) -> None:
    topic = await asyncio.to_thread(new_topic, rest)
    async with ExclusiveProducer(node.bootstrap, topic=topic, name="billing") as producer:
        sent = [asyncio.create_task(producer.send(each)) for each in numbers(100)]
        await asyncio.sleep(0)
    assert len(await asyncio.gather(*sent)) == 100
    assert await asyncio.to_thread(read_log, services.kafka_bootstrap, topic) == numbers(100)


@pytest.mark.slow
@pytest.mark.parametrize("graceful", [True, False])
async def test_an_idle_owner_goes_on_at_the_node_that_takes_over(
    services: Services, node_process: StartNode, unique: Unique, graceful: bool
) -> None:
    """It shows itself there within the grace that an owner without a node has."""
    cluster = unique("c")
    nodes = [await asyncio.to_thread(node_process, cluster=cluster, node_id=each, LEASE_MS="1500") for each in (1, 2)]
    topic = await asyncio.to_thread(create_topic, services.kafka_bootstrap, 2)
    policy = {"access_mode": "exclusive", "deduplication": True}
    status, _ = await asyncio.to_thread(Rest(nodes[0].admin_url).call, "PUT", f"/v1/topics/{topic}/policy", policy)
    assert status == 200
    async with ExclusiveProducer([each.bootstrap for each in nodes], topic=topic, name="billing") as producer:
        before = await producer.send(b"before")
        serving = (await asyncio.to_thread(Rest(nodes[0].admin_url).topic, topic))["serving_node"]
        here, there = nodes[serving - 1], nodes[2 - serving]
        await asyncio.to_thread(here.stop if graceful else here.kill)
        await asyncio.sleep(8)  # the grace, and more: nobody is to be awaited any more
        shown = await asyncio.to_thread(Rest(there.admin_url).topic, topic)
        assert (shown["serving_node"], shown["generation"], shown["owner"]["name"]) == (there.node_id, 1, "billing")
        after = await producer.send(b"after")
    assert (before.generation, after.generation, after.sequence_id) == (1, 1, 1)
