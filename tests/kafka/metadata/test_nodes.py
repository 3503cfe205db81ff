"""Registration of nodes and the right to serve topics, on a real server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from metadata import (
    HandOverStatus,
    Holder,
    MetadataStore,
    Node,
    NodeHasLeft,
    NodeIdTaken,
    Ownership,
    ServeStatus,
    new_boot_id,
)
from tests.kafka.metadata.conftest import LEASE_MS
from tests.wait import wait_for_async

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.metadata.servers import RedisSide

    MakeNode = Callable[..., Node]


async def test_a_node_learns_of_all_live_nodes_in_the_answer_to_its_beat(store: MetadataStore, make_node: MakeNode):
    first = make_node(1, admin="127.0.0.1:18080", position=41, version="0.1.0")
    second = make_node(2, draining=True, policy_version=3)
    assert (await store.heartbeat(first)).live.nodes == {1: first}
    live = (await store.heartbeat(second)).live
    assert live.nodes == {1: first, 2: second}
    assert live.controller == 1


async def test_a_later_beat_replaces_what_the_node_said_of_itself(store: MetadataStore, make_node: MakeNode):
    node = make_node(1, position=1)
    await store.heartbeat(node)
    later = make_node(1, boot=node.boot, position=2, draining=True)
    assert (await store.heartbeat(later)).live.nodes == {1: later}


async def test_a_node_id_of_a_live_process_is_refused_by_name(store: MetadataStore, make_node: MakeNode):
    first, second = make_node(1, host="first.example", port=19092), make_node(1, host="second.example", port=19093)
    await store.heartbeat(first)
    with pytest.raises(NodeIdTaken, match=r"^node id 1 is taken by first\.example:19092$") as refusal:
        await store.heartbeat(second)
    assert 0 < refusal.value.remaining_ms <= LEASE_MS
    assert (await store.heartbeat(first)).live.nodes == {1: first}


async def test_a_node_that_stopped_beating_is_gone_after_its_lease(
    redis_side: RedisSide, cluster: str, make_node: MakeNode
):
    async with MetadataStore(redis_side.url, cluster, lease_ms=1000) as short:
        dead, successor = make_node(1), make_node(1)
        await short.heartbeat(dead)
        with pytest.raises(NodeIdTaken):
            await short.heartbeat(successor)

        async def registered() -> bool:
            try:
                return (await short.heartbeat(successor)).live.nodes == {1: successor}
            except NodeIdTaken:
                return False

        assert await wait_for_async(registered, "the successor of a dead process registers under its id")


async def test_the_successor_of_a_dead_process_takes_over_the_topics_it_asserts(
    redis_side: RedisSide, cluster: str, make_node: MakeNode
):
    async with MetadataStore(redis_side.url, cluster, lease_ms=200) as short:
        dead, rival = make_node(1), make_node(2)
        await short.heartbeat(dead, ["orders"])

        async def taken() -> bool:
            return not (await short.heartbeat(rival, ["orders"])).lost

        assert await wait_for_async(taken, "the topic of a dead node is free")
        live = (await short.heartbeat(rival, ["orders"])).live
        assert live.serving == {"orders": Holder(2, rival.boot)}


async def test_leaving_frees_the_id_and_the_topics_at_once(store: MetadataStore, make_node: MakeNode):
    first, second = make_node(1), make_node(2)
    await store.heartbeat(first, ["orders", "payments"])
    await store.heartbeat(second)
    assert (await store.serve("orders", 2, second.boot, last_node=1)).status is ServeStatus.HELD
    assert await store.leave(1, first.boot) == 2
    assert (await store.serve("orders", 2, second.boot, last_node=1)).status is ServeStatus.GRANTED
    live = (await store.heartbeat(make_node(1))).live
    assert live.serving == {"orders": Holder(2, second.boot)}
    assert await store.leave(1, first.boot) == 0


async def test_a_beat_that_arrives_after_its_node_left_does_not_revive_it(store: MetadataStore, make_node: MakeNode):
    gone, witness = make_node(1), make_node(2)
    await store.heartbeat(gone)
    await store.leave(1, gone.boot)
    with pytest.raises(NodeHasLeft):
        await store.heartbeat(gone, ["orders"])
    live = (await store.heartbeat(witness)).live
    assert (live.nodes, live.serving) == ({2: witness}, {})


async def test_leaving_with_an_old_boot_id_leaves_the_successor_alone(store: MetadataStore, make_node: MakeNode):
    successor = make_node(1)
    await store.heartbeat(successor, ["orders"])
    assert await store.leave(1, new_boot_id()) == 0
    live = (await store.heartbeat(make_node(2))).live
    assert live.serving == {"orders": Holder(1, successor.boot)}


async def test_one_of_two_nodes_serves_a_topic_and_the_other_learns_who(store: MetadataStore, make_node: MakeNode):
    first, second = make_node(1), make_node(2)
    await store.heartbeat(first)
    await store.heartbeat(second)
    granted = await store.serve("orders", 1, first.boot, last_node=None)
    assert (granted.status, granted.holder) == (ServeStatus.GRANTED, Holder(1, first.boot))
    held = await store.serve("orders", 2, second.boot, last_node=None)
    assert (held.status, held.holder) == (ServeStatus.HELD, Holder(1, first.boot))
    assert 0 < held.wait_ms <= LEASE_MS
    assert (await store.serve("orders", 1, first.boot, last_node=1)).status is ServeStatus.GRANTED


async def test_of_many_nodes_that_ask_at_once_exactly_one_serves(
    redis_side: RedisSide, cluster: str, make_node: MakeNode
):
    async with MetadataStore(redis_side.url, cluster, command_timeout_ms=10_000, connections=8) as store:
        nodes = [make_node(node_id) for node_id in range(20)]
        await asyncio.gather(*(store.heartbeat(node) for node in nodes))
        answers = await asyncio.gather(
            *(store.serve("orders", node.node_id, node.boot, last_node=None) for node in nodes)
        )
    granted = [answer.holder for answer in answers if answer.status is ServeStatus.GRANTED]
    assert len(granted) == 1
    assert {answer.holder for answer in answers} == set(granted)


async def test_a_node_without_a_live_beat_serves_nothing(store: MetadataStore, make_node: MakeNode):
    node = make_node(1)
    answer = await store.serve("orders", 1, node.boot, last_node=None)
    assert (answer.status, answer.holder, answer.wait_ms) == (ServeStatus.UNREGISTERED, None, 0)
    await store.heartbeat(node)
    impostor = await store.serve("orders", 1, new_boot_id(), last_node=None)
    assert impostor.status is ServeStatus.UNREGISTERED


async def test_after_redis_was_emptied_the_node_that_served_last_is_given_time_to_report(
    store: MetadataStore, redis_side: RedisSide, cluster: str, make_node: MakeNode
):
    silent, asker = make_node(1), make_node(2)
    await store.heartbeat(silent, ["orders"])
    redis_side.empty(cluster)
    await store.heartbeat(asker)
    answer = await store.serve("orders", 2, asker.boot, last_node=1)
    assert (answer.status, answer.holder) == (ServeStatus.SETTLING, None)
    assert 0 < answer.wait_ms <= LEASE_MS
    # Topics that nobody served, or the asker itself did, need no such wait.
    assert (await store.serve("new", 2, asker.boot, last_node=None)).status is ServeStatus.GRANTED
    assert (await store.serve("mine", 2, asker.boot, last_node=2)).status is ServeStatus.GRANTED
    # The node that served last reports: it still serves.
    assert (await store.heartbeat(silent, ["orders"])).live.serving["orders"] == Holder(1, silent.boot)
    assert (await store.serve("orders", 2, asker.boot, last_node=1)).status is ServeStatus.HELD


async def test_a_node_that_reported_without_the_topic_is_not_waited_for(store: MetadataStore, make_node: MakeNode):
    last, asker = make_node(1), make_node(2)
    await store.heartbeat(asker)
    assert (await store.serve("orders", 2, asker.boot, last_node=1)).status is ServeStatus.SETTLING
    await store.heartbeat(last)
    assert (await store.serve("orders", 2, asker.boot, last_node=1)).status is ServeStatus.GRANTED


async def test_settling_ends_a_lease_after_the_first_beat(redis_side: RedisSide, cluster: str, make_node: MakeNode):
    async with MetadataStore(redis_side.url, cluster, lease_ms=1000, command_timeout_ms=10_000) as short:
        node = make_node(2)
        await short.heartbeat(node)
        first = await short.serve("orders", 2, node.boot, last_node=1)
        assert first.status is ServeStatus.SETTLING

        async def granted() -> bool:
            await short.heartbeat(node)
            return (await short.serve("orders", 2, node.boot, last_node=1)).status is ServeStatus.GRANTED

        assert await wait_for_async(granted, "the dead node's topic is served again")


async def test_a_gap_in_the_beats_of_all_nodes_makes_redis_settle_again(
    store: MetadataStore, redis_side: RedisSide, cluster: str, make_node: MakeNode
):
    node = make_node(2)
    await store.heartbeat(node)
    with redis_side.client() as client:
        # As an older dump would leave it: everything in it, the last beat, too, is older than a lease.
        key = f"sidecar:{{{cluster}}}:pulse"
        client.hset(key, mapping={"last": "1000000000000", "since": "1000000000000"})
    await store.heartbeat(node)
    assert (await store.serve("orders", 2, node.boot, last_node=1)).status is ServeStatus.SETTLING


async def test_a_topic_is_handed_to_a_live_node_without_a_moment_for_others(store: MetadataStore, make_node: MakeNode):
    giver, taker, rival = make_node(1), make_node(2), make_node(3)
    for node in (giver, taker, rival):
        await store.heartbeat(node)
    await store.serve("orders", 1, giver.boot, last_node=None)
    answer = await store.hand_over("orders", 1, giver.boot, to=2)
    assert (answer.status, answer.holder) == (HandOverStatus.HANDED, Holder(2, taker.boot))
    assert (await store.serve("orders", 3, rival.boot, last_node=1)).holder == Holder(2, taker.boot)
    beat = await store.heartbeat(giver, ["orders"])
    assert beat.lost == {"orders": Holder(2, taker.boot)}
    assert beat.live.serving == beat.lost
    again = await store.hand_over("orders", 1, giver.boot, to=2)
    assert (again.status, again.holder) == (HandOverStatus.HANDED, Holder(2, taker.boot))


async def test_a_topic_is_handed_to_whoever_asks_first(store: MetadataStore, make_node: MakeNode):
    giver, taker = make_node(1), make_node(2)
    await store.heartbeat(giver, ["orders"])
    await store.heartbeat(taker)
    assert (await store.hand_over("orders", 1, giver.boot)).status is HandOverStatus.FREED
    assert (await store.hand_over("orders", 1, giver.boot)).status is HandOverStatus.FREED
    assert (await store.serve("orders", 2, taker.boot, last_node=1)).status is ServeStatus.GRANTED


async def test_only_its_holder_gives_a_topic_away_and_only_to_a_live_node(store: MetadataStore, make_node: MakeNode):
    holder, other = make_node(1), make_node(2)
    await store.heartbeat(holder, ["orders"])
    await store.heartbeat(other)
    stolen = await store.hand_over("orders", 2, other.boot)
    assert (stolen.status, stolen.holder) == (HandOverStatus.HELD, Holder(1, holder.boot))
    assert (await store.hand_over("orders", 1, holder.boot, to=9)).status is HandOverStatus.ABSENT
    assert (await store.heartbeat(other)).live.serving == {"orders": Holder(1, holder.boot)}


async def test_the_right_to_serve_is_kept_by_beating_and_by_asking_again(
    redis_side: RedisSide, cluster: str, make_node: MakeNode
):
    async with MetadataStore(redis_side.url, cluster, lease_ms=3000, command_timeout_ms=10_000) as short:
        node, rival = make_node(1), make_node(2)
        await short.heartbeat(node, ["beaten"])
        await short.heartbeat(rival)
        await short.serve("asked", 1, node.boot, last_node=None)
        topics = ("beaten", "asked")

        async def aged() -> bool:
            answers = [await short.serve(topic, 2, rival.boot, last_node=None) for topic in topics]
            return all(answer.wait_ms < 2500 for answer in answers)

        assert await wait_for_async(aged, "both leases run down")
        await short.heartbeat(node, ["beaten"])
        await short.serve("asked", 1, node.boot, last_node=1)
        for topic in topics:
            answer = await short.serve(topic, 2, rival.boot, last_node=1)
            assert answer.status is ServeStatus.HELD
            assert answer.wait_ms > 2600


async def test_a_topic_that_a_live_node_no_longer_asserts_is_free_after_its_lease(
    redis_side: RedisSide, cluster: str, make_node: MakeNode
):
    async with (
        MetadataStore(redis_side.url, cluster, lease_ms=200, command_timeout_ms=10_000) as short,
        MetadataStore(redis_side.url, cluster, lease_ms=60_000, command_timeout_ms=10_000) as long,
    ):
        node = make_node(1)
        await short.heartbeat(node, ["orders"])

        async def gone() -> bool:
            live = (await long.heartbeat(node)).live
            return not live.serving

        assert await wait_for_async(gone, "the topic is listed no more")


async def test_a_dead_nodes_topic_is_free_even_if_its_own_lease_were_longer(
    redis_side: RedisSide, cluster: str, make_node: MakeNode
):
    async with (
        MetadataStore(redis_side.url, cluster, lease_ms=1000, command_timeout_ms=10_000) as short,
        MetadataStore(redis_side.url, cluster, lease_ms=60_000, command_timeout_ms=10_000) as long,
    ):
        dead, rival = make_node(1), make_node(2)
        await long.heartbeat(rival)
        await short.heartbeat(dead)
        assert (await long.serve("orders", 1, dead.boot, last_node=None)).status is ServeStatus.GRANTED

        async def granted() -> bool:
            answer = await long.serve("orders", 2, rival.boot, last_node=None)
            return answer.status is ServeStatus.GRANTED

        assert await wait_for_async(granted, "the topic goes to a node that lives", timeout=10)


async def test_a_beat_carries_the_topics_again_only_after_they_changed(
    store: MetadataStore, redis_side: RedisSide, cluster: str, make_node: MakeNode
):
    node = make_node(1)
    first = (await store.heartbeat(node, ["orders"])).live.serving
    assert first == {"orders": Holder(1, node.boot)}
    same = (await store.heartbeat(node, ["orders"])).live.serving
    assert same is first
    async with MetadataStore(redis_side.url, cluster) as other:
        await other.hand_over("orders", 1, node.boot)
    assert (await store.heartbeat(node)).live.serving == {}


async def test_hundreds_of_topics_and_owners_fit_into_one_beat(
    store: MetadataStore, make_node: MakeNode, make_owner: Callable[..., Ownership]
):
    node = make_node(1)
    topics = [f"topic-{number}" for number in range(2_300)]
    owners = [make_owner(5, "pid:1", resource=topic) for topic in topics]
    beat = await store.heartbeat(node, topics, owners)
    assert beat.live.serving.keys() == set(topics)
    assert beat.restored == len(topics)
    assert (await store.heartbeat(node, topics, owners)).restored == 0
    assert await store.leave(1, node.boot) == len(topics)


async def test_a_lease_given_before_the_servers_clock_was_set_back_does_not_outlive_it(
    store: MetadataStore, redis_side: RedisSide, cluster: str, make_node: MakeNode
):
    dead, asker = make_node(1), make_node(2)
    await store.heartbeat(dead, ["orders"])
    an_hour = 3_600_000
    with redis_side.client() as client:
        prefix = f"sidecar:{{{cluster}}}:"
        expires, rest = client.hget(prefix + "nodes", "1").split(b" ", 1)
        client.hset(prefix + "nodes", "1", f"{int(expires) + an_hour} {rest.decode()}")
        client.zincrby(prefix + "leases", an_hour, "orders")
    live = (await store.heartbeat(asker)).live
    assert (live.nodes, live.serving) == ({2: asker}, {})


async def test_redis_says_in_front_of_which_kafka_the_nodes_are(store: MetadataStore):
    assert await store.kafka() is None
    for kafka in ("first", "second"):
        await store.note_kafka(kafka)
        assert await store.kafka() == kafka
