"""Sessions that write beside each other: their slots, what they are refused, and how they end."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest

from metadata.ownership import AccessMode
from sidecar.changelog import Kind
from sidecar.exclusive import answers
from sidecar.exclusive.refusals import Refusals
from sidecar.exclusive.shared import SharedSessions
from sidecar.fencing.expiry import KeepAlive
from sidecar.protocol.caller import TopicLayout, UpstreamError
from sidecar.protocol.calls.transactions import EndTxn, InitProducerId
from sidecar.protocol.ids import ProducerEpoch, Stamp
from sidecar.v1 import state_pb2 as state
from tests.unit.exclusive.paper_cluster import GRACE_S, TOPIC, Client, Cluster, Node, cluster
from tests.wait import wait_until

NOT_THERE, BUSY, MOVED, TIMED_OUT = 3, 5, 6, 7
TOO_LARGE, POLICY_VIOLATION, REPEAT, STALE, DEPOSED = 10, 44, 46, 47, 90
SHARED, FENCING, WAITING = (
    AccessMode.SHARED,
    AccessMode.EXCLUSIVE_WITH_FENCING,
    AccessMode.WAIT_FOR_EXCLUSIVE,
)


async def two(paper: Cluster) -> tuple[Node, Client, Client]:
    """A node, and two clients that have written 1 and 2."""
    node, first, second = paper.node(SHARED), Client(7), Client(8)
    assert [await first.send(node, 1), await second.send(node, 2)] == [0, 0]
    return node, first, second


def stamps(paper: Cluster) -> set[int]:
    """The producer ids of what is in the log."""
    return {batch.producer_id for batch in paper.kafka.log().log if batch.values}


async def test_each_session_writes_through_a_slot_of_its_own() -> None:
    async with cluster() as paper:
        node, first, second = await two(paper)
        assert [await first.send(node, 3), await second.send(node, 4)] == [0, 0]
        assert paper.kafka.log().values == [1, 2, 3, 4]
        assert len(stamps(paper)) == 2
        assert node.holder is None
        assert {found.session for found in node.whole.shared.connected()} == {"pid:7", "pid:8"}
        assert (paper.redis.claims, paper.redis.owner) == ([], None)
        assert not node.changelog.view.entries(Kind.OWNERSHIP)


@pytest.mark.parametrize(
    ("rival", "code", "others_then"),
    [
        (Client(9), 0, 0),
        (Client(9, SHARED), 0, 0),
        (Client(9, AccessMode.EXCLUSIVE), POLICY_VIOLATION, 0),
        (Client(9, WAITING), TIMED_OUT, 0),
        (Client(9, FENCING), 0, DEPOSED),
        (Client(9, generation=5), 0, DEPOSED),
        (Client(7, name="attacker"), POLICY_VIOLATION, 0),
        (Client(-1), 0, 0),
    ],
)
async def test_beside_sessions_that_write(rival: Client, code: int, others_then: int) -> None:
    async with cluster() as paper:
        node, first, second = await two(paper)
        rival = Client(
            rival.number, rival.claimant.mode, generation=rival.claimant.generation, name=rival.claimant.name
        )
        assert await rival.send(node, 3) == code
        assert [await first.send(node, 4), await second.send(node, 5)] == [others_then] * 2
        assert paper.kafka.log().values == [1, 2, *([3] if code == 0 else []), *([] if others_then else [4, 5])]


async def test_how_long_leaders_remember_is_known_before_the_topic_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise all that was written since the last epochs of the slots is read."""

    async def read(_: object, names: list[str]) -> dict[str, KeepAlive]:
        return dict.fromkeys(names, KeepAlive(60.0, "producer.id.expiration.ms of the brokers"))

    monkeypatch.setattr("sidecar.exclusive.topic.read_keep_alives", read)
    async with cluster() as paper:
        node, _, _ = await two(paper)
        assert node.whole.upkeep.trusted_ms == 60_000


async def test_a_batch_in_flight_in_one_slot_is_not_settled_by_the_fence_of_another() -> None:
    async with cluster() as paper:
        node, first, second = await two(paper)
        paper.kafka.holding = True
        in_flight, refused = first.offer(node, 3), second.offer(node, 4)
        (way, others_way), paper.kafka.under_way = paper.kafka.under_way, []
        paper.kafka.under_way = [others_way]
        paper.kafka.deliver(STALE)
        assert (await refused).error == MOVED
        assert not in_flight.done()
        paper.kafka.holding = False
        assert await second.send(node, 4, sequence=1) == 0
        assert not in_flight.done()
        paper.kafka.under_way = [way]
        paper.kafka.deliver()
        assert (await in_flight).error == 0
        assert paper.kafka.log().values == [1, 2, 4, 3]


async def test_a_session_that_takes_the_topic_alone_fences_what_others_have_in_flight() -> None:
    async with cluster() as paper:
        node, first, second = await two(paper)
        paper.kafka.holding = True
        late = [first.offer(node, 3), second.offer(node, 4)]
        way, paper.kafka.under_way, paper.kafka.holding = paper.kafka.under_way, [], False
        assert await Client(9, FENCING).send(node, 5) == 0
        paper.kafka.under_way = way
        paper.kafka.deliver()
        assert [(await answered).error for answered in late] == [MOVED, MOVED]
        assert paper.kafka.log().values == [1, 2, 5]
        assert node.reports("deposed")[0][1] == ("pid:7", "pid:8")


async def test_a_session_that_comes_back_goes_on_in_its_slot() -> None:
    async with cluster() as paper:
        node, first, _ = await two(paper)
        node.close(first)
        assert {found.session for found in node.whole.shared.connected()} == {"pid:8"}
        calls = len(paper.kafka.calls)
        back = Client(7)
        assert await back.send(node, 3, sequence=1) == 0
        assert len(paper.kafka.calls) == calls, "its slot is still open"
        assert len(stamps(paper)) == 2
        assert paper.kafka.log().values == [1, 2, 3]


async def test_a_plain_session_ends_with_its_connection_and_leaves_its_slot() -> None:
    async with cluster() as paper:
        node, plain = paper.node(SHARED), Client(-1)
        assert [await plain.send(node, value) for value in (1, 2)] == [0, 0]
        node.close(plain)
        assert await Client(7).send(node, 3) == 0
        assert len(stamps(paper)) == 1
        assert len(node.changelog.view.opened(TOPIC)) == 2


async def test_a_session_that_left_during_its_takeover_is_not_connected_after_it() -> None:
    async with cluster() as paper:
        node, _, _ = await two(paper)
        plain = Client(-1)
        offered = plain.offer(node, 3)
        node.close(plain)
        assert (await offered).error == BUSY
        await wait_until(lambda: len(node.changelog.view.opened(TOPIC)) == 4, "its slot")
        assert {found.session for found in node.whole.shared.connected()} == {"pid:7", "pid:8"}


async def test_above_the_pool_the_longest_gone_session_gives_its_slot_away_with_its_positions() -> None:
    async with cluster(partitions=1) as paper:
        node = paper.node(SHARED)
        clients = [Client(100 + number) for number in range(64)]
        for client in clients:
            assert await client.send(node, client.number) == 0
        node.close(*clients[3:5])
        opened = len(node.changelog.view.opened(TOPIC))
        assert await Client(7).send(node, 7) == 0
        assert len(node.changelog.view.opened(TOPIC)) == opened
        again = Client(clients[3].number)
        assert await again.send(node, 8, sequence=0) == REPEAT, "its positions are in the record of the slot"
        assert await again.send(node, 9, sequence=1) == 0
        assert len(node.changelog.view.opened(TOPIC)) == opened, "the slot of the other one that left"
        assert await Client(8).send(node, 10) == 0
        assert len(node.changelog.view.opened(TOPIC)) == opened + 1, "every session is connected"


@pytest.mark.parametrize(("partitions", "limit"), [(1, 1_000), (100, 1_000), (200, 500), (5_000, 64)])
def test_the_limit_of_sessions_is_lower_where_a_topic_has_many_partitions(partitions: int, limit: int) -> None:
    nothing = cast(Any, None)
    sessions = SharedSessions(TOPIC, nothing, nothing, Refusals(), nothing, nothing)
    assert sessions.limit == 1_000
    sessions.master = cast(Any, SimpleNamespace(partitions=range(partitions)))
    assert sessions.limit == limit


async def test_a_session_above_the_limit_is_refused_until_another_one_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidecar.exclusive.shared.POOL", 2)
    monkeypatch.setattr("sidecar.exclusive.shared.SESSIONS_LIMIT", 2)
    async with cluster() as paper:
        node, first, _ = await two(paper)
        third = Client(9)
        answer = await third.offer(node, 3)
        assert (answer.error, "2 shared producers already" in (answer.message or "")) == (POLICY_VIOLATION, True)
        assert node.refusals == ["not_owner"]
        node.close(first)
        assert await third.send(node, 4) == BUSY, "it may not know of the refusal yet"
        assert await third.send(node, 4, sequence=1) == 0
        assert await Client(7).send(node, 5, sequence=1) == POLICY_VIOLATION


@pytest.mark.parametrize("comes", ["the former session", "another one"])
async def test_a_slot_that_could_not_be_given_away_is_there_for_the_next_session(
    comes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.exclusive.shared.POOL", 2)
    async with cluster() as paper:
        node, first, _ = await two(paper)
        node.close(first)
        paper.kafka.count = 0
        assert await Client(9).send(node, 3) == NOT_THERE
        paper.kafka.count = 2
        if comes == "the former session":
            assert await Client(7).send(node, 4, sequence=1) == 0
            assert len(node.whole.shared.connected()) == 2
        else:
            assert await Client(10).send(node, 4) == 0
        assert len(stamps(paper)) == 2


async def test_a_slot_is_not_given_away_while_its_session_opens_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The outcome of its last batch is unknown when it has gone: only a fence settles that."""
    monkeypatch.setattr("sidecar.exclusive.shared.POOL", 2)
    async with cluster() as paper:
        node, first, _ = await two(paper)
        session = next(its for its in node.whole.shared.connected() if its.session == first.session)
        goes_on, is_opening = asyncio.Event(), asyncio.Event()

        async def hold(request: Any) -> None:
            paper.kafka.before = None
            is_opening.set()
            await goes_on.wait()

        paper.kafka.holding = True
        in_doubt = first.offer(node, 3)
        node.close(first)
        paper.kafka.before = hold
        for answer in (TIMED_OUT, TOO_LARGE):
            await wait_until(lambda: bool(paper.kafka.under_way), "the batch")
            paper.kafka.deliver(answer)
        assert (await in_doubt).error == TIMED_OUT
        await is_opening.wait()
        paper.kafka.holding = False
        third = Client(9)
        assert await third.send(node, 4) == 0
        goes_on.set()
        await session.over()
        assert [await third.send(node, 5), await Client(7).send(node, 3, sequence=1)] == [0, 0]
        assert len(stamps(paper)) == 3
        assert paper.kafka.log().values == [1, 2, 4, 5, 3]


async def test_a_session_with_another_connection_keeps_its_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidecar.exclusive.shared.POOL", 2)
    async with cluster() as paper:
        node, first, _ = await two(paper)
        second_connection = Client(7)
        assert await second_connection.send(node, 3, sequence=1) == 0
        node.close(first)
        assert await Client(9).send(node, 4) == 0
        assert len(stamps(paper)) == 3
        assert second_connection.forwarded(node, 5, sequence=2)
        await wait_until(lambda: paper.kafka.log().values[-1] == 5, "the batch")


@pytest.mark.parametrize(("added", "code"), [(1, 0), (0, NOT_THERE)])
async def test_a_partition_outside_the_fence(added: int, code: int) -> None:
    """The whole topic is fenced anew: every session may write to the partition then."""
    async with cluster() as paper:
        node, first, second = await two(paper)
        paper.kafka.count += added
        assert [await first.send(node, 3, partition=2), await second.send(node, 4, partition=2)] == [code, code]
        assert paper.kafka.log(2).values == [3, 4][: 2 * added]
        assert [await first.send(node, 5), await second.send(node, 6)] == [0, 0]


async def test_a_session_whose_new_partition_cannot_be_fenced_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster() as paper:
        node, first, second = await two(paper)
        paper.kafka.count += 1
        calls, answer = count(), paper.kafka.whole_layout

        async def whole_layout(topic: str) -> TopicLayout:
            number = next(calls)
            assert number < 10, "it goes on for ever"
            if number % 2:
                raise UpstreamError("the takeover's, after the look for the partition")
            return await answer(topic)

        monkeypatch.setattr(paper.kafka, "whole_layout", whole_layout)
        assert await first.send(node, 3, partition=2) == BUSY
        assert next(calls) == 2
        assert await second.send(node, 4) == 0


async def test_sessions_that_find_a_new_partition_together_have_the_topic_fenced_once() -> None:
    async with cluster() as paper:
        node, first, second = await two(paper)
        paper.kafka.count += 1
        paper.kafka.calls.clear()
        answered = [first.offer(node, 3, partition=2), second.offer(node, 4, partition=2)]
        assert [(await found).error for found in answered] == [0, 0]
        assert paper.kafka.calls.count(InitProducerId) == 5, "three slots with the master's, then one for each session"


async def test_a_raised_epoch_of_one_session_leaves_the_others_alone() -> None:
    async with cluster() as paper:
        node, first, second = await two(paper)
        paper.kafka.calls.clear()
        first.epoch = 1
        assert await first.send(node, 3, sequence=0) == 0
        assert paper.kafka.calls.count(InitProducerId) == 1
        assert await second.send(node, 4) == 0
        assert paper.kafka.calls.count(InitProducerId) == 1
        assert paper.kafka.log().values == [1, 2, 3, 4]


async def test_an_epoch_that_is_raised_while_the_master_slot_is_lost_is_not_written_under() -> None:
    async with cluster() as paper:
        node, first, _ = await two(paper)

        async def lose(request: Any) -> None:
            if isinstance(request, InitProducerId):
                paper.kafka.before = None
                node.whole.shared.close(answers.MOVED)

        paper.kafka.before = lose
        first.epoch = 1
        assert await first.send(node, 3, sequence=0) == MOVED
        assert paper.kafka.log().values == [1, 2]


async def test_a_slot_that_is_taken_while_the_master_slot_is_lost_is_not_written_under() -> None:
    async with cluster() as paper:
        node, first, _ = await two(paper)
        third = Client(9)

        async def lose(request: Any) -> None:
            if isinstance(request, EndTxn):
                paper.kafka.before = None
                node.whole.shared.close(answers.MOVED)

        paper.kafka.before = lose
        assert await third.send(node, 3) == MOVED
        assert paper.kafka.before is None
        assert paper.kafka.log().values == [1, 2]
        assert await third.send(node, 3, sequence=0) == 0
        assert await first.send(node, 4) == 0


async def test_what_waits_for_the_work_of_a_session_that_is_deposed_meanwhile_is_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The topic is shared again, without it, before its work ends."""
    goes_on = asyncio.Event()

    async def exists(_: int) -> bool:
        await goes_on.wait()
        return False

    async with cluster() as paper:
        node, first, _ = await two(paper)
        (session, _) = node.whole.shared.connected()
        monkeypatch.setattr(session.writer, "exists", exists)
        offered = [first.offer(node, 3, partition=2), first.offer(node, 4)]
        owner = Client(9, FENCING)
        assert await owner.send(node, 5) == 0
        node.close(owner)
        await node.settled()
        assert await Client(10).send(node, 6) == 0
        goes_on.set()
        assert [(await answered).error for answered in offered] == [NOT_THERE, BUSY]
        assert await first.send(node, 4, sequence=1) == DEPOSED
        assert paper.kafka.log().values == [1, 2, 5, 6]


async def test_each_slot_epoch_is_an_event() -> None:
    async with cluster() as paper:
        node, first, _ = await two(paper)
        first.epoch = 1
        assert await first.send(node, 3, sequence=0) == 0
        events = node.changelog.events
        await wait_until(lambda: len(events) == 3, "the events")
        assert [(event.kind, event.session) for event in events] == [
            (state.Event.CLAIMED, session) for session in ("pid:7", "pid:8", "pid:7")
        ]
        assert events[0].producer_id == events[2].producer_id
        assert events[0].producer_epoch + 1 == events[2].producer_epoch


async def test_a_session_whose_record_is_not_written_yet_is_its_first_clients() -> None:
    async with cluster() as paper:
        node, _, _ = await two(paper)
        first = Client(9).offer(node, 3)
        stranger = Client(9, name="stranger").offer(node, 4, to=node.whole.shared.offer)
        assert ((await stranger).error, (await first).error) == (POLICY_VIOLATION, 0)
        assert node.refusals == ["not_owner"]


# Between nodes and policies -----------------------------------------------------------------------------------------


async def test_sessions_go_on_at_the_next_node_and_an_owner_waits_for_them() -> None:
    async with cluster() as paper:
        node, first, _ = await two(paper)
        other = paper.node(SHARED)
        paper.move(other)
        assert await Client(9, AccessMode.EXCLUSIVE).send(other, sequence=0) == TIMED_OUT
        assert [await Client(7).send(other, 1, sequence=0), await Client(7).send(other, 3, sequence=1)] == [REPEAT, 0]
        assert await first.send(node, 4) == MOVED
        assert paper.kafka.log().values == [1, 2, 3]
        other.env.late = GRACE_S
        assert await Client(9, AccessMode.EXCLUSIVE).send(other) == POLICY_VIOLATION, "one is connected"


async def test_a_session_gets_its_own_slot_back_at_the_next_node_whoever_comes_first() -> None:
    async with cluster() as paper:
        await two(paper)
        other = paper.node(SHARED)
        paper.move(other)
        for number in (8, 7):
            back = Client(number)
            assert [await back.send(other, 9, sequence=0), await back.send(other, number, sequence=1)] == [REPEAT, 0]
        slots = {batch.values[0]: batch.producer_id for batch in paper.kafka.log().log if batch.values}
        assert slots[1] == slots[7] != slots[2] == slots[8]


async def test_the_next_node_renews_the_fences_of_sessions_that_did_not_come_back() -> None:
    async with cluster() as paper:
        await two(paper)
        other = paper.node(SHARED)
        paper.move(other)
        assert await Client(8).send(other, 3, sequence=1) == 0
        log = paper.kafka.log().log
        marks = {stamp: sum(batch.producer_id == stamp for batch in log) for stamp in stamps(paper)}
        await other.topic.keep_alive()
        after = {stamp: sum(batch.producer_id == stamp for batch in log) for stamp in stamps(paper)}
        assert after == {stamp: count + 1 for stamp, count in marks.items()}


async def test_a_topic_is_free_when_no_shared_session_of_the_last_node_comes_back() -> None:
    async with cluster() as paper:
        await two(paper)
        other = paper.node(SHARED)
        paper.move(other)
        claimant = Client(9, AccessMode.EXCLUSIVE)
        assert await claimant.send(other, sequence=0) == TIMED_OUT
        other.env.late = GRACE_S
        assert await claimant.send(other, 3, sequence=0) == 0
        assert await Client(8).send(other, 4, sequence=1) == POLICY_VIOLATION


async def test_a_node_that_lost_the_topic_opens_no_slot() -> None:
    async with cluster() as paper:
        node, first, second = await two(paper)
        other = paper.node(SHARED)
        paper.move(other)
        assert await Client(7).send(other, 3, sequence=1) == 0
        assert [await first.send(node, 4), await second.send(node, 5), await Client(9).send(node, 6)] == [MOVED] * 3
        assert paper.kafka.log().values == [1, 2, 3]
        assert await Client(8).send(other, 5, sequence=1) == 0


async def test_a_policy_that_does_not_allow_it_any_more_ends_the_sharing() -> None:
    async with cluster() as paper:
        node, first, second = await two(paper)
        node.allow(AccessMode.EXCLUSIVE)
        node.topic.policy_changed()
        assert node.whole.shared.connected() == []
        assert await first.send(node, 3) == 0
        assert await second.send(node, 4) == POLICY_VIOLATION
        assert node.holder is not None
        assert paper.kafka.log().values == [1, 2, 3]


async def test_an_owner_that_was_released_is_deposed_once_others_share_the_topic() -> None:
    async with cluster() as paper:
        node, owner = paper.node(SHARED), Client(7, AccessMode.EXCLUSIVE)
        assert await owner.send(node, 1) == 0
        assert await Client(8).send(node, 2, sequence=0) == POLICY_VIOLATION
        node.close(owner)
        await node.settled()
        sharing = Client(9)
        assert await sharing.send(node, 2) == 0
        assert node.holder is None
        assert await Client(7).send(node, 3, sequence=1) == DEPOSED
        assert paper.kafka.log().values == [1, 2]


async def test_fences_of_all_slots_are_renewed_also_of_sessions_that_left() -> None:
    async with cluster() as paper:
        node, first, _ = await two(paper)
        plain = Client(-1)
        assert await plain.send(node, 3) == 0
        node.close(first, plain)
        marks = {stamp: sum(batch.producer_id == stamp for batch in paper.kafka.log().log) for stamp in stamps(paper)}
        await node.topic.keep_alive()
        after = {stamp: sum(batch.producer_id == stamp for batch in paper.kafka.log().log) for stamp in stamps(paper)}
        assert after == {stamp: count + 1 for stamp, count in marks.items()}
        assert await Client(7).send(node, 4, sequence=1) == 0
        assert await Client(8).send(node, 5, sequence=1) == 0


async def test_a_node_that_hands_the_topic_back_finishes_what_sessions_have_in_flight() -> None:
    async with cluster() as paper:
        node, first, _ = await two(paper)
        paper.kafka.holding = True
        late = first.offer(node, 3)
        leaving = node.env.tasks.start(node.topic.hand_back())
        await wait_until(lambda: node.whole.busy, "the operation")
        assert not leaving.done()
        paper.kafka.deliver()
        await leaving
        assert (await late).error == 0
        assert not node.whole.shared.is_current()
        assert paper.kafka.log().values == [1, 2, 3]


async def test_a_batch_goes_on_without_a_decision_on_its_sessions_connection_alone() -> None:
    async with cluster() as paper:
        node, first, second = await two(paper)
        taken = [
            first.forwarded(node, 3, sequence=1),
            second.forwarded(node, 4, sequence=1),
            replace_connection(first).forwarded(node, 5, sequence=2),
            Client(9).forwarded(node, 5, sequence=0),
        ]
        assert taken == [True, True, False, False]
        await wait_until(lambda: paper.kafka.log().values == [1, 2, 3, 4], "the batches")


def replace_connection(client: Client) -> Client:
    """The same session on a connection that carried nothing yet."""
    found = Client(client.number)
    found.claimant = replace(client.claimant, connection=found.connection)
    return found


async def test_sessions_share_until_the_marker_of_another_node_is_read() -> None:
    async with cluster() as paper:
        node, first, _ = await two(paper)
        topic, master = node.whole, node.whole.shared.master
        assert master is not None
        assert topic.may_share()
        topic.serving = False
        assert not topic.may_share(), "it is about to be handed over"
        topic.serving = True
        node.changelog.view.note_writer(Stamp(master.stamp.producer_id, ProducerEpoch(master.stamp.epoch + 1)))
        assert not topic.may_share()
        assert not topic.shared.is_live(Client(9).session)
        assert topic.shared.is_live(first.session)
        topic.shared.close(answers.MOVED)
        assert not topic.shared.is_current()


async def test_a_session_whose_slot_is_given_away_writes_under_its_epoch_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also if the takeover fails: it opens the next one of its slot then."""
    monkeypatch.setattr("sidecar.exclusive.shared.POOL", 2)
    async with cluster() as paper:
        node, first, _ = await two(paper)
        gone = node.whole.shared._sessions[first.session]
        node.close(first)
        assert gone.writer.epoch is not None

        async def fail(_: Any) -> None:
            raise UpstreamError("away")

        paper.kafka.before = fail
        assert await Client(9).send(node, 3) == BUSY
        assert gone.writer.epoch is None
        paper.kafka.before = None
        assert await Client(7).send(node, 4, sequence=1) == 0
        assert node.whole.shared._sessions[first.session] is gone
        assert paper.kafka.log().values == [1, 2, 4]
