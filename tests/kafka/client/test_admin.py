"""AdminClient on a real node: each operation does what it says, and tells it as typed facts."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime
from http import HTTPStatus

import pytest

from sidecar.client import AdminClient, ExclusiveProducer, ShadowReader, SidecarError
from tests.conftest import StartNode, Unique
from tests.kafka.client.conftest import Topic
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.services import Services
from tests.wait import wait_for_async


async def test_a_node_tells_how_it_is(services: Services, node: NodeProcess) -> None:
    async with AdminClient(node.admin_url) as admin:
        status = await admin.status()
    assert (status.node_id, status.cluster, status.state, status.ready) == (1, node.cluster, "serving", True)
    assert status.advertise == node.bootstrap == f"{status.nodes[0].host}:{status.nodes[0].port}"
    assert services.kafka_bootstrap in [f"{each.host}:{each.port}" for each in status.brokers]
    assert all(check.ok for check in status.checks if check.required)
    assert status.started < datetime.now(UTC)


async def test_policies_owners_and_ids_are_looked_after(node: NodeProcess, rest: Rest, new_topic: Topic) -> None:
    topic = await asyncio.to_thread(new_topic, rest, 2)
    async with AdminClient(node.admin_url) as admin:
        before = await admin.topic(topic)
        assert (before.policy, before.generation, before.owner, before.partitions) == (None, 0, None, 2)
        assert topic not in {each.topic async for each in admin.topics(governed=True)}
        found = await admin.set_policy(topic, access_mode="exclusive", deduplication=True)
        assert found.policy is not None
        assert (found.policy.access_mode, found.policy.deduplication, found.policy.scope) == (
            "exclusive",
            True,
            "topic",
        )
        assert topic in {each.topic async for each in admin.topics(governed=True)}
        async with ExclusiveProducer(node.bootstrap, topic=topic, name="a/b") as producer:
            receipt = await producer.send(b"v")
            owned = await admin.topic(topic)
            assert owned.owner is not None
            assert (owned.owner.name, owned.generation) == ("a/b", 1)
            assert (await admin.producers(topic))[0].last_sequence_ids == {0: 0}
            state = await admin.producer(topic, "a/b")
            assert (state.last_sequence_id, state.offsets, state.in_use) == (-1, {0: receipt.offset}, True)
            with pytest.raises(SidecarError, match="a/b") as used:
                await admin.forget_producer(topic, "a/b")
            assert used.value.code is HTTPStatus.CONFLICT
            assert (await admin.fence(topic)).owner is None
            await asyncio.wait_for(producer.lost(), 5)

        async def forgotten() -> bool:
            try:
                await admin.forget_producer(topic, "a/b")
            except SidecarError as error:
                if error.code != HTTPStatus.CONFLICT:
                    raise
                return False
            return True

        await wait_for_async(forgotten, "the name to be free")
        with pytest.raises(SidecarError) as unknown:
            await admin.producer(topic, "a/b")
        assert unknown.value.code is HTTPStatus.NOT_FOUND
        async with ExclusiveProducer(node.bootstrap, topic=topic, name="next") as producer:
            assert (await admin.release(topic)).owner is None
            await asyncio.wait_for(producer.lost(), 5)
        with pytest.raises(SidecarError) as free:
            await admin.release(topic)
        assert free.value.code is HTTPStatus.CONFLICT
        await admin.delete_policy(topic)
        assert (await admin.topic(topic)).policy is None
        with pytest.raises(SidecarError, match="is an internal topic") as internal:
            await admin.set_policy("__consumer_offsets", access_mode="exclusive")
        assert internal.value.code is HTTPStatus.BAD_REQUEST
        await admin.delete_topic(topic)

        async def gone() -> bool:
            return topic not in {each.topic async for each in admin.topics()}

        await wait_for_async(gone, "the topic to be gone")


async def test_one_partition_is_fenced_and_released(node: NodeProcess, rest: Rest, new_topic: Topic) -> None:
    topic = await asyncio.to_thread(new_topic, rest, 2, access_mode="exclusive", scope="partition")
    async with (
        AdminClient(node.admin_url) as admin,
        ExclusiveProducer(node.bootstrap, topic=topic, name="a", partitions=[1]) as producer,
    ):
        owners = (await admin.topic(topic)).owners
        assert owners is not None
        assert {index: (owner.name, owner.generation) for index, owner in owners.items()} == {1: ("a", 1)}
        with pytest.raises(SidecarError) as which:
            await admin.fence(topic)
        assert which.value.code is HTTPStatus.BAD_REQUEST
        await admin.fence(topic, partition=1)
        await asyncio.wait_for(producer.lost(), 5)


async def test_a_prefix_has_a_policy(node: NodeProcess, unique: Unique) -> None:
    prefix = f"{unique('payments')}.*"
    async with AdminClient(node.admin_url) as admin:
        found = await admin.set_policy(prefix, scope="partition")
        assert found.policy is not None
        assert (found.topic, found.policy.scope, found.policy.access_mode) == (prefix, "partition", None)
        await admin.delete_policy(prefix)


async def test_pages_are_put_together(
    node: NodeProcess, rest: Rest, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = sorted(f"{unique('many')}.*" for _ in range(5))
    async with AdminClient(node.admin_url) as admin:
        for name in names:
            await admin.set_policy(name, access_mode="shared")
        monkeypatch.setattr("sidecar.client.admin._PAGE", "2")
        found = [each.topic async for each in admin.topics(governed=True)]
        assert found == sorted(set(found))
        assert set(names) <= set(found)
        for name in names:
            await admin.delete_policy(name)


async def test_shadows_and_their_cursors_are_looked_after(
    node: NodeProcess, rest: Rest, new_topic: Topic, unique: Unique
) -> None:
    source, name, group = await asyncio.to_thread(new_topic, rest, 1, deduplication=True), unique("audit"), unique("g/")
    async with ExclusiveProducer(node.bootstrap, topic=source, name="a") as producer:
        first, _, last = [(await producer.send(b"v")).offset for _ in range(3)]
    async with AdminClient(node.admin_url) as admin:
        shadow = await admin.create_shadow(source, name, allow=["User:*"])
        assert (shadow.name, shadow.source, shadow.allow, shadow.state) == (name, source, ("User:*",), "open")
        with pytest.raises(SidecarError) as taken:
            await admin.create_shadow(source, name)
        assert taken.value.code is HTTPStatus.CONFLICT
        assert [each.name for each in await admin.shadows(source)] == [name]
        assert name in {each.name for each in await admin.shadows()}
        assert (await admin.change_shadow(name, auto_reset_backlog_entries=50)).auto_reset_backlog_entries == 50
        async with ShadowReader(node.bootstrap, shadow=name, group=group) as reader:
            await anext(reader)
            await reader.commit()

        async def left() -> bool:
            return [each.members async for each in admin.cursors(name)] == [0]

        await wait_for_async(left, "the group to be empty", 20)
        (cursor,) = [each async for each in admin.cursors(name)]
        assert (cursor.group, cursor.partitions[0].offset, cursor.lag) == (group, first + 1, 2)
        beyond = datetime(2100, 1, 1, tzinfo=UTC)
        moved = [await admin.reset_cursor(name, group, "latest"), await admin.reset_cursor(name, group, "earliest")]
        moved += [await admin.reset_cursor(name, group, last), await admin.reset_cursor(name, group, beyond)]
        assert [each.partitions[0].offset for each in moved] == [last + 1, 0, last, last + 1]
        assert (await admin.reset_cursor(name, group, last, partitions=[0])).lag == 1
        with pytest.raises(SidecarError):
            await admin.reset_cursor(name, group, 1, partitions=[7])
        stats = (await admin.shadow(name)).stats
        assert stats is not None
        assert (await admin.topic(source)).shadow_stats is not None
        with pytest.raises(SidecarError, match=name) as needed:
            await admin.delete_topic(source)
        assert needed.value.code is HTTPStatus.CONFLICT
        await admin.delete_shadow(source, name)
        assert await admin.shadows(source) == ()


async def test_events_tell_what_happened_and_what_happens(node: NodeProcess, rest: Rest, new_topic: Topic) -> None:
    topic = await asyncio.to_thread(new_topic, rest, access_mode="exclusive")
    async with AdminClient(node.admin_url) as admin:
        async with ExclusiveProducer(node.bootstrap, topic=topic, name="first"):
            pass
        async with aclosing(admin.events(topic, after=-1)) as events:
            seen = [await anext(events)]
            while seen[-1].kind != "released":
                seen.append(await anext(events))
            assert [each.kind for each in seen if each.kind != "policy"] == ["claimed", "released"]
            assert {each.topic for each in seen} == {topic}
            async with ExclusiveProducer(node.bootstrap, topic=topic, name="second"):
                following = await anext(events)
                assert (following.kind, following.name, following.generation) == ("claimed", "second", 2)
                assert following.position > seen[-1].position
        async with aclosing(admin.events(topic, after=seen[-1].position)) as again:
            assert (await anext(again)).id == following.id


async def test_events_outlive_their_node(
    services: Services, node_process: StartNode, new_topic: Topic, unique: Unique
) -> None:
    node = await asyncio.to_thread(node_process)
    topic = await asyncio.to_thread(new_topic, Rest(node.admin_url), access_mode="exclusive")
    async with AdminClient(node.admin_url) as admin, aclosing(admin.events(topic, after=-1)) as events:
        assert (await anext(events)).kind == "policy"
        await asyncio.to_thread(node.kill)
        following = asyncio.ensure_future(anext(events))
        await asyncio.to_thread(node.start)
        async with ExclusiveProducer(node.bootstrap, topic=topic, name="a"):
            assert (await asyncio.wait_for(following, 20)).kind == "claimed"


async def test_a_node_with_a_token_wants_it(node_process: StartNode) -> None:
    node = await asyncio.to_thread(node_process, ADMIN_TOKEN="s3cret")
    async with AdminClient(node.admin_url, "wrong") as other:
        assert (await other.status()).ready
        with pytest.raises(SidecarError, match="SIDECAR_ADMIN_TOKEN") as refused:
            await other.set_policy("orders", access_mode="exclusive")
        assert refused.value.code is HTTPStatus.UNAUTHORIZED
    async with AdminClient(node.admin_url, "s3cret") as admin:
        assert (await admin.set_policy("orders", access_mode="exclusive")).policy is not None
