"""Sessions that write beside each other, those that want the topic alone, and what stays behind when they meet."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from metadata.ownership import AccessMode
from sidecar.exclusive import shared
from sidecar.exclusive.policies import PolicyFields
from tests.conftest import StartNode, Unique
from tests.kafka.exclusive.checked import CheckedProducer
from tests.kafka.exclusive.conftest import Connect, governed_in
from tests.kafka.exclusive.producers import RawProducer, fetch_batches
from tests.kafka.exclusive.room import Party, Room, open_room, until
from tests.kafka.gates import REDIS_AWAY
from tests.logs import read_log
from tests.rest import Rest, govern
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for, wait_for_async

OK, BUSY, AGAIN, REFUSED, GAP, STALE_EPOCH, FENCED = 0, 5, 7, 44, 45, 47, 90
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


async def test_a_session_that_comes_back_goes_on_with_its_sequences(room: Room, services: Services) -> None:
    topic = await governed_in(room, services, mode=AccessMode.SHARED)
    one, other = room.connect("one"), room.connect("other")
    assert [await one.send(topic, value) for value in (b"0", b"1")] == [OK, OK]
    one.close()
    await until(lambda: other.send(topic, b"x"))
    again = room.connect("one", producer_id=one.producer_id)
    assert await again.send(topic, b"1", sequence=1) == OK, "a repeat"
    assert await again.send(topic, b"2", sequence=2) == OK
    assert await asyncio.to_thread(read_log, services.kafka_bootstrap, topic) == [b"0", b"1", b"x", b"2"]


async def test_a_client_that_raised_its_own_epoch_begins_again_at_0(room: Room, services: Services) -> None:
    topic = await governed_in(room, services, mode=AccessMode.SHARED)
    one = room.connect("one")
    assert [await one.send(topic, value) for value in (b"0", b"1")] == [OK, OK]
    assert await one.send(topic, b"2", sequence=0, epoch=1) == OK
    assert await one.send(topic, b"0", sequence=0, partition=1, epoch=0) == OK, "partition by partition, as Java does"
    assert await one.send(topic, b"late", sequence=2, epoch=0) == STALE_EPOCH
    assert await asyncio.to_thread(read_log, services.kafka_bootstrap, topic) == [b"0", b"1", b"2"]


def test_what_a_session_wrote_before_the_topic_was_governed_counts(
    services: Services, connect: Connect, rest: Rest
) -> None:
    topic = create_topic(services.kafka_bootstrap)
    one = connect("one")
    assert [one.send(topic, value, sequence=index).error for index, value in enumerate([b"0", b"1"])] == [OK, OK]
    govern(rest, topic, "shared")
    assert one.send(topic, b"3", sequence=3).error == GAP
    assert one.send(topic, b"2", sequence=2).error == OK
    assert read_log(services.kafka_bootstrap, topic) == [b"0", b"1", b"2"]


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


async def test_no_more_sessions_than_the_limit_at_the_same_time(
    room: Room, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "POOL", 1)
    monkeypatch.setattr(shared, "SESSIONS_LIMIT", 2)
    topic = await governed_in(room, services, mode=AccessMode.SHARED)
    one, two, three = room.connect("one"), room.connect("two"), room.connect("three")
    assert [await party.send(topic, b"0") for party in (one, two)] == [OK, OK]
    answer = await three.begin(topic, b"0")
    message = f"{topic} has 2 shared producers already: try again when one has left"
    assert (answer.error, answer.message) == (REFUSED, message)
    one.close()
    await until(lambda: three.send(topic, b"1", sequence=1))


async def test_many_sessions_at_once_open_their_slots_side_by_side(room: Room, services: Services) -> None:
    topic = await governed_in(room, services, mode=AccessMode.SHARED)
    parties = [room.connect(f"party {number}") for number in range(30)]
    for turn in range(2):
        await asyncio.gather(*[retried(party, topic, turn) for party in parties])
    assert len(slots_of(room, topic)) == 30
    assert len(await asyncio.to_thread(read_log, services.kafka_bootstrap, topic)) == 60


async def retried(party: Party, topic: str, sequence: int) -> None:
    """As clients do: on a busy machine a batch is told after two seconds that its slot is still being opened."""

    async def is_answered() -> bool:
        code = await party.send(topic, b"%d" % party.connection_id, sequence=sequence)
        assert code in (OK, BUSY)
        return code == OK

    await wait_for_async(is_answered, "a slot")


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


async def test_sessions_beside_each_other_that_a_fencer_deposes_are_named(room: Room, services: Services) -> None:
    topic = await governed_in(room, services, mode=AccessMode.SHARED)
    one, two, fencer = room.connect("one"), room.connect("two"), room.connect(f"fencer;{FENCING}")
    assert (await one.send(topic, b"1"), await two.send(topic, b"2")) == (OK, OK)
    await until(lambda: fencer.send(topic, b"f", sequence=0))
    ((taken, lost, by),) = room.told.depositions
    assert (taken, set(lost)) == (topic, {f"pid:{each.producer_id}" for each in (one, two)})
    assert by.client_id == "fencer"


async def test_a_session_keeps_its_sequences_from_sharing_to_owning_and_back(room: Room, services: Services) -> None:
    topic = await governed_in(room, services, mode=AccessMode.SHARED)
    party = room.connect("party")
    assert [await party.send(topic, b"%d" % index) for index in range(3)] == [OK] * 3
    party.close()
    owner = room.connect(f"party;{FENCING}", producer_id=party.producer_id)
    await until(lambda: owner.send(topic, b"3", sequence=3))
    assert await owner.send(topic, b"2", sequence=2) == 46, "a repeat from before"
    owner.close()
    again = room.connect(f"party;{ALONE}", producer_id=party.producer_id)
    await until(lambda: again.send(topic, b"4", sequence=4))
    log = await asyncio.to_thread(read_log, services.kafka_bootstrap, topic)
    assert log == [b"%d" % index for index in range(5)]


async def test_shared_producers_become_rivals_where_the_policy_changes(room: Room, services: Services) -> None:
    topic = await governed_in(room, services, mode=AccessMode.SHARED)
    one, two = room.connect("one"), room.connect("two")
    assert [await party.send(topic, b"0") for party in (one, two)] == [OK, OK]
    await room.govern(topic, AccessMode.EXCLUSIVE)
    await until(lambda: two.send(topic, b"alone", sequence=1))
    assert await one.send(topic, b"1") == REFUSED
    await room.govern(topic, AccessMode.SHARED)
    assert await one.send(topic, b"1") == REFUSED, "who owns it owns it until it leaves"
    two.close()
    await until(lambda: one.send(topic, b"2", sequence=3))


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


def test_a_mode_on_a_topic_that_is_not_there_or_never_governed_is_refused(connect: Connect, rest: Rest) -> None:
    asking = connect(f"asking;{ALONE}")
    assert asking.send("not-there", b"0", sequence=0).error == 3
    assert asking.send("no topic's name", b"0", sequence=0).error in (3, 17)
    refused = asking.send("__consumer_offsets", b"0", sequence=0)
    assert refused.error == REFUSED
    assert refused.message == (
        "__consumer_offsets is an internal topic: it cannot be governed; leave the mode out of client.id"
    )
    assert rest.call("GET", "/v1/topics/not-there")[0] == 404


async def test_an_admins_policy_comes_before_a_clients_word(room: Room, services: Services) -> None:
    topic = await asyncio.to_thread(create_topic, services.kafka_bootstrap)
    catalog = room.governed.env.catalog
    assert await asyncio.gather(*[catalog.govern(topic) for _ in range(5)]) == [None] * 5
    assert catalog.version == 2, "once: Redis chose this node, and then gave the change its version"
    assert await catalog.set(topic, PolicyFields(AccessMode.EXCLUSIVE)) == PolicyFields(AccessMode.EXCLUSIVE)
    assert await catalog.govern(topic) is None
    assert catalog.book.exact(topic) == PolicyFields(AccessMode.EXCLUSIVE)


async def test_an_admins_policy_that_comes_in_between_stands(services: Services, unique: Unique) -> None:
    cluster, kafka, redis = unique("s"), services.kafka_bootstrap, services.redis_url
    async with open_room(kafka, redis, cluster) as first, open_room(kafka, redis, cluster, node_id=2) as second:
        topic = await asyncio.to_thread(create_topic, kafka)
        gate = first.gates.hold("set_policy")
        asked = asyncio.create_task(first.governed.env.catalog.govern(topic))
        await gate.reached()
        exclusive = PolicyFields(AccessMode.EXCLUSIVE)
        await second.governed.env.catalog.set(topic, exclusive)
        gate.open()
        refused = await asked
        assert refused is not None
        assert refused.code == 5, "it is governed already: come again"
        assert [room.governed.env.catalog.book.exact(topic) for room in (first, second)] == [exclusive, exclusive]


async def test_while_redis_is_away_no_client_makes_a_topic_governed(room: Room, services: Services) -> None:
    topic = await asyncio.to_thread(create_topic, services.kafka_bootstrap)
    room.gates.fail("policies", REDIS_AWAY)
    refused = await room.governed.env.catalog.govern(topic)
    assert refused is not None
    assert refused.code == 5
    assert room.governed.env.catalog.book.effective(topic) is None


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


async def test_who_wants_the_topic_alone_waits_for_those_who_may_come_back_from_a_dead_node(
    services: Services, unique: Unique
) -> None:
    cluster = unique("s")
    kafka, redis = services.kafka_bootstrap, services.redis_url
    async with open_room(kafka, redis, cluster, grace=30.0) as first:
        topic = await governed_in(first, services, mode=AccessMode.SHARED)
        writer = first.connect("writer")
        assert await writer.send(topic, b"0") == OK
    async with open_room(kafka, redis, cluster, node_id=2, grace=30.0) as second:
        rival = second.connect(f"rival;{ALONE}")
        answer = await rival.begin(topic, b"r")
        assert (answer.error, answer.message) == (
            AGAIN, "shared producers of this topic may still come back from another node",
        )  # fmt: skip
        back = second.connect("writer", producer_id=writer.producer_id)
        await until(lambda: back.send(topic, b"1", sequence=1))
        assert await rival.send(topic, b"r", sequence=0) == REFUSED
        assert await asyncio.to_thread(read_log, kafka, topic) == [b"0", b"1"]


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
