"""Produce requests that are like earlier ones are passed on together, with their answers: which are, and that it makes
no difference to a client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any
from unittest.mock import ANY

import pytest

from sidecar.gateway import ordinary_produce
from sidecar.gateway.client import ClientLogin
from sidecar.gateway.gaps import Place
from sidecar.gateway.ordinary_produce import UsualProduce
from sidecar.gateway.rights import Rights
from sidecar.network.budget import MOST_UNANSWERED
from sidecar.network.client import FRAMES_A_TURN
from sidecar.network.turn import TURN
from sidecar.protocol import usual_produce
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.limits import BOUNDS
from sidecar.security.acls import Operation
from tests.sim.kafka.tables import PRODUCE
from tests.sim.wire import LostError
from tests.unit.gateway.brokers import Client, Setup, batch, play, results
from tests.unit.gateway.test_access import Mirror, rule

if TYPE_CHECKING:
    from sidecar.protocol.schema import Values

pytestmark = pytest.mark.skipif(not usual_produce.IS_COMPILED, reason="nothing was compiled")
Parts = Sequence[tuple[str | bytes, int, bytes]]


class Taken(list[int]):
    """`then` is called in the next step of the loop."""

    then: Callable[[], object] = staticmethod(lambda: None)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Taken:
    """How many requests each read brought that were passed on together; reads that brought none are left out."""
    found = Taken()
    take = UsualProduce.take

    def noted(self: UsualProduce, framer: Any, most: int) -> int:
        count = take(self, framer, most)
        if count:
            found.append(count)
            asyncio.get_running_loop().call_soon(found.then)
        return count

    monkeypatch.setattr(UsualProduce, "take", noted)
    return found


async def row(client: Client, *requests: Parts, version: int = 9, acks: int = -1) -> list[list[tuple[Any, int, int]]]:
    """Send requests in one go; the outcomes of each."""
    bodies: list[bytes] = []
    for parts in requests:
        topics: dict[str | bytes, list[Values]] = {}
        for topic, partition, records in parts:
            topics.setdefault(topic, []).append({"index": partition, "records": records})
        named = [
            ({"name": t} if isinstance(t, str) else {"topic_id": t}) | {"partition_data": p} for t, p in topics.items()
        ]
        fields = {"transactional_id": None, "acks": acks, "timeout_ms": 1_000, "topic_data": named}
        bodies.append(PRODUCE.encode_request(version, 0, b"", fields)[14:])
    told = client.wire.send_row(0, bodies, version=version)
    if not acks:
        return []
    answers = [bytes(8) + body for body in await asyncio.gather(*told)]
    return [results(PRODUCE.decode_answer(answer, 0, len(answer), version)) for answer in answers]


ONE: Parts = [("orders", 0, batch(1))]
OTHER: Parts = [("orders", 1, batch(2))]


@pytest.mark.parametrize("version", range(3, 13))
def test_later_requests_like_one_are_passed_on_together(version: int, taken: Taken) -> None:
    async def story(setup: Setup) -> None:
        client = await setup.client()
        assert await row(client, ONE, version=version) == [[("orders", 0, 0)]]
        assert taken == []
        many = [[("orders", 0, batch(*range(size)))] for size in range(1, 5)]
        assert await row(client, *many, version=version) == [[("orders", 0, 0)]] * 4
        assert taken == [4]
        assert setup.log("orders", 0) == [1, 1, 2, 3, 4]
        state = client.state
        assert (state.connection.requests, state.connection.unanswered) == (5, 0)
        assert state.connection.bytes_out > 4 * 40
        assert state.ordinary.were_sent

    play(story)


def test_so_are_those_that_name_topics_by_id_and_several_partitions_of_one_leader(taken: Taken) -> None:
    async def story(setup: Setup) -> None:
        client = await setup.client()
        orders = setup.cluster.controller.topics["orders"].id
        parts: Parts = [(orders, 2, batch(1)), (orders, 0, batch(2, 3))]
        for _ in range(2):
            assert await row(client, parts, parts[1:], version=13) == [
                [(orders, 2, 0), (orders, 0, 0)],
                [(orders, 0, 0)],
            ]
        assert taken == [2]
        assert (setup.log("orders", 2), setup.log("orders", 0)) == ([1, 1], [2, 2, 2, 2])

    play(story)


def test_answers_of_two_leaders_keep_the_order_of_requests(taken: Taken) -> None:
    async def story(setup: Setup) -> None:
        client = await setup.client()
        await row(client, ONE, OTHER)
        asked: list[Parts] = [[("orders", number % 2, batch(*range(number + 1)))] for number in range(8)]
        assert await row(client, *asked) == [[("orders", number % 2, 0)] for number in range(8)]
        assert taken == [8]
        assert (setup.log("orders", 0), setup.log("orders", 1)) == ([1, 1, 3, 5, 7], [1, 2, 4, 6, 8])

    play(story)


def test_more_than_one_turn_takes_and_more_than_may_wait(taken: Taken) -> None:
    async def story(setup: Setup) -> None:
        client = await setup.client()
        await row(client, ONE)
        many = MOST_UNANSWERED + 2 * len(FRAMES_A_TURN)
        assert await row(client, *[ONE] * many) == [[("orders", 0, 0)]] * many
        assert setup.log("orders", 0) == [1] * (many + 1)
        assert max(taken) == len(FRAMES_A_TURN)

    play(story)


def test_errors_and_other_requests_between_them_are_answered_in_order(taken: Taken) -> None:
    async def story(setup: Setup) -> None:
        client = await setup.client()
        await row(client, ONE)
        broken = bytearray(batch(9))
        broken[-1] ^= 1
        odd: list[Parts] = [[("orders", 0, bytes(broken))], [("gone", 0, batch(1))], [("orders", 0, b"")]]
        for between in odd:
            told = await row(client, ONE, between, ONE)
            assert [answer[0][2] == 0 for answer in told] == [True, False, True]
        assert taken[:2] == [3, 1]
        assert setup.log("orders", 0) == [1] * 7

    play(story)


async def _governed(setup: Setup, _client: Client) -> None:
    setup.resolver.set_policies(["orders"], ())


async def _hidden(setup: Setup, client: Client) -> None:
    client.state.rights = Rights(client.state, "10.0.0.1", Mirror(rule(Operation.WRITE, "others")))


async def _expected(_: Setup, client: Client) -> None:
    client.state.ordinary.expects(b"orders", 0, Place(5, 0, 3))


async def _renamed(_: Setup, client: Client) -> None:
    client.wire.client_id = "someone"


async def _new_metadata(setup: Setup, _client: Client) -> None:
    setup.upstream.view.version += 1


async def _under_an_older_view(_: Setup, client: Client) -> None:
    client.state.ordinary.sent_under -= 1


async def _metered(_: Setup, client: Client) -> None:
    client.state.connection.meter = Meter()


async def _claims(_: Setup, client: Client) -> None:
    client.state.governed.claimants[b"governed", 7] = object()


def lose(client: Client) -> None:
    """The node's connections to brokers for a client end."""
    for connection in list(client.state.links._connections.values()):
        connection.close()


async def _lost(_: Setup, client: Client) -> None:
    lose(client)


class Meter:
    """Counts what passes."""

    def __init__(self) -> None:
        self.asked = self.told = 0

    def expected(self, _: object) -> None:
        self.asked += 1

    def answered(self, _: object) -> None: ...

    def forwarded(self, *_: object) -> None:
        self.told += 1


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (_governed, 0), (_hidden, ErrorCode.TOPIC_AUTHORIZATION_FAILED), (_expected, 0), (_renamed, 0),
        (_new_metadata, 0), (_under_an_older_view, 0), (_metered, 0), (_claims, 0), (_lost, 0),
    ],
)  # fmt: skip
def test_nothing_is_taken_once_something_else_decides(
    change: Callable[[Setup, Client], Awaitable[None]], error: int, taken: Taken
) -> None:
    async def story(setup: Setup) -> None:
        client = await setup.client()
        await row(client, ONE)
        await row(client, ONE)
        assert taken == [1]
        await change(setup, client)
        assert await row(client, ONE) == [[("orders", 0, error)]]
        assert taken == [1]
        if change is _governed:
            assert setup.governed.appended == [("orders", 0, "whole")]
        if change is _metered:
            meter: Any = client.state.connection.meter
            assert (meter.asked, meter.told) == (1, 1)
        if change in (
            _renamed,
            _new_metadata,
            _under_an_older_view,
            _lost,
        ):  # that was looked at: now it is usual again
            await row(client, ONE)
            assert taken == [1, 1]

    play(story)


def test_requests_of_clients_with_rights_are_taken_too(taken: Taken) -> None:
    async def story(setup: Setup) -> None:
        client = await setup.client()
        mirror = Mirror(rule(Operation.WRITE, "orders"), rule(Operation.WRITE, "others"))
        client.state.principal = "User:alice"
        client.state.rights = Rights(client.state, "10.0.0.1", mirror)
        others: Parts = [("others", 0, batch(3))]
        await row(client, ONE, others)
        assert await row(client, ONE, others) == [[("orders", 0, 0)], [("others", 0, 0)]]
        mirror.acls = Mirror(rule(Operation.WRITE, "orders")).acls
        assert await row(client, ONE, others) == [[("orders", 0, 0)], [("others", 0, 29)]]
        assert taken == [2, 1]

    play(story)


def test_a_login_that_has_ended_is_noticed(taken: Taken) -> None:
    async def story(setup: Setup) -> None:
        client = await setup.client()
        await row(client, ONE)
        client.state.login = login = ClientLogin(asyncio.get_running_loop().call_later(9, int))
        login.done, login.expires_at = True, 1.0
        with pytest.raises(LostError):
            await row(client, ONE)
        assert taken == []

    play(story)


def test_the_client_id_is_that_of_each_request(taken: Taken) -> None:
    async def story(setup: Setup) -> None:
        client = await setup.client()
        await row(client, ONE)
        client.wire.client_id = "someone"
        await client.reads(("orders", 0, 0))
        client.wire.client_id = "app"
        await row(client, ONE)
        assert (taken, client.state.identity.raw) == ([], b"app")
        client.wire.client_id = "app;"  # a broker must not see this
        for _ in range(2):
            assert await row(client, ONE) == [[("orders", 0, 0)]]
        assert taken == []

    play(story)


def test_a_client_may_change_the_version(taken: Taken) -> None:
    async def story(setup: Setup) -> None:
        client = await setup.client()
        for version in (9, 8, 8):
            assert await row(client, ONE, version=version) == [[("orders", 0, 0)]]
        assert taken == [1]

    play(story)


def test_each_partition_of_a_request_is_looked_at(taken: Taken) -> None:
    async def story(setup: Setup) -> None:
        client = await setup.client()
        both: Parts = [("orders", 0, batch(1)), ("governed", 0, batch(2))]
        for _ in range(2):
            assert await row(client, both) == [[("orders", 0, 0), ("governed", 0, 0)]]
        setup.resolver.set_policies(["governed"], ())
        assert await row(client, both) == [[("orders", 0, 0), ("governed", 0, 0)]]
        assert (taken, setup.governed.appended) == ([1], [("governed", 0, "part")])

    play(story)


def test_requests_of_many_partitions_leave_others_their_turn(taken: Taken, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BOUNDS, "turn", 5)

    async def story(setup: Setup) -> None:
        client = await setup.client()
        both: Parts = [("orders", 0, batch(1)), ("orders", 2, batch(2))]
        await row(client, both)
        cut = TURN.cut
        await row(client, *[both] * 6)
        assert (taken, TURN.cut - cut) == ([3], 1)

    play(story)


def test_the_routes_that_a_client_makes_the_node_keep_are_bounded(
    taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordinary_produce, "MOST_ROUTES", 2)

    async def story(setup: Setup) -> None:
        client = await setup.client()
        others: Parts = [("others", 0, batch(3))]
        for each in (ONE, OTHER, ONE, OTHER):
            await row(client, each)
        assert taken == [1, 1]
        await row(client, others)
        assert client.state.connection.usual._routes.keys() == {b"others"}
        assert await row(client, ONE) == [[("orders", 0, 0)]]
        await row(client, ONE, others)
        assert taken == [1, 1, 2]
        monkeypatch.setattr(BOUNDS, "turn", 1)
        await row(client, [("orders", 0, batch(1)), ("orders", 2, batch(2))])
        assert client.state.connection.usual._routes == {b"others": {0: ANY}, b"orders": {0: ANY}}

    play(story)


def test_a_partition_that_has_moved_is_sent_to_its_new_leader(taken: Taken) -> None:
    async def story(setup: Setup) -> None:
        client = await setup.client()
        moves: Parts = [("moves", 0, batch(1))]
        await row(client, moves, ONE)
        setup.cluster.elect("moves", 0, 2)
        await asyncio.sleep(1)
        await setup.upstream.find_leaders([b"moves"])
        assert setup.upstream.view.leader(b"moves", 0) == 2
        assert await row(client, ONE) == [[("orders", 0, 0)]]
        assert await row(client, ONE, moves) == [[("orders", 0, 0)], [("moves", 0, 0)]]
        assert taken == [1]

    play(story)


def test_a_batch_behind_one_that_has_to_come_again_is_refused(taken: Taken) -> None:
    async def story(setup: Setup) -> None:
        client = await setup.client()
        await row(client, ONE)
        client.state.ordinary.expects(b"orders", 0, Place(5, 0, 3))
        later: Parts = [("orders", 0, batch(1, producer_id=5, sequence=4))]
        assert await row(client, later) == [[("orders", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]]
        assert taken == []

    play(story)


def test_the_answer_of_one_that_was_expected_again_is_looked_at(taken: Taken) -> None:
    async def story(setup: Setup) -> None:
        client = await setup.client()
        await row(client, ONE)
        taken.then = lambda: client.state.ordinary.expects(b"orders", 0, Place(5, 0, 0))
        assert await row(client, [("orders", 0, batch(1, producer_id=5, sequence=0))]) == [[("orders", 0, 0)]]
        assert taken == [1]
        assert not client.state.ordinary.expected

    play(story)


def test_a_request_without_acks_is_looked_at(taken: Taken) -> None:
    async def story(setup: Setup) -> None:
        client = await setup.client()
        await row(client, ONE)
        await row(client, ONE, acks=0)
        await asyncio.sleep(1)
        assert setup.log("orders", 0) == [1, 1]
        assert (taken, client.state.connection.unanswered) == ([], 0)

    play(story)


def test_a_lost_connection_answers_all_that_were_passed_on(taken: Taken) -> None:
    async def story(setup: Setup) -> None:
        client = await setup.client()
        await row(client, ONE)
        taken.then = lambda: lose(client)
        assert await row(client, ONE, ONE) == [[("orders", 0, ErrorCode.REQUEST_TIMED_OUT)]] * 2
        assert taken == [2]

    play(story)
