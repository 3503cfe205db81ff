"""Sessions that write beside each other, those that want the topic alone, and what stays behind when they meet."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from metadata.ownership import AccessMode
from sidecar.exclusive import shared
from tests.conftest import StartNode, Unique
from tests.kafka.exclusive.checked import CheckedProducer
from tests.kafka.exclusive.conftest import Connect, governed_in
from tests.kafka.exclusive.producers import RawProducer, fetch_batches
from tests.kafka.exclusive.room import Room, open_room, until
from tests.logs import read_log
from tests.rest import Rest, govern
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for

OK, AGAIN, REFUSED, GAP, STALE_EPOCH, FENCED = 0, 7, 44, 45, 47, 90
ALONE, WAITING, FENCING = "mode=exclusive", "mode=wait_for_exclusive", "mode=exclusive_with_fencing"


@pytest.fixture
def topic(services: Services, rest: Rest) -> str:
    """A topic of two partitions that everybody may write to."""
    name = create_topic(services.kafka_bootstrap)
    govern(rest, name, "shared")
    return name


def slots_of(room: Room, topic: str) -> set[str]:
    return {slot for slot in room.governed.env.changelog.view.opened(topic) if slot != "0"}


# Beside each other --------------------------------------------------------------------------------------------------


def test_sessions_write_beside_each_other_and_kafka_judges_the_sequences_of_each(
    services: Services, topic: str, connect: Connect, rest: Rest
) -> None:
    one, two, plain = connect("one"), connect("two"), connect("three", plain=True)
    first = one.send(topic, b"one 0", sequence=0)
    assert first.error == OK, first
    assert two.send(topic, b"two 0", sequence=0).error == OK
    assert plain.send(topic, b"three 0").error == OK
    assert one.send(topic, b"one 2", sequence=2).error == GAP
    assert one.send(topic, b"one 1", sequence=1).error == OK
    assert one.send(topic, b"one 0", sequence=0).offset in (first.offset, -1), "a repeat is not written again"
    assert two.send(topic, b"two 1", sequence=1, partition=1).error == GAP
    assert two.send(topic, b"two 0", sequence=0, partition=1).error == OK
    assert plain.send(topic, b"three 1").error == OK
    assert read_log(services.kafka_bootstrap, topic) == [b"one 0", b"two 0", b"three 0", b"one 1", b"three 1"]
    writers = {found.producer_id for found in fetch_batches(services.kafka_bootstrap, topic) if not found.is_control}
    assert len(writers) == 3, "a slot each"
    assert not writers & {one.producer_id, two.producer_id}, "nobody's own producer id is in the log"
    assert rest.topic(topic)["owner"] is None
    assert rest.topic(topic)["generation"] == 0


@pytest.mark.parametrize("mode", ["shared", "exclusive"])
def test_what_was_written_between_two_policies_counts(
    services: Services, rest: Rest, connect: Connect, mode: str
) -> None:
    topic = create_topic(services.kafka_bootstrap)
    govern(rest, topic, mode)
    one = connect("one")
    assert [one.send(topic, b"%d" % n, sequence=n).error for n in range(2)] == [OK, OK]
    assert rest.call("DELETE", f"/v1/topics/{topic}/policy")[0] == 204
    assert [one.send(topic, b"%d" % n, sequence=n).error for n in (2, 3)] == [OK, OK]
    govern(rest, topic, mode)
    wait_for(lambda: one.send(topic, b"3", sequence=3).error in (OK, 46), "a repeat to be taken for one")
    assert one.send(topic, b"4", sequence=4).error == OK
    assert read_log(services.kafka_bootstrap, topic) == [b"%d" % n for n in range(5)]


async def test_more_sessions_than_slots_take_turns_and_each_finds_its_place_again(
    room: Room, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "POOL", 3)
    topic = await governed_in(room, services, mode=AccessMode.SHARED)
    sessions = [room.connect(f"session {number}").producer_id for number in range(8)]
    written: dict[int, list[bytes]] = {producer_id: [] for producer_id in sessions}
    for turn in range(3):
        for producer_id in sessions:
            party = room.connect("any", producer_id=producer_id)
            value = f"{producer_id}:{turn}".encode()
            await until(lambda party=party, value=value, turn=turn: party.send(topic, value, sequence=turn))
            written[producer_id].append(value)
            party.close()
    assert len(slots_of(room, topic)) == 3
    log = await asyncio.to_thread(read_log, services.kafka_bootstrap, topic)
    assert len(log) == 24
    for values in written.values():
        places = [log.index(value) for value in values]
        assert all(one < two for one, two in pairwise(places))


async def test_short_lived_plain_sessions_leave_no_slot_behind(room: Room, services: Services) -> None:
    topic = await governed_in(room, services, mode=AccessMode.SHARED)
    for number in range(40):
        party = room.connect("job", plain=True)
        assert await party.send(topic, b"%d" % number) == OK
        party.close()
    assert len(slots_of(room, topic)) <= 2
    assert await asyncio.to_thread(read_log, services.kafka_bootstrap, topic) == [b"%d" % n for n in range(40)]


# With those who want the topic alone ---------------------------------------------------------------------------------


def test_exclusive_is_refused_while_shared_producers_are_connected(
    topic: str, connect: Connect, rest: Rest, services: Services
) -> None:
    writer, rival = connect("writer"), connect(f"rival;{ALONE}", plain=True)
    assert writer.send(topic, b"0", sequence=0).error == OK
    refused = rival.send(topic, b"r")
    assert refused.error == REFUSED
    told = "Topic has existing shared producers: 1, one of them writer (generation 0). "
    assert (refused.message or "").startswith(told)
    writer.close()
    wait_for(lambda: rival.send(topic, b"r").error == OK, "the rival to own it")
    assert rest.topic(topic)["owner"]["name"] == "rival"
    back = connect("writer", producer_id=writer.producer_id)
    refused = back.send(topic, b"1", sequence=1)
    assert refused.error == REFUSED
    assert (refused.message or "").startswith("Topic has an existing exclusive producer: rival (generation 1). ")
    rival.close()
    wait_for(lambda: rest.topic(topic)["owner"] is None, "the topic to be free")
    assert back.send(topic, b"2", sequence=2).error == OK
    assert read_log(services.kafka_bootstrap, topic) == [b"0", b"r", b"2"]


def test_who_waits_for_the_topic_alone_gets_it_once_shared_producers_are_gone(
    topic: str, connect: Connect, rest: Rest
) -> None:
    writer, waiter, late = connect("writer"), connect(f"waiter;{WAITING}"), connect("late")
    assert writer.send(topic, b"0", sequence=0).error == OK
    assert waiter.send(topic, b"w", sequence=0).error == AGAIN
    assert [found["name"] for found in rest.topic(topic)["waiting"]] == ["waiter"]
    refused = late.send(topic, b"l", sequence=0)
    assert refused.error == REFUSED, "who waits comes before new ones"
    assert (refused.message or "").startswith("Topic has waiting exclusive producers: 1 (generation 0). ")
    assert writer.send(topic, b"1", sequence=1).error == OK, "who is there already goes on"
    writer.close()
    wait_for(lambda: waiter.send(topic, b"w", sequence=0).error == OK, "its turn")


def test_a_fencer_deposes_every_shared_producer(topic: str, connect: Connect, rest: Rest, services: Services) -> None:
    one, two = connect("one"), connect("two", plain=True)
    assert (one.send(topic, b"1", sequence=0).error, two.send(topic, b"2").error) == (OK, OK)
    stale = [found for found in fetch_batches(services.kafka_bootstrap, topic) if not found.is_control]
    fencer = connect(f"fencer;{FENCING}")
    assert fencer.send(topic, b"f", sequence=0).error == OK
    assert one.send(topic, b"1", sequence=1).error == FENCED
    assert two.send(topic, b"2").error == FENCED
    for batch in stale:  # whatever is still on its way under their slots
        with RawProducer(services.kafka_bootstrap, "late", batch.producer_id, epoch=batch.producer_epoch) as late:
            assert late.send(topic, b"late", sequence=batch.base_sequence + 1).error == STALE_EPOCH
            assert late.send(topic, b"late", sequence=0, partition=1).error == STALE_EPOCH, "never written, fenced too"
    fencer.close()
    wait_for(lambda: rest.topic(topic)["owner"] is None, "the topic to be free")
    assert connect("newcomer").send(topic, b"n", sequence=0).error == OK
    back = connect("one", producer_id=one.producer_id)
    assert back.send(topic, b"1", sequence=1).error == FENCED, "for ever"
    assert rest.topic(topic)["generation"] == 1
    assert read_log(services.kafka_bootstrap, topic) == [b"1", b"2", b"f", b"n"]


async def test_an_owner_that_comes_back_first_goes_on_and_behind_a_shared_write_it_is_deposed(
    room: Room, services: Services
) -> None:
    topic = await governed_in(room, services, mode=AccessMode.SHARED)
    owner = room.connect(f"owner;{ALONE}")
    assert await owner.send(topic, b"0") == OK
    owner.close()
    back = room.connect(f"owner;{ALONE}", producer_id=owner.producer_id)
    await until(lambda: back.send(topic, b"1", sequence=1))
    assert (await room.idle(topic)).generation == 1
    back.close()
    writer = room.connect("writer")
    await until(lambda: writer.send(topic, b"w"))
    late = room.connect(f"owner;{ALONE}", producer_id=owner.producer_id)
    assert await late.send(topic, b"2", sequence=2) == FENCED
    writer.close()
    other = room.connect(f"other;{ALONE}")
    await until(lambda: other.send(topic, b"3"))
    assert (await room.idle(topic)).generation == 2


# By a client's own word ----------------------------------------------------------------------------------------------


def test_a_client_that_asks_for_a_mode_makes_its_topic_governed(
    services: Services, rest: Rest, connect: Connect
) -> None:
    topic = create_topic(services.kafka_bootstrap)
    ordinary, owner = connect("ordinary", plain=True), connect(f"owner;{ALONE}")
    assert ordinary.send(topic, b"0").error == OK
    assert rest.topic(topic)["policy"] is None
    assert owner.send(topic, b"1", sequence=0).error == OK
    found = rest.topic(topic)
    assert (found["policy"]["access_mode"], found["owner"]["name"], found["generation"]) == ("shared", "owner", 1)
    assert ordinary.send(topic, b"x").error == REFUSED
    owner.close()
    wait_for(lambda: ordinary.send(topic, b"2").error == OK, "everybody to write again")
    assert read_log(services.kafka_bootstrap, topic) == [b"0", b"1", b"2"]


# Nodes that come and go ---------------------------------------------------------------------------------------------


async def test_a_node_that_lost_the_topic_opens_no_slot_any_more(services: Services, unique: Unique) -> None:
    """It is stopped in the middle of opening one, and its topic is taken over meanwhile."""
    cluster = unique("s")
    kafka, redis = services.kafka_bootstrap, services.redis_url
    async with open_room(kafka, redis, cluster) as first, open_room(kafka, redis, cluster, node_id=2) as second:
        topic = await governed_in(first, services, mode=AccessMode.SHARED)
        writer = first.connect("writer")
        assert await writer.send(topic, b"0") == OK
        gate = first.gates.hold("InitProducerId")
        late = first.connect("late")
        answer = late.begin(topic, b"late")
        await gate.reached()
        await first.gives_up(topic)
        owner = second.connect(f"owner;{FENCING}")
        await until(lambda: owner.send(topic, b"1", sequence=0))
        gate.open()
        assert (await answer).error in (5, 6)
        await until(lambda: owner.send(topic, b"2", sequence=1))
        await until(lambda: writer.send(topic, b"w", sequence=1), 6)
        assert await asyncio.to_thread(read_log, kafka, topic) == [b"0", b"1", b"2"]


def test_shared_sessions_go_on_at_another_node_when_their_own_is_killed(
    services: Services, node_process: StartNode, unique: Unique
) -> None:
    cluster = unique("s")
    nodes = [node_process(cluster=cluster, node_id=number, LEASE_MS="1000") for number in (1, 2)]
    topic = create_topic(services.kafka_bootstrap, 1)
    govern(Rest(nodes[0].admin_url), topic, "shared")
    bootstrap = ",".join(node.bootstrap for node in nodes)
    with (
        CheckedProducer(bootstrap, "a", topic, prefix="a") as one,
        CheckedProducer(bootstrap, "b", topic, prefix="b") as two,
    ):
        for producer in (one, two):
            producer.goes_on(500)
        wait_for(lambda: Rest(nodes[0].admin_url).topic(topic)["serving_node"], "a node to serve it")
        nodes[Rest(nodes[0].admin_url).topic(topic)["serving_node"] - 1].kill()
        for producer in (one, two):
            producer.goes_on(500)
    log = read_log(services.kafka_bootstrap, topic)
    for producer, name in ((one, b"a"), (two, b"b")):
        assert producer.failed == []
        assert [value for value in log if value.startswith(name)] == producer.sent
