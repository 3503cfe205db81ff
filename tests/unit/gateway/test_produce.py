"""Produce through a node to the simulator's brokers: what goes where, what is refused and how, and in which order."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from sidecar.cluster.resolver import ANYBODY, TRANSACTIONAL_ID_PREFIX, Source, TopicKind
from sidecar.gateway.client import ClientLinks
from sidecar.gateway.rights import Rights
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.limits import BOUNDS
from sidecar.security.acls import Operation
from tests.sim.wire import LostError
from tests.unit.gateway.brokers import Setup, batch, play, results
from tests.unit.gateway.test_access import Mirror, rule

STRANGE = b"nobody knows it."


def governs(setup: Setup, *topics: str) -> None:
    setup.resolver.set_policies(topics, ())


async def is_closed(client: Any, reason: str) -> None:
    """The node closes the connection, and reports why."""
    await asyncio.sleep(1)
    assert client.wire.closed
    assert reason in client.setup.hooks.rejected or not reason


@pytest.mark.parametrize("version", [3, 7, 8, 9, 12])
@pytest.mark.parametrize("turn", [100, 1])
def test_each_batch_goes_to_the_leader_of_its_partition(version: int, turn: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(BOUNDS, "turn", turn)

    async def story(setup: Setup) -> None:
        client = await setup.client()
        one = await client.sends(("orders", 0, batch(1, 2)), version=version)
        assert results(one) == [("orders", 0, 0)]
        of_one_broker = await client.sends(("orders", 2, batch(1)), ("orders", 0, batch(3)), version=version)
        assert results(of_one_broker) == [("orders", 2, 0), ("orders", 0, 0)]
        asked = ("others", 0, batch(4)), ("orders", 1, batch(5)), ("orders", 0, batch(6, 7)), ("gone", 0, batch(8))
        answer = await client.sends(*asked, version=version)
        assert results(answer) == [("others", 0, 0), ("orders", 1, 0), ("orders", 0, 0), ("gone", 0, 3)]
        assert answer["responses"][1]["partition_responses"][1]["base_offset"] == 3
        assert answer["throttle_time_ms"] == 0
        assert [setup.log("orders", index) for index in range(3)] == [[2, 1, 2], [1], [1]]
        assert setup.log("others", 0) == [1]

    play(story)


def test_topics_are_named_by_id() -> None:
    async def story(setup: Setup) -> None:
        client = await setup.client()
        setup.cluster.create_topic("late", 1, 1, assignment={0: [2]})
        await asyncio.sleep(1)
        orders, late = (setup.cluster.controller.topics[name].id for name in ("orders", "late"))
        answer = await client.sends((late, 0, batch(1)), (STRANGE, 0, batch(2)), (orders, 1, batch(3)), version=13)
        assert set(results(answer)) == {(late, 0, 0), (STRANGE, 0, 100), (orders, 1, 0)}
        assert (setup.log("late", 0), setup.log("orders", 1)) == ([1], [1])

    play(story)


def test_a_request_without_partitions_is_answered_and_one_that_names_one_twice_is_not() -> None:
    async def story(setup: Setup) -> None:
        client = await setup.client()
        assert (await client.sends())["responses"] == []
        assert results(await client.sends(("orders", 0, b""), ("orders", 1, batch(1)))) == [
            ("orders", 0, ErrorCode.INVALID_RECORD), ("orders", 1, 0)
        ]  # fmt: skip
        with pytest.raises(LostError):
            await client.sends(("orders", 0, batch(1)), ("orders", 0, batch(2)))
        await is_closed(client, "malformed")
        assert setup.log("orders", 0) == []

    play(story)


def test_without_acks_nothing_is_answered_and_a_refusal_closes_the_connection() -> None:
    async def story(setup: Setup) -> None:
        client = await setup.client()
        waits = [
            client.sends(("orders", 0, batch(1)), acks=0),
            client.sends(("orders", 0, batch(2)), ("orders", 1, batch(3)), acks=0),
        ]
        await asyncio.sleep(1)
        assert (setup.log("orders", 0), setup.log("orders", 1), client.wire.closed) == ([1, 1], [1], False)
        waits.append(client.sends(("gone", 0, batch(4)), acks=0))
        await is_closed(client, "")
        for each in waits:
            each.close()  # type: ignore[attr-defined]

    play(story)


def test_a_transactional_id_of_the_nodes_is_refused() -> None:
    async def story(setup: Setup) -> None:
        client = await setup.client()
        name = TRANSACTIONAL_ID_PREFIX + "orders"
        answer = await client.sends(("orders", 0, batch(1)), ("orders", 1, batch(1)), transactional_id=name)
        assert results(answer) == [("orders", 0, 53), ("orders", 1, 53)]

    play(story)


def test_a_client_id_that_cannot_be_read_is_refused_with_its_reason() -> None:
    async def story(setup: Setup) -> None:
        client = await setup.client("me;mode=sometimes")
        answer = await client.sends(("orders", 0, batch(1)))
        (topic,) = answer["responses"]
        (told,) = topic["partition_responses"]
        assert told["error_code"]
        assert "mode" in told["error_message"]

    play(story)


# Rights -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turn", [100, 1])
def test_topics_that_a_client_may_not_write_to_are_refused_alone(turn: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(BOUNDS, "turn", turn)

    async def story(setup: Setup) -> None:
        client = await setup.client()
        assert results(await client.sends(("others", 0, batch(1)))) == [("others", 0, 0)]
        client.state.principal = "User:alice"
        client.state.rights = Rights(client.state, "10.0.0.1", Mirror(rule(Operation.WRITE, "orders")))
        asked = ("others", 0, batch(2)), ("orders", 0, batch(3)), ("orders", 1, batch(4))
        assert results(await client.sends(*asked)) == [("others", 0, 29), ("orders", 0, 0), ("orders", 1, 0)]
        assert results(await client.sends(*asked[1:])) == [("orders", 0, 0), ("orders", 1, 0)]
        assert results(await client.sends(asked[0])) == [("others", 0, 29)]
        noted = [(each.topic, each.code, each.count) for each in setup.gateway.refusals.newest()]
        assert noted == [("others", 29, 2)]
        governs(setup, "others", "orders")
        assert results(await client.sends(*asked[:2])) == [("others", 0, 29), ("orders", 0, 0)]
        assert setup.governed.appended == [("orders", 0, "part")]
        assert setup.log("others", 0) == [1]

    play(story)


def test_nothing_is_looked_up_for_a_client_without_the_right_to_its_transactional_id(monkeypatch: Any) -> None:
    async def story(setup: Setup) -> None:
        client = await setup.client()
        client.state.principal = "User:alice"
        client.state.rights = Rights(client.state, "10.0.0.1", Mirror(rule(Operation.WRITE, "orders")))
        asked: list[bytes] = []
        monkeypatch.setattr(setup.upstream, "find_ids", asked.extend)
        sent = (STRANGE, 0, batch(1, producer_id=7, sequence=0, transactional=True))
        assert results(await client.sends(sent, version=13, transactional_id="t")) == [(STRANGE, 0, 53)]
        assert asked == []

    play(story)


@pytest.mark.parametrize(("allowed", "said"), [(frozenset({ANYBODY}), True), (frozenset({"User:alice"}), False)])
def test_nobody_writes_to_a_shadow(allowed: Any, said: bool) -> None:
    async def story(setup: Setup) -> None:
        setup.resolver.set_shadows({b"others": Source(b"orders", UUID(int=1), allowed)})
        client = await setup.client()
        answer = await client.sends(("others", 0, batch(1)), ("orders", 0, batch(2)))
        refused, appended = [each for topic in answer["responses"] for each in topic["partition_responses"]]
        assert refused["error_code"] == TopicKind.SHADOW.change_refused.code  # type: ignore[union-attr]
        assert (refused["error_message"] is not None) is said, "whoever may not see it does not learn that it is one"
        assert appended["error_code"] == 0

    play(story)


# Governed topics ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("acks", "transactional_id", "topics", "whole"),
    [
        (-1, None, ["governed"], True),
        (1, None, ["governed"], False),
        (-1, "t", ["governed"], False),
        (-1, None, ["governed", "orders"], False),
        (-1, None, ["orders", "governed"], False),
    ],
)
def test_a_request_for_governed_topics_alone_is_appended_whole(
    acks: int, transactional_id: str | None, topics: list[str], whole: bool
) -> None:
    async def story(setup: Setup) -> None:
        governs(setup, "governed")
        client = await setup.client()
        asked = [(topic, index, batch(1)) for topic in topics for index in (0, 1)]
        answer = await client.sends(*asked, acks=acks, transactional_id=transactional_id)
        assert (results(answer), answer["throttle_time_ms"]) == ([(topic, index, 0) for topic, index, _ in asked], 0)
        how = "whole" if whole else "part"
        assert setup.governed.appended == [("governed", 0, how), ("governed", 1, how)]
        assert [setup.log("orders", index) for index in (0, 1)] == [[1] * ("orders" in topics)] * 2
        setup.governed.whole = False
        again = await client.sends(*asked)
        assert results(again) == [(topic, index, 0) for topic, index, _ in asked]
        setup.governed.code = ErrorCode.INVALID_PRODUCER_EPOCH
        assert [code for _, _, code in results(await client.sends(("governed", 0, batch(1))))] == [47]

    play(story)


def test_a_batch_for_a_governed_partition_is_a_batch() -> None:
    async def story(setup: Setup) -> None:
        governs(setup, "governed")
        setup.governed.whole = False
        client = await setup.client()
        answer = await client.sends(("governed", 0, b""), ("governed", 1, batch(1)))
        assert results(answer) == [("governed", 0, ErrorCode.INVALID_RECORD), ("governed", 1, 0)]
        assert setup.governed.appended == [("governed", 1, "part")]

    play(story)


def test_a_client_that_asks_for_a_mode_has_ordinary_topics_governed_first() -> None:
    async def story(setup: Setup) -> None:
        setup.governed.refuses = {b"others": KafkaError(ErrorCode.POLICY_VIOLATION, "not this one")}
        governs(setup, "governed")
        client = await setup.client("me;mode=exclusive")
        asked = ("others", 0, batch(1)), ("governed", 0, batch(2)), ("orders", 0, batch(3))
        answer = await client.sends(*asked)
        assert results(answer) == [("others", 0, 44), ("governed", 0, 0), ("orders", 0, 0)]
        assert setup.governed.asked_for == [{b"others", b"orders"}]
        assert results(await client.sends(("governed", 0, batch(2)))) == [("governed", 0, 0)]
        assert setup.governed.asked_for == [{b"others", b"orders"}], "nothing of it can become governed"
        assert results(await client.sends(("orders", 0, batch(3)))) == [("orders", 0, 0)]
        assert setup.governed.asked_for[1:] == [{b"orders"}]

    play(story)


def test_a_request_waits_behind_one_that_needs_an_answer_first() -> None:
    async def story(setup: Setup) -> None:
        client, resumes = await setup.client("me;mode=exclusive"), asyncio.Event()

        async def govern(topics: Any) -> Any:
            await resumes.wait()
            return {}

        vars(setup.governed)["govern"] = govern
        first = asyncio.ensure_future(client.sends(("orders", 0, batch(1))))
        governs(setup, "governed")
        second = asyncio.ensure_future(client.sends(("governed", 0, batch(2))))
        await asyncio.sleep(1)
        assert (setup.governed.appended, setup.log("orders", 0)) == ([], [])
        resumes.set()
        assert results(await first) + results(await second) == [("orders", 0, 0), ("governed", 0, 0)]

    play(story)


def test_a_batch_does_not_overtake_one_of_its_partition_that_was_sent_under_a_policy() -> None:
    async def story(setup: Setup) -> None:
        governs(setup, "orders")
        setup.governed.whole, setup.governed.held = False, []
        client = await setup.client()
        first = asyncio.ensure_future(client.sends(("orders", 0, batch(1, producer_id=7, sequence=0))))
        await asyncio.sleep(0.1)
        client.state.governed.claimants[b"orders", 7] = None
        governs(setup)
        second = asyncio.ensure_future(client.sends(("orders", 0, batch(2, producer_id=7, sequence=1))))
        other = asyncio.ensure_future(client.sends(("orders", 1, batch(3, producer_id=7, sequence=0))))
        await asyncio.sleep(0.1)
        (settle,) = setup.governed.held
        settle()
        assert [results(await each)[0][2] for each in (first, second, other)] == [0, 6, 0]
        assert (setup.log("orders", 0), setup.log("orders", 1)) == ([], [1])

    play(story)


# Leaders that go ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [[0], [0, 1]])
def test_what_a_lost_leader_may_have_appended_is_said_to_have_timed_out(partitions: list[int]) -> None:
    """A batch that was not sent is said to have been sent to one that does not lead: nothing was appended."""

    async def story(setup: Setup) -> None:
        client = await setup.client()
        for index in (0, 1):
            assert results(await client.sends(("orders", index, batch(1, producer_id=7, sequence=0))))[0][2] == 0
        name = setup.cluster.brokers[1].address[0]
        setup.network.cut("node", name)
        asking = asyncio.ensure_future(
            client.sends(*[("orders", index, batch(2, producer_id=7, sequence=1)) for index in partitions])
        )
        await asyncio.sleep(0.2)
        assert not asking.done()
        for link in setup.network.of(name):
            setup.network.reset(link)
        told = results(await asking)
        assert told == [("orders", index, 0 if index else ErrorCode.REQUEST_TIMED_OUT) for index in partitions]
        later = await client.sends(("orders", 0, batch(3, producer_id=7, sequence=2)))
        assert results(later) == [("orders", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)], "it comes before what was lost"

    play(story)


@pytest.mark.parametrize("others", [[], [("moves", 1, batch(5))], [("orders", 0, batch(5))]])
def test_a_batch_that_a_former_leader_refused_comes_again_before_what_follows_it(others: list[Any]) -> None:
    async def story(setup: Setup) -> None:
        client = await setup.client()

        async def code_of(sequence: int) -> int:
            answer = await client.sends(("moves", 0, batch(sequence, producer_id=7, sequence=sequence)), *others)
            assert all(code == 0 for _, _, code in results(answer)[1:])
            return results(answer)[0][2]

        assert await code_of(0) == 0
        setup.cluster.elect("moves", 0, 2)
        await asyncio.sleep(1)
        assert await code_of(1) == ErrorCode.NOT_LEADER_OR_FOLLOWER, "the node does not know of the new leader yet"
        await asyncio.sleep(2)
        assert setup.upstream.view.leader(b"moves", 0) == 2
        assert await code_of(2) == ErrorCode.NOT_LEADER_OR_FOLLOWER, "it comes before the one that was refused"
        assert [await code_of(sequence) for sequence in (1, 2, 3)] == [0, 0, 0]
        assert not client.state.ordinary.expected
        assert setup.log("moves", 0) == [1, 1, 1, 1]

    play(story)


@pytest.mark.parametrize("asked", [[("orders", 0, batch(1))], [("orders", 0, batch(1)), ("orders", 1, batch(1))]])
def test_a_batch_that_cannot_be_sent_was_not_appended(asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object) -> None:
        raise DisconnectedError("broker 1 does not answer", sent=False)

    monkeypatch.setattr(ClientLinks, "to", unreachable)

    async def story(setup: Setup) -> None:
        client = await setup.client()
        assert [code for _, _, code in results(await client.sends(*asked))] == [6] * len(asked)
        unanswered = client.sends(*asked, acks=0)
        await is_closed(client, "")
        unanswered.close()  # type: ignore[attr-defined]

    play(story)


def test_a_topic_whose_leaders_nobody_can_name_now_is_asked_for_again() -> None:
    async def story(setup: Setup) -> None:
        client = await setup.client()
        for number in (1, 2):
            setup.network.cut("node", setup.cluster.brokers[number].address[0])
        answer = await client.sends(("gone", 0, batch(1)))
        assert results(answer) == [("gone", 0, ErrorCode.LEADER_NOT_AVAILABLE)], "that there is none is not known"

    play(story)


class Meter:
    """Quotas, which count what the node sends in its own name."""

    def __init__(self) -> None:
        self.as_node: list[int] = []

    def expected(self, exchange: Any) -> None: ...
    def answered(self, exchange: Any) -> None:
        self.as_node.append(getattr(exchange, "as_node", 0))

    def forwarded(self, *_: Any) -> None:
        self.as_node.append(0)

    def unanswered(self, _request: Any, as_node: int) -> None:
        self.as_node.append(as_node)


@pytest.mark.parametrize("acks", [-1, 0])
def test_of_a_request_that_is_split_the_node_sends_what_is_governed(acks: int) -> None:
    async def story(setup: Setup) -> None:
        governs(setup, "governed")
        setup.governed.whole = False
        client = await setup.client()
        client.state.connection.meter = meter = Meter()
        large, small = batch(*range(100)), batch(1)
        unanswered: list[Any] = []
        for asked in (
            [("governed", 0, small), ("orders", 0, large)], [("orders", 0, large), ("orders", 1, small)],
            [("orders", 0, large)],
        ):  # fmt: skip
            unanswered.append(client.sends(*asked, acks=acks))
            if acks:
                await unanswered.pop()
            await asyncio.sleep(0.5)
        mixed, ordinary, whole = meter.as_node
        assert (len(small) < mixed < len(small) + 120, ordinary, whole) == (True, 0, 0)
        for each in unanswered:
            each.close()

    play(story)
