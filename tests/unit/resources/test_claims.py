"""Claims of clients at one node."""

from __future__ import annotations

import asyncio

import pytest

from sidecar.access.prospects import Prospect
from sidecar.protocol.errors import KafkaError
from sidecar.resources.limits import BATCH_BYTES
from sidecar.v1 import control_pb2 as control
from tests.unit.resources.room import Room, keys, wish
from tests.wait import wait_for_async, wait_until


async def test_a_grant_is_a_record_that_every_node_can_read(room: Room) -> None:
    billing = room.caller()
    assert await billing.own(wish("leader"), wish(("g", "orders", 0))) == [1, 1]
    assert room.owners == {"leader": (billing.session, 1), "orders/0": (billing.session, 1)}
    (claim,) = [entry.value for entry in room.changelog.view.claims() if entry.value.resource.name]
    assert (claim.name, claim.client, claim.mode) == ("billing", billing.address, control.EXCLUSIVE)


async def test_an_equal_generation_severs_the_owner(room: Room) -> None:
    first, second = room.caller(), room.caller("rival")
    await first.own(wish("leader"))
    assert await second.own(wish("leader", 1)) == [2]
    assert first.severed
    assert await room.caller().own(wish("leader", 1)) == ["LOWER_GENERATION"]
    assert await room.caller().own(wish("leader")) == ["HELD"]
    assert await room.caller().own(wish("leader", 0)) == [1]
    assert second.severed


async def test_what_a_connection_owned_is_free_when_it_is_closed_and_begins_at_1_again(room: Room) -> None:
    first = room.caller()
    assert await first.own(wish("leader")) == [1]
    assert await first.own(wish("leader", 7)) == [7]
    first.close()
    await room.sees({})
    assert await room.caller().own(wish("leader", 7)) == [1]


async def test_waiting_requests_are_promoted_in_the_order_of_their_arrival(room: Room) -> None:
    first, second, third = room.caller("a"), room.caller("b"), room.caller("c")
    await first.own(wish("leader"))
    waiting = [caller.request(wish("leader"), mode=control.WAIT_FOR_EXCLUSIVE) for caller in (second, third)]
    for caller, request in zip((second, third), waiting, strict=True):
        assert (await caller.ask(request)).prospect is Prospect.WAIT
    room.news.clear()
    first.close()
    await wait_until(lambda: (waiting[0].token, []) in room.news, "the first one's turn")
    assert waiting[1].token not in [token for token, _ in room.news]
    assert await third.own(wish("leader"), mode=control.WAIT_FOR_EXCLUSIVE, token=waiting[1].token) == ["TIMED_OUT"]
    assert await second.own(wish("leader"), mode=control.WAIT_FOR_EXCLUSIVE, token=waiting[0].token) == [1]
    assert room.owners == {"leader": (second.session, 1)}


async def test_fencing_deposes_the_owner_and_those_who_wait(room: Room) -> None:
    first, second, third = room.caller("a"), room.caller("b"), room.caller("c")
    token = first.request().token
    await first.own(wish("leader"), token=token)
    waiting = second.request(wish("leader"), mode=control.WAIT_FOR_EXCLUSIVE)
    await second.ask(waiting)
    assert await third.own(wish("leader"), mode=control.EXCLUSIVE_WITH_FENCING) == [2]
    assert (first.severed, second.severed) == (True, False)
    assert await room.caller().own(wish("leader"), token=token) == ["DEPOSED"]
    assert (await second.ask(waiting)).answers[0].error == control.DEPOSED


async def test_the_same_token_gets_the_same_answer_until_it_is_lost(room: Room) -> None:
    first = room.caller()
    request = first.request(wish("a"), wish("b"), mode=control.EXCLUSIVE_WITH_FENCING)
    assert [each.generation for each in (await first.ask(request)).answers] == [1, 1]
    position = room.changelog.position
    assert [each.generation for each in (await first.ask(request)).answers] == [1, 1]
    assert room.changelog.position == position  # nothing was written
    assert room.coordinator.claims.table.keys_of_token(request.token) == set(keys("a", "b"))
    await room.coordinator.release(request.token, keys("a"))
    assert await first.own(*request.wishes, token=request.token, mode=request.mode) == ["DEPOSED", 1]
    await room.coordinator.release(request.token)
    await room.coordinator.release(request.token)
    assert room.owners == {}
    assert set(room.coordinator.lost_by(request.token)) == set(keys("a", "b"))


async def test_a_thousand_resources_are_one_append(room: Room) -> None:
    billing = room.caller()
    await room.coordinator.ready()
    room.gates.passed.clear()
    assert await billing.own(*[wish(f"shard-{number}") for number in range(1000)]) == [1] * 1000
    assert room.gates.passed.count("ProduceBatch") == 1
    assert len(room.owners) == 1000
    billing.close()
    await room.sees({})
    assert room.gates.passed.count("ProduceBatch") == 2


async def test_what_is_ready_while_an_append_is_under_way_is_the_next_one(room: Room) -> None:
    await room.coordinator.ready()
    gate = room.gates.hold("ProduceBatch")
    first = asyncio.create_task(room.caller().own(wish("first")))
    await gate.reached()
    room.gates.passed.clear()
    others = [asyncio.create_task(room.caller().own(wish(f"other-{number}"))) for number in range(200)]
    rivals = [asyncio.create_task(room.caller().own(wish("first"))) for _ in range(3)]

    async def queued() -> bool:
        return len(room.coordinator.commits.queue) == 203  # type: ignore[union-attr]

    await wait_for_async(queued, "everybody to wait for the append")
    gate.open()
    assert await first == [1]
    assert await asyncio.gather(*others) == [[1]] * 200
    assert await asyncio.gather(*rivals) == [["HELD"]] * 3
    assert room.gates.passed.count("ProduceBatch") == 1


async def test_of_two_who_claim_at_the_same_moment_one_gets_all(room: Room) -> None:
    await room.coordinator.ready()
    callers = [room.caller() for _ in range(20)]
    wishes = [wish("a"), wish("b"), wish("c")]
    answers = await asyncio.gather(
        *[caller.own(*(wishes if number % 2 else wishes[::-1])) for number, caller in enumerate(callers)]
    )
    assert sum(answer == [1, 1, 1] for answer in answers) == 1
    assert sum(answer == ["HELD"] * 3 for answer in answers) == 19
    assert len({session for session, _ in room.owners.values()}) == 1


async def test_who_is_gone_when_his_claim_is_written_down_does_not_keep_it(room: Room) -> None:
    await room.coordinator.ready()
    gate = room.gates.hold("ProduceBatch")
    billing = room.caller()
    answer = asyncio.create_task(billing.own(wish("leader")))
    await gate.reached()
    billing.close()
    gate.open()
    await answer
    await room.sees({})


async def test_a_session_outlives_its_connections_for_the_grace_of_none(room: Room) -> None:
    one, other = room.caller(), room.caller()
    assert await one.own(wish("leader"), session="pid:0") == [1]
    room.coordinator.bind(other.connection_id, "pid:0")
    one.close()
    assert await room.caller().own(wish("leader")) == ["HELD"]
    other.close()
    await room.sees({})


async def test_a_request_whose_records_fit_into_no_batch_is_refused_with_the_sizes(room: Room) -> None:
    large, caller = "x" * (BATCH_BYTES // 4), room.caller()
    verdict = await caller.ask(caller.request(*[wish(f"{large}{number}") for number in range(3)]))
    assert {each.error for each in verdict.answers} == {control.INVALID_REQUEST}
    assert str(BATCH_BYTES) in verdict.answers[0].message
    assert room.owners == {}
    assert await caller.own(wish(large)) == [1]


async def test_an_append_that_surely_failed_takes_nothing_from_anybody(room: Room) -> None:
    billing = room.caller()
    await billing.own(wish("leader"))
    appender = room.changelog.appender
    deadline, appender.deadline = appender.deadline, 0.01
    room.gates.fail("layout", KafkaError(5, "no leader"), times=3)
    with pytest.raises(KafkaError, match="could not be stored"):
        await room.caller().own(wish("other"))
    appender.deadline = deadline
    room.gates.heal()
    assert not billing.severed
    assert await room.caller().own(wish("other")) == [1]


async def test_owners_and_those_who_wait_are_described(room: Room) -> None:
    first, second = room.caller("a"), room.caller("b")
    await first.own(wish(("g", "orders", None)), wish("free"))
    waiting = second.request(wish(("g", "orders", 1)), mode=control.WAIT_FOR_EXCLUSIVE)
    await second.ask(waiting)
    claimed = await room.coordinator.claimed("g")
    ownerships = [room.coordinator.owner(key) for key in claimed]
    queued = [waiting for key in claimed for waiting in room.coordinator.queue(key)]
    assert [(each.resource.topic, each.owner_name, each.serving_node) for each in ownerships if each.owner_name] == [
        ("orders", "a", 1)
    ]
    assert [(each.resource.partition, each.name, each.session) for each in queued] == [(1, "b", second.session)]
    free, nobody = (room.coordinator.owner(wish(name).key) for name in ("free", "x"))
    assert (free.generation, nobody.resource.name, nobody.generation) == (1, "x", 0)


async def test_what_is_granted_and_taken_is_reported_with_whom_it_was_taken_from(room: Room) -> None:
    first, second = room.caller(""), room.caller("b")
    await first.own(wish(("g", "orders", 2)), wish("free"))
    await first.own(wish("own"), session="pid:1")
    verdict = await second.ask(second.request(wish("free")))
    assert verdict.answers[0].message.startswith(f"{first.session} owns it"), "it has no name"
    assert await first.own(wish("own", 5), session="pid:1") == [5]
    assert await second.own(wish("free"), wish("more"), mode=control.EXCLUSIVE_WITH_FENCING) == [2, 1]
    await room.coordinator.release(room.coordinator.claims.table.owners[wish("more").key].token)
    assert room.told.grants == [
        ("g:orders/2", 2, 1, first.session, None),
        ("own", 1, 1, "pid:1", None),
        ("own", 1, 5, "pid:1", None),
        ("free", 2, 2, second.session, first.session),
    ]
    ends = [report for report in room.told.outcomes if report[0] in ("lost", "released")]
    assert ends == [("lost", 1), ("released", 1), ("released", 1), ("released", 2)]
    assert sorted(room.told.let_go[:2]) == [first.session, "pid:1"], "with its connection, which was closed"
    assert room.told.let_go[2:] == [second.session]


async def test_a_request_that_waits_ends_with_its_connection(room: Room) -> None:
    owner, waiting = room.caller(), room.caller()
    await owner.own(wish("leader"))
    request = waiting.request(wish("leader"), mode=control.WAIT_FOR_EXCLUSIVE)
    await waiting.ask(request)
    waiting.close()
    await wait_until(lambda: not room.coordinator.is_waiting(request.token), "its place to be free")
    assert room.coordinator.claims.table.waiting.wishes == 0
    assert room.coordinator.claims.table.waiting.wishes_of == {}
