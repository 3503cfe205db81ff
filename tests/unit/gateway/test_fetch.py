"""Fetch through a node from the simulator's brokers: what is read where, what is refused, and for whom."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from sidecar.cluster.resolver import Source
from sidecar.gateway.rights import Rights
from sidecar.protocol.errors import ErrorCode
from sidecar.security.acls import Operation
from tests.sim.wire import records_of
from tests.unit.gateway.brokers import Client, Setup, batch, play
from tests.unit.gateway.test_access import Mirror, rule

STRANGE = b"nobody knows it."


def read(answer: Any) -> list[tuple[Any, int, int, list[bytes]]]:
    """Topic, partition, error and records, in the order of the answer."""
    return [
        (topic.get("topic") or topic.get("topic_id"), each["partition_index"], each["error_code"],
         [record.value for record in records_of(each["records"] or b"")])
        for topic in answer["responses"]
        for each in topic["partitions"]
    ]  # fmt: skip


async def filled(setup: Setup) -> Client:
    """A client of a node whose brokers have a record in each log."""
    client = await setup.client()
    for topic, partition in (("orders", 0), ("orders", 1), ("orders", 2), ("others", 0)):
        await client.sends((topic, partition, batch(10 * partition + len(topic))))
    return client


ORDERS = [("orders", 0, 0, [b"6"]), ("orders", 1, 0, [b"16"]), ("orders", 2, 0, [b"26"])]
OTHERS = ("others", 0, 0, [b"6"])


@pytest.mark.parametrize("version", [4, 7, 11, 12])
def test_each_partition_is_read_from_its_leader(version: int) -> None:
    async def story(setup: Setup) -> None:
        client = await filled(setup)
        alone = await client.reads(("orders", 0, 0), version=version)
        assert (read(alone), alone.get("error_code", 0)) == (ORDERS[:1], 0)
        assert read(await client.reads(("orders", 0, 0), ("orders", 2, 0), version=version)) == [ORDERS[0], ORDERS[2]]
        answer = await client.reads(
            ("orders", 0, 0), ("orders", 1, 0), ("others", 0, 0), ("gone", 0, 0), version=version
        )
        assert sorted(read(answer)) == sorted([*ORDERS[:2], OTHERS, ("gone", 0, 3, [])])
        (beyond,) = read(await client.reads(("orders", 0, 99), version=version))
        assert beyond[2] == ErrorCode.OFFSET_OUT_OF_RANGE

    play(story)


def test_a_partition_that_is_named_twice_is_read_as_the_last_element_says() -> None:
    async def story(setup: Setup) -> None:
        client = await filled(setup)
        answer = await client.reads(("orders", 0, 99), ("others", 0, 0), ("orders", 0, 0))
        assert sorted(read(answer)) == [ORDERS[0], OTHERS]

    play(story)


@pytest.mark.parametrize(("epoch", "error"), [(-1, 0), (0, 0), (1, 70), (7, 70)])
def test_a_node_has_no_fetch_sessions(epoch: int, error: int) -> None:
    async def story(setup: Setup) -> None:
        client = await filled(setup)
        answer = await client.reads(("orders", 0, 0), session_epoch=epoch, session_id=5)
        assert (answer["error_code"], answer["session_id"]) == (error, 0)
        assert read(answer) == ([] if error else ORDERS[:1])
        nothing = await client.reads(session_epoch=epoch)
        assert (nothing["error_code"], nothing["responses"]) == (error, [])

    play(story)


def test_nobody_reads_as_a_follower() -> None:
    async def story(setup: Setup) -> None:
        client = await filled(setup)
        answer = await client.reads(("orders", 0, 0), ("others", 0, 0), replica_id=1)
        assert [(topic, code) for topic, _, code, _ in read(answer)] == [("orders", 29), ("others", 29)]
        assert [(each.code, each.count) for each in setup.gateway.refusals.newest()] == [(29, 1)]

    play(story)


def test_topics_are_read_by_id() -> None:
    async def story(setup: Setup) -> None:
        client = await filled(setup)
        setup.cluster.create_topic("late", 1, 1, assignment={0: [2]})
        await asyncio.sleep(1)
        await client.sends(("late", 0, batch(5)))
        orders, late = (setup.cluster.controller.topics[name].id for name in ("orders", "late"))
        answer = await client.reads((orders, 0, 0), (late, 0, 0), (STRANGE, 0, 0), version=13)
        assert set(map(str, read(answer))) == {
            str(each) for each in ((orders, 0, 0, [b"6"]), (late, 0, 0, [b"5"]), (STRANGE, 0, 100, []))
        }
        assert read(await client.reads((orders, 0, 0), version=13)) == [(orders, 0, 0, [b"6"])]

    play(story)


def test_topics_that_a_client_may_not_read_are_refused_alone() -> None:
    async def story(setup: Setup) -> None:
        client = await filled(setup)
        client.state.principal = "User:alice"
        client.state.rights = Rights(client.state, "10.0.0.1", Mirror(rule(Operation.READ, "orders")))
        asked = ("orders", 0, 0), ("others", 0, 0), ("gone", 0, 0)
        answer = await client.reads(*asked)
        assert sorted(read(answer)) == [("gone", 0, 29, []), ORDERS[0], ("others", 0, 29, [])]
        assert read(await client.reads(asked[0])) == ORDERS[:1]
        assert read(await client.reads(asked[1])) == [("others", 0, 29, [])]

    play(story)


def test_what_a_claim_keeps_for_its_reader_is_refused_to_others() -> None:
    async def story(setup: Setup) -> None:
        client = await filled(setup)
        guarded = {(b"orders", 0)}
        claims = SimpleNamespace(
            guards=True,
            refuses=lambda logs, _: not guarded.isdisjoint(logs),
            may_fetch=lambda topic, partition, _: (topic, partition) not in guarded,
        )
        vars(setup.fetch)["_claims"] = claims
        answer = await client.reads(("orders", 0, 0), ("orders", 2, 0))
        assert sorted(read(answer)) == [("orders", 0, 29, []), ORDERS[2]]
        guarded.clear()
        assert read(await client.reads(("orders", 0, 0))) == ORDERS[:1]

    play(story)


def test_a_shadow_is_read_from_its_source_under_its_own_name() -> None:
    async def story(setup: Setup) -> None:
        client = await filled(setup)
        source = setup.cluster.controller.topics["orders"]
        made = {
            b"mirror": Source(b"orders", UUID(bytes=source.id)),
            b"hidden": Source(b"orders", UUID(bytes=source.id), frozenset({"User:bob"})),
            b"begun": None,
        }
        setup.resolver.set_shadows(made)
        for topics in (["mirror"], ["mirror", "orders"], ["mirror", "others"]):
            answer = await client.reads(*((topic, 0, 0) for topic in topics))
            assert sorted(read(answer)) == sorted((topic, 0, 0, [b"6"]) for topic in topics)
        whole = await client.reads(("mirror", 0, 0), ("mirror", 2, 0))
        assert sorted(read(whole)) == [("mirror", 0, 0, [b"6"]), ("mirror", 2, 0, [b"26"])]
        answer = await client.reads(("hidden", 0, 0), ("mirror", 1, 0), ("begun", 0, 0))
        assert sorted((topic, bool(code)) for topic, _, code, _ in read(answer)) == [
            ("begun", True), ("hidden", True), ("mirror", False)
        ]  # fmt: skip

    play(story)


def test_a_leader_that_is_lost_is_looked_up_again() -> None:
    async def story(setup: Setup) -> None:
        client = await filled(setup)
        name = setup.cluster.brokers[1].address[0]
        setup.network.cut("node", name)
        asking = asyncio.ensure_future(client.reads(("orders", 0, 0)))
        await asyncio.sleep(0.2)
        for link in setup.network.of(name):
            setup.network.reset(link)
        setup.network.heal("node", name)
        assert read(await asking) == [("orders", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER, [])]
        await asyncio.sleep(5)
        assert read(await client.reads(("orders", 0, 0))) == ORDERS[:1]

    play(story)


def test_many_readers_of_one_log_share_polls_and_get_the_same() -> None:
    async def story(setup: Setup) -> None:
        await filled(setup)
        readers = [await setup.client() for _ in range(6)]
        for begins in (1, 2):
            waits = [asyncio.ensure_future(each.reads(("orders", 0, begins), max_wait_ms=30_000)) for each in readers]
            late = asyncio.ensure_future(
                (await setup.client()).reads(("orders", 0, begins), ("orders", 1, 1), max_wait_ms=500)
            )
            await asyncio.sleep(1)
            assert late.done()
            assert not any(each.done() for each in waits)
            await (await setup.client()).sends(("orders", 0, batch(77)))
            assert [read(await each) for each in waits] == [[("orders", 0, 0, [b"77"])]] * 6
        readers[0].wire.close()
        await asyncio.sleep(1)
        assert len(setup.fetch._fetching) < len(setup.gateway.clients) + 1  # pyright: ignore[reportPrivateUsage]

    play(story)


def test_a_broker_that_kept_silent_is_asked_again_after_a_while() -> None:
    async def story(setup: Setup) -> None:
        await filled(setup)
        setup.upstream.fell_silent(1)
        assert {setup.upstream.live_broker() for _ in range(50)} == {2}
        await asyncio.sleep(5.1)
        assert {setup.upstream.live_broker() for _ in range(200)} == {1, 2}

    play(story)
