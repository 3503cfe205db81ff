"""Many lanes, one connection per leader: one batch per partition and request, in order, no broker waited for long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from sidecar.forwarder import forwarder as links
from sidecar.forwarder.forwarder import Forwarder
from sidecar.protocol.errors import ErrorCode
from tests.unit.forwarder.scripted import KnownUpstream, Request, ScriptedBroker, Writer, broker
from tests.wait import wait_for_async

A, B = 1, 2


@pytest.fixture
async def upstream() -> AsyncIterator[KnownUpstream]:
    made = KnownUpstream()
    yield made
    await made.close()


@pytest.fixture
async def leader(upstream: KnownUpstream) -> AsyncIterator[ScriptedBroker]:
    async with broker() as found:
        upstream.know({A: found.port}, orders=dict.fromkeys(range(8), A), pay=dict.fromkeys(range(8), A))
        yield found


@pytest.fixture
async def forwarder(upstream: KnownUpstream, leader: ScriptedBroker) -> AsyncIterator[Forwarder]:
    made = Forwarder(upstream, linger=0, buffer_bytes=1_000_000)
    yield made
    made.close()


@pytest.fixture
def quick_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers that do not come are looked for ten times a second, not once; silent is who says nothing in two looks."""
    monkeypatch.setattr(links, "_WATCH_S", 0.1)
    monkeypatch.setattr(links, "_SILENT_S", 0.2)


async def answered(writer: Writer, count: int) -> list[tuple[int, int]]:
    async def all_there() -> bool:
        return len(writer.outcomes) >= count

    await wait_for_async(all_there, f"{count} answers")
    return writer.errors


# Requests -----------------------------------------------------------------------------------------------------------


async def test_batches_of_one_turn_and_topic_travel_in_one_request(
    forwarder: Forwarder, leader: ScriptedBroker
) -> None:
    writers = [Writer(forwarder, "orders", index) for index in range(5)]
    for writer in writers:
        writer.send()
    request = await leader.next()
    assert request.keys == [f"orders-{index}:0" for index in range(5)]
    assert (request.acks, request.timeout_ms) == (-1, 30_000)
    request.answer()
    for writer in writers:
        assert await answered(writer, 1) == [(0, 0)]
        assert writer.outcomes[0][1].offset == 7
    assert forwarder.held_bytes == 0


async def test_a_request_holds_one_batch_of_each_partition_and_the_rest_follow_in_order(
    forwarder: Forwarder, leader: ScriptedBroker
) -> None:
    first, second = Writer(forwarder, "orders", 0), Writer(forwarder, "orders", 1)
    for _ in range(3):
        first.send()
    second.send()
    requests = [await leader.next() for _ in range(3)]
    assert [request.keys for request in requests] == [["orders-0:0", "orders-1:0"], ["orders-0:1"], ["orders-0:2"]]
    for request in requests:
        request.answer()
    assert await answered(first, 3) == [(0, 0), (1, 0), (2, 0)]


async def test_five_requests_are_under_way_and_later_batches_gather_meanwhile(
    forwarder: Forwarder, leader: ScriptedBroker
) -> None:
    writers = [Writer(forwarder, "orders", index) for index in range(8)]
    requests = []
    for writer in writers[:5]:
        writer.send()
        requests.append(await leader.next())
    for writer in writers[5:]:
        writer.send()
        await asyncio.sleep(0)
    assert leader.requests.empty()
    requests[0].answer()
    gathered = await leader.next()
    assert gathered.keys == [f"orders-{index}:0" for index in (5, 6, 7)]


async def test_a_broker_that_cannot_read_a_request_by_id_gets_it_by_name(
    upstream: KnownUpstream, forwarder: Forwarder, leader: ScriptedBroker
) -> None:
    """It was away when brokers were asked what they serve, or was replaced by an older one: it ends the connection."""
    upstream.serve_ids()
    upstream.serve_no_ids_when_asked = True
    writer = Writer(forwarder, "orders", 0)
    writer.send()
    refused = await leader.next()
    refused.drop()
    again = await leader.next()
    assert (refused.version, again.version < 13, upstream.versions_asked) == (13, True, 1)
    again.answer()
    assert await answered(writer, 1) == [(0, 0)]


async def test_a_smaller_batch_does_not_overtake_a_larger_one_of_its_partition(
    upstream: KnownUpstream, leader: ScriptedBroker
) -> None:
    """The larger does not fit into the request that is being filled; what follows it must wait with it."""
    forwarder = Forwarder(upstream, linger=0, buffer_bytes=1_000_000, request_bytes=1_000)
    try:
        filler, writer = Writer(forwarder, "orders", 0), Writer(forwarder, "orders", 1)
        filler.send(size=500)
        writer.send(size=800)
        writer.send(size=1)
        sent: list[str] = []
        while len(sent) < 3:
            request = await leader.next()
            sent += request.keys
            request.answer()
        assert sent == ["orders-0:0", "orders-1:0", "orders-1:1"]
        assert await answered(writer, 2) == [(0, 0), (1, 0)]
    finally:
        forwarder.close()


async def test_a_batch_larger_than_a_request_should_be_goes_alone(
    upstream: KnownUpstream, leader: ScriptedBroker
) -> None:
    forwarder = Forwarder(upstream, linger=0, buffer_bytes=1_000_000, request_bytes=1_000)
    try:
        writers = [Writer(forwarder, "orders", index) for index in range(2)]
        for writer in writers:
            writer.send(size=5_000)
        assert [(await leader.next()).keys for _ in writers] == [["orders-0:0"], ["orders-1:0"]]
    finally:
        forwarder.close()


async def test_a_linger_ends_where_a_whole_request_has_gathered(
    upstream: KnownUpstream, leader: ScriptedBroker
) -> None:
    forwarder = Forwarder(upstream, linger=60.0, buffer_bytes=1_000_000, request_bytes=1_000)
    try:
        writers = [Writer(forwarder, "orders", index) for index in range(4)]
        for writer in writers[:3]:
            writer.send(size=400)
        assert len((await leader.next()).keys) == 2
        assert len((await leader.next()).keys) == 1
        writers[3].send(size=1_000)
        assert (await leader.next()).keys == ["orders-3:0"], "one that is a whole request by itself"
    finally:
        forwarder.close()


async def test_a_linger_gathers_what_comes_within_it(upstream: KnownUpstream, leader: ScriptedBroker) -> None:
    forwarder = Forwarder(upstream, linger=0.5, buffer_bytes=1_000_000)  # a busy machine sleeps long
    try:
        writers = [Writer(forwarder, "orders", index) for index in range(3)]
        for writer in writers:
            writer.send()
            await asyncio.sleep(0.001)
        assert len((await leader.next()).keys) == 3
    finally:
        forwarder.close()


@pytest.mark.parametrize(("asked", "told"), [(-(2**31), 0), (-1, 0), (0, 0), (5_000, 5_000), (2**31 - 1, 30_000)])
async def test_a_broker_is_given_the_clients_own_timeout_within_reason(
    quick_watch: None, forwarder: Forwarder, leader: ScriptedBroker, asked: int, told: int
) -> None:
    """Out of reason it would close the connection that others share at once, or wait for a dead broker for weeks."""
    writer = Writer(forwarder, "orders", 0)
    writer.send(timeout_ms=asked)
    request = await leader.next()
    assert request.timeout_ms == told
    await asyncio.sleep(0.3)  # the watch looks ten times a second
    request.answer()
    assert await answered(writer, 1) == [(0, 0)]


# Brokers that fail --------------------------------------------------------------------------------------------------


async def test_a_broker_that_refuses_connections_is_tried_again_until_it_takes_one(
    upstream: KnownUpstream, leader: ScriptedBroker, forwarder: Forwarder
) -> None:
    port = leader.port
    await leader.stop()
    writer = Writer(forwarder, "orders", 0)
    for _ in range(3):
        writer.send()
    await wait_for_async(lambda: _true(upstream.refreshed), "a look for the leader")
    await leader.start(port)
    sent: list[str] = []
    while len(sent) < 3:
        request = await leader.next()
        sent += request.keys
        request.answer()
    assert sent == [f"orders-0:{index}" for index in range(3)]
    assert await answered(writer, 3) == [(0, 0), (1, 0), (2, 0)]
    assert not writer.lane.muted


async def _true(value: object) -> bool:
    return bool(value)


async def test_an_answer_that_is_lost_makes_its_batches_go_again_in_order(
    upstream: KnownUpstream, forwarder: Forwarder, leader: ScriptedBroker
) -> None:
    writer = Writer(forwarder, "orders", 0)
    for _ in range(3):
        writer.send()
    requests = [await leader.next() for _ in range(3)]
    requests[0].answer()
    await answered(writer, 1)
    requests[1].drop()
    again = await leader.next()
    assert again.keys == ["orders-0:1"]
    assert leader.requests.empty()
    again.answer()
    last = await leader.next()
    assert last.keys == ["orders-0:2"]
    last.answer()
    assert await answered(writer, 3) == [(0, 0), (1, 0), (2, 0)]
    assert leader.connections == 2
    assert upstream.refreshed == {b"orders"}
    assert forwarder.held_bytes == 0


async def test_a_partition_that_an_answer_leaves_out_is_in_doubt_and_goes_again(
    forwarder: Forwarder, leader: ScriptedBroker
) -> None:
    writers = [Writer(forwarder, "orders", index) for index in range(2)]
    for writer in writers:
        writer.send()
    (await leader.next()).answer(only=1)
    assert await answered(writers[0], 1) == [(0, 0)]
    again = await leader.next()
    assert again.keys == ["orders-1:0"]
    again.answer()
    assert await answered(writers[1], 1) == [(0, 0)]


@pytest.mark.parametrize(
    "nonsense", [b"\0\0\0\4\0\0\0\1", b"\0\0\0\10\0\0\0\1\0\1\0\0", b"\0\0\0\10\0\0\0\x63\0\0\0\0"]
)
async def test_an_answer_that_makes_no_sense_ends_the_connection_and_nothing_else(
    forwarder: Forwarder, leader: ScriptedBroker, nonsense: bytes
) -> None:
    writer = Writer(forwarder, "orders", 0)
    writer.send()
    (await leader.next()).write(nonsense)
    again = await leader.next()
    again.answer()
    assert await answered(writer, 1) == [(0, 0)]
    assert leader.connections == 2


async def test_a_broker_that_is_silent_past_the_timeout_is_given_up(
    quick_watch: None, forwarder: Forwarder, leader: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "_GRACE_S", 0.2)
    writer = Writer(forwarder, "orders", 0)
    writer.send(timeout_ms=100)
    await leader.next()
    again = await leader.next()
    assert again.keys == ["orders-0:0"]
    again.answer()
    assert await answered(writer, 1) == [(0, 0)]
    assert leader.connections == 2


async def test_a_silent_broker_that_lost_its_partitions_is_left_before_the_timeout(
    quick_watch: None, upstream: KnownUpstream, forwarder: Forwarder, leader: ScriptedBroker
) -> None:
    """A broker that was stopped says nothing; the cluster elects another leader meanwhile."""
    writer = Writer(forwarder, "orders", 0)
    writer.send()
    writer.send()
    assert (await leader.next()).keys == ["orders-0:0"]
    await wait_for_async(lambda: _true(upstream.refreshed), "a look for the leader")
    async with broker() as other:
        upstream.know({A: leader.port, B: other.port}, orders={0: B})
        sent: list[str] = []
        while len(sent) < 2:
            request = await other.next()
            sent += request.keys
            request.answer()
        assert sent == ["orders-0:0", "orders-0:1"]
        assert await answered(writer, 2) == [(0, 0), (1, 0)]


async def test_a_slow_broker_that_still_leads_is_waited_for(
    quick_watch: None, upstream: KnownUpstream, forwarder: Forwarder, leader: ScriptedBroker
) -> None:
    writer = Writer(forwarder, "orders", 0)
    writer.send()
    request = await leader.next()
    await wait_for_async(lambda: _true(upstream.refreshed), "a look for the leader")
    await asyncio.sleep(0.3)  # three looks more
    request.answer()
    assert await answered(writer, 1) == [(0, 0)]
    assert leader.connections == 1


async def test_without_a_leader_a_batch_is_tried_until_its_time_is_over_and_surely_not_written(
    upstream: KnownUpstream, forwarder: Forwarder, leader: ScriptedBroker
) -> None:
    upstream.know({A: leader.port}, orders={0: -1})
    writer = Writer(forwarder, "orders", 0)
    writer.send(timeout=0.3)
    assert await answered(writer, 1) == [(0, ErrorCode.LEADER_NOT_AVAILABLE)]
    assert writer.space.certain
    assert leader.requests.empty()
    assert upstream.refreshed == {b"orders"}


async def test_what_a_dead_broker_was_never_sent_is_surely_not_written(
    upstream: KnownUpstream, forwarder: Forwarder, leader: ScriptedBroker
) -> None:
    await leader.stop()
    writer = Writer(forwarder, "orders", 0)
    writer.send(timeout=0.3)
    assert await answered(writer, 1) == [(0, ErrorCode.LEADER_NOT_AVAILABLE)]
    assert writer.space.certain


async def test_one_bad_partition_holds_up_no_other(forwarder: Forwarder, leader: ScriptedBroker) -> None:
    bad, good = Writer(forwarder, "orders", 0), Writer(forwarder, "pay", 0)
    bad.send()
    (await leader.next()).answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    for _ in range(20):
        good.send()
        while True:
            request = await leader.next()
            if request.batches[0][0] == "pay":
                break
            request.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        request.answer()
    assert await answered(good, 20) == [(index, 0) for index in range(20)]
    assert bad.outcomes == []


# The whole ----------------------------------------------------------------------------------------------------------


async def test_the_buffer_is_bounded_in_bytes_and_given_back_with_every_outcome(
    upstream: KnownUpstream, leader: ScriptedBroker
) -> None:
    forwarder = Forwarder(upstream, linger=0, buffer_bytes=250)
    try:
        writer = Writer(forwarder, "orders", 0)
        for _ in range(3):
            writer.send()
        assert not forwarder.admit(100)
        assert forwarder.held_bytes <= 250
        for code in (0, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
            (await leader.next()).answer(code)
        await answered(writer, 3)
        assert forwarder.held_bytes == 0
        assert forwarder.admit(250)
    finally:
        forwarder.close()


async def test_draining_waits_for_what_is_in_flight(forwarder: Forwarder, leader: ScriptedBroker) -> None:
    await forwarder.drain()
    writers = [Writer(forwarder, "orders", partition) for partition in (0, 1)]
    requests: list[Request] = []
    for writer in writers:
        writer.send()
        requests.append(await leader.next())
    draining = asyncio.ensure_future(forwarder.drain())
    for request, writer in zip(requests, writers, strict=True):
        await asyncio.wait([draining], timeout=0.01)
        assert not draining.done()
        request.answer()
        assert await answered(writer, 1) == [(0, 0)]
    await asyncio.wait_for(draining, 30)


async def test_closing_tells_everybody_and_leaves_no_connection(forwarder: Forwarder, leader: ScriptedBroker) -> None:
    writer = Writer(forwarder, "orders", 0)
    writer.send(timeout=0.0)
    await leader.next()
    forwarder.close()
    assert await answered(writer, 1) == [(0, ErrorCode.REQUEST_TIMED_OUT)]
    assert forwarder.held_bytes == 0


# By id (KIP-516) ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [1, 3])
async def test_batches_go_by_the_id_of_their_topic_where_brokers_take_it(
    forwarder: Forwarder, upstream: KnownUpstream, leader: ScriptedBroker, partitions: int
) -> None:
    upstream.serve_ids()
    writers = [Writer(forwarder, "orders", index) for index in range(partitions)]
    for writer in writers:
        writer.send()
    request = await leader.next()
    assert (request.version, request.client_id, request.acks, request.timeout_ms) == (13, b"sidecar", -1, 30_000)
    assert request.keys == [f"orders-{index}:0" for index in range(partitions)]
    request.answer()
    for writer in writers:
        assert await answered(writer, 1) == [(0, 0)]
        assert writer.outcomes[0][1].offset == 7


async def test_a_batch_for_an_id_that_a_broker_does_not_know_is_sent_again_to_no_other_topic(
    forwarder: Forwarder, upstream: KnownUpstream, leader: ScriptedBroker
) -> None:
    upstream.serve_ids()
    writer = Writer(forwarder, "orders", 0)
    writer.send()
    (await leader.next()).answer(ErrorCode.UNKNOWN_TOPIC_ID)
    again = await leader.next()
    assert (again.version, again.keys) == (13, ["orders-0:0"])
    assert upstream.refreshed == {b"orders"}
    again.answer()
    assert await answered(writer, 1) == [(0, 0)]
