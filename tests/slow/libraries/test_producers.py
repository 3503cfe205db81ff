"""`clients/java` and `clients/go`: exclusive producers and sequence ids in processes that are killed and stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.conftest import StartNode, Unique
from tests.kafka.client.proxy import PRODUCE, Proxy
from tests.kafka.dedup.conftest import deduplicate
from tests.kafka.exclusive.producers import RawProducer
from tests.logs import read_log
from tests.nodes import NodeProcess
from tests.own import OwnClient
from tests.own import topic as own_topic
from tests.rest import Rest
from tests.services import Services
from tests.slow.libraries.conftest import Start
from tests.slow.libraries.peers import Peer
from tests.topics import create_topic
from tests.wait import wait_for

WAIT, FENCING, EXCLUSIVE = "WAIT_FOR_EXCLUSIVE", "EXCLUSIVE_WITH_FENCING", "EXCLUSIVE"


gives_up = pytest.mark.parametrize("language", ["java"], indirect=True)
"""Only a KafkaProducer fails a record that may be written yet; franz-go waits for what becomes of it."""


@pytest.fixture
def topic(services: Services, rest: Rest) -> str:
    name = create_topic(services.kafka_bootstrap, 1)
    status, answer = rest.call("PUT", f"/v1/topics/{name}/policy", {"access_mode": "exclusive", "deduplication": True})
    assert status == 200, answer
    return name


def receipt(peer: Peer) -> tuple[int, str, int]:
    """The next record's id, whether it was a duplicate, and the generation; of a duplicate no offset is known."""
    _, offset, number, duplicate, generation = peer.expect("ok ")
    assert (int(offset) == -1) is (duplicate == "true")
    return int(number), duplicate, int(generation)


@pytest.mark.smoke
def test_a_killed_owner_is_followed_by_the_one_that_waits_and_no_id_is_there_twice(
    start: Start, node: NodeProcess, rest: Rest, services: Services, topic: str
) -> None:
    first = start("write", node.bootstrap, "billing", topic, EXCLUSIVE)
    first.expect("open 1 -1")
    second = start("write", node.bootstrap, "billing", topic, WAIT)
    wait_for(lambda: [each["name"] for each in rest.topic(topic)["waiting"]] == ["billing"], "the second to wait")
    first.ask("0 zero", "1 one")
    assert [receipt(first) for _ in range(2)] == [(0, "false", 1), (1, "false", 1)]
    assert second.silent()
    first.kill()
    second.expect("open 2 1")
    second.ask("0 zero", "1 one", "2 two")
    assert [receipt(second) for _ in range(3)] == [(0, "true", 2), (1, "true", 2), (2, "false", 2)]
    second.close()
    wait_for(lambda: rest.topic(topic)["owner"] is None, "the topic to be free")
    assert read_log(services.kafka_bootstrap, topic) == [b"zero", b"one", b"two"]


def test_a_stopped_owner_is_fenced_for_good_and_none_of_its_records_comes_later(
    start: Start, node: NodeProcess, services: Services, topic: str
) -> None:
    first = start("write", node.bootstrap, "a", topic, EXCLUSIVE)
    first.expect("open 1 -1")
    first.ask("0 a0")
    receipt(first)
    first.stop()
    first.ask("1 a1", "2 a2")
    second = start("write", node.bootstrap, "b", topic, FENCING)
    second.expect("open 2 -1")
    second.ask("0 b0")
    receipt(second)
    first.go_on()
    lines = [first.line() for _ in range(3)]
    assert [line.split(":")[0] for line in lines].count("error fenced") == 2, lines
    assert "lost fenced" in lines
    first.ask("3 a3")
    assert first.line().startswith("error fenced")
    second.close()
    first.ask("4 a4")  # the topic is free again, and still not the old one's
    assert first.line().startswith("error fenced")
    assert read_log(services.kafka_bootstrap, topic) == [b"a0", b"b0"]
    third = start("write", node.bootstrap, "a", topic, EXCLUSIVE)  # a new producer may own it
    third.expect("open 3 0")
    third.close()
    first.close()


def test_an_owner_goes_on_when_its_node_is_killed_and_started_again(
    start: Start, node_process: StartNode, services: Services
) -> None:
    node = node_process()
    topic = create_topic(services.kafka_bootstrap, 1)
    rest = Rest(node.admin_url)
    status, answer = rest.call("PUT", f"/v1/topics/{topic}/policy", {"access_mode": "exclusive", "deduplication": True})
    assert status == 200, answer
    peer = start("write", node.bootstrap, "billing", topic, EXCLUSIVE)
    peer.expect("open 1 -1")
    peer.ask("zero")
    assert receipt(peer) == (0, "false", 1)
    node.kill()
    peer.ask("one")
    node.start()
    assert receipt(peer) == (1, "false", 1)
    assert peer.silent()
    rival = start("write", node.bootstrap, "rival", topic, EXCLUSIVE)
    assert "billing" in rival.line()
    peer.ask("two")
    assert receipt(peer) == (2, "false", 1)
    peer.close()
    assert read_log(services.kafka_bootstrap, topic) == [b"zero", b"one", b"two"]


@pytest.mark.parametrize("word", ["fence", "release"])
def test_what_an_operator_takes_is_lost_and_not_taken_back(
    start: Start, node: NodeProcess, rest: Rest, services: Services, topic: str, word: str
) -> None:
    peer = start("write", node.bootstrap, "billing", topic, EXCLUSIVE)
    peer.expect("open 1 -1")
    assert rest.call("POST", f"/v1/topics/{topic}/{word}")[0] == 200
    peer.expect("lost fenced")
    peer.ask("0 zero")
    assert peer.line().startswith("error fenced")
    peer.close()
    assert read_log(services.kafka_bootstrap, topic) == []
    assert rest.topic(topic)["owner"] is None


async def test_a_claim_survives_a_network_that_comes_back_first(
    start: Start, services: Services, hidden: tuple[NodeProcess, int], behind: Proxy
) -> None:
    topic, rest = create_topic(services.kafka_bootstrap, 1), Rest(hidden[0].admin_url)
    peer = start("write", f"127.0.0.1:{hidden[1]}", "billing", topic, EXCLUSIVE)
    await asyncio.to_thread(peer.expect, "open 1 -1")
    peer.ask("before")
    await asyncio.to_thread(peer.expect, "ok ")
    behind.blocked = True
    behind.cut()
    peer.ask("late")
    await until(lambda: rest.topic(topic)["owner"] is None, "the owner to be gone")
    behind.blocked = False
    assert (await asyncio.to_thread(peer.expect, "ok "))[-1] == "1"
    await until(lambda: rest.topic(topic)["owner"] is not None, "the owner to be back")
    assert rest.topic(topic)["generation"] == 1
    await asyncio.to_thread(peer.close)
    assert await asyncio.to_thread(read_log, services.kafka_bootstrap, topic) == [b"before", b"late"]


async def test_a_claim_that_was_lost_behind_a_dead_network_is_not_revived(
    start: Start, services: Services, hidden: tuple[NodeProcess, int], behind: Proxy
) -> None:
    """A rival comes and goes while the owner cannot be reached: the topic is free, and is not taken back."""
    topic, rest = create_topic(services.kafka_bootstrap, 1), Rest(hidden[0].admin_url)
    peer = start("write", f"127.0.0.1:{hidden[1]}", "billing", topic, EXCLUSIVE)
    await asyncio.to_thread(peer.expect, "open 1 -1")
    peer.ask("before")
    await asyncio.to_thread(peer.expect, "ok ")
    behind.blocked = True
    behind.cut()
    peer.ask("late")
    await until(lambda: rest.topic(topic)["owner"] is None, "the owner to be gone")
    await asyncio.to_thread(come_and_go, hidden[0].bootstrap, topic)
    await until(lambda: rest.topic(topic)["owner"] is None, "the rival to be gone")
    behind.blocked = False
    lines = sorted([await asyncio.to_thread(peer.line) for _ in range(2)])
    assert lines[0].startswith("error fenced")
    assert lines[1] == "lost fenced"
    await asyncio.to_thread(peer.close)
    assert (rest.topic(topic)["owner"], rest.topic(topic)["generation"]) == (None, 2)
    assert await asyncio.to_thread(read_log, services.kafka_bootstrap, topic) == [b"before", b"rival"]


async def test_a_record_whose_answer_is_lost_is_sent_again_and_is_there_once(
    start: Start, services: Services, hidden: tuple[NodeProcess, int], behind: Proxy
) -> None:
    topic, lost = create_topic(services.kafka_bootstrap, 1), []
    peer = start("write", f"127.0.0.1:{hidden[1]}", "billing", topic, EXCLUSIVE)
    await asyncio.to_thread(peer.expect, "open 1 -1")

    def lose_the_first(key: int, answer: bytes) -> bytes | None:
        if key != PRODUCE or lost:
            return answer
        lost.append(answer)
        return None

    behind.edit = lose_the_first
    peer.ask("zero", "one")
    for _ in range(2):
        await asyncio.to_thread(peer.expect, "ok ")
    await asyncio.to_thread(peer.close)
    assert len(lost) == 1
    assert await asyncio.to_thread(read_log, services.kafka_bootstrap, topic) == [b"zero", b"one"]


@gives_up
async def test_what_a_producer_never_heard_of_is_not_doubled_by_the_next_one(
    start: Start, services: Services, hidden: tuple[NodeProcess, int], behind: Proxy
) -> None:
    topic, rest, at = create_topic(services.kafka_bootstrap, 1), Rest(hidden[0].admin_url), f"127.0.0.1:{hidden[1]}"
    deduplicate(rest, topic)
    hasty = {"PEER_SETTINGS": "delivery.timeout.ms=5000\nrequest.timeout.ms=1000\n"}
    first = start("write", at, "billing", topic, EXCLUSIVE, environment=hasty)
    await asyncio.to_thread(first.expect, "open 1 -1")
    behind.silent = True
    first.ask("0 zero")
    await asyncio.to_thread(first.expect, "error away")
    assert await asyncio.to_thread(read_log, services.kafka_bootstrap, topic) == [b"zero"]
    first.kill()
    behind.silent = False
    behind.cut()
    second = start("write", at, "billing", topic, WAIT)
    await asyncio.to_thread(second.expect, "open 2 0")
    second.ask("0 zero", "1 one")
    for number, duplicate in enumerate(("true", "false")):
        assert await asyncio.to_thread(receipt, second) == (number, duplicate, 2)
    await asyncio.to_thread(second.close)
    assert await asyncio.to_thread(read_log, services.kafka_bootstrap, topic) == [b"zero", b"one"]


@gives_up
async def test_an_id_may_be_given_again_after_a_timeout(
    start: Start, services: Services, hidden: tuple[NodeProcess, int], behind: Proxy
) -> None:
    topic = create_topic(services.kafka_bootstrap, 1)
    deduplicate(Rest(hidden[0].admin_url), topic)
    hasty = {"PEER_SETTINGS": "delivery.timeout.ms=5000\nrequest.timeout.ms=1000\n"}
    peer = start("write", f"127.0.0.1:{hidden[1]}", "billing", topic, EXCLUSIVE, environment=hasty)
    await asyncio.to_thread(peer.expect, "open 1 -1")
    behind.silent = True
    peer.ask("0 zero")
    await asyncio.to_thread(peer.expect, "error away")
    behind.silent = False
    behind.cut()
    peer.ask("0 zero")
    assert await asyncio.to_thread(peer.expect, "ok ") == ["0", "-1", "0", "false", "1"]
    peer.ask("1 one")
    assert await asyncio.to_thread(receipt, peer) == (1, "false", 1)
    await asyncio.to_thread(peer.close)
    assert await asyncio.to_thread(read_log, services.kafka_bootstrap, topic) == [b"zero", b"one"]


def come_and_go(bootstrap: str, topic: str) -> None:
    with RawProducer(bootstrap, "rival;mode=exclusive") as rival:
        rival.initialise()
        assert rival.send(topic, b"rival", sequence=0).error == 0


async def until(condition: Callable[[], object], what: str) -> None:
    await asyncio.to_thread(wait_for, condition, what)


def test_an_owner_finds_the_node_that_serves_and_goes_on_at_the_next_one(
    start: Start, node_process: StartNode, services: Services, unique: Unique
) -> None:
    cluster = unique("c")
    nodes = [node_process(cluster=cluster, node_id=number) for number in (1, 2)]
    rests = [Rest(each.admin_url) for each in nodes]
    wait_for(lambda: all(len(r.call("GET", "/v1/status")[1]["nodes"]) == 2 for r in rests), "both nodes")
    topic = create_topic(services.kafka_bootstrap, 1)
    deduplicate(rests[0], topic, access_mode="exclusive")
    with OwnClient(nodes[0].bootstrap) as own:
        assert own.own(own_topic(topic)).error == 0
        wait_for(lambda: rests[1].topic(topic)["serving_node"] == 1, "the other node to know who serves the topic")
        waits = start("write", nodes[1].bootstrap, "billing", topic, WAIT)
        wait_for(lambda: [each["name"] for each in rests[0].topic(topic)["waiting"]] == ["billing"], "it to wait")
    waits.expect("open 2 -1")
    waits.ask("zero")
    assert receipt(waits) == (0, "false", 2)
    nodes[0].kill()
    waits.ask("one")
    assert receipt(waits) == (1, "false", 2)
    wait_for(lambda: rests[1].topic(topic)["owner"]["name"] == "billing", "the next node to know the owner")
    waits.close()
    wait_for(lambda: rests[1].topic(topic)["owner"] is None, "the topic to be free")
    assert read_log(services.kafka_bootstrap, topic) == [b"zero", b"one"]
