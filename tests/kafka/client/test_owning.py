"""An ExclusiveProducer owns its topic: it takes it, waits for it, is told when it is lost, and never takes it back."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.errors import ProducerFenced

from sidecar.client import (
    ExclusiveProducer,
    NewTopic,
    ProducerBusyError,
    ProducerFencedError,
    SidecarError,
    SidecarUnavailableError,
)
from sidecar.client.names import Mode
from sidecar.local.ports import free_ports
from tests.conftest import Unique
from tests.kafka.client.conftest import Topic
from tests.kafka.client.proxy import Proxy
from tests.kafka.exclusive.producers import RawProducer
from tests.logs import read_log
from tests.nodes import NodeProcess
from tests.own import OwnClient
from tests.own import topic as own_topic
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for_async

MODES: tuple[Mode, ...] = ("exclusive", "wait_for_exclusive", "exclusive_with_fencing")


async def until(condition: Callable[[], object], what: str) -> None:
    """Wait for something that another thread may tell."""

    async def check() -> object:
        return await asyncio.to_thread(condition)

    await wait_for_async(check, what)


def connections(node: NodeProcess) -> int:
    """How many clients are connected, by the node's own metrics."""
    with urllib.request.urlopen(f"{node.admin_url}/metrics", timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    return int(float(next(line.split()[1] for line in lines if line.startswith("sidecar_client_connections "))))


def generation_of(node: NodeProcess, name: str, partition: int) -> int:
    """How often a partition had a new owner."""
    with OwnClient(node.bootstrap) as observer:
        return observer.owners(own_topic(name, partition)).ownerships[0].generation


@pytest.mark.parametrize("mode", MODES)
async def test_the_topic_is_owned_before_anything_is_written(
    services: Services, node: NodeProcess, rest: Rest, new_topic: Topic, mode: Mode
) -> None:
    topic = await asyncio.to_thread(new_topic, rest, 2)
    async with ExclusiveProducer(node.bootstrap, topic=topic, name="zähler/eu", mode=mode) as producer:
        shown = await asyncio.to_thread(rest.topic, topic)
        assert (shown["owner"]["name"], shown["owner"]["mode"], shown["generation"]) == ("zähler/eu", mode, 1)
        assert (producer.generation, producer.name) == (1, "zähler/eu")
        assert [await asyncio.to_thread(read_log, services.kafka_bootstrap, topic, each) for each in (0, 1)] == [[], []]
        receipt = await producer.send(b"first", key=b"k", headers=[("h", b"v")], partition=1)
        assert (receipt.partition, receipt.sequence_id, receipt.duplicate, receipt.generation) == (1, -1, False, 1)
    await until(lambda: rest.topic(topic)["owner"] is None, "the topic to be free")
    assert await asyncio.to_thread(read_log, services.kafka_bootstrap, topic, 1) == [b"first"]


async def test_a_name_is_assigned_to_whoever_has_none(node: NodeProcess, rest: Rest, new_topic: Topic) -> None:
    topic = await asyncio.to_thread(new_topic, rest)
    producers = [ExclusiveProducer(node.bootstrap, topic=topic) for _ in range(2)]
    assert producers[0].name != producers[1].name
    async with producers[0]:
        assert (await asyncio.to_thread(rest.topic, topic))["owner"]["name"] == producers[0].name


async def test_a_rival_is_told_who_owns_the_topic(node: NodeProcess, rest: Rest, new_topic: Topic) -> None:
    topic = await asyncio.to_thread(new_topic, rest)
    async with ExclusiveProducer(node.bootstrap, topic=topic, name="billing") as owner:
        with pytest.raises(ProducerBusyError, match=r"billing \(generation 1\)") as busy:
            await ExclusiveProducer(node.bootstrap, topic=topic, name="rival", mode="exclusive").start()
        assert (busy.value.code, busy.value.retryable) == (44, True)
        assert (await owner.send(b"mine")).generation == 1


async def test_who_waits_owns_the_topic_once_it_is_free(node: NodeProcess, rest: Rest, new_topic: Topic) -> None:
    topic = await asyncio.to_thread(new_topic, rest)
    next_one = ExclusiveProducer(node.bootstrap, topic=topic, name="next", timeout=0.5)
    async with ExclusiveProducer(node.bootstrap, topic=topic, name="billing") as owner:
        waiting = asyncio.create_task(next_one.start())
        await until(lambda: [each["name"] for each in rest.topic(topic)["waiting"]] == ["next"], "the waiter")
        await asyncio.sleep(0.7)  # its timeout is no limit for that
        assert not waiting.done()
        assert (await owner.send(b"mine")).generation == 1
    await waiting
    assert (next_one.generation, (await next_one.send(b"now mine")).generation) == (2, 2)
    await next_one.close()


async def test_a_fenced_producer_is_told_and_never_writes_again(
    services: Services, node: NodeProcess, rest: Rest, new_topic: Topic
) -> None:
    topic = await asyncio.to_thread(new_topic, rest, deduplication=True)
    async with ExclusiveProducer(node.bootstrap, topic=topic, name="billing") as loser:
        await loser.send(b"before")
        lost = asyncio.create_task(loser.lost())
        # under the same name, as a second instance of one application would be
        async with ExclusiveProducer(node.bootstrap, topic=topic, name="billing", mode="exclusive_with_fencing") as one:
            with pytest.raises(ProducerFenced) as fenced:
                await loser.send(b"too late")
            assert isinstance(fenced.value, ProducerFencedError)
            assert (fenced.value.code, fenced.value.retryable) == (90, False)
            assert "generation 2" in str(fenced.value)
            await asyncio.wait_for(lost, 5)
            assert (one.last_sequence_id, (await one.send(b"after")).sequence_id) == (0, 1)
        await until(lambda: rest.topic(topic)["owner"] is None, "the topic to be free")
        with pytest.raises(ProducerFencedError, match="generation 2"):
            await loser.send(b"revived")
        assert loser.generation == 1
    shown = await asyncio.to_thread(rest.topic, topic)
    assert (shown["owner"], shown["generation"]) == (None, 2)
    assert await asyncio.to_thread(read_log, services.kafka_bootstrap, topic) == [b"before", b"after"]


async def test_a_loss_is_told_at_once(
    node: NodeProcess, rest: Rest, new_topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the node: nobody asks it how things stand for a minute."""
    monkeypatch.setattr("sidecar.client.producer._POLL_S", 60.0)
    topic = await asyncio.to_thread(new_topic, rest)
    loser = ExclusiveProducer(node.bootstrap, topic=topic, name="billing")
    async with loser, ExclusiveProducer(node.bootstrap, topic=topic, name="next", mode="exclusive_with_fencing"):
        await asyncio.wait_for(loser.lost(), 5)
        with pytest.raises(ProducerFencedError, match="generation 2"):
            await loser.send(b"late")


@pytest.mark.parametrize("word", ["fence", "release"])
async def test_an_idle_producer_learns_of_an_administrators_word(
    node: NodeProcess, rest: Rest, new_topic: Topic, word: str
) -> None:
    topic = await asyncio.to_thread(new_topic, rest)
    async with ExclusiveProducer(node.bootstrap, topic=topic, name="billing") as producer:
        assert (await asyncio.to_thread(rest.call, "POST", f"/v1/topics/{topic}/{word}"))[0] == 200
        await asyncio.wait_for(producer.lost(), 5)
        with pytest.raises(ProducerFencedError, match="nobody owns"):
            await producer.send(b"late")


async def test_a_claim_that_was_lost_behind_a_dead_network_is_not_revived(
    services: Services, hidden: tuple[NodeProcess, int], behind: Proxy, hidden_rest: Rest, new_topic: Topic
) -> None:
    """The rival comes and goes while the owner cannot be reached: the topic is free, and is not taken back."""
    topic = await asyncio.to_thread(new_topic, hidden_rest)

    def come_and_go() -> None:
        with RawProducer(hidden[0].bootstrap, "rival;mode=exclusive") as rival:
            rival.initialise()
            assert rival.send(topic, b"rival", sequence=0).error == 0

    async with ExclusiveProducer(f"127.0.0.1:{hidden[1]}", topic=topic, name="billing") as loser:
        await loser.send(b"before")
        behind.blocked = True
        behind.cut()
        late = asyncio.create_task(loser.send(b"late"))
        await until(lambda: hidden_rest.topic(topic)["owner"] is None, "the owner to be gone")
        await asyncio.to_thread(come_and_go)
        await until(lambda: hidden_rest.topic(topic)["owner"] is None, "the rival to be gone")
        behind.blocked = False
        with pytest.raises(ProducerFencedError, match="generation 2"):
            await asyncio.wait_for(late, 10)
        await asyncio.wait_for(loser.lost(), 5)
    shown = await asyncio.to_thread(hidden_rest.topic, topic)
    assert (shown["owner"], shown["generation"]) == (None, 2)
    assert await asyncio.to_thread(read_log, services.kafka_bootstrap, topic) == [b"before", b"rival"]


async def test_a_claim_survives_a_network_that_comes_back_first(
    services: Services, hidden: tuple[NodeProcess, int], behind: Proxy, hidden_rest: Rest, new_topic: Topic
) -> None:
    topic = await asyncio.to_thread(new_topic, hidden_rest)
    async with ExclusiveProducer(f"127.0.0.1:{hidden[1]}", topic=topic, name="billing") as producer:
        await producer.send(b"before")
        behind.blocked = True
        behind.cut()
        late = asyncio.create_task(producer.send(b"late"))
        await until(lambda: hidden_rest.topic(topic)["owner"] is None, "the owner to be gone")
        behind.blocked = False
        assert (await asyncio.wait_for(late, 10)).generation == 1
        await until(lambda: hidden_rest.topic(topic)["owner"] is not None, "the owner to be back")
        assert producer.generation == hidden_rest.topic(topic)["generation"] == 1
    assert await asyncio.to_thread(read_log, services.kafka_bootstrap, topic) == [b"before", b"late"]


async def test_where_partitions_have_owners_it_owns_every_one(node: NodeProcess, rest: Rest, new_topic: Topic) -> None:
    topic = await asyncio.to_thread(new_topic, rest, 3, access_mode="exclusive", scope="partition", deduplication=True)
    async with ExclusiveProducer(node.bootstrap, topic=topic, name="billing", mode="exclusive") as producer:
        owners = (await asyncio.to_thread(rest.topic, topic))["owners"]
        assert {number: owner["name"] for number, owner in owners.items()} == dict.fromkeys("012", "billing")
        receipts = [await producer.send(b"v") for _ in range(3)]
        assert [(each.partition, each.sequence_id, each.generation) for each in receipts] == [
            (0, 0, 1), (1, 1, 1), (2, 2, 1),
        ]  # fmt: skip
        assert producer.last_sequence_id == 0
        with pytest.raises(ProducerBusyError):
            await ExclusiveProducer(node.bootstrap, topic=topic, name="rival", mode="exclusive").start()
        path = f"/v1/topics/{topic}/fence?partition=1"
        assert (await asyncio.to_thread(rest.call, "POST", path))[0] == 200
        await asyncio.wait_for(producer.lost(), 5)


async def test_of_a_topic_whose_partitions_have_owners_it_owns_those_that_are_named(
    services: Services, node: NodeProcess, rest: Rest, new_topic: Topic
) -> None:
    topic = await asyncio.to_thread(new_topic, rest, 4, access_mode="exclusive", scope="partition", deduplication=True)
    one = ExclusiveProducer(node.bootstrap, topic=topic, name="one", mode="exclusive", partitions=[3, 1])
    two = ExclusiveProducer(node.bootstrap, topic=topic, name="two", mode="exclusive", partitions={0})
    async with one, two:
        owners = (await asyncio.to_thread(rest.topic, topic))["owners"]
        assert {index: owner["name"] for index, owner in owners.items()} == {"0": "two", "1": "one", "3": "one"}
        assert (one.partitions, two.partitions) == ((1, 3), (0,))
        receipts = [await one.send(b"one") for _ in range(3)] + [await two.send(b"two")]
        assert [(each.partition, each.sequence_id) for each in receipts] == [(1, 0), (3, 1), (1, 2), (0, 0)]
        assert (one.last_sequence_id, one.last_sequence_ids, two.last_sequence_id) == (1, {1: 2, 3: 1}, 0)
        for partition in (0, 2):
            with pytest.raises(SidecarError, match=f"partition {partition} .* it owns 1, 3") as refused:
                await one.send(b"astray", partition=partition)
            assert (refused.value.code, refused.value.retryable) == (42, False)
        with pytest.raises(SidecarError, match="partitions 0 to 3") as unknown:
            await one.send(b"astray", partition=4)
        assert unknown.value.code == 3
        rival = ExclusiveProducer(node.bootstrap, topic=topic, name="rival", mode="exclusive", partitions=[2, 3])
        with pytest.raises(ProducerBusyError, match="one"):
            await rival.start()
        assert await asyncio.to_thread(generation_of, node, topic, 2) == 0  # all or nothing: it never had this one
        fence = f"/v1/topics/{topic}/fence?partition=3"
        assert (await asyncio.to_thread(rest.call, "POST", fence))[0] == 200
        await asyncio.wait_for(one.lost(), 5)
        assert (await two.send(b"two")).generation == 1
    logs = [await asyncio.to_thread(read_log, services.kafka_bootstrap, topic, each) for each in range(4)]
    assert logs == [[b"two"] * 2, [b"one"] * 2, [], [b"one"]]


async def test_a_partition_goes_on_where_it_stood_whoever_owns_it_next(
    node: NodeProcess, rest: Rest, new_topic: Topic
) -> None:
    topic = await asyncio.to_thread(new_topic, rest, 2, access_mode="exclusive", scope="partition", deduplication=True)
    async with ExclusiveProducer(node.bootstrap, topic=topic, name="totals-1", partitions=[1]) as first:
        await first.send(b"0")
        await first.send(b"1")
    async with ExclusiveProducer(node.bootstrap, topic=topic, name="totals-1", partitions=[1]) as second:
        assert (second.last_sequence_id, second.generation) == (1, 2)
        assert (await second.send(b"1", sequence_id=1)).duplicate
        assert (await second.send(b"2", sequence_id=2)).sequence_id == 2


async def test_a_key_stays_in_its_partition_whoever_owns_what(node: NodeProcess, rest: Rest, new_topic: Topic) -> None:
    topic = await asyncio.to_thread(new_topic, rest, 3, access_mode="exclusive", scope="partition")
    keys = [str(number).encode() for number in range(12)]
    async with ExclusiveProducer(node.bootstrap, topic=topic, name="all") as everything:
        places = {key: (await everything.send(b"v", key=key)).partition for key in keys}
    assert set(places.values()) == {0, 1, 2}
    async with ExclusiveProducer(node.bootstrap, topic=topic, name="some", partitions=[1, 2]) as some:
        for key, place in places.items():
            if place:
                assert (await some.send(b"v", key=key)).partition == place
            else:
                with pytest.raises(SidecarError, match="partition 0"):
                    await some.send(b"v", key=key)


async def test_partitions_of_a_topic_with_one_owner_are_not_to_be_had(
    node: NodeProcess, rest: Rest, new_topic: Topic
) -> None:
    topic = await asyncio.to_thread(new_topic, rest, 2, access_mode="exclusive")
    parts: dict[str, Any] = {"topic": topic, "name": "parts", "mode": "exclusive_with_fencing", "partitions": [0]}
    with pytest.raises(SidecarError, match="--scope partition") as free:
        await ExclusiveProducer(node.bootstrap, **parts).start()
    assert (free.value.code, free.value.retryable) == (42, False)
    async with ExclusiveProducer(node.bootstrap, topic=topic, name="owner") as owner:
        with pytest.raises(SidecarError, match="--scope partition"):
            await ExclusiveProducer(node.bootstrap, **parts).start()
        assert (await owner.send(b"still mine")).generation == 1  # nobody else ever owned it
    parted = await asyncio.to_thread(new_topic, rest, 2, access_mode="exclusive", scope="partition")
    with pytest.raises(SidecarError, match="partition 2") as unknown:
        await ExclusiveProducer(node.bootstrap, topic=parted, name="parts", partitions=[0, 2]).start()
    assert unknown.value.code == 3


# What cannot be -------------------------------------------------------------------------------------------------------


async def test_a_topic_that_does_not_exist_is_not_created(services: Services, node: NodeProcess) -> None:
    with pytest.raises(SidecarError, match="there is no topic not-there") as missing:
        await ExclusiveProducer(node.bootstrap, topic="not-there", name="billing").start()
    assert missing.value.code == 3


async def test_a_missing_topic_is_made_on_request(services: Services, node: NodeProcess, unique: Unique) -> None:
    topic, wanted = unique("made"), NewTopic(partitions=3, replication_factor=1, configs={"retention.ms": "3600000"})
    for number in range(2):  # the second time it is there
        async with ExclusiveProducer(node.bootstrap, topic=topic, name="billing", create=wanted) as producer:
            assert producer.partitions == (0, 1, 2)
            assert (await producer.send(b"v", partition=2)).offset >= number
    with pytest.raises(SidecarError, match="INVALID_REPLICATION_FACTOR") as refused:
        await ExclusiveProducer(node.bootstrap, unique("not"), create=NewTopic(replication_factor=9)).start()
    assert refused.value.code == 38
    never = unique("never")
    with pytest.raises(SidecarError):
        await ExclusiveProducer(services.kafka_bootstrap, never, create=NewTopic(), timeout=1.0).start()
    with pytest.raises(SidecarError, match=f"there is no topic {never}"):
        await ExclusiveProducer(node.bootstrap, never).start()


async def test_where_nobody_listens_it_gives_up_in_time() -> None:
    port = free_ports(1)[0]
    with pytest.raises(SidecarUnavailableError, match="cannot be reached") as away:
        await ExclusiveProducer(f"127.0.0.1:{port}", topic="orders", timeout=0.3).start()
    assert away.value.retryable


async def test_a_kafka_without_a_sidecar_is_told_and_nothing_is_written(services: Services) -> None:
    topic = await asyncio.to_thread(create_topic, services.kafka_bootstrap, 1)
    with pytest.raises(SidecarUnavailableError, match="DescribeOwners was asked"):
        await ExclusiveProducer(services.kafka_bootstrap, topic=topic, name="billing", timeout=2).start()
    assert await asyncio.to_thread(read_log, services.kafka_bootstrap, topic) == []


async def test_a_producer_is_used_once(node: NodeProcess, rest: Rest, new_topic: Topic) -> None:
    topic = await asyncio.to_thread(new_topic, rest)
    producer = ExclusiveProducer(node.bootstrap, topic=topic, name="billing")
    with pytest.raises(RuntimeError, match="not open"):
        await producer.send(b"too early")
    async with producer:
        with pytest.raises(RuntimeError, match="used once"):
            await producer.start()
        with pytest.raises(ValueError, match="not yours"):
            await producer.send(b"x", headers=[("sidecar-sequence-id", b"1")])
        with pytest.raises(SidecarError, match="partitions 0 to 0") as unknown:
            await producer.send(b"x", partition=1)
        assert unknown.value.code == 3
    await producer.close()
    await producer.lost()
    with pytest.raises(RuntimeError, match="not open"):
        await producer.send(b"too late")


# Cancelled ------------------------------------------------------------------------------------------------------------


async def test_cancelled_anywhere_on_the_way_in_nothing_stays_open(
    hidden: tuple[NodeProcess, int], behind: Proxy, hidden_rest: Rest, new_topic: Topic
) -> None:
    """Cut short at every answer that it waits for, one after the other, until none is left."""
    topic = await asyncio.to_thread(new_topic, hidden_rest, deduplication=True)
    for moment in range(100):
        seen = 0
        reached = asyncio.Event()

        def count(key: int, answer: bytes, *, last: int = moment, reached: asyncio.Event = reached) -> bytes:
            nonlocal seen
            seen += 1
            if seen > last:
                reached.set()
            return answer

        behind.edit = count  # in a mode in which nobody waits for one that was cancelled before
        producer = ExclusiveProducer(
            f"127.0.0.1:{hidden[1]}", topic=topic, name="billing", mode="exclusive_with_fencing"
        )
        start, event = asyncio.create_task(producer.start()), asyncio.create_task(reached.wait())
        await asyncio.wait({start, event}, return_when=asyncio.FIRST_COMPLETED)
        event.cancel()
        if start.done():
            await producer.close()
            break
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        await wait_for_async(lambda: asyncio.sleep(0, behind.open == 0), "every connection to be closed")
    assert moment > 5
    await wait_for_async(lambda: asyncio.sleep(0, behind.open == 0), "every connection to be closed")


async def test_who_waits_can_be_cancelled(node: NodeProcess, rest: Rest, new_topic: Topic) -> None:
    topic = await asyncio.to_thread(new_topic, rest)
    async with ExclusiveProducer(node.bootstrap, topic=topic, name="billing") as owner:
        await until(lambda: owner._claim._listener is not None, "all of the owner's own connections")
        before = await asyncio.to_thread(connections, node)
        waiting = asyncio.create_task(ExclusiveProducer(node.bootstrap, topic=topic, name="next").start())
        await until(lambda: rest.topic(topic)["waiting"], "the waiter")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not (await asyncio.to_thread(rest.topic, topic))["waiting"]  # by now: it gave up its place
        await until(lambda: connections(node) == before, "its connection to be gone")
